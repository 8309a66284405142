"""TensorFlow's variables beside a SavedModel: an index in LevelDB's table format, and shards.

Every offset and length is compared with the file before it is believed; shard names are made here,
never read from the file.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from onnxfr.errors import UnreadableModel, UnsafeFile, UnsupportedModel
from onnxfr.exporters._binary import checked_count
from onnxfr.exporters._tf_messages import TYPES, message, read_shape
from onnxfr.exporters._tf_values import Array
from onnxfr.exporters._wire import fields, numbers
from onnxfr.exporters.base import read_source
from onnxfr.models.vendor import external_path

_MAGIC = 0xDB4775248B80FB57
_FOOTER, _TRAILER = 48, 5
_MOST_SHARDS = 1000
_MAX_INDEX = 64 << 20


@dataclass(frozen=True)
class _Entry:
    kind: str
    shape: tuple[int, ...]
    shard: int
    offset: int
    size: int


class Bundle:
    """The variables of a SavedModel by their name in the checkpoint."""

    def __init__(self, folder: Path, prefix: str = "variables") -> None:
        self._folder = folder.absolute()
        self._prefix = prefix
        index = external_path(f"{prefix}.index", self._folder, "variables")
        self._entries: dict[str, _Entry] = {}
        self._shards = 1
        for key, value in _table(read_source(index, _MAX_INDEX)):
            if key:
                self._entries[key.decode("utf-8", errors="replace")] = _entry(value)
            else:
                self._shards = _header(value)

    def __contains__(self, name: str) -> bool:
        return name in self._entries

    def __getitem__(self, name: str) -> Array:
        if name not in self._entries:
            raise UnreadableModel(f"the checkpoint has no variable {name!r}")
        entry = self._entries[name]
        if entry.kind in ("unknown", "string", "resource"):
            raise UnsupportedModel(f"the variable {name!r} is of type {entry.kind}")
        dtype = np.dtype(entry.kind).newbyteorder("<")
        count = checked_count(entry.shape, f"the variable {name!r}")
        if entry.size != count * dtype.itemsize or entry.shard >= self._shards:
            raise UnreadableModel(f"the variable {name!r} of shape {entry.shape} does not fit")
        shard = f"{self._prefix}.data-{entry.shard:05d}-of-{self._shards:05d}"
        path = external_path(shard, self._folder, "variables")
        if entry.offset + entry.size > path.stat().st_size:
            raise UnreadableModel(f"the variable {name!r} lies outside of {shard}")
        with path.open("rb") as opened:
            opened.seek(entry.offset)
            content = opened.read(entry.size)
        return np.frombuffer(content, dtype).reshape(entry.shape).copy()


def _header(content: bytes) -> int:
    shards = 1
    for number, value in fields(content):
        if number == 1:
            shards = int(value)
        elif number == 2 and value:
            raise UnsupportedModel("the variables are stored big-endian")
    if not 0 < shards <= _MOST_SHARDS:
        raise UnsafeFile(f"the checkpoint claims to have {shards} shards")
    return shards


def _entry(content: bytes) -> _Entry:
    kind = "unknown"
    shape: tuple[int, ...] = ()
    found = {3: 0, 4: 0, 5: 0}
    for number, value in fields(content):
        if number == 1:
            kind = TYPES.get(int(value), "unknown")
        elif number == 2:
            shape = tuple(read_shape(message(value)) or ())
        elif number in found:
            found[number] = int(value)
        elif number == 7:
            raise UnsupportedModel("a variable is stored in slices, one part per machine")
    return _Entry(kind, shape, found[3], found[4], found[5])


def _table(content: bytes) -> Iterator[tuple[bytes, bytes]]:
    """Yield keys and values of a LevelDB table without checking its sums."""
    if len(content) < _FOOTER or struct.unpack("<Q", content[-8:])[0] != _MAGIC:
        raise UnreadableModel("the index of the variables is truncated or no such index")
    handles = _varints(content[-_FOOTER:-8], 4)
    for _, value in _block(content, handles[2], handles[3]):
        yield from _block(content, *_varints(value, 2))


def _varints(content: bytes, count: int) -> list[int]:
    found, at = [], 0
    for _ in range(count):
        end = next((k for k in range(at, min(at + 10, len(content))) if content[k] < 128), None)
        if end is None:
            raise UnreadableModel("a number in the index of the variables has no end")
        found += numbers(content[at : end + 1])
        at = end + 1
    return found


def _block(content: bytes, offset: int, size: int) -> Iterator[tuple[bytes, bytes]]:
    if offset + size + _TRAILER > len(content) or size < 4:
        raise UnreadableModel("the index of the variables is truncated or damaged")
    if content[offset + size] != 0:
        raise UnsupportedModel("the index of the variables is compressed, which no TensorFlow does")
    block = content[offset : offset + size]
    restarts = struct.unpack("<I", block[-4:])[0]
    end = size - 4 * (restarts + 1)
    if end < 0:
        raise UnreadableModel("a block of the index of the variables is damaged")
    at, key = 0, b""
    while at < end:
        shared, fresh, length = _varints(block[at : at + 30], 3)
        at += sum(_width(number) for number in (shared, fresh, length))
        if shared > len(key) or at + fresh + length > end:
            raise UnreadableModel("an entry of the index of the variables is damaged")
        key = key[:shared] + block[at : at + fresh]
        yield key, block[at + fresh : at + fresh + length]
        at += fresh + length


def _width(number: int) -> int:
    return max(1, (number.bit_length() + 6) // 7)
