"""TensorFlow operators on stored numbers only: computed once, while the graph is read.

Frozen graphs compute shapes and the parts of a normalisation at run time. Sizes are checked before
memory is asked for: a result may be little larger than what it is made of.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from onnxfr.errors import UnreadableModel, UnsafeFile, UnsupportedModel
from onnxfr.exporters._tf_values import BATCH, Array, Node, Operands, stored

Folder = Callable[[Node, Operands], Array]
FOLDERS: dict[str, Folder] = {}
_ROOM = 1 << 20


def _folds(*names: str) -> Callable[[Folder], Folder]:
    def decorate(function: Folder) -> Folder:
        FOLDERS.update(dict.fromkeys(names, function))
        return function

    return decorate


def _check(node: Node, shape: Sequence[int], parts: Sequence[Array]) -> None:
    room = max(_ROOM, 2 * max((part.size for part in parts), default=0))
    if math.prod(shape) > room:
        raise UnsafeFile(f"{node.op} {node.name!r} blows stored numbers up to {tuple(shape)}")


_UNARY: dict[str, Callable[[Any], Any]] = {
    "Neg": np.negative,
    "Sqrt": np.sqrt,
    "Rsqrt": lambda x: 1 / np.sqrt(x),
    "Square": np.square,
    "Exp": np.exp,
    "Abs": np.abs,
    "Floor": np.floor,
    "Relu": lambda x: np.maximum(x, 0),
    "LogicalNot": np.logical_not,
}
_BINARY: dict[str, Callable[[Any, Any], Any]] = {
    "Add": np.add,
    "AddV2": np.add,
    "BiasAdd": np.add,
    "Sub": np.subtract,
    "Mul": np.multiply,
    "RealDiv": np.divide,
    "FloorDiv": np.floor_divide,
    "Maximum": np.maximum,
    "Minimum": np.minimum,
    "Pow": np.power,
}


@_folds(*_UNARY)
def _unary(node: Node, operands: Operands) -> Array:
    x = stored(node, operands, 0)
    return np.asarray(_UNARY[node.op](x)).astype(x.dtype)


@_folds(*_BINARY)
def _binary(node: Node, operands: Operands) -> Array:
    left, right = stored(node, operands, 0), stored(node, operands, 1)
    _check(node, np.broadcast_shapes(left.shape, right.shape), (left, right))
    return np.asarray(_BINARY[node.op](left, right)).astype(left.dtype)


@_folds("Identity", "StopGradient", "Snapshot", "CheckNumerics", "ReadVariableOp", "Enter")
def _same(node: Node, operands: Operands) -> Array:
    return stored(node, operands, 0)


@_folds("Cast")
def _cast(node: Node, operands: Operands) -> Array:
    x = stored(node, operands, 0)
    kind = node.attributes.get("DstT")
    if kind == "bool":
        return x.astype(bool)
    return x.astype(np.float32 if kind in ("float16", "float32", "float64") else np.int64)


@_folds("Pack")
def _pack(node: Node, operands: Operands) -> Array:
    parts = [stored(node, operands, k) for k in range(len(operands))]
    return np.stack(parts, axis=int(node.attributes.get("axis") or 0))


@_folds("ConcatV2")
def _concat(node: Node, operands: Operands) -> Array:
    parts = [np.atleast_1d(stored(node, operands, k)) for k in range(len(operands) - 1)]
    return np.concatenate(parts, axis=int(stored(node, operands, len(operands) - 1)))


@_folds("Reshape")
def _reshape(node: Node, operands: Operands) -> Array:
    return stored(node, operands, 0).reshape(_whole(stored(node, operands, 1)))


@_folds("Transpose")
def _transpose(node: Node, operands: Operands) -> Array:
    return stored(node, operands, 0).transpose(_whole(stored(node, operands, 1)))


@_folds("ExpandDims")
def _expand(node: Node, operands: Operands) -> Array:
    return np.expand_dims(stored(node, operands, 0), _whole(stored(node, operands, 1)))


@_folds("Squeeze")
def _squeeze(node: Node, operands: Operands) -> Array:
    axes = node.attributes.get("squeeze_dims")
    return np.squeeze(stored(node, operands, 0), tuple(axes) if axes else None)


@_folds("Prod")
def _prod(node: Node, operands: Operands) -> Array:
    x = stored(node, operands, 0)
    axes = _whole(stored(node, operands, 1))
    factors = x if x.dtype.kind == "f" else x.astype(object)  # the batch's mark may overflow
    return _narrow(node, np.asarray(factors.prod(axis=axes, keepdims=node.flag("keep_dims"))))


@_folds("GatherV2", "Gather")
def _gather(node: Node, operands: Operands) -> Array:
    x, places = stored(node, operands, 0), stored(node, operands, 1)
    axis = int(stored(node, operands, 2)) if len(operands) > 2 else 0
    _check(node, (*places.shape, x.size // max(1, x.shape[axis])), (x, places))
    return np.take(x, places.astype(np.int64), axis=axis)


@_folds("Fill")
def _fill(node: Node, operands: Operands) -> Array:
    shape = _whole(stored(node, operands, 0))
    value = stored(node, operands, 1)
    if min(shape, default=0) < 0:
        raise UnsupportedModel(f"Fill {node.name!r} makes an array of shape {shape}")
    _check(node, shape, ())
    return np.full(shape, value.reshape(()))


@_folds("StridedSlice")
def _strided(node: Node, operands: Operands) -> Array:
    x = stored(node, operands, 0)
    return np.asarray(x[slices(node, operands)])


def slices(node: Node, operands: Operands) -> tuple[Any, ...]:
    """Return NumPy's notation of a strided slice."""
    begin, end, step = (_whole(stored(node, operands, k)) for k in (1, 2, 3))
    masks = {
        key: int(node.attributes.get(f"{key}_mask") or 0)
        for key in ("begin", "end", "ellipsis", "new_axis", "shrink_axis")
    }
    if not len(begin) == len(end) == len(step) or 0 in step:
        raise UnreadableModel(f"StridedSlice {node.name!r} has limits that do not fit")
    found: list[Any] = []
    for k, (first, last, stride) in enumerate(zip(begin, end, step, strict=True)):
        bit = 1 << k
        if masks["ellipsis"] & bit:
            found.append(Ellipsis)
        elif masks["new_axis"] & bit:
            found.append(None)
        elif masks["shrink_axis"] & bit:
            found.append(first)
        else:
            open_first, open_last = masks["begin"] & bit, masks["end"] & bit
            found.append(slice(None if open_first else first, None if open_last else last, stride))
    return tuple(found)


def _whole(values: Array) -> tuple[int, ...]:
    return tuple(int(value) for value in values.reshape(-1))


def _narrow(node: Node, values: Array) -> Array:
    if values.dtype != object:
        return values
    if any(abs(int(v)) > abs(BATCH) for v in values.reshape(-1)):
        raise UnsupportedModel(f"{node.op} {node.name!r} multiplies by the number of pictures")
    return values.astype(np.int64)
