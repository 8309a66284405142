from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from toy_faces import make_faces, make_model
from typer.testing import CliRunner

from onnxfr.budgets import read_eps
from onnxfr.cli.suite import suite_app
from onnxfr.data.images import load_pixels, to_images
from onnxfr.data.pairs import open_pairs
from onnxfr.data.suite import open_suite
from onnxfr.errors import DataError, MetricError, OnnxfrWarning, SpecError, StoreError
from onnxfr.evaluators import suites
from onnxfr.evaluators.suites import SuiteOrder, make_suite, score_suite
from onnxfr.models.wrapper import load_model
from onnxfr.runs.context import Context
from onnxfr.threat import Threat
from onnxfr.types import Goal


@pytest.fixture(scope="module")
def order(toy_model: Path, other_model: Path, toy_faces: Path) -> SuiteOrder:
    return SuiteOrder(
        name="toys",
        models=(str(toy_model), str(other_model)),
        data=f"folder:{toy_faces},aligned=yes",
        attack="mim",
        steps=5,
        pairs=6,
        threshold="fmr=0.1",
    )


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory, order: SuiteOrder) -> Path:
    place = tmp_path_factory.mktemp("suites") / "toys"
    make_suite(Context(place.parent / "cache"), order, place)
    return place


def test_a_suite_is_whole_reproducible_and_never_overwritten(
    made: Path, tmp_path: Path, order: SuiteOrder
) -> None:
    attacked, clean = open_pairs(f"suite:{made}"), open_pairs(f"suite:{made},part=clean")
    assert len(attacked) == len(clean) == 12
    left = [
        to_images([load_pixels(pairs.images[i]) for i in pairs.left]) for pairs in (attacked, clean)
    ]
    assert 4 / 255 < np.abs(left[0] - left[1]).max() <= 8 / 255 + 1e-6
    again = tmp_path / "again"
    make_suite(Context(tmp_path / "cache"), order, again)
    assert (again / "manifest.json").read_bytes() == (made / "manifest.json").read_bytes()
    for bad, words in (
        (replace(order, name="../x"), "letters"),
        (replace(order, pairs=0), "at least one pair"),
        (replace(order, pairs=-1), "at least one pair"),
        (replace(order, budget="linf:0.5/255"), "at least 1/255"),
        (replace(order, budget="l2:0"), r"at least 0\.3/255"),
        (replace(order, threshold="fixed=1.2"), "cosine"),
        (replace(order, attack="lgc"), "needs facial landmarks"),
    ):
        with pytest.raises(SpecError, match=words):
            make_suite(Context(tmp_path / "cache"), bad, tmp_path / "other")
    with pytest.raises(StoreError, match="choose a new folder"):
        make_suite(Context(tmp_path / "cache"), order, again)


def test_a_suite_that_somebody_is_making_is_left_to_him(tmp_path: Path, order: SuiteOrder) -> None:
    quick = replace(order, pairs=1, steps=1, threshold="fixed=0.5")
    context, place = Context(tmp_path / "cache"), tmp_path / "suite"
    tries: list[str] = []

    def other(done: int, total: int) -> None:
        with pytest.raises(StoreError, match="another process is making") as refused:
            make_suite(context, quick, place)
        tries.append(str(refused.value))

    make_suite(context, quick, place, other)
    assert tries and len(open_suite(place)[0].pairs) == 2
    assert [each.name for each in tmp_path.iterdir() if "suite" in each.name] == ["suite"]


def test_a_full_disk_is_told_and_gets_its_room_back(
    tmp_path: Path, order: SuiteOrder, monkeypatch: pytest.MonkeyPatch
) -> None:
    quick = replace(order, pairs=1, steps=1, threshold="fixed=0.5")
    write = Path.write_bytes

    def fail_late(place: Path, content: bytes) -> int:
        if "impersonate" in str(place):
            raise OSError(28, "No space left on device")
        return write(place, content)

    monkeypatch.setattr(Path, "write_bytes", fail_late)
    with pytest.raises(StoreError, match=r"the disk is full; free some space and run again$"):
        make_suite(Context(tmp_path / "cache"), quick, tmp_path / "suite")
    assert not [each for each in tmp_path.iterdir() if "suite" in each.name]


@pytest.mark.parametrize("budget", ["linf:8/255", "l2:2/255"])
def test_files_of_enlarged_pictures_keep_the_budget(
    tmp_path: Path, order: SuiteOrder, budget: str
) -> None:
    """Enlarging makes halves of grey levels, which two roundings may carry apart."""
    large = make_model(tmp_path / "large", seed=4, size=224)
    wish = replace(order, models=(str(large),), budget=budget, attack="bim", pairs=3)
    make_suite(Context(tmp_path / "cache"), wish, tmp_path / "suite")
    both = [
        open_pairs(f"suite:{tmp_path / 'suite'},part={kind}") for kind in ("adversarial", "clean")
    ]
    left = [to_images([load_pixels(pairs.images[i]) for i in pairs.left]) for pairs in both]
    threat = Threat(norm="linf" if "linf" in budget else "l2", eps=read_eps(budget.split(":")[1]))
    assert threat.allows(left[1], left[0]).all()


def test_a_place_that_cannot_be_written_costs_no_attack(
    tmp_path: Path, order: SuiteOrder, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "file").touch()
    monkeypatch.setattr(suites, "craft", lambda *_, **__: pytest.fail("pictures were made"))
    with pytest.raises(StoreError, match="choose another folder with -o"):
        make_suite(Context(tmp_path / "cache"), order, tmp_path / "file" / "below")


def test_scores_are_those_of_the_pictures_at_the_models_threshold(
    made: Path, tmp_path: Path, toy_model: Path
) -> None:
    score = score_suite(Context(tmp_path), str(toy_model), made, rule="fixed=0.5")
    model, pairs = load_model(toy_model), open_pairs(f"suite:{made}")
    sides = [
        to_images([load_pixels(pairs.images[i]) for i in side])
        for side in (pairs.left, pairs.right)
    ]
    accepted = model.similarity(*sides) > 0.5
    by_goal = {str(entry.goal): entry.success.asr_all.value for entry in score.goals}
    assert by_goal["dodge"] == pytest.approx((~accepted[pairs.same]).mean())
    assert by_goal["impersonate"] == pytest.approx(accepted[~pairs.same].mean())
    assert "white-box" in score.notes[0]
    measured = score_suite(Context(tmp_path), str(toy_model), made, rule="oracle")
    assert measured.threshold.origin == "toys-clean@oracle"
    coarse = score_suite(Context(tmp_path), str(toy_model), made, rule="fmr=1e-3")
    assert any("too few impostor pairs" in note for note in coarse.notes)


def test_pairs_that_cannot_be_used_are_told(tmp_path: Path, order: SuiteOrder) -> None:
    faces = make_faces(tmp_path / "faces", people=4, pictures=2)
    broken = replace(
        order, data=f"folder:{faces},aligned=yes", threshold="fixed=0.5", goals=(Goal.DODGE,)
    )
    (faces / "p0" / "0.png").write_bytes(b"no picture")
    with pytest.warns(OnnxfrWarning, match=r"1 pairs to dodge with are left out.*p0/0\.png"):
        manifest = make_suite(Context(tmp_path / "cache"), broken, tmp_path / "some")
    assert len(manifest.pairs) == 3
    for picture in faces.glob("*/*.png"):
        picture.write_bytes(b"no picture")
    with pytest.raises(DataError, match="none of the 4 pairs to dodge with"):
        make_suite(Context(tmp_path / "cache"), broken, tmp_path / "none")


def test_surrogates_of_raw_pictures_share_one_frame(tmp_path: Path, order: SuiteOrder) -> None:
    wider = make_model(tmp_path / "wider", size=128)
    mixed = replace(order, models=(*order.models, str(wider)), align="yes")
    with pytest.raises(SpecError, match="arcface at 112x112 and arcface at 128x128"):
        make_suite(Context(tmp_path / "cache"), mixed, tmp_path / "some")
    assert not (tmp_path / "some").exists()


def test_a_suite_of_one_goal_has_no_false_matches_to_measure(
    tmp_path: Path, order: SuiteOrder, toy_model: Path
) -> None:
    make_suite(Context(tmp_path / "cache"), replace(order, goals=(Goal.DODGE,)), tmp_path / "some")
    with pytest.raises(MetricError, match="on data that have some, or state the threshold"):
        score_suite(Context(tmp_path / "cache"), str(toy_model), tmp_path / "some")


def test_a_rate_of_no_pairs_is_none(made: Path, toy_model: Path) -> None:
    asked = ["score", str(toy_model), str(made), "--threshold", "fixed=1"]
    assert "none was right before" in CliRunner().invoke(suite_app, asked).output
    answer = json.loads(
        CliRunner().invoke(suite_app, [*asked, "--json"]).output, parse_constant=pytest.fail
    )
    assert answer["goals"]["dodge"]["asr_clean_correct"]["value"] is None


def test_the_command_line_scores_and_explains(made: Path, toy_model: Path) -> None:
    answer = CliRunner().invoke(
        suite_app, ["score", str(toy_model), f"suite:{made}", "--threshold", "fixed=0.5"]
    )
    assert answer.exit_code == 0, answer.output
    assert "dodge" in answer.output and "of 6" in answer.output
    wrong = CliRunner().invoke(suite_app, ["score", str(toy_model), f"suite:{made},part=clean"])
    assert isinstance(wrong.exception, SpecError)


def test_the_command_line_makes_a_suite(
    tmp_path: Path, toy_model: Path, toy_faces: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("ONNXFR_CACHE", str(tmp_path / "cache"))
    options = ["--threshold", "fixed=0.5", "--attack", "fgsm", "--pairs", "2", "--goal", "dodge"]
    data = ["--data", f"folder:{toy_faces},aligned=yes", "-o", str(tmp_path / "a new, odd one")]
    answer = CliRunner().invoke(suite_app, ["make", "--models", str(toy_model), *options, *data])
    assert answer.exit_code == 0, answer.output
    assert "its terms apply" in answer.output
    assert len(open_suite(tmp_path / "a new, odd one")[0].pairs) == 2


def test_a_model_of_another_frame_is_told_so(tmp_path: Path, made: Path, toy_model: Path) -> None:
    """InsightFace's squares of 128 show more around the face than 112 does; 160 does not."""
    for side, told in ((128, True), (160, False)):
        model = make_model(tmp_path / str(side), size=side)
        score = score_suite(Context(tmp_path / "cache"), str(model), made, rule="fixed=0.5")
        seen = [note for note in score.notes if "arcface at 112x112, this model wants" in note]
        assert bool(seen) is told
