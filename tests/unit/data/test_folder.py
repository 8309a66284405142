from __future__ import annotations

import os
import sys
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from onnxfr.data import folder
from onnxfr.data.builder import PairBuilder
from onnxfr.data.drawing import _unrank, draw_genuine, draw_impostor
from onnxfr.data.images import find_pictures
from onnxfr.data.pairs import open_pairs
from onnxfr.errors import DataError

Draw = Callable[[str], Path]
PEOPLE = {f"p{k}": [f"p{k}/{i}.png" for i in range(3 + 20 * (k == 0))] for k in range(8)}


@pytest.fixture
def faces(tmp_path: Path, draw: Draw) -> Path:
    for person in "abc":
        for number in range(4):
            draw(f"faces/{person}/{number}.png")
    return tmp_path / "faces"


def test_pairs_of_a_folder(faces: Path) -> None:
    pairs = open_pairs(f"folder:{faces}")
    assert int(pairs.same.sum()) == 3 * 6
    assert len(pairs) == 36
    assert pairs.fold is not None
    for same in (True, False):
        counts = np.bincount(pairs.fold[pairs.same == same])
        assert len(counts) == 10 and counts.max() - counts.min() <= 1
    people = [image.identity for image in pairs.images]
    said = [people[a] == people[b] for a, b in zip(pairs.left, pairs.right, strict=True)]
    assert said == pairs.same.tolist()
    assert pairs.problems == ()


def test_the_draw_follows_from_seed_and_names_only(faces: Path, tmp_path: Path, draw: Draw) -> None:
    first = open_pairs(f"folder:{faces},genuine=5", seed=1)
    assert len(first) == 10
    for person in "cab":
        for number in (3, 1, 0, 2):
            draw(f"again/faces/{person}/{number}.png")
    second = open_pairs(f"folder:{tmp_path / 'again' / 'faces'},genuine=5", seed=1)
    assert first.fingerprint() == second.fingerprint()
    assert open_pairs(f"folder:{faces},genuine=5", seed=2).fingerprint() != first.fingerprint()


def test_listing_order_does_not_matter(faces: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    expected = open_pairs(f"folder:{faces}", seed=3).pair_ids()
    forward = Path.iterdir
    monkeypatch.setattr(Path, "iterdir", lambda self: reversed(list(forward(self))))
    assert open_pairs(f"folder:{faces}", seed=3).pair_ids() == expected


def test_genuine_pairs_are_dealt_round_by_person() -> None:
    pairs = draw_genuine(PEOPLE, 16, seed=0)
    owners = [left.split("/")[0] for left, _ in pairs]
    assert sorted(owners[:8]) == sorted(PEOPLE)
    assert sorted(owners[8:]) == sorted(PEOPLE)
    everything = draw_genuine(PEOPLE, 10_000, seed=0)
    assert len(everything) == len(set(everything)) == 7 * 3 + 23 * 22 // 2


@pytest.mark.parametrize("enumerable", [0, 10**6])
def test_impostor_pairs_are_distinct_and_of_two_people(
    enumerable: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("onnxfr.data.drawing._ENUMERABLE", enumerable)
    pairs = draw_impostor(PEOPLE, 40, seed=0)
    assert len(set(pairs)) == 40
    assert all(a.split("/")[0] != b.split("/")[0] for a, b in pairs)
    assert pairs == draw_impostor(dict(reversed(PEOPLE.items())), 40, seed=0)
    assert pairs != draw_impostor(PEOPLE, 40, seed=1)


def test_impostor_pairs_run_out_gracefully() -> None:
    assert len(draw_impostor({"a": ["a1", "a2"], "b": ["b1"]}, 100, seed=0)) == 2


def test_unrank_counts_every_pair_once() -> None:
    names = [str(k) for k in range(9)]
    assert len({_unrank(k, names) for k in range(36)}) == 36
    far = [str(k) for k in range(100_000)]
    last = len(far) * (len(far) - 1) // 2 - 1
    assert _unrank(last, far) == ("99998", "99999")


def test_default_is_three_thousand_of_each() -> None:
    assert folder.DEFAULT_LIMIT == 3000


def test_useless_folders_say_what_is_wanted(tmp_path: Path, draw: Draw) -> None:
    (tmp_path / "empty").mkdir()
    with pytest.raises(DataError, match="at least two people"):
        open_pairs(f"folder:{tmp_path / 'empty'}")
    draw("lonely/a/1.png")
    draw("lonely/b/1.png")
    with pytest.raises(DataError, match="genuine pair"):
        open_pairs(f"folder:{tmp_path / 'lonely'}")


def test_folders_without_pictures_are_reported(faces: Path) -> None:
    (faces / "d").mkdir()
    (faces / "d" / "note.txt").write_text("no picture")
    (faces / ".cache").mkdir()
    assert [p.name for p in open_pairs(f"folder:{faces}").problems] == ["d"]


def test_real_faces(shared_data: Path) -> None:
    pairs = open_pairs(f"folder:{shared_data / 'lfw_250_fold1'},genuine=200", seed=5)
    assert len(pairs) == 400
    assert pairs.aligned is None


def test_what_begins_with_a_dot_is_no_picture(faces: Path, draw: Draw) -> None:
    expected = open_pairs(f"folder:{faces}").pair_ids()
    (faces / "a" / "._0.png").write_bytes(b"\0\5\26\7 AppleDouble")
    draw("faces/a/.thumbnails/0.png")
    pairs = open_pairs(f"folder:{faces}")
    assert pairs.pair_ids() == expected
    assert pairs.problems == ()


@pytest.mark.skipif(sys.platform == "win32", reason="needs links")
def test_links_make_no_people_and_no_second_pictures(faces: Path, draw: Draw) -> None:
    elsewhere = draw("others/d/0.png").parent
    draw("others/d/1.png")
    (faces / "d").symlink_to(elsewhere)
    expected = open_pairs(f"folder:{faces}")
    assert {image.identity for image in expected.images} == set("abcd")
    (faces / "Aself").symlink_to(".")
    (faces / "Zparent").symlink_to("..")
    (faces / "Acopy").symlink_to("a")
    (faces / "b" / "+.png").symlink_to("0.png")
    (faces / "c" / "hard.png").hardlink_to(faces / "c" / "3.png")
    pairs = open_pairs(f"folder:{faces}")
    assert pairs.pair_ids() == expected.pair_ids()
    told = [str(problem) for problem in pairs.problems]
    assert told[0] == "b/+.png: the same file as b/0.png; left out" and len(told) == 2 + 1 + 1 + 4
    assert sum("holds all people" in line for line in told) == 2


@pytest.mark.skipif(not hasattr(os, "mkfifo"), reason="needs pipes with names")
def test_only_regular_files_count_as_pictures(faces: Path) -> None:
    """A pipe named like a picture would be read for ever."""
    os.mkfifo(faces / "a" / "pipe.png")
    (faces / "a" / "folder.png").mkdir()
    (faces / "a" / "link.png").symlink_to(faces / "a" / "0.png")
    builder = PairBuilder("x")
    names = ("0.png", "pipe.png", "folder.png", "link.png", "none.png")
    assert [n for n in names if builder.has_file(faces / "a" / n)] == ["0.png", "link.png"]
    assert "pipe.png" not in {path.name for path in find_pictures(faces)}


@pytest.mark.skipif(sys.platform != "linux", reason="other systems have no such names")
def test_names_that_are_no_text_are_left_out_and_told(faces: Path) -> None:
    (faces / "a").rename(os.fsdecode(os.fsencode(faces) + b"/M\xfcller"))
    (faces / "b" / "0.png").rename(os.fsdecode(os.fsencode(faces) + b"/b/gr\xfcn.png"))
    pairs = open_pairs(f"folder:{faces}", pairs=10)
    assert {image.identity for image in pairs.images} == {"b", "c"}
    reason = "its name is not UTF-8; rename it"
    assert [str(problem) for problem in pairs.problems] == [
        f"M\N{REPLACEMENT CHARACTER}ller: {reason}",
        f"b/gr\N{REPLACEMENT CHARACTER}n.png: {reason}",
    ]
    with pytest.raises(DataError, match="not UTF-8"):
        open_pairs(f"folder:{faces}", strict=True)


def test_parts_of_a_data_set_taken_for_people_are_doubted(
    tmp_path: Path, draw: Draw, caplog: pytest.LogCaptureFixture
) -> None:
    for part in ("test", "gallery"):
        for person in "abc":
            draw(f"split/{part}/{person}/0.png")
            draw(f"sessions/{person}/{part}/0.png")
    open_pairs(f"folder:{tmp_path / 'sessions'}")
    assert not caplog.records
    open_pairs(f"folder:{tmp_path / 'split'}")
    assert sorted(record.message.split()[0] for record in caplog.records) == ["gallery", "test"]
    assert "holds 3 folders with pictures and there are only 2" in caplog.text
