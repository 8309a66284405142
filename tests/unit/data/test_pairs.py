from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from onnxfr.data.builder import PairBuilder, inside
from onnxfr.data.loaders import LOADERS
from onnxfr.data.pairs import ImageSource, PairSet, Problem, open_pairs
from onnxfr.errors import DataError, UnknownName


def build(pairs: int = 60, folds: int = 3, order: int | None = None) -> PairSet:
    builder = PairBuilder("toy")
    rows = list(range(pairs))
    if order is not None:
        np.random.default_rng(order).shuffle(rows)
    for k in rows:
        ids = [builder.image(ImageSource(f"p{k}/{side}", blob=b"x")) for side in "ab"]
        builder.pair(ids[0], ids[1], same=k % 2 == 0, fold=k % folds)
    return builder.build()


def test_one_image_with_itself_and_repeats_are_recorded_and_skipped() -> None:
    builder = PairBuilder("toy")
    for name in "abcd":
        builder.image(ImageSource(name, blob=b"x"))
    builder.pair("a", "a", True)
    builder.pair("a", "b", True)
    builder.pair("b", "a", True)
    builder.pair("c", "d", False)
    pairs = builder.build()
    assert pairs.pair_ids() == ["a|b", "c|d"]
    assert [problem.name for problem in pairs.problems] == ["a|a", "b|a"]
    assert "itself" in pairs.problems[0].reason
    assert "more than once" in pairs.problems[1].reason


def test_a_contradicted_pair_is_left_out_altogether() -> None:
    builder = PairBuilder("toy")
    for name in "abc":
        builder.image(ImageSource(name, blob=b"x"))
    builder.pair("a", "b", True)
    builder.pair("a", "b", False)
    builder.pair("a", "c", False)
    assert builder.build().pair_ids() == ["a|c"]


def test_strict_names_the_problems() -> None:
    builder = PairBuilder("toy", strict=True)
    for k in range(7):
        builder.problem(f"file{k}", "is gone")
    with pytest.raises(DataError, match=r"7 problem\(s\): file0: is gone.*and 2 more"):
        builder.build()


def test_nothing_left_is_an_error_that_says_why() -> None:
    builder = PairBuilder("toy")
    builder.problem("a.jpg", "is gone")
    with pytest.raises(DataError, match=r"no usable pair.*a\.jpg"):
        builder.build()


def test_images_not_needed_by_any_pair_are_dropped() -> None:
    builder = PairBuilder("toy")
    for name in "abc":
        builder.image(ImageSource(name, blob=b"x"))
    builder.pair("c", "a", True)
    assert [image.id for image in builder.build().images] == ["c", "a"]


@pytest.mark.parametrize("name", ["../x", "/x", "a/../../x", "..", "", "C:/x", "a\0b", "..\\x"])
def test_names_that_leave_the_folder(name: str) -> None:
    assert inside("", name) is None


def test_names_that_stay() -> None:
    assert inside("Protocol", "../Data/a.jpg") == "Data/a.jpg"
    assert inside("", "a//b/./c.jpg") == "a/b/c.jpg"
    assert inside("", "a\\b.jpg") == "a/b.jpg"


def test_subset_keeps_rows_and_only_their_images() -> None:
    pairs = replace(build(), group=tuple(str(k) for k in range(60)))
    part = pairs.subset([7, 3, 3])
    assert part.pair_ids() == ["p7/a|p7/b", "p3/a|p3/b", "p3/a|p3/b"]
    assert len(part.images) == 4
    assert part.same.tolist() == [False, False, False]
    assert part.fold is not None and part.fold.tolist() == [1, 0, 0]
    assert part.group == ("7", "3", "3")
    assert len(pairs.subset([])) == 0


@settings(max_examples=30, deadline=None)
@given(st.integers(1, 70), st.integers(0, 5), st.integers(0, 5))
def test_draw_is_balanced_spread_and_independent_of_order(n: int, seed: int, order: int) -> None:
    drawn = build().draw(n, seed)
    assert len(drawn) == min(n, 60)
    assert abs(int(drawn.same.sum()) * 2 - len(drawn)) <= 1
    assert drawn.fold is not None
    for same in (True, False):
        counts = np.bincount(drawn.fold[drawn.same == same], minlength=3)
        assert counts.max() - counts.min() <= 1
    assert set(build(order=order).draw(n, seed).pair_ids()) == set(drawn.pair_ids())


def test_a_smaller_draw_is_part_of_a_larger_and_the_seed_matters() -> None:
    small, large = build().draw(10, 1), build().draw(30, 1)
    assert set(small.pair_ids()) < set(large.pair_ids())
    assert set(build().draw(10, 2).pair_ids()) != set(small.pair_ids())


def test_draw_fills_up_from_the_other_class() -> None:
    pairs = build()
    impostors = pairs.subset(np.flatnonzero(~pairs.same))
    assert len(impostors.draw(10, 0)) == 10
    with pytest.raises(DataError):
        pairs.draw(0, 0)


def test_fingerprint_follows_everything_the_protocol_says() -> None:
    pairs = build()
    same = pairs.same.copy()
    same[0] = not same[0]
    points = np.zeros((5, 2), np.float32)
    images = (replace(pairs.images[0], landmarks=points), *pairs.images[1:])
    prints = {
        pairs.fingerprint(),
        replace(pairs, same=same).fingerprint(),
        replace(pairs, fold=None).fingerprint(),
        replace(pairs, aligned=True).fingerprint(),
        replace(pairs, left=pairs.right, right=pairs.left).fingerprint(),
        replace(pairs, images=images).fingerprint(),
        pairs.subset(range(59)).fingerprint(),
    }
    assert len(prints) == 7
    assert pairs.fingerprint() == build().fingerprint()


def test_without_drops_the_pairs_of_bad_images_and_records_them() -> None:
    pairs = build()
    kept = pairs.without({3: Problem("p1/b", "is broken")})
    assert len(kept) == 59
    assert "p1/a|p1/b" not in kept.pair_ids()
    assert kept.problems == (Problem("p1/b", "is broken"),)
    assert pairs.without({}) is pairs


def test_spec_errors_say_what_to_write() -> None:
    with pytest.raises(
        UnknownName, match="known: bin, cfp, csv, folder, lfw, orl, pairlist, suite, talfw, ytf"
    ):
        open_pairs("lfv:somewhere")
    with pytest.raises(DataError, match=r"lfw:PATH"):
        open_pairs("lfw:")
    with pytest.raises(DataError, match="no option 'foo'"):
        open_pairs("folder:x,foo=1")
    with pytest.raises(DataError, match="takes no path"):
        open_pairs("orl:somewhere")
    with pytest.raises(DataError, match="expected a folder"):
        open_pairs("folder:/no/such/place")
    with pytest.raises(DataError, match="whole number above 0"):
        open_pairs("folder:.,genuine=none")
    with pytest.raises(DataError, match="one of yes, no"):
        open_pairs("folder:.,aligned=maybe")


def test_a_bare_path_gets_a_suggestion(tmp_path: object) -> None:
    with pytest.raises(UnknownName, match=f"did you mean folder:{tmp_path}"):
        open_pairs(str(tmp_path))


def test_every_loader_tells_its_usage() -> None:
    for name, found in LOADERS.items():
        assert found.usage.startswith(name)
        assert found.summary
