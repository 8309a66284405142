"""Noise cut out of the table is as good as a generator's, and belongs to the row that draws it."""

from __future__ import annotations

import numpy as np
import pytest

from onnxfr.rng import gaussian, stream

SHAPE = (3, 112, 112)


def test_noise_has_the_moments_of_a_gaussian() -> None:
    drawn = gaussian(stream(0, "row"), 64, SHAPE).reshape(64, -1)
    size = drawn.shape[1]
    # The standard errors of 64 independent draws, five times.
    assert np.abs(drawn.mean(axis=1)).max() < 5 / np.sqrt(size)
    assert np.abs(drawn.var(axis=1) - 1).max() < 5 * np.sqrt(2 / size)
    assert abs(float((drawn**4).mean()) - 3) < 0.05
    assert abs(float(drawn.mean())) < 5 / np.sqrt(drawn.size)


def test_draws_are_uncorrelated_with_one_another_and_from_pixel_to_pixel() -> None:
    drawn = gaussian(stream(1, "row"), 96, SHAPE).reshape(96, -1)
    size = drawn.shape[1]
    products = drawn @ drawn.T / size
    apart = products[~np.eye(len(drawn), dtype=bool)]
    assert np.abs(apart).max() < 6 / np.sqrt(size)
    assert apart.std() == pytest.approx(1 / np.sqrt(size), rel=0.1)
    for lag in (1, 112, 4096):
        along = (drawn[:, lag:] * drawn[:, :-lag]).mean()
        assert abs(float(along)) < 5 / np.sqrt(drawn.size)


def test_every_direction_gets_its_share_of_the_noise() -> None:
    random = np.random.default_rng(2)
    drawn = gaussian(stream(2, "row"), 2000, (3, 16, 16)).reshape(2000, -1)
    axes = np.linalg.qr(random.standard_normal((drawn.shape[1], 20)))[0]
    shares = np.square(drawn @ axes).mean(axis=0)
    np.testing.assert_allclose(shares, 1, atol=5 * np.sqrt(2 / 2000))


def test_the_same_stream_draws_the_same_and_pieces_do_not_repeat() -> None:
    one, again = (gaussian(stream(3, "row"), 5, SHAPE) for _ in range(2))
    np.testing.assert_array_equal(one, again)
    other = gaussian(stream(3, "another row"), 5, SHAPE)
    assert np.abs(np.vdot(one, other)) < 6 * np.sqrt(one.size)
    together = gaussian(stream(4, "row"), 6, (3, 7, 5))
    random = stream(4, "row")
    apart = [gaussian(random, 2, (3, 7, 5)) for _ in range(3)]
    np.testing.assert_array_equal(together, np.concatenate(apart))


@pytest.mark.parametrize("shape", [(1,), (4096,), (4097,), (3, 300, 300), (0,)])
def test_any_size_can_be_drawn(shape: tuple[int, ...]) -> None:
    drawn = gaussian(stream(5, "row"), 2, shape)
    assert drawn.shape == (2, *shape) and drawn.dtype == np.float32
    assert np.isfinite(drawn).all()
