"""Search against brute force, whatever the blocks; rates by hand; memory as promised."""

from __future__ import annotations

import tracemalloc
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from onnxfr.errors import MetricError
from onnxfr.metrics import identification as ident
from onnxfr.metrics.thresholds import Resolution


def unit(rng: np.random.Generator, n: int, dim: int = 8) -> np.ndarray:
    vectors = rng.standard_normal((n, dim)).astype(np.float32)
    vectors /= np.linalg.norm(vectors, axis=1, keepdims=True)
    return vectors


def brute_force(
    probes: np.ndarray, probe_ids: np.ndarray, gallery: np.ndarray, gallery_ids: np.ndarray
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    people = np.unique(gallery_ids)
    scores = probes @ gallery.T
    table = np.stack([scores[:, gallery_ids == p].max(axis=1) for p in people], axis=1)
    mate, rank, other = [], [], []
    for row, name in zip(table, probe_ids, strict=True):
        own = people == name
        mate.append(row[own][0] if own.any() else -np.inf)
        rank.append(1 + int((row[~own] >= mate[-1]).sum()) if own.any() else 0)
        other.append(row[~own].max(initial=-np.inf))
    return np.array(mate), np.array(rank), np.array(other)


@given(st.integers(0, 10**6), st.integers(1, 40), st.integers(1, 25), st.integers(1, 6))
@settings(max_examples=40, deadline=None)
def test_search_is_brute_force_for_every_block_width(
    seed: int, templates: int, people: int, width: int
) -> None:
    rng = np.random.default_rng(seed)
    gallery, gallery_ids = unit(rng, templates), rng.integers(0, people, templates)
    probes, probe_ids = unit(rng, 9), rng.integers(0, people + 3, 9)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(ident, "_block_shape", lambda *_: (4, width))
        found = ident.search(probes, probe_ids, gallery, gallery_ids, max_rank=50)
    mate, rank, other = brute_force(probes, probe_ids, gallery, gallery_ids)
    np.testing.assert_allclose(found.mate_score, mate, atol=1e-6)
    np.testing.assert_allclose(found.other_score, other, atol=1e-6)
    np.testing.assert_array_equal(found.rank, rank)
    np.testing.assert_array_equal(found.mated, rank > 0)
    named = np.isfinite(other)
    closest = found.identities[found.other_id[named]]
    assert (closest != probe_ids[named]).all()


def test_a_short_candidate_list_keeps_every_rank_it_can_hold() -> None:
    rng = np.random.default_rng(5)
    gallery, ids = unit(rng, 300), np.arange(300)
    probes = gallery[:40] + 0.8 * unit(rng, 40)
    long = ident.search(probes, ids[:40], gallery, ids, max_rank=299)
    short = ident.search(probes, ids[:40], gallery, ids, max_rank=3)
    np.testing.assert_array_equal(short.rank, np.minimum(long.rank, 4))
    assert (long.rank > 4).any()


def toy() -> ident.SearchResult:
    gallery = np.eye(4, dtype=np.float32)
    probes = np.array(
        [[0.9, 0.1, 0, 0], [0.6, 0.5, 0, 0], [0, 0, 0.3, 0.7], [0.2, 0, 0, 0.1], [0.4, 0, 0, 0.8]],
        dtype=np.float32,
    )
    return ident.search(probes, list("abczz"), gallery, list("abcd"))


def test_rates_by_hand() -> None:
    found = toy()
    assert found.mated.tolist() == [True, True, True, False, False]
    assert found.rank.tolist() == [1, 2, 2, 0, 0]
    np.testing.assert_allclose([e.value for e in ident.cmc(found)[:2]], [1 / 3, 1.0])
    assert ident.fnir(found).value == pytest.approx(2 / 3)
    assert ident.fnir(found, 0.4, rank=2).value == pytest.approx(1 / 3)
    assert ident.fpir(found, 0.5).value == 0.5
    assert ident.fpir(found, 0.1).value == 1.0
    point = ident.dir_at_fpir(found, 0.5, data="toy")
    assert point.threshold.value == pytest.approx(0.2)
    assert point.threshold.origin == "toy@fpir=5e-1~unresolved"
    assert point.dir.value == pytest.approx(1 / 3)
    assert point.fpir.value == 0.5
    assert point.resolution is Resolution.UNRESOLVED


def test_cmc_never_falls_and_fnir_never_falls_with_the_threshold() -> None:
    rng = np.random.default_rng(0)
    gallery, ids = unit(rng, 200), np.arange(200)
    found = ident.search(gallery + 0.5 * unit(rng, 200), ids, gallery, ids, max_rank=200)
    hits = [e.value for e in ident.cmc(found)]
    assert (np.diff(hits) >= 0).all() and hits[-1] == 1.0
    misses = [ident.fnir(found, t, 5).value for t in np.linspace(-1, 1.5, 20)]
    assert (np.diff(misses) >= 0).all() and misses[-1] == 1.0


def test_a_bigger_gallery_never_helps_and_twins_go_against_the_system() -> None:
    rng = np.random.default_rng(2)
    gallery, ids = unit(rng, 500), np.arange(500)
    probes = gallery[:50] + unit(rng, 50)
    rank1 = [
        ident.cmc(ident.search(probes, ids[:50], gallery[:n], ids[:n]))[0].value
        for n in (50, 200, 500)
    ]
    assert rank1[0] >= rank1[1] >= rank1[2]
    same = np.array([[1, 0], [1, 0]], dtype=np.float32)
    assert ident.search(same[:1], ["a"], same, ["a", "b"]).rank.tolist() == [2]


def test_rejected_probes_miss_and_raise_no_alarm() -> None:
    gallery = np.eye(3, dtype=np.float32)
    probes = np.array([[1, 0, 0], [np.nan] * 3, [np.nan] * 3, [0, 0, 1]], dtype=np.float32)
    found = ident.search(
        probes, list("abzz"), gallery, list("abc"), rejected=[0, 1, 1, 0], max_rank=5
    )
    assert found.rank.tolist() == [1, 6, 0, 0]
    assert ident.fnir(found).value == 0.5
    assert ident.fpir(found, 0.5).value == 0.5
    assert ident.fpir(found, -1.0).value == 0.5
    everyone = ident.search(probes, list("abzz"), gallery, list("abc"), rejected=[1, 1, 1, 1])
    assert everyone.rank.tolist() == [51, 51, 0, 0]
    with pytest.raises(MetricError, match="rejected"):
        ident.dir_at_fpir(everyone, 0.1)


def test_memory_stays_bounded_on_a_mapped_gallery(tmp_path: Path) -> None:
    rng = np.random.default_rng(0)
    place = tmp_path / "gallery.npy"
    np.save(place, unit(rng, 200_000, 64))
    gallery = np.load(place, mmap_mode="r")
    ids = np.arange(200_000)
    probes = np.array(gallery[::4000]) + 0.05 * unit(rng, 50, 64)
    limit = 8 * 2**20
    order_and_ids = 8 * 8 * 200_000
    tracemalloc.start()
    found = ident.search(probes, ids[::4000], gallery, ids, memory=limit)
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert peak < limit + order_and_ids
    direct = probes @ np.asarray(gallery).T
    np.testing.assert_allclose(found.mate_score, direct[np.arange(50), ids[::4000]], atol=1e-5)
    assert ident.cmc(found)[0].value == 1.0


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"probes": np.ones((2, 5))}, "dimensions"),
        ({"probes": np.ones(4)}, "non-empty"),
        ({"gallery": np.ones((0, 4))}, "non-empty"),
        ({"probe_ids": ["a"]}, "exactly one identity"),
        ({"probe_ids": [1, 2]}, "one kind"),
        ({"probes": np.full((2, 4), np.nan)}, "NaN"),
        ({"gallery": np.full((4, 4), np.inf)}, "NaN or infinite"),
        ({"max_rank": 0}, "max_rank"),
        ({"memory": 10}, "MiB"),
    ],
)
def test_bad_searches_are_refused(change: dict[str, object], words: str) -> None:
    arguments: dict[str, object] = {
        "probes": np.eye(4)[:2],
        "probe_ids": ["a", "b"],
        "gallery": np.eye(4),
        "gallery_ids": list("abcd"),
    }
    with pytest.raises(MetricError, match=words):
        ident.search(**(arguments | change))  # type: ignore[arg-type]


def test_rates_without_their_probes_are_refused() -> None:
    only_mated = ident.search(np.eye(2), ["a", "b"], np.eye(2), ["a", "b"])
    with pytest.raises(MetricError, match="non-mated"):
        ident.fpir(only_mated, 0.5)
    with pytest.raises(MetricError, match="non-mated"):
        ident.dir_at_fpir(only_mated, 0.5)
    only_strangers = ident.search(np.eye(2), ["x", "y"], np.eye(2), ["a", "b"])
    with pytest.raises(MetricError, match="mated"):
        ident.cmc(only_strangers)
    with pytest.raises(MetricError, match="rank"):
        ident.fnir(only_mated, 0.5, rank=51)
