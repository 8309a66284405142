"""What every metric demands of its arrays, said once."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from onnxfr.errors import MetricError

Floats = NDArray[np.float64]
Bools = NDArray[np.bool_]
Ints = NDArray[np.int64]


def vector(values: ArrayLike, name: str) -> NDArray[Any]:
    """Return a one-dimensional array, or say what came instead."""
    array = np.asarray(values)
    if array.ndim != 1:
        raise MetricError(f"{name} must have one dimension, got shape {array.shape}")
    return array


def floats(values: ArrayLike, name: str) -> Floats:
    """Return a vector of float64."""
    array = vector(values, name)
    if array.size and array.dtype.kind not in "fiub":
        raise MetricError(f"{name} must hold numbers, got {array.dtype}")
    return array.astype(np.float64)


def flags(values: ArrayLike, name: str, size: int | None = None) -> Bools:
    """Return a vector of booleans; zeros and ones of any type are accepted."""
    array = vector(values, name)
    if array.dtype != np.bool_ and not np.isin(array, (0, 1)).all():
        raise MetricError(f"{name} must be true or false (0 or 1) per element")
    if size is not None and array.size != size:
        raise MetricError(f"{name} must have {size} elements like the others, got {array.size}")
    return array.astype(np.bool_)


def pair_scores(
    scores: ArrayLike, same: ArrayLike, rejected: ArrayLike | None = None
) -> tuple[Floats, Bools, Bools]:
    """Return scores, labels and rejections; a rejected pair scores -inf and is never accepted."""
    values = floats(scores, "scores")
    genuine = flags(same, "same", values.size)
    if rejected is None:
        refused = np.zeros(values.size, dtype=np.bool_)
    else:
        refused = flags(rejected, "rejected", values.size)
    if values.size == 0:
        raise MetricError("no pairs: at least one scored pair is needed")
    bad = int((~np.isfinite(values) & ~refused).sum())
    if bad:
        raise MetricError(
            f"{bad} of {values.size} scores are NaN or infinite; mark pairs without a score "
            "in `rejected` so that they count as failures"
        )
    values[refused] = -np.inf
    return values, genuine, refused


def both_classes(same: Bools, what: str) -> None:
    """Raise unless there are genuine and impostor pairs."""
    genuine = int(same.sum())
    if genuine in (0, same.size):
        raise MetricError(
            f"{what} needs genuine and impostor pairs; got {genuine} genuine "
            f"and {same.size - genuine} impostor"
        )


def fraction(value: float, name: str) -> float:
    """Return a number strictly between 0 and 1."""
    if not 0.0 < value < 1.0:
        raise MetricError(f"{name} must lie strictly between 0 and 1, got {value}")
    return float(value)
