"""Where the faces of ready-made crops sit: a folder may be aligned, but to another template.

A network that expects the face in the middle loses accuracy and robustness on crops that hold it
eight columns beside it (the 112x96 template in a frame of 112, say), and nothing in the files tells
so. The mean of many faces does: it is symmetric, and its axis belongs in the middle. A few dozen
faces show the axis within a column; how high the faces sit, symmetry cannot tell.
"""

from __future__ import annotations

import cv2
import numpy as np
from numpy.typing import NDArray

from onnxfr.data.pairs import PairSet, Problem
from onnxfr.data.stream import read_all
from onnxfr.types import Pixels

_FACES = 200
_FEWEST = 20
_SIDE = 112
"""Faces are averaged at this size, and the axis is searched in half columns of it."""
_ROWS = slice(16, 96)
_REACH, _HALF = 44, 60
_SYMMETRIC = 0.9
_TOLERATED = 0.03


def off_middle(pictures: list[Pixels]) -> float | None:
    """Return how far right of the middle the mean face sits, as a share of the width.

    None where they are too few or the mean is not symmetric enough to be one of frontal faces.
    """
    if len(pictures) < _FEWEST:
        return None
    small = [cv2.resize(each, (_SIDE, _SIDE), interpolation=cv2.INTER_AREA) for each in pictures]
    mean = np.mean([each.astype(np.float32).mean(2) for each in small], axis=0)
    wide = np.asarray(cv2.resize(mean, (2 * _SIDE, _SIDE))[_ROWS], dtype=np.float32)
    axes = range(_SIDE - _REACH, _SIDE + _REACH + 1)
    alike = [_symmetry(wide[:, axis - _HALF : axis + _HALF]) for axis in axes]
    best = int(np.argmax(alike))
    return (axes[best] - _SIDE) / (2 * _SIDE) if alike[best] >= _SYMMETRIC else None


def placement_warning(pairs: PairSet) -> str | None:
    """Return what is wrong with the place of the faces in a data set's crops, if anything is."""
    if pairs.aligned is not True or len(pairs.images) < _FEWEST:
        return None
    places = np.linspace(0, len(pairs.images) - 1, min(_FACES, len(pairs.images))).astype(np.intp)
    read = (item for _, item in read_all(pairs, places))
    return misplaced(pairs.name, [item for item in read if not isinstance(item, Problem)])


def misplaced(name: str, crops: list[Pixels]) -> str | None:
    """Return what is wrong with the place of the faces in crops, if anything is."""
    off = off_middle(crops[:: 1 + len(crops) // _FACES])
    if off is None or abs(off) <= _TOLERATED:
        return None
    width = crops[0].shape[1]
    return (
        f"The faces of {name} sit about {abs(off) * width:.0f} of {width} columns "
        f"{'left' if off < 0 else 'right'} of the middle: these crops follow another template than "
        "most networks expect, so accuracy and robustness may come out too low. Have the faces "
        "aligned anew (--align yes, or align = yes for an evaluator), or cut new crops with "
        "onnxfr align."
    )


def _symmetry(window: NDArray[np.float32]) -> float:
    """Return the correlation of a window's left half with its mirrored right one."""
    left, right = window[:, :_HALF], window[:, : _HALF - 1 : -1]
    left, right = left - left.mean(), right - right.mean()
    size = float(np.linalg.norm(left) * np.linalg.norm(right))
    return float((left * right).sum()) / max(size, 1e-6)
