"""The noises follow their stated distributions."""

from __future__ import annotations

import numpy as np
import pytest
from scipy import stats

from onnxfr.corruptions import corrupt
from onnxfr.corruptions.noise import poisson_table

IDS = [str(i) for i in range(8)]


def flat(value: int) -> np.ndarray:
    return np.full((8, 112, 112, 3), value, dtype=np.uint8)


def test_gaussian_noise_has_the_stated_deviation() -> None:
    out = corrupt(flat(128), "gaussian_noise", 1, ids=IDS).astype(float)
    # Truncation takes half a grey level off the mean.
    assert out.mean() == pytest.approx(127.5, abs=0.2)
    assert out.std() == pytest.approx(0.08 * 255, rel=0.01)


def test_speckle_noise_grows_with_the_signal() -> None:
    dark = corrupt(flat(40), "speckle_noise", 2, ids=IDS).std()
    bright = corrupt(flat(120), "speckle_noise", 2, ids=IDS).std()
    assert bright / dark == pytest.approx(3, rel=0.03)


@pytest.mark.parametrize("photons", [60, 25, 12, 5, 3])
def test_alias_table_holds_the_exact_poisson_chances(photons: int) -> None:
    table = poisson_table(photons)
    bins = 1 << table.bits
    for value in (0, 1, 77, 128, 254, 255):
        rows = slice(value * bins, (value + 1) * bins)
        keep = table.keep[rows] / 2.0**32
        chances = np.zeros(256)
        np.add.at(chances, table.first[rows], keep / bins)
        np.add.at(chances, table.second[rows], (1 - keep) / bins)
        counts = np.arange(photons + 1)
        expected = stats.poisson.pmf(counts, value / 255 * photons)
        expected[-1] = stats.poisson.sf(photons - 1, value / 255 * photons)
        levels = np.trunc(counts / photons * 255).astype(int)
        assert chances[levels] == pytest.approx(expected, abs=2e-9)
        assert chances.sum() == pytest.approx(1)


def test_shot_noise_draws_what_the_table_says() -> None:
    out = corrupt(flat(100), "shot_noise", 4, ids=IDS)
    counts = np.arange(5)
    levels = np.trunc(counts / 5 * 255).astype(int)
    observed = [np.count_nonzero(out == level) for level in levels]
    expected = stats.poisson.pmf(counts, 100 / 255 * 5) * out.size
    assert stats.chisquare([*observed, out.size - sum(observed)],
                           [*expected, out.size - sum(expected)]).pvalue > 1e-4  # fmt: skip


def test_impulse_noise_hits_single_values_evenly() -> None:
    out = corrupt(flat(100), "impulse_noise", 5, ids=IDS)
    assert np.mean(out == 0) == pytest.approx(0.135, rel=0.02)
    assert np.mean(out == 255) == pytest.approx(0.135, rel=0.02)
    hit = (out != 100).any(axis=-1).mean()
    assert hit == pytest.approx(1 - 0.73**3, rel=0.02)


def test_salt_pepper_of_the_code_draws_with_replacement() -> None:
    shares = [5.8, 11.3, 16.5, 21.3, 25.9]
    for severity, percent in enumerate(shares, start=1):
        out = corrupt(flat(100), "salt_pepper", severity, ids=IDS)
        hit = (out != 100).any(axis=-1)
        assert 100 * hit.mean() == pytest.approx(percent, abs=0.3)
        assert (out[hit] == out[hit][:, :1]).all()
        assert np.mean(out[hit] == 255) == pytest.approx(0.5, abs=0.03)


def test_salt_pepper_of_the_paper_hits_so_many_distinct_pixels() -> None:
    for severity, percent in enumerate([0.01, 0.05, 0.1, 0.2, 0.5], start=1):
        out = corrupt(flat(100), "salt_pepper", severity, ids=IDS, preset="oodface-paper")
        hits = (out != 100).any(axis=-1).reshape(8, -1).sum(axis=1)
        assert (hits == int(percent / 100 * 112 * 112)).all()


@pytest.mark.parametrize("name", ["gaussian_noise", "shot_noise", "salt_pepper"])
def test_ids_and_seeds_decide_the_draws(name: str) -> None:
    images = flat(100)[:1]
    first = corrupt(images, name, 3, ids=["a"])
    assert (first != corrupt(images, name, 3, ids=["b"])).any()
    assert (first != corrupt(images, name, 3, ids=["a"], seed=1)).any()
