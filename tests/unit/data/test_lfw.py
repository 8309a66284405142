from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from onnxfr.data.pairs import open_pairs
from onnxfr.errors import DataError

PAIRS = "2\t1\nAnn\t1\t2\nAnn\t1\tBob\t1\nBob\t1\t2\nBob\t2\tAnn\t2\n"


@pytest.fixture
def lfw(tmp_path: Path, draw: Callable[[str], Path]) -> Path:
    for name in ("Ann", "Bob"):
        for number in (1, 2):
            draw(f"faces/{name}/{name}_{number:04d}.jpg")
    (tmp_path / "pairs.txt").write_text(PAIRS)
    return tmp_path


@pytest.mark.parametrize("place", ["lfw_112", "."])
def test_the_whole_official_protocol(shared_data: Path, place: str) -> None:
    pairs = open_pairs(f"lfw:{shared_data / place}", strict=True)
    assert len(pairs) == 6000
    assert len(pairs.images) == 7701
    assert pairs.problems == ()
    assert pairs.aligned is True
    assert pairs.fold is not None
    assert np.bincount(pairs.fold).tolist() == [600] * 10
    assert np.bincount(pairs.fold[pairs.same]).tolist() == [300] * 10
    assert len(set(pairs.pair_ids())) == 6000
    name = "Abel_Pacheco/Abel_Pacheco"
    assert pairs.pair_ids()[0] == f"{name}_0001.jpg|{name}_0004.jpg"
    people = np.array([image.identity for image in pairs.images])
    assert np.array_equal(people[pairs.left] == people[pairs.right], pairs.same)


def test_fold_one_unaligned(shared_data: Path) -> None:
    pairs = open_pairs(f"lfw:{shared_data / 'lfw_250_fold1'},folds=1", strict=True)
    assert len(pairs) == 600
    assert len(pairs.images) == 807
    assert pairs.aligned is False
    assert open_pairs(f"lfw:{shared_data / 'lfw_250_fold1'},folds=1,aligned=yes").aligned is True


def test_a_tree_with_one_fold_reports_the_others_as_missing(shared_data: Path) -> None:
    pairs = open_pairs(f"lfw:{shared_data / 'lfw_250_fold1'}")
    assert len(pairs) == 600
    assert len(pairs.problems) == 5400
    with pytest.raises(DataError, match=r"5400 problem\(s\)"):
        open_pairs(f"lfw:{shared_data / 'lfw_250_fold1'}", strict=True)


def test_small_tree_found_in_parent_and_directly(lfw: Path) -> None:
    for place in (lfw, lfw / "faces"):
        pairs = open_pairs(f"lfw:{place}")
        assert pairs.same.tolist() == [True, False, True, False]
        assert pairs.fold is not None and pairs.fold.tolist() == [0, 0, 1, 1]
        assert pairs.pair_ids()[1] == "Ann/Ann_0001.jpg|Bob/Bob_0001.jpg"
        assert pairs.aligned is None


def test_pairs_file_by_name_without_header_and_with_blanks(lfw: Path) -> None:
    (lfw / "mine.txt").write_text("Ann 1 2\r\nBob 1 Ann 1\r\n\r\n")
    pairs = open_pairs(f"lfw:{lfw / 'faces'},pairs={lfw / 'mine.txt'}")
    assert pairs.same.tolist() == [True, False]
    assert pairs.fold is None
    with pytest.raises(DataError, match="folds="):
        open_pairs(f"lfw:{lfw / 'faces'},pairs={lfw / 'mine.txt'},folds=1")


def test_bad_lines_missing_files_and_escapes_are_recorded(lfw: Path) -> None:
    lines = "2\t3\nAnn\t1\t2\nAnn\t1\t9\nAnn\tx\t2\n../faces/Ann\t1\tBob\t1\nBob\t1\t1\nBob\t1\t2\n"
    (lfw / "pairs.txt").write_text(lines)
    pairs = open_pairs(f"lfw:{lfw}")
    assert len(pairs) == 2
    reasons = [problem.reason for problem in pairs.problems]
    assert reasons[0] == "announces 12 pairs, holds 6"
    assert "Ann_0009.jpg is not in the image folder" in reasons[1]
    assert "expected `name i j`" in reasons[2]
    assert "not in the image folder" in reasons[3]
    assert "itself" in reasons[4]


def test_other_suffixes_are_found(lfw: Path, draw: Callable[[str], Path]) -> None:
    draw("faces/Cid/Cid_0001.png")
    draw("faces/Cid/Cid_0002.png")
    (lfw / "pairs.txt").write_text("Cid\t1\t2\n")
    assert open_pairs(f"lfw:{lfw}").pair_ids() == ["Cid/Cid_0001.png|Cid/Cid_0002.png"]


def test_what_cannot_be_found_is_said(lfw: Path, tmp_path: Path) -> None:
    (lfw / "pairs.txt").unlink()
    with pytest.raises(DataError, match=r"no pairs\.txt"):
        open_pairs(f"lfw:{lfw / 'faces'}")
    (lfw / "pairs.txt").write_text("Zoe\t1\t2\n")
    with pytest.raises(DataError, match="found none"):
        open_pairs(f"lfw:{lfw}")
    (lfw / "pairs.txt").write_bytes(b"\xff\xfe\x00")
    with pytest.raises(DataError, match="UTF-8"):
        open_pairs(f"lfw:{lfw}")
    (lfw / "pairs.txt").write_text("")
    with pytest.raises(DataError, match="empty"):
        open_pairs(f"lfw:{lfw}")
    with pytest.raises(DataError, match="folds="):
        (lfw / "pairs.txt").write_text(PAIRS)
        open_pairs(f"lfw:{lfw},folds=first")


@pytest.mark.parametrize("folds", ["0", "2-1", "3", "1-9"])
def test_folds_that_the_list_has_not_are_refused(lfw: Path, folds: str) -> None:
    with pytest.raises(DataError, match="expected folds="):
        open_pairs(f"lfw:{lfw},folds={folds}")


def test_a_corrupt_picture_does_not_hinder_opening(lfw: Path) -> None:
    (lfw / "faces" / "Ann" / "Ann_0001.jpg").write_bytes(b"junk")
    assert len(open_pairs(f"lfw:{lfw}")) == 4
