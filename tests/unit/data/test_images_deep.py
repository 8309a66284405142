"""Sixteen bits to eight, and pictures converted a few rows at a time."""

from __future__ import annotations

import io
import tracemalloc
from collections.abc import Callable

import cv2
import numpy as np
import pytest
from numpy.typing import NDArray
from PIL import Image

from onnxfr.data import images
from onnxfr.data.images import decode
from onnxfr.types import Pixels


def encoded(picture: Image.Image, kind: str, **options: object) -> bytes:
    out = io.BytesIO()
    picture.save(out, kind, **options)
    return out.getvalue()


def deep_png(values: NDArray[np.uint16]) -> bytes:
    done, blob = cv2.imencode(".png", values)
    assert done
    return blob.tobytes()


def deep_noise(*shape: int) -> NDArray[np.uint16]:
    return np.random.default_rng(0).integers(0, 65536, shape, dtype=np.uint16)


def exactly(values: NDArray[np.integer]) -> Pixels:
    """What every value becomes, in integers that cannot overflow."""
    wide = np.clip(values.astype(np.int64), 0, 65535)
    return ((wide * 255 + 32767) // 65535).astype(np.uint8)


def on_black(layer: Image.Image) -> Pixels:
    black = Image.new("RGBA", layer.size, (0, 0, 0, 255))
    return np.array(Image.alpha_composite(black, layer.convert("RGBA")).convert("RGB"))


def test_sixteen_bit_values_are_scaled_with_rounding() -> None:
    values = np.array([[0, 128, 129, 256, 257, 32767, 65407, 65535]], dtype=np.uint16)
    exact = np.floor(values / 257 + 0.5).astype(np.uint8)
    assert exact.tolist() == [[0, 0, 1, 1, 1, 127, 255, 255]]
    assert (exact != values >> 8).any(), "truncation would pass unnoticed"
    grey = decode(encoded(Image.fromarray(values), "PNG"), "a")
    pgm = decode(b"P5 8 1 65535\n" + values.astype(">u2").tobytes(), "a.pgm")
    done, colour = cv2.imencode(".png", np.dstack([values, values * 0, values[:, ::-1]]))
    assert done
    rgb = decode(colour.tobytes(), "a")
    assert np.array_equal(grey[..., 0], exact)
    assert np.array_equal(pgm[..., 1], exact)
    assert np.array_equal(rgb[..., 2], exact)
    assert np.array_equal(rgb[..., 0], exact[:, ::-1])


def test_sixteen_bit_colour_with_alpha() -> None:
    values = np.full((2, 2, 4), 65535, dtype=np.uint16)
    values[0, 0, 3] = 0
    done, blob = cv2.imencode(".png", values)
    assert done
    assert decode(blob.tobytes(), "a")[:, :, 0].tolist() == [[0, 255], [255, 255]]


def test_a_ten_bit_pgm_is_scaled_by_its_own_maximum() -> None:
    values = np.array([[0, 511, 1023]], dtype=">u2")
    pixels = decode(b"P5 3 1 1023\n" + values.tobytes(), "a.pgm")
    assert pixels[0, :, 0].tolist() == [0, 127, 255]


def test_all_sixteen_bit_values_are_rounded_alike() -> None:
    values = np.arange(65536, dtype=np.uint16).reshape(256, 256)
    assert np.array_equal(
        decode(encoded(Image.fromarray(values), "PNG"), "a")[..., 0], exactly(values)
    )
    colour = np.dstack([values, values[::-1], values.T])
    assert np.array_equal(decode(deep_png(colour), "a"), exactly(colour[..., ::-1]))
    beyond = np.array([[-70_000, -1, 65_536, 2**31 - 1]], dtype=np.int32)
    assert np.array_equal(images._scale(beyond), exactly(beyond))


@pytest.mark.parametrize("size", [(1, 301), (301, 1), (50, 41)])
def test_blocks_of_rows_change_no_pixel(
    size: tuple[int, int], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(images, "_BLOCK_PIXELS", 100)
    deep = deep_noise(*size, 4)
    assert np.array_equal(decode(deep_png(deep[..., :3]), "a"), exactly(deep[..., 2::-1]))
    layer = Image.fromarray(exactly(deep[..., [2, 1, 0, 3]]))
    assert np.array_equal(decode(deep_png(deep), "a"), on_black(layer))
    assert np.array_equal(decode(encoded(layer, "PNG"), "a"), on_black(layer))
    grey = np.ascontiguousarray(deep[..., 0])
    found = decode(encoded(Image.fromarray(grey), "PNG"), "a")
    assert np.array_equal(found, np.repeat(exactly(grey)[..., None], 3, axis=2))
    palette = layer.convert("RGB").quantize(9)
    for options in ({}, {"transparency": bytes(range(0, 252, 28))}):
        blob = encoded(palette, "PNG", **options)
        expected = on_black(Image.open(io.BytesIO(blob)).convert("RGBA"))
        assert np.array_equal(decode(blob, "a"), expected)


@pytest.mark.parametrize(
    "blob",
    [
        lambda: deep_png(np.zeros((1024, 1024, 4), np.uint16)),
        lambda: deep_png(np.zeros((1024, 1024, 3), np.uint16)),
        lambda: encoded(Image.fromarray(np.zeros((1024, 1024), np.uint16)), "PNG"),
    ],
    ids=["alpha", "colour", "grey"],
)
def test_a_small_file_does_not_cost_many_times_its_pixels(blob: Callable[[], bytes]) -> None:
    content = blob()
    tracemalloc.start()
    try:
        pixels = decode(content, "a")
        # What NumPy and OpenCV hold is seen here; one 64-bit copy of every value would be 8 times.
        assert tracemalloc.get_traced_memory()[1] < 5 * pixels.nbytes
    finally:
        tracemalloc.stop()
