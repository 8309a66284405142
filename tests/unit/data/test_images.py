from __future__ import annotations

import io
import struct
import warnings
import zlib
from collections.abc import Callable
from pathlib import Path

import cv2
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from PIL import Image

from onnxfr.data.images import (
    MAX_PIXELS,
    _decode_with_pillow,
    decode,
    header_size,
    image_sha,
    load_pixels,
    to_images,
)
from onnxfr.data.jpeg import plain_jpeg_size
from onnxfr.data.pairs import ImageSource
from onnxfr.errors import DataError
from onnxfr.types import Pixels


def encoded(picture: Image.Image, kind: str, **options: object) -> bytes:
    out = io.BytesIO()
    picture.save(out, kind, **options)
    return out.getvalue()


def face(height: int = 40, width: int = 32) -> Pixels:
    y, x = np.mgrid[0:height, 0:width]
    wave = np.stack([x * 7 % 256, y * 5 % 256, (x + y) * 3 % 256], axis=-1)
    return np.asarray(cv2.GaussianBlur(wave.astype(np.uint8), (5, 5), 0), dtype=np.uint8)


def png_header(width: int, height: int) -> bytes:
    def chunk(kind: bytes, body: bytes) -> bytes:
        return (
            struct.pack(">I", len(body)) + kind + body + struct.pack(">I", zlib.crc32(kind + body))
        )

    head = struct.pack(">IIBBBBB", width, height, 8, 2, 0, 0, 0)
    return b"\x89PNG\r\n\x1a\n" + chunk(b"IHDR", head) + chunk(b"IDAT", b"") + chunk(b"IEND", b"")


@pytest.mark.parametrize("kind", ["PNG", "BMP", "PPM", "WEBP"])
def test_lossless_formats_give_the_very_pixels(kind: str) -> None:
    options = {"lossless": True} if kind == "WEBP" else {}
    assert np.array_equal(decode(encoded(Image.fromarray(face()), kind, **options), "a"), face())


def test_pixels_can_be_written_to() -> None:
    for kind in ("PNG", "JPEG"):
        pixels = decode(encoded(Image.fromarray(face()), kind), "a")
        pixels[0, 0] = 1
        assert pixels.flags.c_contiguous


@pytest.mark.parametrize("subsampling", [0, 1, 2])
@pytest.mark.parametrize("progressive", [False, True])
@pytest.mark.parametrize("size", [(40, 32), (41, 33), (112, 112)])
def test_the_fast_jpeg_reader_equals_pillow(
    subsampling: int, progressive: bool, size: tuple[int, int]
) -> None:
    blob = encoded(
        Image.fromarray(face(*size)),
        "JPEG",
        quality=83,
        subsampling=subsampling,
        progressive=progressive,
    )
    assert plain_jpeg_size(blob) == size
    assert np.array_equal(decode(blob, "a"), _decode_with_pillow(blob, "a"))


def test_the_fast_jpeg_reader_equals_pillow_on_real_faces(shared_data: Path) -> None:
    people = sorted((shared_data / "lfw_112").iterdir())[::60]
    blobs = [sorted(person.glob("*.jpg"))[0].read_bytes() for person in people]
    assert len(blobs) > 90
    assert all(plain_jpeg_size(blob) == (112, 112) for blob in blobs)
    assert all(np.array_equal(decode(b, "a"), _decode_with_pillow(b, "a")) for b in blobs)


def test_grey_pgm_repeats_the_channel() -> None:
    grey = face()[:, :, 0]
    pixels = decode(encoded(Image.fromarray(grey), "PPM"), "a.pgm")
    assert np.array_equal(pixels, np.repeat(grey[:, :, None], 3, axis=2))


def test_one_bit_picture() -> None:
    picture = Image.fromarray((face()[:, :, 0] > 100).astype(np.uint8) * 255).convert("1")
    assert set(np.unique(decode(encoded(picture, "PNG"), "a"))) == {0, 255}


def test_transparent_pixels_become_black_and_half_transparent_half_dark() -> None:
    rgba = np.dstack([face(), np.full(face().shape[:2], 255, np.uint8)])
    rgba[:10, :, 3] = 0
    rgba[10:20, :, 3] = 128
    pixels = decode(encoded(Image.fromarray(rgba), "PNG"), "a")
    assert (pixels[:10] == 0).all()
    assert np.abs(pixels[10:20] - face()[10:20] * (128 / 255)).max() <= 1
    assert np.array_equal(pixels[20:], face()[20:])


def test_grey_with_alpha_and_palette_with_transparency() -> None:
    grey_alpha = Image.merge("LA", [Image.new("L", (4, 4), 200), Image.new("L", (4, 4), 0)])
    assert (decode(encoded(grey_alpha, "PNG"), "a") == 0).all()
    palette = Image.new("P", (4, 4), 1)
    palette.putpalette([9, 9, 9, 250, 10, 20])
    assert (decode(encoded(palette, "PNG"), "a") == (250, 10, 20)).all()
    assert (decode(encoded(palette, "PNG", transparency=1), "a") == 0).all()


def test_cmyk_jpeg_has_the_right_colours() -> None:
    red = Image.new("RGB", (16, 16), (220, 30, 40)).convert("CMYK")
    pixels = decode(encoded(red, "JPEG", quality=100), "a")
    assert np.abs(pixels.astype(int) - (220, 30, 40)).max() < 6


@pytest.mark.parametrize("kind", ["JPEG", "PNG", "WEBP"])
@pytest.mark.parametrize("orientation", range(1, 9))
def test_exif_orientation_is_applied(kind: str, orientation: int) -> None:
    turns: dict[int, Callable[[Pixels], Pixels]] = {
        1: lambda a: a,
        2: lambda a: a[:, ::-1],
        3: lambda a: a[::-1, ::-1],
        4: lambda a: a[::-1],
        5: lambda a: a.transpose(1, 0, 2),
        6: lambda a: np.rot90(a, -1),
        7: lambda a: a[::-1, ::-1].transpose(1, 0, 2),
        8: lambda a: np.rot90(a),
    }
    exif = Image.Exif()
    exif[0x0112] = orientation
    picture = Image.fromarray(face())
    options = {"lossless": True} if kind == "WEBP" else {}
    turned = decode(encoded(picture, kind, exif=exif, **options), "a")
    plain = decode(encoded(picture, kind, **options), "a")
    assert np.array_equal(turned, turns[orientation](plain))


@pytest.mark.parametrize("kind", ["JPEG", "PNG", "WEBP", "BMP", "PPM"])
@pytest.mark.parametrize("share", [0.0, 0.05, 0.5, 0.95])
def test_truncated_files_are_refused_by_name(kind: str, share: float) -> None:
    noise = np.random.default_rng(0).integers(0, 256, (64, 64, 3), dtype=np.uint8)
    blob = encoded(Image.fromarray(noise), kind)
    with pytest.raises(DataError, match=r"people/ann\.x: "):
        decode(blob[: int(len(blob) * share)], "people/ann.x")


@pytest.mark.parametrize(
    "blob", [b"", b"no picture at all", b"\xff\xd8\xff\xd9", b"\xff\xd8\xff\xe0\x00\x00\xff\xd9"]
)
def test_what_is_no_picture_is_refused_by_name(blob: bytes) -> None:
    with pytest.raises(DataError, match=r"ann\.jpg"):
        decode(blob, "ann.jpg")


def test_other_formats_are_refused() -> None:
    for kind in ("GIF", "TIFF", "ICO"):
        with pytest.raises(DataError, match="expected a JPEG"):
            decode(encoded(Image.fromarray(face()), kind), "a")


def test_float_pictures_are_refused() -> None:
    with pytest.raises(DataError, match="floating-point"):
        decode(b"Pf\n1 1\n-1.0\n" + struct.pack("<f", 0.5), "a.pfm")


@pytest.mark.parametrize("size", [(8_001, 8_000), (12_000, 10_000), (65_000, 65_000)])
def test_huge_pictures_are_refused_from_the_header(size: tuple[int, int]) -> None:
    assert size[0] * size[1] > MAX_PIXELS
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", Image.DecompressionBombWarning)
        with pytest.raises(DataError, match=r"bomb\.png.*(limit|exceeds)"):
            decode(png_header(*size), "bomb.png")


def test_a_huge_jpeg_is_refused_from_the_header() -> None:
    blob = bytearray(encoded(Image.fromarray(face()), "JPEG"))
    at = blob.index(b"\xff\xc0") + 5
    blob[at : at + 4] = struct.pack(">HH", 60_000, 60_000)
    with pytest.raises(DataError, match="60000x60000"):
        decode(bytes(blob), "a")


@settings(max_examples=150, deadline=None)
@given(st.data())
def test_damaged_files_give_pixels_or_a_data_error(data: st.DataObject) -> None:
    kind = data.draw(st.sampled_from(["JPEG", "PNG", "WEBP", "BMP", "PPM"]))
    blob = bytearray(encoded(Image.fromarray(face(16, 16)), kind))
    for _ in range(data.draw(st.integers(1, 6))):
        blob[data.draw(st.integers(0, len(blob) - 1))] = data.draw(st.integers(0, 255))
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", Image.DecompressionBombWarning)
        try:
            pixels = decode(bytes(blob), "a")
        except DataError:
            return
    assert pixels.dtype == np.uint8
    assert pixels.ndim == 3 and pixels.shape[2] == 3


def test_unusual_jpegs_leave_the_fast_path() -> None:
    exif = Image.Exif()
    exif[0x0112] = 6
    picture = Image.fromarray(face())
    assert plain_jpeg_size(encoded(picture, "JPEG", exif=exif)) is None
    assert plain_jpeg_size(encoded(picture.convert("L"), "JPEG")) is None
    assert plain_jpeg_size(encoded(picture.convert("CMYK"), "JPEG")) is None
    assert plain_jpeg_size(encoded(picture, "JPEG")[:-2]) is None
    assert plain_jpeg_size(encoded(picture, "PNG")) is None


def test_header_size_does_not_decode() -> None:
    assert header_size(png_header(300, 200), "a") == (200, 300)
    assert header_size(encoded(Image.fromarray(face(40, 32)), "JPEG"), "a") == (40, 32)
    with pytest.raises(DataError, match=r"a\.png"):
        header_size(b"nothing", "a.png")


def test_to_images_is_planar_and_exact() -> None:
    images = to_images([face(), face()[::-1]])
    assert images.dtype == np.float32
    assert images.shape == (2, 3, 40, 32)
    assert np.array_equal(images[1, 2], face()[::-1, :, 2].astype(np.float32) / np.float32(255))
    assert np.array_equal(np.rint(images[0] * 255).astype(np.uint8), face().transpose(2, 0, 1))


def test_to_images_wants_one_size_and_something() -> None:
    with pytest.raises(DataError, match=r"16x16.*40x32"):
        to_images([face(), face(16, 16)])
    with pytest.raises(DataError, match="none"):
        to_images([])


def test_image_sha_follows_the_content(tmp_path: Path) -> None:
    path = tmp_path / "a.png"
    source = ImageSource("a.png", path=path)
    with pytest.raises(DataError, match=r"a\.png: cannot be read"):
        image_sha(source)
    with pytest.raises(DataError, match=r"a\.png: cannot be read"):
        load_pixels(source)
    path.write_bytes(b"one")
    first = image_sha(source)
    assert first == image_sha(ImageSource("b", blob=b"one"))
    path.write_bytes(b"other")
    assert image_sha(source) != first
    assert image_sha(source) == image_sha(ImageSource("b", blob=b"other"))
