"""MXNet's NDArray list: weights by name, every size checked against the file."""

from __future__ import annotations

from typing import Any

from numpy.typing import NDArray

from onnxfr.errors import UnreadableModel, UnsupportedModel
from onnxfr.exporters._binary import MAX_RANK, BinaryReader

LIST_MAGIC = 0x112
_V1, _V2, _V3 = 0xF993FAC8, 0xF993FAC9, 0xF993FACA
_DENSE = 0
_TYPES = {0: "<f4", 1: "<f8", 2: "<f2", 3: "u1", 4: "<i4", 5: "i1", 6: "<i8"}
_MOST = 100_000


def read_params(content: bytes, name: str) -> dict[str, NDArray[Any]]:
    """Return the arrays of a ``.params`` file by name, without the ``arg:``/``aux:`` marks."""
    reader = BinaryReader(content, name)
    if reader.number("Q") != LIST_MAGIC:
        raise UnreadableModel(f"{name} is not an MXNet parameter file: its mark is missing")
    reader.number("Q")
    arrays = [_array(reader, name) for _ in range(_count(reader, name))]
    keys = [_text(reader) for _ in range(_count(reader, name))]
    if len(keys) != len(arrays) or len(set(keys)) != len(keys):
        raise UnreadableModel(
            f"{name} holds {len(arrays)} arrays under {len(set(keys))} names: it is damaged"
        )
    return {
        key.removeprefix("arg:").removeprefix("aux:"): array
        for key, array in zip(keys, arrays, strict=True)
        if array is not None
    }


def _count(reader: BinaryReader, name: str) -> int:
    count = int(reader.number("Q"))
    if count > min(_MOST, reader.left):
        raise UnreadableModel(f"{name} promises {count} entries, more than it can hold")
    return count


def _text(reader: BinaryReader) -> str:
    return bytes(reader.take(reader.number("Q"))).decode("utf-8", errors="replace")


def _array(reader: BinaryReader, name: str) -> NDArray[Any] | None:
    mark = reader.number("I")
    if mark in (_V2, _V3):
        if reader.number("i") != _DENSE:
            raise UnsupportedModel(f"{name} holds a sparse array; save the model with dense ones")
        shape = _shape(reader, reader.number("i"), "q", name)
    elif mark == _V1:
        shape = _shape(reader, reader.number("I"), "q", name)
    else:
        shape = _shape(reader, mark, "I", name)
    if shape is None:
        return None
    reader.take(8)  # the device the array lived on
    kind = reader.number("i")
    if kind not in _TYPES:
        raise UnsupportedModel(f"{name} holds an array of MXNet type {kind}, which is not known")
    return reader.array(shape, _TYPES[kind])


def _shape(reader: BinaryReader, rank: int, code: str, name: str) -> tuple[int, ...] | None:
    if not -1 <= rank <= MAX_RANK:
        raise UnreadableModel(f"{name} declares an array with {rank} axes: it is damaged")
    if rank <= 0:
        return None
    return tuple(int(reader.number(code)) for _ in range(rank))
