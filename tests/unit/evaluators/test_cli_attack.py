"""``onnxfr attack``: the goal follows from the decision, and the files say what was made."""

from __future__ import annotations

import errno
import json
import os
from pathlib import Path

import cv2
import numpy as np
import pytest
import typer
from typer.testing import CliRunner

from onnxfr.attacks.white_box.bim import BIM
from onnxfr.cli.attack import attack
from onnxfr.data.images import decode, to_images
from onnxfr.errors import AttackError, CodeError, DataError, SpecError, StoreError
from onnxfr.models.wrapper import load_model

app = typer.Typer()
app.command()(attack)


def _run(*words: object) -> str:
    answer = CliRunner().invoke(app, [str(word) for word in words])
    if answer.exception is not None:
        raise answer.exception
    return answer.stdout


def test_a_pair_is_attacked_and_the_pictures_prove_it(
    tmp_path: Path, toy_model: Path, toy_faces: Path
) -> None:
    pair = toy_faces / "p0" / "0.png", toy_faces / "p1" / "0.png"
    model = load_model(toy_model)
    images = [to_images([decode(path.read_bytes(), path.name)]) for path in pair]
    cosine = float(model.similarity(*images)[0])
    for limit, goal in ((cosine + 0.02, "impersonate"), (cosine - 0.02, "dodge")):
        words = ["--model", toy_model, "--attack", "bim", "--eps", "16/255", "--threshold", limit]
        answer = json.loads(_run(*pair, *words, "-o", tmp_path / goal, "--json"))
        assert answer["goal"] == goal and answer["won"] and answer["won_8bit"]
        assert answer["similarity_before"] == pytest.approx(cosine, abs=1e-5)
        made = decode(Path(answer["files"]["adversarial"]).read_bytes(), "adversarial")
        assert np.abs(made.astype(int) - cv2.imread(str(pair[0]))[:, :, ::-1]).max() <= 16
        again = float(model.similarity(to_images([made]), images[1])[0])
        assert again == pytest.approx(answer["similarity_8bit"], abs=1e-4)
        assert (again > limit) == (goal == "impersonate")
    assert set(answer["files"]) == {"clean", "adversarial", "difference", "reference"}


@pytest.mark.parametrize("budget", [("2.5/255",), ("1.2/255", "--norm", "l2")])
def test_the_file_is_the_picture_that_was_judged(
    tmp_path: Path, toy_model: Path, toy_faces: Path, budget: tuple[str, ...]
) -> None:
    pair = toy_faces / "p0" / "0.png", toy_faces / "p1" / "0.png"
    words = ["--model", toy_model, "--threshold", 0.99, "-o", tmp_path, "--json"]
    answer = json.loads(_run(*pair, *words, "--eps", *budget))
    made, clean, other = (
        decode(path.read_bytes(), "made") for path in (Path(answer["files"]["adversarial"]), *pair)
    )
    change = made.astype(float) - clean
    assert np.abs(change).max() <= 2 if answer["norm"] == "linf" else True
    assert np.sqrt(np.square(change).mean()) <= 255 * answer["eps"]
    again = load_model(toy_model).similarity(to_images([made]), to_images([other]))[0]
    assert float(again) == pytest.approx(answer["similarity_8bit"], abs=1e-6)


def test_a_picture_s_name_is_no_folder_and_nothing_is_made_of_it(
    tmp_path: Path, toy_model: Path, toy_faces: Path
) -> None:
    pair = toy_faces / "p0" / "0.png", toy_faces / "p1" / "0.png"
    words = ("--model", toy_model, "--threshold", 0.99, "--eps", "2/255")
    with pytest.raises(SpecError, match="folder of the pictures"):
        _run(*pair, *words, "-o", tmp_path / "out" / "fooled.PNG")
    assert not any(tmp_path.iterdir())
    (tmp_path / "odd.png").mkdir()
    _run(*pair, *words, "-o", tmp_path / "odd.png")
    assert (tmp_path / "odd.png" / "adversarial.png").is_file()


def test_a_crop_that_interpolation_brightens_past_white_is_attacked(
    tmp_path: Path, toy_model: Path
) -> None:
    white = tmp_path / "white.png"
    cv2.imwrite(str(white), np.full((197, 197, 3), 255, np.uint8))
    words = ("--model", toy_model, "--threshold", 0.99, "--align", "no", "-o", tmp_path / "out")
    assert json.loads(_run(white, white, *words, "--json"))["won_clean"] in (True, False)


def test_a_disk_that_fills_leaves_the_pictures_that_were_there(
    tmp_path: Path, toy_model: Path, toy_faces: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    pair = toy_faces / "p0" / "0.png", toy_faces / "p1" / "0.png"
    words = (*pair, "--model", toy_model, "--threshold", 0.99, "-o", tmp_path)
    _run(*words)
    before = {path.name: path.read_bytes() for path in tmp_path.iterdir()}

    def full(*_: object) -> None:
        raise OSError(errno.ENOSPC, "full")

    monkeypatch.setattr(os, "fsync", full)
    with pytest.raises(StoreError, match=r"disk is full; free some space and run again$"):
        _run(*words, "--eps", "1/255")
    assert {path.name: path.read_bytes() for path in tmp_path.iterdir()} == before


def test_words_for_people_and_errors(tmp_path: Path, toy_model: Path, toy_faces: Path) -> None:
    pair = toy_faces / "p0" / "0.png", toy_faces / "p1" / "0.png"
    common = (*pair, "--model", toy_model, "-o", tmp_path)
    said = _run(*common, "--attack", "fmn(steps=5)", "--threshold", 0.2)
    assert "grey levels" in said and "threshold 0.2000" in said
    with pytest.raises(SpecError, match="--threshold"):
        _run(*common)
    with pytest.raises(SpecError, match="cosine, from -1 to 1"):
        _run(*common, "--threshold", 1.24)
    with pytest.raises(SpecError, match="linf or l2"):
        _run(*common, "--threshold", 0.2, "--norm", "l7")
    with pytest.raises(SpecError, match="other people"):
        _run(*common, "--threshold", 0.2, "--attack", "admix")
    with pytest.raises(DataError, match="no picture"):
        _run(pair[0], tmp_path / "none.png", "--model", toy_model)


@pytest.mark.parametrize("how", [("square",), ("surfree", "--norm", "l2")])
def test_questions_can_be_capped(
    tmp_path: Path, toy_model: Path, toy_faces: Path, how: tuple[str, ...]
) -> None:
    pair = toy_faces / "p0" / "0.png", toy_faces / "p1" / "0.png"
    words = ("--model", toy_model, "--threshold", 0.99, "--max-queries", 20, "-o", tmp_path)
    answer = json.loads(_run(*pair, *words, "--json", "--attack", *how))
    assert answer["queries"] == 20 and answer["goal"] == "impersonate"


def test_a_place_that_cannot_be_written_costs_no_attack(
    tmp_path: Path, toy_model: Path, toy_faces: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    pair = toy_faces / "p0" / "0.png", toy_faces / "p1" / "0.png"
    (tmp_path / "file").touch()
    monkeypatch.setattr(BIM, "run", lambda *_: pytest.fail("the attack was run"))
    words = (*pair, "--model", toy_model, "--threshold", 0.99)
    for place in (tmp_path / "file", tmp_path / "file" / "below"):
        with pytest.raises(StoreError, match="choose another folder with -o"):
            _run(*words, "-o", place)


def test_an_attack_that_fails_is_told_with_its_name_and_line(
    tmp_path: Path, toy_model: Path, toy_faces: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    pair = toy_faces / "p0" / "0.png", toy_faces / "p1" / "0.png"
    monkeypatch.setattr(BIM, "run", lambda *_: 1 // 0)
    with pytest.raises(
        CodeError, match=r"unexpected ZeroDivisionError: .*, in attack bim \(.*\.py"
    ):
        _run(*pair, "--model", toy_model, "--threshold", 0.99, "-o", tmp_path)


@pytest.mark.parametrize("answer", [None, np.zeros((3, 112, 112), dtype=np.float32)])
def test_an_attack_that_returns_no_pictures_is_told_what_to_return(
    tmp_path: Path,
    toy_model: Path,
    toy_faces: Path,
    monkeypatch: pytest.MonkeyPatch,
    answer: object,
) -> None:
    pair = toy_faces / "p0" / "0.png", toy_faces / "p1" / "0.png"
    monkeypatch.setattr(BIM, "run", lambda *_: answer)
    with pytest.raises(
        AttackError, match=r"bim must return .* \(1, 3, 112, 112\); got (None|\(3,)"
    ):
        _run(*pair, "--model", toy_model, "--threshold", 0.99, "-o", tmp_path)
