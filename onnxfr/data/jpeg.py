"""Just enough of the JPEG header to know an ordinary 8-bit colour JPEG, and its size.

Anything out of the ordinary answers None, so that the careful reader decides: EXIF data
(orientation), an Adobe marker (CMYK, other colour transforms), grey, 12 bit, arithmetic coding, a
missing end marker.
"""

from __future__ import annotations

_START = b"\xff\xd8\xff"
_END = b"\xff\xd9"
_SIMPLE_FRAMES = (0xC0, 0xC1, 0xC2)
_TABLES = (0xC4, 0xC8, 0xCC)
_EXIF, _ADOBE, _SCAN = 0xE1, 0xEE, 0xDA
_YCBCR = (1, 2, 3)


def plain_jpeg_size(blob: bytes) -> tuple[int, int] | None:
    """Return (height, width) of an ordinary, complete colour JPEG, else None."""
    if not (blob.startswith(_START) and blob.endswith(_END)):
        return None
    at, size = 2, None
    while at + 4 <= len(blob) and blob[at] == 0xFF:
        marker = blob[at + 1]
        length = int.from_bytes(blob[at + 2 : at + 4], "big")
        if marker in (_EXIF, _ADOBE) or length < 2:
            return None
        if marker == _SCAN:
            return size
        if 0xC0 <= marker <= 0xCF and marker not in _TABLES:
            size = _frame_size(marker, blob[at + 4 : at + 2 + length])
        at += 2 + length
    return None


def _frame_size(marker: int, frame: bytes) -> tuple[int, int] | None:
    if marker not in _SIMPLE_FRAMES or len(frame) != 15 or frame[0] != 8 or frame[5] != 3:
        return None
    if (frame[6], frame[9], frame[12]) != _YCBCR:
        return None
    height, width = int.from_bytes(frame[1:3], "big"), int.from_bytes(frame[3:5], "big")
    return (height, width) if height and width else None
