"""dlib's serialisation: integers of stated length, floats as mantissa and exponent, raw tensors."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

from numpy.typing import NDArray

from onnxfr.errors import UnreadableModel, UnsupportedModel
from onnxfr.exporters._binary import BinaryReader

Array = NDArray[Any]
_TENSOR_VERSION, _ALIAS_VERSION = 2, 1
_MAX_TEXT = 1000
_WINDOW_NUMBERS = 6
_NO_BIAS = 1
_EXPONENTS = {32000: math.inf, 32001: -math.inf, 32002: math.nan}


@dataclass(frozen=True)
class Layer:
    """One layer: its name in the file, its window (size, stride, pads) and its weights."""

    kind: str
    numbers: tuple[int, ...] = ()
    arrays: tuple[Array, ...] = ()


class DlibReader:
    """Reads what dlib's ``serialize`` writes."""

    def __init__(self, content: bytes, name: str) -> None:
        self._bytes = BinaryReader(content, name)
        self._name = name

    @property
    def left(self) -> int:
        """Bytes not read yet."""
        return self._bytes.left

    def integer(self) -> int:
        """Read an integer: a byte with sign and length, then the magnitude."""
        control = self._bytes.number("B")
        length = control & 0x0F
        if control & 0x70 or not 1 <= length <= 8:
            raise UnreadableModel(f"{self._name} is damaged: a number of {length} bytes")
        magnitude = int.from_bytes(self._bytes.take(length), "little")
        return -magnitude if control & 0x80 else magnitude

    def real(self) -> float:
        """Read a floating-point number."""
        mantissa, exponent = self.integer(), self.integer()
        if exponent in _EXPONENTS:
            return _EXPONENTS[exponent]
        if abs(exponent) > 2000:
            raise UnreadableModel(f"{self._name} is damaged: an exponent of {exponent}")
        return math.ldexp(mantissa, exponent)

    def text(self) -> str:
        """Read a short text."""
        length = self.integer()
        if not 0 <= length <= _MAX_TEXT:
            raise UnreadableModel(f"{self._name} is damaged: a name of {length} letters")
        return bytes(self._bytes.take(length)).decode("ascii", errors="replace")

    def tensor(self) -> Array:
        """Read a four-axis float tensor."""
        version = self.integer()
        if version != _TENSOR_VERSION:
            raise UnsupportedModel(f"{self._name} holds a tensor of format {version}; expected 2")
        return self._bytes.array(self._shape(), "<f4")

    def state(self) -> None:
        """Skip what a layer keeps from training: three flags and three tensors."""
        flags = bytes(self._bytes.take(3))
        if not set(flags) <= {0x30, 0x31}:
            raise UnreadableModel(f"{self._name} is damaged: flags {flags!r}")
        for _ in range(3):
            self.tensor()

    def layer(self) -> Layer:
        """Read one layer's own part."""
        kind = self.text()
        if kind in ("relu_", "add_prev_"):
            return Layer(kind)
        if kind in ("max_pool_2", "avg_pool_2"):
            return Layer(kind, self._integers(_WINDOW_NUMBERS))
        if kind == "con_4":
            return self._convolution()
        if kind == "affine_":
            return self._affine()
        if kind == "fc_2":
            return self._dense()
        raise UnsupportedModel(
            f"dlib layer {kind!r} is not known here; known are: add_prev_, affine_, avg_pool_2, "
            "con_4, fc_2, max_pool_2, relu_ (the layers of dlib's face embedding)"
        )

    def _convolution(self) -> Layer:
        params = self.tensor().reshape(-1)
        self.integer()
        window = self._integers(_WINDOW_NUMBERS)
        filters, biases = self._alias(), self._alias()
        self._rates()
        weight, bias = _cut(params, filters, biases)
        return Layer("con_4", window, (weight, bias.reshape(-1)))

    def _affine(self) -> Layer:
        params = self.tensor().reshape(-1)
        scale, shift = _cut(params, self._alias(), self._alias())
        self.integer()
        return Layer("affine_", (), (scale.reshape(-1), shift.reshape(-1)))

    def _dense(self) -> Layer:
        self._integers(2)
        params = self.tensor().reshape(-1)
        weights, biases = self._alias(), self._alias()
        mode = self.integer()
        self._rates()
        if mode == _NO_BIAS:
            (weight,) = _cut(params, weights)
            return Layer("fc_2", (), (weight.reshape(weights[0], -1).T,))
        weight, bias = _cut(params, weights, biases)
        return Layer("fc_2", (), (weight.reshape(weights[0], -1).T, bias.reshape(-1)))

    def _rates(self) -> None:
        for _ in range(4):
            self.real()

    def _alias(self) -> tuple[int, ...]:
        version = self.integer()
        if version != _ALIAS_VERSION:
            raise UnsupportedModel(f"{self._name} holds a view of format {version}; expected 1")
        return self._shape()

    def _shape(self) -> tuple[int, ...]:
        return self._integers(4)

    def _integers(self, count: int) -> tuple[int, ...]:
        return tuple(self.integer() for _ in range(count))


def _cut(params: Array, *shapes: tuple[int, ...]) -> tuple[Array, ...]:
    """Return the consecutive pieces of ``params`` that have these shapes."""
    sizes = [math.prod(shape) for shape in shapes]
    if any(side < 0 for shape in shapes for side in shape) or sum(sizes) != params.size:
        raise UnreadableModel(f"{params.size} weights cannot be cut into {shapes}")
    pieces, start = [], 0
    for shape, size in zip(shapes, sizes, strict=True):
        pieces.append(params[start : start + size].reshape(shape))
        start += size
    return tuple(pieces)
