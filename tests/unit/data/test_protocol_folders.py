"""CFP and YTF trees, and the pair lists of AgeDB, CALFW and CPLFW."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from onnxfr.data.pairs import open_pairs
from onnxfr.data.ytf import middle_frame
from onnxfr.errors import DataError

Draw = Callable[[str], Path]


@pytest.fixture
def cfp(tmp_path: Path, draw: Draw) -> Path:
    lists: dict[str, list[str]] = {"F": [], "P": []}
    for person in ("001", "002"):
        for side, folder in (("F", "frontal"), ("P", "profile")):
            for number in ("01", "02"):
                draw(f"cfp/Data/Images/{person}/{folder}/{number}.jpg")
                place = f"../Data/Images/{person}/{folder}/{number}.jpg"
                lists[side].append(f"{len(lists[side]) + 1} {place}")
    protocol = tmp_path / "cfp" / "Protocol"
    protocol.mkdir()
    for side in "FP":
        (protocol / f"Pair_list_{side}.txt").write_text("\n".join(lists[side]) + "\n")
        for start, number in ((1, "01"), (2, "02")):
            split = protocol / "Split" / f"F{side}" / number
            split.mkdir(parents=True)
            (split / "same.txt").write_text(f"{start},{3 - start}\n")
            (split / "diff.txt").write_text(f"{start},{start + 2}\n")
    return tmp_path / "cfp"


def test_cfp_frontal_profile(cfp: Path) -> None:
    pairs = open_pairs(f"cfp:{cfp}")
    assert pairs.name == "cfp_fp"
    assert pairs.pair_ids() == [
        "Data/Images/001/frontal/01.jpg|Data/Images/001/profile/02.jpg",
        "Data/Images/001/frontal/01.jpg|Data/Images/002/profile/01.jpg",
        "Data/Images/001/frontal/02.jpg|Data/Images/001/profile/01.jpg",
        "Data/Images/001/frontal/02.jpg|Data/Images/002/profile/02.jpg",
    ]
    assert pairs.same.tolist() == [True, False, True, False]
    assert pairs.fold is not None and pairs.fold.tolist() == [0, 0, 1, 1]
    assert [image.identity for image in pairs.images[:3]] == ["001", "001", "002"]
    assert open_pairs(f"cfp:{cfp.parent}").fingerprint() == pairs.fingerprint()


def test_cfp_frontal_frontal_and_errors(cfp: Path) -> None:
    pairs = open_pairs(f"cfp:{cfp},protocol=FF")
    assert all("frontal" in image.id for image in pairs.images)
    assert "more than once" in pairs.problems[0].reason  # 1,2 and 2,1 are one comparison
    with pytest.raises(DataError, match="one of FP, FF"):
        open_pairs(f"cfp:{cfp},protocol=PP")
    with pytest.raises(DataError, match="Pair_list_F"):
        open_pairs(f"cfp:{cfp / 'Data'}")


def test_cfp_missing_picture_and_escaping_list(cfp: Path) -> None:
    (cfp / "Data/Images/001/profile/02.jpg").unlink()
    assert len(open_pairs(f"cfp:{cfp}").problems) == 1
    listing = cfp / "Protocol" / "Pair_list_F.txt"
    listing.write_text(
        listing.read_text().replace("../Data/Images/001", "../../cfp/Data/Images/001")
    )
    with pytest.raises(DataError, match="no usable pair"):
        open_pairs(f"cfp:{cfp}")


@pytest.fixture
def ytf(tmp_path: Path, draw: Draw) -> Path:
    for person in ("Ann_A", "Bob"):
        for video in ("0", "3"):
            for frame in (8, 9, 10, 11, 100):
                draw(f"ytf/aligned_images_DB/{person}/{video}/aligned_detect_{video}.{frame}.jpg")
    (tmp_path / "ytf" / "splits.csv").write_text(
        "split number, pair number, first, second, note, is same\n"
        "1, 1, Ann_A/0, Ann_A/3, x, 1\n"
        "1, 2, Ann_A/0, Bob/3, x, 0\n"
        "2, 3, Bob/0, Bob/3, x, 1\n"
        "2, 4, Bob/0, Cid/1, x, 0\n"
        "2, 5, Bob/0, ../../x, x, 0\n"
        "2, 5, Bob/0\n"
    )
    return tmp_path / "ytf"


def test_ytf_takes_middle_frames_in_numeric_order(ytf: Path) -> None:
    frame = middle_frame(ytf / "aligned_images_DB", "Ann_A/0")
    assert frame == "Ann_A/0/aligned_detect_0.10.jpg"
    pairs = open_pairs(f"ytf:{ytf}")
    assert pairs.pair_ids()[1] == ("Ann_A/0/aligned_detect_0.10.jpg|Bob/3/aligned_detect_3.10.jpg")
    assert pairs.same.tolist() == [True, False, True]
    assert pairs.fold is not None and pairs.fold.tolist() == [0, 0, 1]
    assert [problem.reason for problem in pairs.problems] == [
        "no frames of video Cid/1",
        "no frames of video ../../x",
        "expected split, number, video, video, ..., 0 or 1",
    ]


def test_ytf_frames_that_begin_with_a_dot_do_not_count(ytf: Path) -> None:
    root = ytf / "aligned_images_DB"
    expected = middle_frame(root, "Ann_A/0")
    for number in range(9):
        (root / "Ann_A" / "0" / f"._{number}.jpg").write_bytes(b"AppleDouble")
    assert middle_frame(root, "Ann_A/0") == expected


def test_ytf_without_splits(ytf: Path) -> None:
    (ytf / "splits.csv").rename(ytf / "other.csv")
    with pytest.raises(DataError, match="splits=FILE"):
        open_pairs(f"ytf:{ytf}")
    assert len(open_pairs(f"ytf:{ytf},splits={ytf / 'other.csv'}")) == 3


def test_calfw_two_lines_a_pair_with_fold_labels(tmp_path: Path, draw: Draw) -> None:
    lines = []
    for k in range(20):
        label = 0 if k >= 10 else k + 1
        for side in (1, 2):
            name = f"P{k if side == 1 or label else k + 50}_Q_{side:04d}.jpg"
            draw(f"aligned images/{name}")
            lines.append(f"{name} {label}\n")
    (tmp_path / "pairs_CALFW.txt").write_text("".join(lines))
    pairs = open_pairs(f"pairlist:{tmp_path / 'pairs_CALFW.txt'}")
    assert pairs.name == "pairs_calfw"
    assert pairs.same.tolist() == [True] * 10 + [False] * 10
    assert pairs.fold is not None and pairs.fold.tolist() == [*range(10), *range(10)]
    assert pairs.images[0].identity == "P0_Q"


def test_agedb_one_line_a_pair(tmp_path: Path, draw: Draw) -> None:
    for name in ("0_Ann_35_f", "1_Ann_70_f", "2_Bob_20_m"):
        draw(f"pics/{name}.jpg")
    listing = tmp_path / "agedb.txt"
    listing.write_text(
        "0_Ann_35_f.jpg 1_Ann_70_f.jpg 1\n0_Ann_35_f.jpg 2_Bob_20_m.jpg 0\n"
        "0_Ann_35_f.jpg gone.jpg 0\n0_Ann_35_f.jpg\n../agedb.txt 2_Bob_20_m.jpg -1\n"
    )
    pairs = open_pairs(f"pairlist:{listing},images=pics")
    assert pairs.same.tolist() == [True, False]
    assert [image.identity for image in pairs.images] == ["Ann", "Ann", "Bob"]
    assert pairs.fold is None
    assert len(pairs.problems) == 3
    with pytest.raises(DataError, match="images="):
        open_pairs(f"pairlist:{listing},images=nowhere")


@pytest.mark.parametrize("folders", [("imgs", "imgs"), ("left", "right")])
def test_folders_that_contradict_the_labels_are_no_people(
    tmp_path: Path, draw: Draw, folders: tuple[str, str]
) -> None:
    lines = []
    for k in range(4):
        names = [f"{folder}/{2 * k + side}.jpg" for side, folder in enumerate(folders)]
        for name in names:
            draw(name)
        lines.append(f"{names[0]} {names[1]} {k % 2}\n")
    (tmp_path / "converted.txt").write_text("".join(lines))
    pairs = open_pairs(f"pairlist:{tmp_path / 'converted.txt'}")
    assert pairs.same.tolist() == [False, True, False, True]
    assert {image.identity for image in pairs.images} == {None}


def test_lfw_style_list_and_disagreeing_labels(tmp_path: Path, draw: Draw) -> None:
    for name in ("Ann/Ann_0001.jpg", "Ann/Ann_0002.jpg", "Bob/Bob_0001.jpg"):
        draw(name)
    (tmp_path / "cplfw.txt").write_text("10\nAnn 1 2\nAnn 1 Bob 1\nnonsense\n")
    pairs = open_pairs(f"pairlist:{tmp_path / 'cplfw.txt'}")
    assert pairs.same.tolist() == [True, False]
    assert len(pairs.problems) == 1
    (tmp_path / "two.txt").write_text(
        "Ann/Ann_0001.jpg 1\nAnn/Ann_0002.jpg 1\nAnn/Ann_0001.jpg 0\nBob/Bob_0001.jpg 1\nx.jpg 1\n"
    )
    pairs = open_pairs(f"pairlist:{tmp_path / 'two.txt'}")
    assert pairs.pair_ids() == ["Ann/Ann_0001.jpg|Ann/Ann_0002.jpg"]
    assert [
        "one label" in p.reason or "without its second" in p.reason for p in pairs.problems
    ] == [
        True,
        True,
    ]
