"""Facial landmarks of the attacked pictures, found once per picture and kept on disk."""

from __future__ import annotations

import hashlib
from functools import cache
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from onnxfr.alignment.dense import COUNT, DenseLandmarks
from onnxfr.errors import SpecError
from onnxfr.runs.context import Context
from onnxfr.types import Images

_CONSENT = "accept-licence"


def find_landmarks(context: Context, images: Images, source: str) -> NDArray[np.float32]:
    """Return the ``(N, 106, 2)`` landmarks of aligned pictures, in their own pixels.

    Args:
        context: its embedding cache keeps the points.
        images: aligned crops, of any size with the scale of an ArcFace crop.
        source: the path of a 2d106det ONNX file, or ``accept-licence`` to fetch it under its
            licence (non-commercial research only).
    """
    check_landmarks(source)
    network, sha256 = _network(source)
    space = context.embeddings.space(sha256, "landmarks")
    pixels = np.round(images.transpose(0, 2, 3, 1) * 255).astype(np.uint8)
    keys = [
        hashlib.sha256(bytes(str(each.shape), "ascii") + each.tobytes()).hexdigest()
        for each in pixels
    ]
    known, found = space.find(keys)
    points = np.zeros((len(images), 2 * COUNT), dtype=np.float32)
    if known is not None:
        points[found] = known[found]
    missing = np.flatnonzero(~found)
    height, width = images.shape[2:]
    # Narrower crops are ArcFace's with columns cut on both sides: the face stays in the middle.
    box = (width / 2 - 55 * height / 112, 10 * height / 112, 110 * height / 112, 110 * height / 112)
    for k in missing:
        points[k] = network.predict(np.ascontiguousarray(pixels[k]), box).reshape(-1)
    if missing.size:
        space.put([keys[k] for k in missing], points[missing])
    return points.reshape(len(images), COUNT, 2)


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
