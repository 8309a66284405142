"""The white-box evaluator: its cells, its numbers, and the checks that it runs end to end."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from toy_faces import Dice, make_model

from onnxfr.attacks import make_attack
from onnxfr.checks import Flag
from onnxfr.errors import CardError, SpecError
from onnxfr.evaluators.base import Result
from onnxfr.evaluators.outcomes import GameKey, attacked_groups
from onnxfr.evaluators.planning import Plan, plan_run
from onnxfr.evaluators.report.section import SECTIONS, View
from onnxfr.evaluators.report.white_box_verdicts import doubt
from onnxfr.evaluators.white_box import WhiteBox, expected_gradients
from onnxfr.evaluators.white_box_lights import Lights, lights_of
from onnxfr.models.wrapper import load_model
from onnxfr.runs.context import Context
from onnxfr.runs.records import join, to_table
from onnxfr.runs.spec import make_spec

SMALL = {"pairs": 6, "checks": 4, "attacks": ["smallest:fgsm", "smallest:bim(steps=5)"]}


def plan_of(
    context: Context, model: Path, faces: Path, params: dict[str, Any], **settings: Any
) -> Plan:
    asked = {
        "models": [str(model)],
        "data": [f"folder:{faces}"],
        "fmr": 0.05,
        "evaluators": [{"name": "white_box", "params": {"align": "no"} | params}],
        **settings,
    }
    return plan_run(make_spec(asked, Path.cwd()), context)


def records_of(plan: Plan, context: Context) -> pa.Table:
    return join([to_table(cell, plan.evaluators[0].run(cell, context)) for cell in plan.cells])


@pytest.fixture(scope="module")
def finished(
    tmp_path_factory: pytest.TempPathFactory, toy_model: Path, toy_faces: Path
) -> tuple[pa.Table, list[Result]]:
    context = Context(tmp_path_factory.mktemp("cache"))
    params = SMALL | {"attacks": [*SMALL["attacks"], "fmn(steps=20)", "bim"]}  # type: ignore[misc]
    plan = plan_of(context, toy_model, toy_faces, params | {"linf": ["2/255", "8/255"]})
    records = records_of(plan, context)
    return records, plan.evaluators[0].summarise(records)


def find(results: list[Result], **wanted: str) -> list[Result]:
    return [r for r in results if all(getattr(r, k) == v for k, v in wanted.items())]


def test_a_larger_draw_reuses_the_cells_of_a_smaller_one(
    tmp_path: Path, toy_model: Path, toy_faces: Path
) -> None:
    context = Context(tmp_path)
    few, more = (
        plan_of(context, toy_model, toy_faces, {"pairs": pairs, "checks": 3}, rows_per_cell=4)
        for pairs in (8, 12)
    )
    assert set(few.cells) < set(more.cells)
    assert len(few.cells) < len(more.cells)


@pytest.mark.parametrize("rows", [1, 6])
def test_records_do_not_depend_on_how_rows_are_cut(
    tmp_path: Path, toy_model: Path, toy_faces: Path, rows: int
) -> None:
    context = Context(tmp_path)
    params = {"pairs": 6, "checks": 0, "precision": "float64", "norms": ["linf"]}
    params |= {"attacks": ["smallest:bim(steps=4)", "pgd(steps=4)"], "linf": ["4/255"]}
    whole, cut = (
        records_of(plan_of(context, toy_model, toy_faces, params, rows_per_cell=size), context)
        for size in (100, rows)
    )
    keys = [(name, "ascending") for name in ("method", "goal", "pair")]
    whole, cut = whole.sort_by(keys), cut.sort_by(keys)
    for name in set(whole.column_names) - {"cell"}:
        for a, b in zip(whole[name].to_pylist(), cut[name].to_pylist(), strict=True):
            assert a == (pytest.approx(b, abs=1e-5) if isinstance(b, float) else b), name


def test_rates_and_medians_follow_from_the_records(
    finished: tuple[pa.Table, list[Result]],
) -> None:
    records, results = finished
    group = next(
        g
        for g in attacked_groups(records)
        if (g.method, g.goal, g.norm) == ("smallest:bim(steps=5)", "dodge", "linf")
    )
    (median,) = find(
        results, metric="median_distance", method=group.method, goal="dodge", norm="linf"
    )
    assert median.value == pytest.approx(float(np.median(group.cost)))
    assert median.low is not None and median.low <= median.value
    rates = {
        r.metric: r.value
        for r in find(results, method="bim", goal="dodge", norm="linf", condition="eps=8/255")
    }
    rows = [
        row
        for row in records.to_pylist()
        if (row["method"], row["goal"], row["norm"], row["eps"])
        == ("bim", "dodge", "linf", 8 / 255)
    ]
    wrong = [row["won"] or row["won_clean"] for row in rows]
    assert rates["asr_all"] == pytest.approx(np.mean(wrong))
    assert rates["asr_all"] == rates["robust_fnmr"]
    assert rates["robust_acc"] == pytest.approx(1 - np.mean(wrong))
    fair = [row["won"] for row in rows if not row["won_clean"]]
    assert rates["asr_clean_correct"] == pytest.approx(np.mean(fair))
    for name in ("linf", "l2", "l2n"):
        middle = 255 * np.median([row[name] for row in rows if row["won"]])
        assert rates[f"{name}_median"] == pytest.approx(middle)


def test_the_envelope_decides_optimality(finished: tuple[pa.Table, list[Result]]) -> None:
    _, results = finished
    scores = find(results, metric="optimality", goal="dodge", norm="l2")
    assert len(scores) == 3
    values = {r.method: r.value or 0.0 for r in scores}
    assert all(0 < value <= 1 for value in values.values())
    assert values["smallest:fgsm"] <= max(values.values())


def test_an_honest_model_gets_no_red_light(finished: tuple[pa.Table, list[Result]]) -> None:
    records, results = finished
    lights = lights_of(records, attacked_groups(records))
    assert len(lights) == 4
    names = {flag.name for light in lights for flag in light.flags}
    assert {"order_of_medians", "growing_budget", "finite_differences"} <= names
    for light in lights:
        red = [flag for flag in light.flags if flag.light == "red"]
        assert all(flag.name in ("rounding_gap", "harmful_noise") for flag in red), red
    assert len(find(results, metric="check_finite_differences")) == 4


def test_example_pictures_are_kept_for_the_first_pairs_only(
    finished: tuple[pa.Table, list[Result]],
) -> None:
    records, _ = finished
    shown = [row for row in records.to_pylist() if row["adversarial_picture"]]
    assert len({(row["goal"], row["pair"]) for row in shown}) == 2
    assert all(row["difference_gain"] > 1 for row in shown)


def test_the_first_pair_shown_tells_where_the_model_looks_or_why_not(
    finished: tuple[pa.Table, list[Result]],
) -> None:
    played = [row for row in finished[0].to_pylist() if row["method"] != "checks"]
    for row in played:
        told = row["attention_note"] is not None or row["clean_attention"] is not None
        assert told == (row["clean_picture"] is not None)
        assert (row["clean_attention"] is None) == (row["adversarial_attention"] is None)
    assert any(row["clean_picture"] is not None for row in played)


def test_a_shattered_gradient_is_caught_end_to_end(tmp_path: Path, toy_faces: Path) -> None:
    """A real file with a rounding layer: no gradient passes, and the lights must say so."""
    model = make_model(tmp_path / "shattered", grey_levels=16)
    context = Context(tmp_path / "cache")
    params = SMALL | {"norms": ["linf"], "goals": ["dodge"], "linf": ["8/255"]}
    params |= {"threshold": "oracle"}
    records = records_of(plan_of(context, model, toy_faces, params), context)
    (lights,) = lights_of(records, attacked_groups(records))
    flags = {flag.name: flag for flag in lights.flags}
    assert lights.worst == "red"
    assert flags["unusable_gradients"].light == "red"
    assert flags["unbounded_budget"].light == "red"
    assert flags["changing_answers"].light == "green"
    (median,) = find(
        WhiteBox().summarise(records), metric="median_distance", method="smallest:fgsm"
    )
    assert median.value is None


def test_dice_are_caught_end_to_end_and_answered_with_averages(
    tmp_path: Path, toy_model: Path, toy_faces: Path
) -> None:
    context = Context(tmp_path)
    params = {"norms": ["linf"], "goals": ["dodge"], "linf": ["8/255"], "pairs": 3, "checks": 2}
    params |= {"threshold": "oracle"}
    plan = plan_of(context, toy_model, toy_faces, params | {"attacks": ["bim(steps=3)"]})
    context._models[plan.models[0].ref] = Dice(load_model(toy_model))  # type: ignore[assignment]
    records = records_of(plan, context)
    (lights,) = lights_of(records, attacked_groups(records))
    flags = {flag.name: flag for flag in lights.flags}
    assert flags["changing_answers"].light == "red"
    assert "samples" in flags["changing_answers"].message
    played = [row for row in records.to_pylist() if row["outcome"] == "played"]
    assert all(row["randomised"] and row["samples"] == 20 for row in played)


def test_a_model_without_gradients_is_reported_not_failed(
    tmp_path: Path, toy_model: Path, toy_faces: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    context = Context(tmp_path)
    plan = plan_of(context, toy_model, toy_faces, SMALL | {"norms": ["linf"]})
    monkeypatch.setattr(type(context.model(plan.models[0])), "differentiable", False)
    records = records_of(plan, context)
    assert set(records["outcome"].to_pylist()) == {"unplayable"}
    (result,) = plan.evaluators[0].summarise(records)
    assert result.metric == "unplayable_pairs"
    assert result.value == len({name for name in records["pair"].to_pylist() if name})


def test_what_needs_no_gradients_is_run_without_them(tmp_path: Path, toy_faces: Path) -> None:
    blind = make_model(tmp_path / "blind", whole_numbers=True)
    params = SMALL | {"norms": ["linf"], "attacks": ["square"], "pairs": 2, "checks": 0}
    plan = plan_of(Context(tmp_path), blind, toy_faces, params)
    records = records_of(plan, Context(tmp_path))
    assert set(records["outcome"].to_pylist()) == {"played"}


@pytest.mark.parametrize("attack", ["lgc", "lgc+dim", "smallest:lgc+tim"])
def test_landmarks_are_asked_for_at_once_and_reach_every_attack_that_needs_them(
    tmp_path: Path, toy_model: Path, toy_faces: Path, attack: str
) -> None:
    context, asked = Context(tmp_path), {"attacks": [attack], "pairs": 2, "checks": 0}
    with pytest.raises(SpecError, match="needs facial landmarks"):
        plan_of(context, toy_model, toy_faces, asked)
    with pytest.raises(SpecError, match=r"no file nowhere\.onnx"):
        plan_of(context, toy_model, toy_faces, asked | {"landmarks": "nowhere.onnx"})
    plan = plan_of(context, toy_model, toy_faces, asked | {"landmarks": "accept-licence"})
    assert {cell.params["landmarks"] for cell in plan.cells} == {"accept-licence"}


def test_costs_and_parameters(tmp_path: Path, toy_model: Path, toy_faces: Path) -> None:
    assert expected_gradients(make_attack("bim")) == 20
    assert expected_gradients(make_attack("si+dim(steps=10)")) == 50
    assert expected_gradients(make_attack("smallest(schedule=robfr):bim")) == 260
    assert expected_gradients(make_attack("smallest:fgsm")) == 20
    context = Context(tmp_path)
    with pytest.raises(SpecError, match="nothing to do"):
        plan_of(context, toy_model, toy_faces, {"attacks": ["cw"], "norms": ["linf"], "checks": 0})
    genuine = toy_faces.parent / "genuine.csv"
    genuine.write_text("left,right,same\npeople/p0/0.png,people/p0/1.png,1\n")
    with pytest.raises(SpecError, match="impostor pairs to impersonate; got"):
        asked = {"attacks": ["bim"], "goals": ["impersonate"]}
        plan_of(context, toy_model, toy_faces, asked, data=[f"csv:{genuine}"])
    with pytest.raises(SpecError, match="threshold rule"):
        plan_of(context, toy_model, toy_faces, {"threshold": "orcale"})
    with pytest.raises(CardError, match="has no threshold"):
        plan_of(context, toy_model, toy_faces, {"threshold": "card"})
    with pytest.raises(SpecError, match="8/255"):
        plan_of(context, toy_model, toy_faces, {"linf": ["8"]})
    assert math.isclose(WhiteBox().linf[0], 2 / 255)


def test_the_section_tells_lights_medians_and_pictures(
    finished: tuple[pa.Table, list[Result]],
) -> None:
    records, results = finished
    section = SECTIONS.get("white_box")()
    view = View(records, tuple(results), {})
    sentences = [verdict.sentence for verdict in section.verdicts(view)]
    assert any("be refused" in sentence and "grey levels" in sentence for sentence in sentences)
    assert any("within 8/255" in sentence.lower() for sentence in sentences)
    measures = [row.measure for row in section.headlines(view)]
    assert "Smallest change, median (dodging, linf)" in measures
    html = str(section.body(view))
    found = next(r for r in results if r.metric == "median_distance" and r.goal == "dodge")
    assert found.value is not None and f"{found.value:.2f} /" in html
    assert html.count('class="quad"') == len(
        [row for row in records.to_pylist() if row["clean_picture"]]
    )
    assert "docs/checks.md#finite-differences" in html
    assert "success over budget" in html and "success over steps" in html


def test_red_lights_become_a_problem_on_the_first_screen() -> None:
    flag = Flag("unusable_gradients", "red", 1.0, "100 % of gradients are zero")
    lights = Lights(GameKey("toy", "faces", "dodge", "linf"), (flag,), 4)
    verdict = doubt([lights])
    assert verdict is not None and verdict.level == "problem"
    assert "100 % of gradients are zero" in verdict.sentence


def test_a_check_made_twice_counts_once_and_by_its_worst() -> None:
    flags = tuple(Flag("growing_budget", light, 0.0, "") for light in ("green", "yellow"))
    lights = Lights(GameKey("toy", "faces", "dodge", "linf"), flags, 4)
    assert lights.worst == "yellow"
    assert [flag.light for flag in lights.worst_of_each()] == ["yellow"]
