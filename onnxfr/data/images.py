"""Encoded pictures to pixels: JPEG, PNG, WebP, BMP and PGM/PPM; what is no good is refused by name.

Pillow is the reference reader. Plain 8-bit colour JPEGs, nearly every face there is, go through
OpenCV, which is faster and gives the same pixels (a test holds it to that). Transparency is
composited on black, the padding face aligners use; EXIF orientation is applied; 16-bit values are
scaled by 255/65535 with rounding; of an animation the first frame counts; colour profiles are
ignored, as face-recognition training pipelines do.
"""

from __future__ import annotations

import hashlib
import io
import re
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import cv2
import numpy as np
from numpy.typing import NDArray
from PIL import Image, UnidentifiedImageError

from onnxfr.data.jpeg import has_more_scans, plain_jpeg_size
from onnxfr.data.pairs import ImageSource
from onnxfr.errors import DataError, PictureTooLarge
from onnxfr.types import Images, Pixels

MAX_PIXELS = 64_000_000
"""Largest picture accepted, in pixels; checked in the header, before anything is decoded."""

FORMATS = ("JPEG", "PNG", "WEBP", "BMP", "PPM")
SUFFIXES = (".jpg", ".jpeg", ".png", ".webp", ".bmp", ".pgm", ".ppm")
"""File names taken for pictures where a folder is searched."""

_JPEG_SIGNATURE = b"\xff\xd8"
_MAX_SCANS = 500
"""Most passes of a JPEG over its pixels; encoders make about ten."""
_PLAIN_PNM = (b"P1", b"P2", b"P3")
_PNM_COMMENTS = re.compile(rb"(?:#[^\r\n]*[\r\n]?)+")
_PNG_SIGNATURE = b"\x89PNG\r\n\x1a\n"
_ORIENTATION_TAG = 0x0112
_digests: dict[tuple[str, int, int], str] = {}
_TURNS: dict[int, Callable[[Pixels], Pixels]] = {
    2: lambda pixels: pixels[:, ::-1],
    3: lambda pixels: pixels[::-1, ::-1],
    4: lambda pixels: pixels[::-1],
    5: lambda pixels: pixels.swapaxes(0, 1),
    6: lambda pixels: np.rot90(pixels, -1),
    7: lambda pixels: pixels[::-1, ::-1].swapaxes(0, 1),
    8: lambda pixels: np.rot90(pixels),
}
_BLOCK_PIXELS = 1 << 16
"""Pixels converted at a time: what a conversion holds besides is a few megabytes at any size."""


def find_pictures(folder: Path) -> list[Path]:
    """Return the pictures anywhere below a folder, sorted.

    What begins with a dot is not meant to be seen: macOS puts a ``._x.png`` that is no picture
    beside each ``x.png`` on foreign disks, and viewers keep thumbnails in hidden folders.
    """
    return sorted(
        path
        for path in folder.rglob("*")
        if path.suffix.lower() in SUFFIXES
        and not any(part.startswith(".") for part in path.relative_to(folder).parts)
        and path.is_file()
    )


def decode(blob: bytes, name: str) -> Pixels:
    """Return the pixels of one encoded picture; ``name`` is what an error calls it."""
    if blob.startswith(_JPEG_SIGNATURE) and has_more_scans(blob, _MAX_SCANS):
        raise DataError(
            f"{name}: the JPEG has more than {_MAX_SCANS} scans, which only cost time; save it anew"
        )
    size = plain_jpeg_size(blob)
    if size is not None:
        _check_size(size, name)
        fast = _decode_plain_jpeg(blob)
        if fast is not None:
            return fast
    try:
        return _decode_with_pillow(blob, name)
    except DataError:
        raise
    except (Image.DecompressionBombError, Image.DecompressionBombWarning) as error:
        raise PictureTooLarge(f"{name}: {error}; the limit is {MAX_PIXELS} pixels") from error
    except Exception as error:  # Pillow answers damaged files with nearly any exception type
        raise DataError(
            f"{name}: expected a JPEG, PNG, WebP, BMP or PGM/PPM picture, "
            f"but it cannot be decoded ({_reason(error, blob)}); replace or remove the file"
        ) from error


def load_pixels(source: ImageSource) -> Pixels:
    """Read and decode one image of a data set."""
    return decode(source.read(), source.id)


def image_sha(source: ImageSource) -> str:
    """Return the sha256 of the encoded picture; a file is read again only when it has changed."""
    if source.path is None or source.blob is not None:
        return hashlib.sha256(source.read()).hexdigest()
    try:
        state = source.path.stat()
    except OSError as error:
        raise DataError(f"{source.id}: cannot be read ({error.strerror or error})") from error
    key = (str(source.path), state.st_size, state.st_mtime_ns)
    known = _digests.get(key)
    if known is None:
        known = _digests[key] = hashlib.sha256(source.read()).hexdigest()
    return known


def header_size(blob: bytes, name: str) -> tuple[int, int]:
    """Return (height, width) as the header states them, without decoding the picture."""
    size = plain_jpeg_size(blob)
    if size is not None:
        return size
    try:
        with _open(blob) as picture:
            return picture.height, picture.width
    except (Image.DecompressionBombError, Image.DecompressionBombWarning) as error:
        raise PictureTooLarge(f"{name}: {error}; the limit is {MAX_PIXELS} pixels") from error
    except Exception as error:  # as in decode
        raise DataError(f"{name}: no readable picture header ({_reason(error, blob)})") from error


def to_images(pixels: Sequence[Pixels]) -> Images:
    """Stack pictures of one size into float32 ``(N, 3, H, W)`` in [0, 1]."""
    if not pixels:
        raise DataError("expected at least one picture to stack, got none")
    shapes = {picture.shape for picture in pixels}
    if len(shapes) > 1:
        sizes = ", ".join(f"{shape[0]}x{shape[1]}" for shape in sorted(shapes)[:4])
        raise DataError(
            f"expected pictures of one size, got {sizes}; align or resize them first "
            "(onnxfr align IN OUT)"
        )
    height, width, channels = pixels[0].shape
    images = np.empty((len(pixels), channels, height, width), dtype=np.float32)
    together = np.stack(pixels)
    for channel in range(channels):
        np.divide(together[..., channel], np.float32(255), out=images[:, channel])
    return images


def _check_size(size: tuple[int, int], name: str) -> None:
    height, width = size
    if height * width > MAX_PIXELS:
        raise DataError(
            f"{name}: the header announces {width}x{height} pixels, more than the limit of "
            f"{MAX_PIXELS}; scale the picture down"
        )


def _decode_plain_jpeg(blob: bytes) -> Pixels | None:
    try:
        pixels = cv2.imdecode(
            np.frombuffer(blob, dtype=np.uint8),
            cv2.IMREAD_COLOR_RGB | cv2.IMREAD_IGNORE_ORIENTATION,
        )
    except cv2.error:
        return None
    return None if pixels is None else np.asarray(pixels, dtype=np.uint8)


def _open(blob: bytes) -> Image.Image:
    if blob.startswith(_PLAIN_PNM):
        # Pillow copies what is left of the text for every comment: minutes for a megabyte of them.
        blob = _PNM_COMMENTS.sub(b"", blob)
    return Image.open(io.BytesIO(blob), formats=FORMATS)


def _decode_with_pillow(blob: bytes, name: str) -> Pixels:
    with _open(blob) as picture:
        _check_size((picture.height, picture.width), name)
        if picture.mode == "F":
            raise DataError(f"{name}: floating-point pictures are not accepted; save it as 8-bit")
        picture.load()
        turn = _TURNS.get(picture.getexif().get(_ORIENTATION_TAG, 1))
        deep = _is_deep_colour_png(blob)
        pixels = None if deep else _flatten(picture)
        # Two readers' copies of one picture are not held at a time.
        picture.close()
    if pixels is None:
        pixels = _deep_png(blob, name)
    return pixels if turn is None else np.ascontiguousarray(turn(pixels))


def _is_deep_colour_png(blob: bytes) -> bool:
    # Pillow drops the low byte of 16-bit colour (and grey + alpha) PNGs; plain grey it keeps.
    return blob.startswith(_PNG_SIGNATURE) and blob[24:25] == b"\x10" and blob[25:26] != b"\x00"


def _deep_png(blob: bytes, name: str) -> Pixels:
    deep = cv2.imdecode(np.frombuffer(blob, np.uint8), cv2.IMREAD_UNCHANGED)
    if deep is None or deep.ndim != 3:
        raise DataError(
            f"{name}: expected a 16-bit colour PNG, but OpenCV cannot decode it; "
            "replace or remove the file"
        )
    pixels = np.empty((*deep.shape[:2], 3), dtype=np.uint8)
    for rows in _blocks(*deep.shape[:2]):
        scaled = _scale(deep[rows])
        colours = scaled[:, :, 2::-1]
        if scaled.shape[2] == 4:
            layer = np.concatenate([colours, scaled[:, :, 3:]], axis=2)
            pixels[rows] = np.asarray(_on_black(Image.fromarray(layer)))
        else:
            pixels[rows] = colours
    return pixels


def _flatten(picture: Image.Image) -> Pixels:
    """Any mode to RGB, a few rows at a time: what is between both may be several times as large."""
    pixels = np.empty((picture.height, picture.width, 3), dtype=np.uint8)
    for rows in _blocks(picture.height, picture.width):
        part = picture.crop((0, rows.start, picture.width, rows.stop))
        if part.mode.startswith("I"):
            pixels[rows] = _scale(np.asarray(part))[:, :, None]
        elif part.has_transparency_data:
            pixels[rows] = np.asarray(_on_black(part))
        else:
            pixels[rows] = np.asarray(part if part.mode == "RGB" else part.convert("RGB"))
    return pixels


def _blocks(height: int, width: int) -> Iterator[slice]:
    step = max(1, _BLOCK_PIXELS // max(1, width))
    return (slice(top, min(top + step, height)) for top in range(0, height, step))


def _scale(values: NDArray[Any]) -> Pixels:
    """16-bit values to 8 bits, rounded: 65535 becomes 255."""
    wide: NDArray[np.uint32] = np.clip(values, 0, 65535).astype(np.uint32)
    # 65535 is 255 * 257, so dividing by 257 scales; it is odd, so nothing lies halfway.
    wide += 128
    wide //= 257
    return wide.astype(np.uint8)


def _on_black(picture: Image.Image) -> Image.Image:
    layer = picture.convert("RGBA")
    black = Image.new("RGBA", layer.size, (0, 0, 0, 255))
    return Image.alpha_composite(black, layer).convert("RGB")


def _reason(error: Exception, blob: bytes) -> str:
    if not blob:
        return "the file is empty"
    if isinstance(error, UnidentifiedImageError):
        return "unknown or damaged format"
    return f"{type(error).__name__}: {error}" if str(error) else type(error).__name__
