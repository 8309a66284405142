"""TFLite's FlatBuffers file, read by hand: no offset is followed that leaves the file.

Field numbers are those of TensorFlow's public ``schema.fbs``, version 3.
"""

from __future__ import annotations

import struct
from dataclasses import dataclass
from typing import Any

import numpy as np

from onnxfr.errors import UnreadableModel, UnsafeFile, UnsupportedModel
from onnxfr.exporters._binary import checked_count
from onnxfr.exporters._graph_writer import Packed
from onnxfr.exporters._tf_values import Stored

MARK = b"TFL3"
_TYPES = {
    0: "<f4", 1: "<f2", 2: "<i4", 3: "u1", 4: "<i8", 6: "?", 7: "<i2", 9: "i1", 10: "<f8",
}  # fmt: skip
_MOST_TENSORS = 50_000


class Table:
    """One table of a FlatBuffers file: numbered fields, each of which may be absent."""

    def __init__(self, content: bytes, position: int) -> None:
        self._content = content
        self._position = position
        self._fields = position - self._unpack("i", position)
        self._size = self._unpack("H", self._fields)

    def _unpack(self, code: str, position: int) -> Any:
        if not 0 <= position <= len(self._content) - struct.calcsize(code):
            raise UnreadableModel("the TFLite file is truncated, or points outside of itself")
        return struct.unpack_from(f"<{code}", self._content, position)[0]

    def _place(self, field: int) -> int:
        """Return where a field lies, 0 where it is absent."""
        slot = 4 + 2 * field
        if slot + 2 > self._size:
            return 0
        offset = self._unpack("H", self._fields + slot)
        return self._position + offset if offset else 0

    def number(self, field: int, code: str, default: Any = 0) -> Any:
        """Return a number of a ``struct`` code."""
        place = self._place(field)
        return self._unpack(code, place) if place else default

    def table(self, field: int) -> Table | None:
        """Return a nested table."""
        place = self._place(field)
        return Table(self._content, place + self._unpack("I", place)) if place else None

    def bytes(self, field: int, width: int = 1) -> memoryview:
        """Return a vector's bytes; each entry has ``width`` of them."""
        place = self._place(field)
        if not place:
            return memoryview(b"")
        start = place + self._unpack("I", place)
        count = self._unpack("I", start)
        if count * width > len(self._content) - start - 4:
            raise UnreadableModel(f"the TFLite file promises {count} entries it does not hold")
        return memoryview(self._content)[start + 4 : start + 4 + count * width]

    def numbers(self, field: int, dtype: str) -> list[Any]:
        """Return a vector of numbers."""
        found: list[Any] = np.frombuffer(
            self.bytes(field, np.dtype(dtype).itemsize), dtype
        ).tolist()
        return found

    def text(self, field: int) -> str:
        """Return a string."""
        return bytes(self.bytes(field)).decode("utf-8", errors="replace")

    def tables(self, field: int) -> list[Table]:
        """Return a vector of tables."""
        place = self._place(field)
        if not place:
            return []
        start = place + self._unpack("I", place) + 4
        offsets = self.numbers(field, "<u4")
        if len(offsets) > _MOST_TENSORS:
            raise UnsafeFile(f"the TFLite file lists {len(offsets)} parts, which no network has")
        return [Table(self._content, start + 4 * k + o) for k, o in enumerate(offsets)]


@dataclass(frozen=True)
class Tensor:
    """A value of the network: stored where ``stored`` is given, else computed."""

    name: str
    shape: tuple[int, ...]
    dtype: np.dtype[Any] | None
    scale: tuple[float, ...]
    zero: tuple[int, ...]
    stored: Stored | None

    @property
    def quantised(self) -> bool:
        """Whether whole numbers stand for reals."""
        return bool(self.scale) and self.dtype is not None and self.dtype.kind in "iu"


@dataclass(frozen=True)
class Operator:
    """One step: its number among the builtin operators, its tensors and its options."""

    code: int
    custom: str
    inputs: tuple[int, ...]
    outputs: tuple[int, ...]
    options: Table | None


@dataclass(frozen=True)
class Network:
    """The first subgraph of a file."""

    tensors: list[Tensor]
    operators: list[Operator]
    inputs: tuple[int, ...]
    outputs: tuple[int, ...]


def read_network(content: bytes) -> Network:
    """Return the network of a TFLite file."""
    if content[4:8] != MARK:
        raise UnreadableModel("not a TFLite file: its mark TFL3 is missing")
    model = Table(content, struct.unpack_from("<I", content)[0])
    graphs = model.tables(2)
    if len(graphs) < 1:
        raise UnreadableModel("the TFLite file holds no network")
    graph = graphs[0]
    codes = [(max(c.number(0, "b"), c.number(3, "i")), c.text(1)) for c in model.tables(1)]
    operators = [_operator(table, codes) for table in graph.tables(3)]
    tensors = _tensors(graph.tables(0), model.tables(4), len(content))
    ends = tuple(tuple(graph.numbers(field, "<i4")) for field in (1, 2))
    used = {k for operator in operators for k in (*operator.inputs, *operator.outputs)}
    if any(not -1 <= k < len(tensors) for k in used | {k for side in ends for k in side}):
        raise UnreadableModel("the TFLite file uses a tensor it does not define")
    return Network(tensors, operators, *ends)


def _operator(table: Table, codes: list[tuple[int, str]]) -> Operator:
    index = table.number(0, "I")
    if index >= len(codes):
        raise UnreadableModel(f"the TFLite file uses operator {index} of {len(codes)}")
    code, custom = codes[index]
    inputs, outputs = (tuple(table.numbers(field, "<i4")) for field in (1, 2))
    return Operator(code, custom, inputs, outputs, table.table(4))


def _tensors(tables: list[Table], buffers: list[Table], room: int) -> list[Tensor]:
    """Return the tensors; constants that share their bytes may not multiply them without end."""
    found: list[Tensor] = []
    taken: set[str] = set()
    left = 4 * room + (1 << 20)
    for index, table in enumerate(tables):
        name = table.text(3).replace(":", "/") or "tensor"
        name = f"{name}_{index}" if name in taken else name
        taken.add(name)
        tensor = _tensor(table, name, buffers)
        if tensor.stored is not None:
            left -= int(np.prod(tensor.shape, dtype=np.int64)) * 4
        if left < 0:
            raise UnsafeFile("the TFLite file's constants are larger than the file")
        found.append(tensor)
    return found


def _tensor(table: Table, name: str, buffers: list[Table]) -> Tensor:
    kind = table.number(1, "b")
    dtype = np.dtype(_TYPES[kind]) if kind in _TYPES else None
    shape = tuple(table.numbers(0, "<i4"))
    packing = table.table(4)
    scale = tuple(packing.numbers(2, "<f4")) if packing else ()
    zero = tuple(packing.numbers(3, "<i8")) if packing else ()
    axis = packing.number(6, "i") if packing else 0
    index = table.number(2, "I")
    if index >= len(buffers):
        raise UnreadableModel(f"tensor {name!r} has its numbers in buffer {index}, which is absent")
    if buffers[index].number(1, "Q") > 1:
        raise UnsupportedModel(f"tensor {name!r} has its numbers outside of the network")
    content = buffers[index].bytes(0)
    stored: Stored | None = None
    if len(content) and table.table(6) is not None:
        raise UnsupportedModel(f"tensor {name!r} is stored as a sparse one")
    if len(content) and dtype is not None:
        count = checked_count(shape, f"tensor {name!r}")
        if count * dtype.itemsize != len(content):
            raise UnreadableModel(f"tensor {name!r} of shape {shape} has {len(content)} bytes")
        stored = _numbers(np.frombuffer(content, dtype).reshape(shape), scale, zero, axis, name)
    return Tensor(name, shape, dtype, scale, zero, stored)


def _numbers(
    values: np.ndarray[Any, Any],
    scale: tuple[float, ...],
    zero: tuple[int, ...],
    axis: int,
    name: str,
) -> Stored:
    if values.dtype.kind == "f":
        return values.astype(np.float32)
    if not scale or values.dtype.kind not in "iu":
        return values
    zero = zero or (0,) * len(scale)
    fits = len(scale) == 1 or (0 <= axis < values.ndim and len(scale) == values.shape[axis])
    if not fits or len(zero) not in (1, len(scale)):
        raise UnreadableModel(f"tensor {name!r} has {len(scale)} scales for shape {values.shape}")
    zeros = np.broadcast_to(np.asarray(zero, np.int64), len(scale))
    if any(not np.iinfo(values.dtype).min <= z <= np.iinfo(values.dtype).max for z in zero):
        raise UnreadableModel(f"tensor {name!r} has a zero point that its type cannot hold")
    return Packed(values, np.asarray(scale, np.float32), zeros.astype(values.dtype), axis)
