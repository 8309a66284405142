from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from onnxfr.data.pairs import PairSet, open_pairs
from onnxfr.errors import DataError

Draw = Callable[[str], Path]


@pytest.fixture
def read(tmp_path: Path, draw: Draw) -> Callable[[str], PairSet]:
    for name in ("a.png", "b.png", "sub/c.png"):
        draw(f"set/{name}")
    draw("outside.png")

    def write_and_open(text: str) -> PairSet:
        path = tmp_path / "set" / "mine.csv"
        path.write_text(text, encoding="utf-8-sig")
        return open_pairs(f"csv:{path}")

    return write_and_open


def test_plain_pairs(read: Callable[[str], PairSet]) -> None:
    pairs = read("left,right,same\na.png,b.png,1\na.png,sub/c.png,0\n")
    assert pairs.name == "mine"
    assert pairs.pair_ids() == ["a.png|b.png", "a.png|sub/c.png"]
    assert pairs.same.tolist() == [True, False]
    assert pairs.fold is None and pairs.group is None


def test_all_columns(read: Callable[[str], PairSet]) -> None:
    points = " ".join(str(k) for k in range(10))
    pairs = read(
        "Same, left, right, fold, group, left_landmarks, right_landmarks, left_identity\n"
        f"yes, a.png, b.png, 0, women, {points}, , ann\n"
        f"False, b.png, sub/c.png, 1, men, , 0;1;2;3;4;5;6;7;8;9.5,\n"
    )
    assert pairs.fold is not None and pairs.fold.tolist() == [0, 1]
    assert pairs.group == ("women", "men")
    assert pairs.images[0].identity == "ann"
    assert pairs.images[0].landmarks is not None
    assert np.array_equal(pairs.images[0].landmarks, np.arange(10).reshape(5, 2))
    assert pairs.images[1].landmarks is None
    assert pairs.images[2].landmarks is not None
    assert pairs.images[2].landmarks[4, 1] == 9.5


def test_an_image_keeps_the_landmarks_another_row_gave(read: Callable[[str], PairSet]) -> None:
    points = " ".join(str(k) for k in range(10))
    pairs = read(f"left,right,same,left_landmarks\na.png,b.png,1,\nb.png,sub/c.png,0,{points}\n")
    b = next(image for image in pairs.images if image.id == "b.png")
    assert b.landmarks is not None


def test_bad_rows_are_recorded_by_line(read: Callable[[str], PairSet], tmp_path: Path) -> None:
    pairs = read(
        "left,right,same,fold,left_landmarks\n"
        "a.png,b.png,1,,\n"
        "a.png,gone.png,1,,\n"
        "a.png,../outside.png,0,,\n"
        "a.png,sub/c.png,maybe,,\n"
        "a.png,sub/c.png,0,one,\n"
        "a.png,sub/c.png,0,,1 2 3\n"
        "a.png,sub/c.png,0,,x y\n"
        ",sub/c.png,0,,\n"
        "a.png\n"
    )
    assert len(pairs) == 1
    assert [problem.name for problem in pairs.problems] == [f"line {n}" for n in range(3, 11)]
    reasons = [problem.reason for problem in pairs.problems]
    assert "gone.png does not exist" in reasons[0]
    assert "absolute path instead" in reasons[1]


def test_rows_of_too_many_fields_and_huge_folds_are_left_out(
    read: Callable[[str], PairSet],
) -> None:
    pairs = read(
        "left,right,same,fold,group\n"
        "a.png,b.png,1,0,women,\n"
        "a.png,sub/c.png,0,0,women, old\n"
        f"b.png,sub/c.png,0,{'9' * 20},men\n"
        f"b.png,sub/c.png,0,{'9' * 5000},men\n"
    )
    assert pairs.pair_ids() == ["a.png|b.png"]
    assert [problem.name for problem in pairs.problems] == ["line 3", "line 4", "line 5"]
    assert "more fields than columns" in pairs.problems[0].reason
    assert "expected fold" in pairs.problems[1].reason


def test_what_is_said_twice_and_differently_is_told(read: Callable[[str], PairSet]) -> None:
    points = " ".join(str(k) for k in range(10))
    pairs = read(
        "left,right,same,left_identity,right_identity,left_landmarks\n"
        f"a.png,b.png,1,ann,ann,{points}\n"
        "a.png,sub/c.png,0,ann,ann,\n"
        f"a.png,sub/c.png,0,eve,bob,{points}.5\n"
        "b.png,sub/c.png,1,ann,bob,\n"
    )
    assert pairs.pair_ids() == ["a.png|b.png", "a.png|sub/c.png"]
    assert [image.identity for image in pairs.images] == ["ann", "ann", "bob"]
    assert [str(problem) for problem in pairs.problems] == [
        "line 3: same is 0, but the identities are 'ann' and 'ann'",
        "a.png: called 'ann' and 'eve'; the first is kept",
        "a.png: has other landmarks in a later line; the first are kept",
        "line 5: same is 1, but the identities are 'ann' and 'bob'",
    ]


def test_folds_and_groups_that_some_rows_lack_are_told(read: Callable[[str], PairSet]) -> None:
    pairs = read("left,right,same,fold,group\na.png,b.png,1,0,x\na.png,sub/c.png,0,,\n")
    assert pairs.fold is None and pairs.group is None
    assert [str(problem) for problem in pairs.problems] == [
        "column fold: 1 of 2 pairs have none, so it is ignored",
        "column group: 1 of 2 pairs have none, so it is ignored",
    ]


@pytest.mark.parametrize("points", [" ".join(map(str, range(12))), "7 9 " * 5])
def test_landmarks_that_no_template_can_take_are_refused(
    read: Callable[[str], PairSet], points: str
) -> None:
    row = f"b.png,sub/c.png,0,{points}\n"
    pairs = read(f"left,right,same,left_landmarks\na.png,b.png,1,\n{row}")
    assert pairs.pair_ids() == ["a.png|b.png"]
    (problem,) = pairs.problems
    assert problem.name == "line 3" and "expected five points" in problem.reason


def test_an_absolute_path_is_taken_at_its_word(
    read: Callable[[str], PairSet], tmp_path: Path
) -> None:
    outside = tmp_path / "outside.png"
    assert read(f"left,right,same\na.png,{outside},0\n").pair_ids() == [f"a.png|{outside}"]


@pytest.mark.parametrize(
    "head", ["", "left,right", "left,right,same,colour", "a.png,b.png,1", "left,left,right,same"]
)
def test_wrong_columns_are_named(read: Callable[[str], PairSet], head: str) -> None:
    with pytest.raises(DataError, match="expected the columns left,right,same"):
        read(f"{head}\na.png,b.png,1\n" if head else "")
