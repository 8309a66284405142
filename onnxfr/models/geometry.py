"""From one aligned crop to another model's input size, differentiably, in one place.

All ArcFace-family crops share a template whose scale hangs on the height: 112x96 is 112x112 with
eight columns cut on each side, 160x160 is 112x112 enlarged. So heights are matched by bilinear
resizing and widths by a centred cut or zero border. Both engines use this function, so that an
adversarial 112x112 picture scored on a 160x160 model means the same thing everywhere.
"""

from __future__ import annotations

import numpy as np
import torch
from torch.nn import functional

from onnxfr.types import Images


def fit(images: torch.Tensor, size: tuple[int, int]) -> torch.Tensor:
    """Return ``(N, 3, *size)``; the identity where the size is right already."""
    height, width = size
    if tuple(images.shape[-2:]) == (height, width):
        return images
    scaled_width = max(round(images.shape[-1] * height / images.shape[-2]), 1)
    if tuple(images.shape[-2:]) != (height, scaled_width):
        images = functional.interpolate(
            images, size=(height, scaled_width), mode="bilinear", align_corners=False
        )
    spare = width - scaled_width
    left = spare // 2
    # Negative padding cuts columns.
    return functional.pad(images, (left, spare - left)) if spare else images


def fit_array(images: Images, size: tuple[int, int]) -> Images:
    """``fit`` for NumPy batches."""
    if images.shape[-2:] == size:
        return images
    with torch.no_grad():
        fitted: Images = fit(torch.from_numpy(np.ascontiguousarray(images)), size).numpy()
    return np.ascontiguousarray(fitted)
