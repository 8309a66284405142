"""What the attacker holds, and what is refused."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from onnxfr.errors import DataError
from onnxfr.probe import Probe, framed, round8


def make(rows: int = 3) -> Probe:
    pictures = np.random.default_rng(0).random((rows, 3, 6, 6), dtype=np.float32)
    return Probe(
        pictures,
        tuple(f"p{k}" for k in range(rows)),
        references=pictures[::-1].copy(),
        landmarks=np.zeros((rows, 5, 2), np.float32),
        pool=pictures[:1],
    )


def test_taking_rows_takes_everything_but_the_pool() -> None:
    probe = replace(make(), strangers=np.array([[True], [True], [False]]))
    some = probe.take(np.array([2, 0]))
    assert some.ids == ("p2", "p0") and len(some) == 2
    assert (some.images == probe.images[[2, 0]]).all()
    assert some.references is not None and probe.references is not None
    assert (some.references == probe.references[[2, 0]]).all()
    assert some.pool is probe.pool
    assert some.strangers is not None and some.strangers.tolist() == [[False], [True]]


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"images": np.zeros((3, 3, 6, 6))}, "float32"),
        ({"images": np.full((3, 3, 6, 6), 255, np.float32)}, "divide bytes"),
        ({"images": np.full((3, 3, 6, 6), np.nan, np.float32)}, "NaN"),
        ({"images": np.zeros((3, 6, 6, 3), np.float32)}, r"\(N, 3, H, W\)"),
        ({"ids": ("a", "b")}, "3 pair ids"),
        ({"references": None}, "references"),
        ({"references": np.zeros((2, 3, 6, 6), np.float32)}, "3 references"),
        ({"starts": np.zeros((3, 3, 5, 5), np.float32)}, "starts of shape"),
        ({"strangers": np.ones((3, 2), np.bool_)}, r"strangers \(3, 1\)"),
        ({"strangers": np.ones((3, 1), np.bool_), "pool": None}, r"strangers \(3, 0\)"),
        ({"landmarks": np.zeros((3, 5, 3), np.float32)}, "landmarks"),
    ],
)
def test_nonsense_is_refused(change: dict[str, Any], words: str) -> None:
    with pytest.raises(DataError, match=words):
        replace(make(), **change)


def test_rounding_to_8_bits_gives_multiples_of_a_grey_level() -> None:
    rounded = round8(make().images)
    assert rounded.dtype == np.float32
    np.testing.assert_allclose(rounded * 255, np.round(rounded * 255), atol=1e-4)


@pytest.mark.parametrize(
    ("size", "inside"),
    [
        ((6, 8), (slice(0, 6), slice(0, 8))),
        ((6, 12), (slice(0, 6), slice(2, 10))),
        ((20, 16), (slice(4, 16), slice(0, 16))),
        ((4, 4), (slice(0, 3), slice(0, 4))),
    ],
)
def test_a_picture_keeps_its_proportions_in_another_frame(
    size: tuple[int, int], inside: tuple[slice, slice]
) -> None:
    whole = framed(np.ones((3, 6, 8), np.float32), size)
    assert whole.shape == (3, *size) and whole.dtype == np.float32
    assert (whole[:, *inside] == 1).all()
    assert whole.sum() == whole[:, *inside].size
