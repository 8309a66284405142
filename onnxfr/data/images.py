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
from collections.abc import Sequence

import cv2
import numpy as np
from numpy.typing import NDArray
from PIL import Image, UnidentifiedImageError

from onnxfr.data.jpeg import plain_jpeg_size
from onnxfr.data.pairs import ImageSource
from onnxfr.errors import DataError
from onnxfr.types import Images, Pixels

MAX_PIXELS = 64_000_000
"""Largest picture accepted, in pixels; checked in the header, before anything is decoded."""

FORMATS = ("JPEG", "PNG", "WEBP", "BMP", "PPM")
SUFFIXES = (".jpg", ".jpeg", ".png", ".webp", ".bmp", ".pgm", ".ppm")
"""File names taken for pictures where a folder is searched."""

_PNG_SIGNATURE = b"\x89PNG\r\n\x1a\n"
_ORIENTATION_TAG = 0x0112
_digests: dict[tuple[str, int, int], str] = {}
_TURNS = {
    2: Image.Transpose.FLIP_LEFT_RIGHT,
    3: Image.Transpose.ROTATE_180,
    4: Image.Transpose.FLIP_TOP_BOTTOM,
    5: Image.Transpose.TRANSPOSE,
    6: Image.Transpose.ROTATE_270,
    7: Image.Transpose.TRANSVERSE,
    8: Image.Transpose.ROTATE_90,
}


def decode(blob: bytes, name: str) -> Pixels:
    """Return the pixels of one encoded picture; ``name`` is what an error calls it."""
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
        raise DataError(f"{name}: {error}; the limit is {MAX_PIXELS} pixels") from error
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
    return Image.open(io.BytesIO(blob), formats=FORMATS)


def _decode_with_pillow(blob: bytes, name: str) -> Pixels:
    with _open(blob) as picture:
        _check_size((picture.height, picture.width), name)
        if picture.mode == "F":
            raise DataError(f"{name}: floating-point pictures are not accepted; save it as 8-bit")
        picture.load()
        flat = _deep_png(blob) if _is_deep_colour_png(blob) else picture
        turn = _TURNS.get(picture.getexif().get(_ORIENTATION_TAG, 1))
        flat = _flatten(flat)
        return np.array(flat if turn is None else flat.transpose(turn), dtype=np.uint8)


def _deep_png(blob: bytes) -> Image.Image:
    deep = cv2.imdecode(np.frombuffer(blob, np.uint8), cv2.IMREAD_UNCHANGED)
    channels = [Image.fromarray(channel) for channel in cv2.split(_scale(np.asarray(deep)))]
    blue_green_red, alpha = channels[:3], channels[3:]
    return Image.merge("RGBA" if alpha else "RGB", [*reversed(blue_green_red), *alpha])


def _is_deep_colour_png(blob: bytes) -> bool:
    # Pillow drops the low byte of 16-bit colour (and grey + alpha) PNGs; plain grey it keeps.
    return blob.startswith(_PNG_SIGNATURE) and blob[24:25] == b"\x10" and blob[25:26] != b"\x00"


def _scale(values: NDArray[np.generic]) -> Pixels:
    """16-bit values to 8 bits, rounded: 65535 becomes 255."""
    wide = np.clip(values.astype(np.int64), 0, 65535)
    return ((wide * 255 + 32767) // 65535).astype(np.uint8)


def _flatten(picture: Image.Image) -> Image.Image:
    """Any mode to RGB; what is transparent becomes black."""
    if picture.mode.startswith("I"):
        return Image.fromarray(_scale(np.asarray(picture))).convert("RGB")
    if picture.has_transparency_data:
        layer = picture.convert("RGBA")
        black = Image.new("RGBA", layer.size, (0, 0, 0, 255))
        return Image.alpha_composite(black, layer).convert("RGB")
    return picture if picture.mode == "RGB" else picture.convert("RGB")


def _reason(error: Exception, blob: bytes) -> str:
    if not blob:
        return "the file is empty"
    if isinstance(error, UnidentifiedImageError):
        return "unknown or damaged format"
    return f"{type(error).__name__}: {error}" if str(error) else type(error).__name__
