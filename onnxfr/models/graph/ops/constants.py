"""Constants, casts, shapes as data, and operators that change nothing."""

from __future__ import annotations

from dataclasses import replace

import torch
from onnx import TensorProto
from torch import Tensor

from onnxfr.models.graph.builder import modest, refuse_giant
from onnxfr.models.graph.node import Node
from onnxfr.models.graph.ops.layout import Numbers, as_list
from onnxfr.models.graph.ops.rounding import integer_through
from onnxfr.models.graph.rules import operator
from onnxfr.models.graph.tensors import (
    COMPUTE_TYPES,
    ELEM_TYPES,
    INTEGER_RANGES,
    TORCH_TYPES,
    type_name,
)
from onnxfr.models.graph.values import Value

_QUANTISED = (TensorProto.INT4, TensorProto.UINT4, TensorProto.INT8, TensorProto.UINT8)


@operator("Identity")
def identity(node: Node) -> Value:
    """Hand the value on."""
    return node[0]


@operator("Dropout", since=7)
def dropout(node: Node) -> list[Value]:
    """Hand the value on: the network never trains."""
    if len(node.wanted) > 1 and node.wanted[1]:
        return [node[0], node.emit(all_kept, node[0])]
    return [node[0]]


def all_kept(x: Tensor) -> Tensor:
    """Return a mask that keeps every entry."""
    return torch.ones_like(x, dtype=torch.bool)


@operator("Constant")
def constant(node: Node) -> Value:
    """A tensor or number written in the node."""
    tensor = node.tensor("value")
    if tensor is not None:
        return Value.constant_of(tensor, node.tensor_type("value"))
    if node.has("value_float"):
        return Value.constant_of(torch.tensor(node.real("value_float", 0.0)))
    if node.has("value_floats"):
        return Value.constant_of(torch.tensor(node.reals("value_floats"), dtype=torch.float32))
    if node.has("value_int"):
        return Value.constant_of(torch.tensor(node.integer("value_int", 0)))
    if node.has("value_ints"):
        return Value.constant_of(torch.tensor(node.integers("value_ints"), dtype=torch.int64))
    raise node.unsupported("a constant that is neither a dense tensor nor numbers")


@operator("ConstantOfShape", since=9)
def constant_of_shape(node: Node) -> Value:
    """One number repeated over a shape."""
    fill = node.tensor("value")
    fill = torch.zeros(1) if fill is None else fill
    return node.emit(filled, Value.constant_of(fill), node.numbers(0))


def filled(fill: Tensor, shape: Numbers) -> Tensor:
    """Repeat one number over a shape."""
    return fill.reshape(()).expand(as_list(shape)).clone()


@operator("EyeLike", since=9)
def eye_like(node: Node) -> Value:
    """Identity matrix of the input's shape."""
    offset, wanted = node.integer("k", 0), node.integer("dtype", TensorProto.FLOAT)
    if node.has("dtype"):
        return node.emit(eye, node[0], node.builder.anchor, offset, _dtype(node, wanted))
    return node.emit(eye, node[0], node[0], offset, None)


def eye(x: Tensor, like: Tensor, offset: int, dtype: torch.dtype | None) -> Tensor:
    """Return ones on one diagonal of a matrix shaped like ``x``."""
    ones = torch.ones(x.shape, dtype=dtype or like.dtype, device=x.device)
    return torch.tril(torch.triu(ones, offset), offset)


@operator("Range", since=11)
def number_range(node: Node) -> Value:
    """Equally spaced numbers."""
    return node.emit(spaced, node[0], node[1], node[2])


def spaced(start: Tensor, limit: Tensor, step: Tensor) -> Tensor:
    """Return numbers from ``start`` up to, not including, ``limit``."""
    low, high, stride = (t.reshape(()).item() for t in (start, limit, step))
    refuse_giant(int((high - low) / stride))
    return torch.arange(low, high, stride, dtype=start.dtype, device=start.device)


@operator("Shape")
def shape(node: Node) -> Value:
    """The sizes of a value, or of a range of its axes, as data."""
    end = node.integer("end", 0) if node.has("end") else None
    return node.emit(sizes_of, node[0], node.integer("start", 0), end)


@modest
def sizes_of(x: Tensor, start: int, end: int | None) -> Tensor:
    """Return the sizes of axes ``start`` to ``end`` as integers."""
    device = None if x.is_meta else x.device
    return torch.tensor(list(x.shape)[start:end], dtype=torch.int64, device=device)


@operator("Size")
def size(node: Node) -> Value:
    """The number of entries as data."""
    return node.emit(count_of, node[0])


@modest
def count_of(x: Tensor) -> Tensor:
    """Return the number of entries."""
    return torch.tensor(x.numel(), device=None if x.is_meta else x.device)


@operator("Cast", since=6)
def cast(node: Node) -> Value:
    """Change the type; to a narrow integer the gradient passes straight through."""
    return _converted(node, node.integer("to", TensorProto.UNDEFINED))


@operator("CastLike", since=15)
def cast_like(node: Node) -> Value:
    """Change the type to that of another value."""
    target = node[1]
    if target.elem_type:
        return _converted(node, target.elem_type)
    if target.dtype not in ELEM_TYPES:
        raise node.unsupported("the type to cast to is not known before the network runs")
    return _converted(node, ELEM_TYPES[target.dtype])


def _dtype(node: Node, elem_type: int) -> torch.dtype | None:
    """Return the torch type, None for the network's own float type."""
    if elem_type in COMPUTE_TYPES:
        return None
    if elem_type not in TORCH_TYPES:
        raise node.unsupported(f"cannot cast to {type_name(elem_type)}")
    return TORCH_TYPES[elem_type]


def _converted(node: Node, elem_type: int) -> Value:
    x, dtype = node[0], _dtype(node, elem_type)
    if dtype is None and x.carried:
        result = replace(x)
    elif dtype is None:
        result = x if x.dtype is torch.float32 else node.emit(as_float, x, node.builder.anchor)
    elif elem_type in _QUANTISED and x.constant is None and x.dtype is torch.float32:
        result = node.emit_like_input(integer_through, x, *INTEGER_RANGES[elem_type])
    elif x.dtype is dtype:
        result = x
    else:
        result = node.emit(torch.Tensor.to, x, dtype)
    if result is x:
        return x
    result.elem_type = elem_type
    return result


@modest
def as_float(x: Tensor, like: Tensor) -> Tensor:
    """Convert to the network's own float type."""
    return x.to(like.dtype)
