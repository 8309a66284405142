"""Small files made to cost much: what a service must not be stopped by."""

from __future__ import annotations

import io
import struct
import time

import numpy as np
import pytest
from PIL import Image

from onnxfr.data.images import decode, header_size
from onnxfr.errors import DataError, PictureTooLarge


def jpeg(width: int, height: int, **options: object) -> bytes:
    out = io.BytesIO()
    Image.new("RGB", (width, height), (90, 60, 30)).save(out, "JPEG", **options)
    return out.getvalue()


def segment(marker: int, body: bytes) -> bytes:
    return bytes([0xFF, marker]) + struct.pack(">H", len(body) + 2) + body


def disguised(large: bytes, alone: bytes) -> bytes:
    """A JPEG behind a marker without length: read with one, it leads to another size.

    ``alone`` and the two bytes of the comment behind it would be a segment of 65,534 bytes.
    """
    small = jpeg(64, 64)
    at = small.index(b"\xff\xc0")
    head = small[at : small.index(b"\xff\xda") + 4]
    begin, target = 2 + len(alone), 4 + 0xFFFE
    first = segment(0xFE, bytes(65_000))
    inside = bytes(target - begin - len(first) - 4) + head + bytes(100)
    return b"\xff\xd8" + alone + first + segment(0xFE, inside) + large[2:]


def scanned(scans: int) -> bytes:
    """A progressive grey-blue picture of 64 x 64 with empty passes over its first colour."""
    tables = segment(0xDB, b"\x00" + b"\x01" * 64)
    frame = struct.pack(">BHHB", 8, 64, 64, 3) + b"\x01\x11\x00\x02\x11\x00\x03\x11\x00"
    codes = segment(0xC4, b"\x00\x01" + bytes(15) + b"\x00")
    codes += segment(0xC4, b"\x10\x01" + bytes(15) + b"\x50")
    first = segment(0xDA, b"\x03\x01\x00\x02\x00\x03\x00\x00\x00\x00") + bytes(24)
    again = segment(0xDA, b"\x01\x01\x00\x01\x3f\x00") + b"\x7d\xff\x00"
    body = tables + segment(0xC2, frame) + codes + first + again * (scans - 1)
    return b"\xff\xd8" + body + b"\xff\xd9"


def test_a_jpeg_has_the_size_it_is_decoded_at_whatever_stands_before_it() -> None:
    blob = disguised(jpeg(200, 100), b"\xff\xd0")
    assert header_size(blob, "a") == (100, 200)
    assert decode(blob, "a").shape == (100, 200, 3)


def test_a_disguised_jpeg_is_refused_before_it_is_decoded() -> None:
    large = bytearray(jpeg(64, 64))
    at = large.index(b"\xff\xc0")
    large[at + 5 : at + 9] = struct.pack(">HH", 9000, 9000)
    with pytest.raises((DataError, PictureTooLarge), match="limit"):
        decode(disguised(bytes(large), b"\xff\xd0"), "a")


def test_a_jpeg_of_countless_scans_is_refused() -> None:
    assert decode(scanned(400), "a").shape == (64, 64, 3)
    with pytest.raises(DataError, match="more than 500 scans"):
        decode(scanned(501), "a.jpg")


def test_what_only_looks_like_scans_is_no_reason_to_refuse_a_jpeg() -> None:
    plain = jpeg(64, 64)
    comment = segment(0xFE, b"\xff\xda" * 600)
    for blob in (plain[:2] + comment + plain[2:], plain + b"\xff\xda\x00\x02" * 600):
        assert decode(blob, "a").shape == (64, 64, 3)


def test_comments_in_a_plain_pixmap_cost_no_more_than_other_text() -> None:
    values = np.arange(64 * 64 * 3) % 251
    text = b" ".join(b"%d" % value for value in values)
    blob = b"P3\n# a head\n64 64\n255\n" + b"#\n" * 300_000 + text.replace(b" 7 ", b" #\r 7 ")
    begin = time.perf_counter()
    assert np.array_equal(decode(blob, "a.ppm"), values.reshape(64, 64, 3))
    assert time.perf_counter() - begin < 3, "each comment costs a copy of the rest"
