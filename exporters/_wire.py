"""Protocol Buffers' wire format, read without generated code and without trusting a length."""

from __future__ import annotations

import struct
from collections.abc import Iterator

from onnxfr.errors import UnreadableModel

Field = tuple[int, int | bytes]
"""A field's number and its value: a number, or the bytes of anything longer."""

_VARINT, _FIXED64, _BYTES, _FIXED32 = 0, 1, 2, 5
_KIND = {_VARINT: "number", _FIXED64: "fixed64", _BYTES: "bytes", _FIXED32: "fixed32"}


def fields(message: bytes) -> Iterator[Field]:
    """Yield the fields of one message; fixed-width ones as their raw bytes."""
    for number, _, value in _walk(message):
        yield number, value


def top_fields(message: bytes) -> dict[int, str]:
    """Return which fields a message has and of which kind; raise where it is no message."""
    return {number: _KIND[kind] for number, kind, _ in _walk(message)}


def numbers(value: int | bytes) -> list[int]:
    """Return the integers of a repeated field's entry, packed or not."""
    if isinstance(value, int):
        return [value]
    found, at = [], 0
    while at < len(value):
        number, at = _varint(value, at)
        found.append(number)
    return found


def signed(number: int) -> int:
    """Return a 64-bit varint as the signed number it stands for."""
    return number - 2**64 if number >= 2**63 else number


def single(value: int | bytes) -> float:
    """Return a float field."""
    if not isinstance(value, bytes) or len(value) != 4:
        raise UnreadableModel("a float field has another width than four bytes")
    return float(struct.unpack("<f", value)[0])


def _walk(message: bytes) -> Iterator[tuple[int, int, int | bytes]]:
    at = 0
    while at < len(message):
        key, at = _varint(message, at)
        number, kind = key >> 3, key & 7
        if number == 0 or kind not in _KIND:
            raise UnreadableModel(f"not a protobuf message: field {number} of wire type {kind}")
        if kind == _VARINT:
            value, at = _varint(message, at)
            yield number, kind, value
            continue
        if kind == _BYTES:
            length, at = _varint(message, at)
        else:
            length = 8 if kind == _FIXED64 else 4
        if length > len(message) - at:
            raise UnreadableModel(
                f"protobuf field {number} promises {length} bytes, {len(message) - at} are there"
            )
        yield number, kind, message[at : at + length]
        at += length


def _varint(message: bytes, at: int) -> tuple[int, int]:
    value = shift = 0
    while True:
        if at >= len(message) or shift > 63:
            raise UnreadableModel("a protobuf number has no end")
        byte = message[at]
        at += 1
        value |= (byte & 0x7F) << shift
        shift += 7
        if byte < 0x80:
            return value & (2**64 - 1), at
