"""Float pictures, as attacks hold them, under corruptions."""

from __future__ import annotations

import numpy as np

from onnxfr.corruptions import corrupt, corrupt_images


def test_float_pictures_give_the_pixels_of_the_picture_file() -> None:
    pixels = np.random.default_rng(0).integers(0, 256, (3, 112, 96, 3), dtype=np.uint8)
    ids = ["a", "b", "c"]
    images = pixels.transpose(0, 3, 1, 2).astype(np.float32) / 255
    before = images.copy()
    expected = corrupt(pixels, "shot_noise", 3, ids=ids, seed=4)
    out = corrupt_images(images, "shot_noise", 3, ids=ids, seed=4)
    assert out.dtype == np.float32 and out.shape == images.shape
    assert out.flags.c_contiguous
    assert (np.rint(out.transpose(0, 2, 3, 1) * 255) == expected).all()
    assert (images == before).all()


def test_what_leaves_the_range_is_clipped_as_a_file_would() -> None:
    images = np.full((1, 3, 112, 112), 1.4, dtype=np.float32)
    clipped = np.ones_like(images)
    out = corrupt_images(images, "jpeg", 1, ids=["x"])
    assert (out == corrupt_images(clipped, "jpeg", 1, ids=["x"])).all()
