"""ncnn's weight file: what each kind of layer stores, and in which of ncnn's encodings."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from onnxfr.errors import UnreadableModel, UnsupportedModel
from onnxfr.exporters._binary import BinaryReader

Stored = NDArray[Any]
SAME_UPPER = -233
_FP16, _FP32, _INT8 = 0x01306B47, 0x0002C056, 0x000D4B38


@dataclass(frozen=True)
class Layer:
    """One line of the graph."""

    kind: str
    name: str
    inputs: tuple[str, ...]
    outputs: tuple[str, ...]
    settings: Mapping[int, tuple[float, ...]]

    def integer(self, key: int, default: int) -> int:
        """Return a whole-number setting."""
        return int(self.number(key, default))

    def number(self, key: int, default: float) -> float:
        """Return a setting."""
        found = self.settings.get(key, ())
        return found[0] if found else default

    def count(self, key: int) -> int:
        """Return a setting that is a number of stored values."""
        found = self.integer(key, 0)
        if found < 0:
            raise UnreadableModel(f"layer {self.name!r} claims {found} stored values")
        return found


Plan = Callable[[Layer], Sequence[tuple[int, bool]]]
STORED: dict[str, Plan] = {}
"""What each kind stores: (how many numbers, whether they begin with a storage tag)."""


def _plan(*kinds: str) -> Callable[[Plan], Plan]:
    def decorate(function: Plan) -> Plan:
        STORED.update(dict.fromkeys(kinds, function))
        return function

    return decorate


@_plan("Convolution", "ConvolutionDepthWise")
def _convolution_plan(layer: Layer) -> Sequence[tuple[int, bool]]:
    if layer.integer(8, 0) or layer.integer(19, 0):
        raise UnsupportedModel(f"convolution {layer.name!r} is int8 or has computed weights")
    bias = [(layer.count(0), False)] if layer.integer(5, 0) else []
    return [(layer.count(6), True), *bias]


@_plan("InnerProduct")
def _dense_plan(layer: Layer) -> Sequence[tuple[int, bool]]:
    if layer.integer(8, 0):
        raise UnsupportedModel(f"dense layer {layer.name!r} is int8; export from fp32")
    bias = [(layer.count(0), False)] if layer.integer(1, 0) else []
    return [(layer.count(2), True), *bias]


@_plan("BatchNorm")
def _batch_norm_plan(layer: Layer) -> Sequence[tuple[int, bool]]:
    return [(layer.count(0), False)] * 4


@_plan("PReLU")
def _prelu_plan(layer: Layer) -> Sequence[tuple[int, bool]]:
    return [(layer.count(0), False)]


@_plan("Scale")
def _scale_plan(layer: Layer) -> Sequence[tuple[int, bool]]:
    if layer.integer(0, 0) == SAME_UPPER:
        return []
    return [(layer.count(0), False)] * (2 if layer.integer(1, 0) else 1)


@_plan("Bias")
def _bias_plan(layer: Layer) -> Sequence[tuple[int, bool]]:
    return [(layer.count(0), False)]


@_plan("Normalize")
def _normalize_plan(layer: Layer) -> Sequence[tuple[int, bool]]:
    return [(layer.count(3), False)]


@_plan("MemoryData")
def _memory_plan(layer: Layer) -> Sequence[tuple[int, bool]]:
    return [(int(np.prod([max(side, 1) for side in memory_shape(layer)], dtype=object)), False)]


def memory_shape(layer: Layer) -> tuple[int, ...]:
    """Return the shape of a constant, without the sides that are left out."""
    sides = [layer.count(key) for key in (2, 1, 0)]
    return tuple(side for side in sides if side)


def read_weights(net: Sequence[Layer], content: bytes, name: str) -> dict[str, tuple[Stored, ...]]:
    """Return each layer's arrays, in the order the layer stores them."""
    reader = BinaryReader(content, name)
    found: dict[str, tuple[Stored, ...]] = {}
    for layer in net:
        if layer.name in found:
            raise UnreadableModel(f"two layers are called {layer.name!r}")
        plan = STORED.get(layer.kind)
        wanted = plan(layer) if plan else ()
        found[layer.name] = tuple(
            _tagged(reader, count) if tagged else reader.array((count,), "<f4")
            for count, tagged in wanted
        )
    if reader.left:
        raise UnreadableModel(
            f"{name} has {reader.left} bytes more than the layers of the .param file own: "
            "the two files do not belong together"
        )
    return found


def _tagged(reader: BinaryReader, count: int) -> Stored:
    """Read weights whose first word says how they are stored."""
    tag = reader.number("I")
    if tag in (0, _FP32):
        return reader.array((count,), "<f4")
    if tag == _FP16:
        values: NDArray[np.float32] = reader.array((count,), "<f2").astype(np.float32)
    elif tag == _INT8:
        raise UnsupportedModel("the ncnn weights are int8 with run-time scales; export from fp32")
    else:
        table = reader.array((256,), "<f4")
        values = table[reader.array((count,), "u1")]
    reader.skip_to_multiple(4)
    return values
