"""Attention maps laid over the face as small JPEGs, for the records of a few example pairs."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import cv2
import numpy as np
from numpy.typing import NDArray

from onnxfr.errors import NotDifferentiable, UnsupportedModel
from onnxfr.evaluators.pictures import thumbnail, to_pixels
from onnxfr.models.attention import attention
from onnxfr.models.geometry import fit_array
from onnxfr.models.wrapper import FRModel

_STRENGTH = 0.55

Picture = NDArray[np.float32]
"""``(3, H, W)`` in [0, 1]."""


def attention_columns(
    model: FRModel, clean: Picture, attacked: Picture, reference: Picture
) -> dict[str, Any]:
    """Return the maps of both pictures as columns of a record, or why there are none."""
    try:
        pictures = attention_pictures(model, [clean, attacked], reference)
    except (NotDifferentiable, UnsupportedModel) as reason:
        return {"attention_note": str(reason)}
    return {"clean_attention": pictures[0], "adversarial_attention": pictures[1]}


def attention_pictures(
    model: FRModel, pictures: Sequence[Picture], reference: Picture
) -> list[bytes]:
    """Return what a model looks at in each picture when it compares it with the reference."""
    size = model.card.input_size
    images = np.concatenate([fit_array(picture[None], size) for picture in pictures])
    embedding = model.embed(np.ascontiguousarray(reference[None]))
    found = attention(model, images, np.repeat(embedding, len(images), axis=0))
    return [overlay(image, heat) for image, heat in zip(images, found.maps, strict=True)]


def overlay(image: Picture, heat: NDArray[np.float32]) -> bytes:
    """Return a greyed face with the map in colour over it; where nothing counts it stays grey."""
    grey = cv2.cvtColor(cv2.cvtColor(to_pixels(image), cv2.COLOR_RGB2GRAY), cv2.COLOR_GRAY2RGB)
    level = np.round(255 * heat).astype(np.uint8)
    colour = cv2.cvtColor(cv2.applyColorMap(level, cv2.COLORMAP_INFERNO), cv2.COLOR_BGR2RGB)
    weight = (_STRENGTH * np.sqrt(heat))[:, :, None]
    mixed = np.clip(np.round(grey * (1 - weight) + colour * weight), 0, 255).astype(np.uint8)
    return thumbnail(mixed)
