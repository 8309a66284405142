"""Facial landmarks of the attacked pictures, found once per picture and kept on disk."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from functools import cache
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from onnxfr.alignment.dense import ARCFACE_BOX, COUNT, DenseLandmarks
from onnxfr.alignment.detector import Box
from onnxfr.alignment.geometry import transform_points
from onnxfr.alignment.templates import TEMPLATES, warp_between
from onnxfr.errors import SpecError
from onnxfr.runs.context import Context
from onnxfr.types import Images

_CONSENT = "accept-licence"


def find_landmarks(
    context: Context, images: Images, source: str, template: str | None = None
) -> NDArray[np.float32]:
    """Return the ``(N, 106, 2)`` landmarks of aligned pictures, in their own pixels.

    Args:
        context: its embedding cache keeps the points.
        images: aligned crops, all of one size.
        source: the path of a 2d106det ONNX file, or ``accept-licence`` to fetch it under its
            licence (non-commercial research only).
        template: what the crops were cut to; without one, they are ArcFace's crops of 112 pixels
            brought to this size.
    """
    check_landmarks(source)
    network, sha256 = _network(source)
    space = context.embeddings.space(sha256, "landmarks")
    pixels = np.round(images.transpose(0, 2, 3, 1) * 255).astype(np.uint8)
    box = face_box(images.shape[2:], template)
    place = "" if box == face_box(images.shape[2:]) else str(box)
    keys = [
        hashlib.sha256(bytes(f"{each.shape}{place}", "ascii") + each.tobytes()).hexdigest()
        for each in pixels
    ]
    known, found = space.find(keys)
    points = np.zeros((len(images), 2 * COUNT), dtype=np.float32)
    if known is not None:
        points[found] = known[found]
    missing = np.flatnonzero(~found)
    for k in missing:
        points[k] = network.predict(np.ascontiguousarray(pixels[k]), box).reshape(-1)
    if missing.size:
        space.put([keys[k] for k in missing], points[missing])
    return points.reshape(len(images), COUNT, 2)


def face_box(size: Sequence[int], template: str | None = None) -> Box:
    """Return where the face is in crops of a size: ArcFace's mean box, moved into their frame."""
    height, width = size
    x, y, wide, tall = ARCFACE_BOX
    arcface = TEMPLATES.get("arcface")
    # Without a template crops are matched in height, and the face stays in the middle.
    zoom, middle = height / 112, (width / 2, height / 112 * (y + tall / 2))
    if template is not None:
        matrix = warp_between(arcface, (112, 112), TEMPLATES.get(template), (height, width))
        zoom = float(np.sqrt(np.linalg.det(matrix[:, :2])))
        moved = transform_points(matrix, np.array([[x + wide / 2, y + tall / 2]]))[0]
        middle = float(moved[0]), float(moved[1])
    side = zoom * max(wide, tall)
    left, top = (round(at - side / 2, 6) for at in middle)
    return left, top, side, side


def check_landmarks(source: str) -> None:
    """Raise unless it is said where landmarks come from; plans ask before hours of work."""
    if not source:
        raise SpecError(
            "this attack needs facial landmarks; set landmarks to the path of a 2d106det ONNX "
            f"file, or to {_CONSENT!r} to fetch it (non-commercial research only)"
        )
    if source != _CONSENT and not Path(source).is_file():
        raise SpecError(
            f"landmarks: there is no file {source}; give the path of a 2d106det ONNX file, or "
            f"{_CONSENT!r}"
        )


@cache
def _network(source: str) -> tuple[DenseLandmarks, str]:
    network = (
        DenseLandmarks(accept_licence=True) if source == _CONSENT else DenseLandmarks(Path(source))
    )
    return network, hashlib.sha256(network.path.read_bytes()).hexdigest()
