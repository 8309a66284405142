"""Just enough of the JPEG header to know an ordinary 8-bit colour JPEG, and its size.

Anything out of the ordinary answers None, so that the careful reader decides: EXIF data
(orientation), an Adobe marker (CMYK, other colour transforms), grey, 12 bit, arithmetic coding, a
missing end marker, markers that decoders read in another way than by their length.
"""

from __future__ import annotations

import re

_START = b"\xff\xd8\xff"
_END = b"\xff\xd9"
_SIMPLE_FRAMES = (0xC0, 0xC1, 0xC2)
_TABLES = (0xC4, 0xC8, 0xCC)
_EXIF, _ADOBE, _SCAN = 0xE1, 0xEE, 0xDA
_FIRST_SEGMENT, _LAST_SEGMENT = 0xC0, 0xFE
_ALONE = range(0xD0, 0xDA)
"""Restarts, start and end: markers that no length follows."""
_IN_SCAN = re.compile(rb"\xff[^\x00\xff\xd0-\xd7]")
"""The next marker behind coded data, in which zeros are stuffed and restarts stand."""
_YCBCR = (1, 2, 3)


def plain_jpeg_size(blob: bytes) -> tuple[int, int] | None:
    """Return (height, width) of an ordinary, complete colour JPEG, else None."""
    if not (blob.startswith(_START) and blob.endswith(_END)):
        return None
    at, size = 2, None
    while at + 4 <= len(blob) and blob[at] == 0xFF:
        marker = blob[at + 1]
        length = int.from_bytes(blob[at + 2 : at + 4], "big")
        if marker in (_EXIF, _ADOBE) or length < 2 or not _has_length(marker):
            return None
        if marker == _SCAN:
            return size
        if 0xC0 <= marker <= 0xCF and marker not in _TABLES:
            size = _frame_size(marker, blob[at + 4 : at + 2 + length])
        at += 2 + length
    return None


def has_more_scans(blob: bytes, most: int) -> bool:
    """Tell whether the decoder of a JPEG would go over its pixels more than ``most`` times.

    A scan of thirty bytes may cost as much as the whole picture, and a file may have any number.
    """
    # The two bytes may also stand in what is no scan, so that few of them need no closer look.
    if blob.count(bytes([0xFF, _SCAN])) <= most:
        return False
    at, scans = 2, 0
    while scans <= most and (found := _IN_SCAN.search(blob, at)):
        marker, at = found[0][1], found.end()
        if marker == _END[1]:
            break
        if _has_length(marker):
            at += int.from_bytes(blob[at : at + 2], "big")
        scans += marker == _SCAN
    return scans > most


def _has_length(marker: int) -> bool:
    return _FIRST_SEGMENT <= marker <= _LAST_SEGMENT and marker not in _ALONE


def _frame_size(marker: int, frame: bytes) -> tuple[int, int] | None:
    if marker not in _SIMPLE_FRAMES or len(frame) != 15 or frame[0] != 8 or frame[5] != 3:
        return None
    if (frame[6], frame[9], frame[12]) != _YCBCR:
        return None
    height, width = int.from_bytes(frame[1:3], "big"), int.from_bytes(frame[3:5], "big")
    return (height, width) if height and width else None
