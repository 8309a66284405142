"""HDF5 as far as Keras uses it, read by hand: groups, attributes, and arrays stored in one piece.

The format's library is native code that damaged files can crash; here every address is compared
with the file. Links to other files or other places, outside storage and chunks are refused. Follows
the public "HDF5 File Format Specification", version 3.0.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray

from onnxfr.errors import UnreadableModel, UnsafeFile, UnsupportedModel
from onnxfr.exporters._binary import checked_count

MARK = b"\x89HDF\r\n\x1a\n"
_MOST_LINKS = 100_000
_NOWHERE = 2**64 - 1
_SPACE, _LINK_INFO, _TYPE, _OUTSIDE, _LINK, _LAYOUT = 1, 2, 3, 7, 6, 8
_ATTRIBUTE, _CONTINUED, _SYMBOLS = 12, 16, 17


class Hdf5:
    """A file's content; ``root`` is its first group."""

    def __init__(self, content: bytes) -> None:
        self._content = memoryview(content)
        if content[:8] != MARK:
            raise UnreadableModel("not an HDF5 file: its mark is missing")
        version = content[8]
        if version in (0, 1):
            sizes, place = content[13:15], 64 if version == 0 else 68
        elif version in (2, 3):
            sizes, place = content[9:11], 36
        else:
            raise UnsupportedModel(f"HDF5 superblock version {version} is not known")
        if sizes != b"\x08\x08":
            raise UnsupportedModel("the HDF5 file does not use 8-byte addresses")
        self.root = Item(self, self.number("Q", place), 0)

    def take(self, place: int, size: int) -> memoryview:
        """Return ``size`` bytes from an address."""
        if place < 0 or size < 0 or place + size > len(self._content):
            raise UnreadableModel("the HDF5 file is truncated, or points outside of itself")
        return self._content[place : place + size]

    def number(self, code: str, place: int) -> int:
        """Return one little-endian number."""
        size = struct.calcsize(f"<{code}")
        return int(struct.unpack(f"<{code}", self.take(place, size))[0])

    def text(self, place: int) -> str:
        """Return text up to its end mark."""
        raw = bytes(self._content[place : place + 4096])
        end = raw.find(b"\0")
        if end < 0:
            raise UnreadableModel("a name in the HDF5 file has no end")
        return raw[:end].decode("utf-8", errors="replace")

    def heap_object(self, place: int, index: int) -> bytes:
        """Return an object of a global heap, where texts of any length are kept."""
        if bytes(self.take(place, 4)) != b"GCOL":
            raise UnreadableModel("the HDF5 file has no heap where it promises one")
        end = place + self.number("Q", place + 8)
        at = place + 16
        while at + 16 <= end:
            found, size = self.number("H", at), self.number("Q", at + 8)
            if found == index:
                return bytes(self.take(at + 16, size))
            if not found:
                break
            at += 16 + size + -size % 8
        raise UnreadableModel(f"object {index} is missing in a heap of the HDF5 file")


class Item:
    """A group or an array, known by the messages of its header."""

    def __init__(self, file: Hdf5, place: int, depth: int) -> None:
        if depth > 60:
            raise UnsafeFile("the HDF5 file nests groups too deeply")
        self._file = file
        self._depth = depth
        self._messages = list(_messages(file, place))

    def __contains__(self, name: str) -> bool:
        return name in self._links

    def __getitem__(self, path: str) -> Item:
        item = self
        for name in path.split("/"):
            if name not in item._links:
                raise UnreadableModel(f"the HDF5 file holds no {path!r}")
            item = Item(self._file, item._links[name], item._depth + 1)
        return item

    def names(self) -> list[str]:
        """Return the names of what a group holds."""
        return list(self._links)

    @cached_property
    def _links(self) -> dict[str, int]:
        found: dict[str, int] = {}
        for kind, at, size in self._messages:
            if kind == _SYMBOLS:
                tree, heap = self._file.number("Q", at), self._file.number("Q", at + 8)
                found.update(_symbols(self._file, tree, heap))
            elif kind == _LINK:
                name, place = _link(self._file, at)
                found[name] = place
            elif kind == _LINK_INFO and size >= 18:
                flags = self._file.number("B", at + 1)
                if self._file.number("Q", at + (10 if flags & 1 else 2)) != _NOWHERE:
                    raise UnsupportedModel("the HDF5 file keeps a group's links in its newer form")
        return found

    @cached_property
    def attributes(self) -> dict[str, Any]:
        """The attributes: a text, a list of texts, or an array."""
        return dict(
            _attribute(self._file, at) for kind, at, _ in self._messages if kind == _ATTRIBUTE
        )

    def array(self) -> NDArray[Any]:
        """Return the numbers of an array, which must lie in this file in one piece."""
        places = {kind: (at, size) for kind, at, size in self._messages}
        if _OUTSIDE in places:
            raise UnsafeFile("an array of the HDF5 file lies in another file")
        if not {_SPACE, _TYPE, _LAYOUT} <= places.keys():
            raise UnreadableModel("an array was expected in the HDF5 file, found a group")
        shape = _shape(self._file, places[_SPACE][0])
        dtype = _dtype(self._file, places[_TYPE][0])
        if not isinstance(dtype, np.dtype) or dtype.kind == "S":
            raise UnsupportedModel("an array of the HDF5 file holds no numbers")
        at = places[_LAYOUT][0]
        version, layout = self._file.number("B", at), self._file.number("B", at + 1)
        size = checked_count(shape, "the HDF5 file") * dtype.itemsize
        if version not in (3, 4) or layout not in (0, 1):
            raise UnsupportedModel(
                "an array of the HDF5 file is stored in chunks, maybe compressed"
            )
        if layout == 0:
            place, there = at + 4, self._file.number("H", at + 2)
        else:
            place, there = self._file.number("Q", at + 2), self._file.number("Q", at + 10)
        if size > there:
            raise UnreadableModel(f"an array of shape {shape} has {there} bytes in the HDF5 file")
        return np.frombuffer(self._file.take(place, size), dtype).reshape(shape)


Message = tuple[int, int, int]


def _messages(file: Hdf5, place: int) -> Iterator[Message]:
    """Yield kind, address and size of the messages of an object's header."""
    newer = bytes(file.take(place, 4)) == b"OHDR"
    step = 8
    if newer:
        flags = file.number("B", place + 5)
        start = place + 6 + (16 if flags & 32 else 0) + (4 if flags & 16 else 0)
        width = 1 << (flags & 3)
        size = int.from_bytes(file.take(start, width), "little")
        blocks = [(start + width, size)]
        step = 6 if flags & 4 else 4
    else:
        if file.number("B", place) != 1:
            raise UnreadableModel("the HDF5 file has no object where it promises one")
        blocks = [(place + 16, file.number("I", place + 8))]
    for at, size in blocks:
        if len(blocks) > 1000:
            raise UnsafeFile("a header of the HDF5 file has no end")
        file.take(at, size)
        end = at + size
        while at + step <= end:
            kind = file.number("B" if newer else "H", at)
            length = file.number("H", at + (1 if newer else 2))
            if kind == _CONTINUED:
                more, extent = file.number("Q", at + step), file.number("Q", at + step + 8)
                # A continued block of the newer form has a mark before and a sum behind it.
                blocks.append((more + 4, extent - 8) if newer else (more, extent))
            elif kind:
                file.take(at + step, length)
                yield kind, at + step, length
            at += step + length


def _symbols(file: Hdf5, tree: int, heap: int) -> dict[str, int]:
    """Return the links of a group in the old form: a tree of tables, names in a heap."""
    if bytes(file.take(heap, 4)) != b"HEAP":
        raise UnreadableModel("a group of the HDF5 file has no names")
    names = file.number("Q", heap + 24)
    found: dict[str, int] = {}
    pending = [tree]
    seen: set[int] = set()
    while pending:
        place = pending.pop()
        if place in seen or len(seen) > _MOST_LINKS:
            raise UnsafeFile("a group of the HDF5 file is a circle")
        seen.add(place)
        mark = bytes(file.take(place, 4))
        count = file.number("H", place + 6)
        if mark == b"TREE":
            pending += [file.number("Q", place + 32 + 16 * k) for k in range(count)]
        elif mark == b"SNOD":
            for at in range(place + 8, place + 8 + 40 * count, 40):
                if file.number("I", at + 16) == 2:
                    raise UnsafeFile("the HDF5 file links to another place by name")
                found[file.text(names + file.number("Q", at))] = file.number("Q", at + 8)
        else:
            raise UnreadableModel("a group of the HDF5 file is damaged")
    return found


def _link(file: Hdf5, at: int) -> tuple[str, int]:
    """Return name and address of a link in the newer form."""
    flags = file.number("B", at + 1)
    at += 2
    if flags & 8:
        if file.number("B", at) != 0:
            raise UnsafeFile("the HDF5 file links to another place or another file")
        at += 1
    at += (8 if flags & 4 else 0) + (1 if flags & 16 else 0)
    width = 1 << (flags & 3)
    length = int.from_bytes(file.take(at, width), "little")
    name = bytes(file.take(at + width, min(length, 4096))).decode("utf-8", errors="replace")
    return name, file.number("Q", at + width + length)


def _shape(file: Hdf5, at: int) -> tuple[int, ...]:
    version, rank = file.number("B", at), file.number("B", at + 1)
    start = at + (8 if version == 1 else 4)
    if version not in (1, 2) or rank > 32:
        raise UnreadableModel("a shape in the HDF5 file is damaged")
    return tuple(file.number("Q", start + 8 * k) for k in range(rank))


def _dtype(file: Hdf5, at: int) -> np.dtype[Any] | None:
    """Return a type of numbers or of texts of fixed length, None for texts of any length."""
    kind, order = file.number("B", at) & 15, file.number("B", at + 1)
    size = file.number("I", at + 4)
    big = ">" if order & 1 else "<"
    if kind == 0 and size in (1, 2, 4, 8):
        return np.dtype(f"{big}{'i' if order & 8 else 'u'}{size}")
    if kind == 1 and size in (2, 4, 8):
        return np.dtype(f"{big}f{size}")
    if kind == 3 and 0 < size < 1 << 20:
        return np.dtype(f"S{size}")
    if kind == 9 and order & 15 == 1:
        return None
    raise UnsupportedModel(f"the HDF5 file uses type {kind} of {size} bytes, not known here")


def _attribute(file: Hdf5, at: int) -> tuple[str, Any]:
    version = file.number("B", at)
    widths = [file.number("H", at + 2 + 2 * k) for k in range(3)]
    pad = 8 if version == 1 else 1
    name_at = at + (9 if version == 3 else 8)
    type_at = name_at + widths[0] + -widths[0] % pad
    space_at = type_at + widths[1] + -widths[1] % pad
    data_at = space_at + widths[2] + -widths[2] % pad
    name = file.text(name_at)
    if version not in (1, 2, 3) or (version > 1 and file.number("B", at + 1)):
        return name, None
    try:
        shape, dtype = _shape(file, space_at), _dtype(file, type_at)
    except UnsupportedModel:
        return name, None
    count = checked_count(shape, f"the attribute {name!r}")
    if dtype is not None:
        values = np.frombuffer(file.take(data_at, count * dtype.itemsize), dtype)
        if dtype.kind != "S":
            return name, values.reshape(shape)
        texts = [value.decode("utf-8", errors="replace") for value in values.tolist()]
        return name, texts if shape else texts[0]
    raw = [data_at + 16 * k for k in range(min(count, _MOST_LINKS))]
    found = [file.heap_object(file.number("Q", p + 4), file.number("I", p + 12)) for p in raw]
    decoded = [text.rstrip(b"\0").decode("utf-8", errors="replace") for text in found]
    return name, decoded if shape else decoded[0]
