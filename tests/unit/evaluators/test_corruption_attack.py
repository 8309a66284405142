"""Attacks and corruptions together: plans, pixels and margins, on a small real model."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
import torch
from toy_faces import Dice, make_plan_spec

from onnxfr.attacks import make_attack
from onnxfr.corruptions import apply_chain, corrupt, corrupt_images
from onnxfr.data.images import load_pixels, to_images
from onnxfr.data.pairs import open_pairs
from onnxfr.errors import SpecError
from onnxfr.evaluators.attacked import Rules, fight
from onnxfr.evaluators.channelled import Channelled
from onnxfr.evaluators.corruption_attack import CorruptionAttack
from onnxfr.evaluators.games import clean_threshold, load_games
from onnxfr.evaluators.planning import Plan, make_evaluator, plan_run
from onnxfr.evaluators.treatment import Channel, Treatment
from onnxfr.models.wrapper import load_model
from onnxfr.probe import round8
from onnxfr.runs.context import Context
from onnxfr.runs.records import join, to_table
from onnxfr.runs.spec import EvaluatorSpec
from onnxfr.threat import Threat
from onnxfr.types import Goal

CHAIN = "resize:0.5 > jpeg:30"
SMALL: dict[str, Any] = {
    "attacks": ["bim(steps=4)"],
    "linf": ["6/255"],
    "corruptions": ["shot_noise", "jpeg"],
    "severities": [2, 5],
    "chains": [CHAIN],
    "pairs": 6,
}


def _plan(context: Context, model: Path, faces: Path, **params: Any) -> Plan:
    entry = {"name": "corruption_attack", "params": SMALL | params}
    return plan_run(
        make_plan_spec([model], f"folder:{faces}", evaluators=[entry], fmr=0.05), context
    )


def _records(plan: Plan, context: Context) -> pa.Table:
    return join([to_table(cell, CorruptionAttack().run(cell, context)) for cell in plan.cells])


def _rows(table: pa.Table, **wanted: Any) -> list[dict[str, Any]]:
    return [row for row in table.to_pylist() if all(row[k] == v for k, v in wanted.items())]


@pytest.mark.parametrize("goal", [Goal.DODGE, Goal.IMPERSONATE])
def test_margins_are_those_of_the_pictures_it_speaks_of(
    tmp_path: Path, toy_model: Path, toy_faces: Path, goal: Goal
) -> None:
    context = Context(tmp_path)
    plan = _plan(context, toy_model, toy_faces)
    table = _records(plan, context)
    data, model = plan.data[0], load_model(toy_model)
    rows = _rows(table, goal=str(goal), corruption="shot_noise", severity=5)
    games = load_games(context, plan.models[0], data, tuple(row["pair"] for row in rows))
    by_pair = {row["pair"]: row for row in rows}
    rows = [by_pair[name] for name in games.probe.ids]
    threshold = clean_threshold(context, plan.models[0], data, "fmr=0.05")
    rules = Rules(goal=goal, threat=Threat(norm="linf", eps=6 / 255), threshold=threshold)
    attacked = round8(fight(model, games.probe, make_attack("bim(steps=4)"), rules).result.images)
    pixels = np.rint(attacked.transpose(0, 2, 3, 1) * 255).astype(np.uint8)
    ids = [row["left"] for row in rows]
    both = corrupt(pixels, "shot_noise", 5, ids=ids)
    sources = {image.id: image for image in open_pairs(f"folder:{toy_faces}").images}
    alone = corrupt(
        np.stack([load_pixels(sources[name]) for name in ids]), "shot_noise", 5, ids=ids
    )
    sent = apply_chain(pixels, CHAIN, ids=ids)
    sign = -1 if goal is Goal.DODGE else 1

    def margin(faces: Any) -> Any:
        assert games.probe.references is not None
        scores = model.similarity(to_images(list(faces)), games.probe.references)
        return sign * (scores - threshold.value)

    for name, faces in (("both", both), ("corrupted", alone), ("attacked", pixels)):
        found = np.array([row[f"margin_{name}"] for row in rows])
        np.testing.assert_allclose(found, margin(faces), atol=1e-5)
        assert [row[f"won_{name}"] for row in rows] == (found > 0).tolist()
    chained = {row["pair"]: row for row in _rows(table, goal=str(goal), corruption=CHAIN)}
    found = np.array([chained[name]["margin_both"] for name in games.probe.ids])
    np.testing.assert_allclose(found, margin(sent), atol=1e-5)


def test_the_attack_on_a_corrupted_picture_starts_from_it_and_keeps_its_budget(
    tmp_path: Path, toy_model: Path, toy_faces: Path
) -> None:
    context = Context(tmp_path)
    on = {"attacks": [], "attacks_on_corrupted": ["bim(steps=4)", "smallest:fgsm"]}
    plan = _plan(context, toy_model, toy_faces, **on)
    table = _records(plan, context)
    assert {row["order"] for row in table.to_pylist()} == {"corruption_first"}
    fixed = _rows(table, method="bim(steps=4)", corruption="shot_noise", severity=5)
    assert max(row["distance"] for row in fixed) <= 6 / 255 + 1e-6
    first = _rows(
        _records(_plan(context, toy_model, toy_faces), context), corruption="shot_noise", severity=5
    )
    alone = {row["pair"]: row["margin_corrupted"] for row in first}
    assert [row["margin_corrupted"] for row in fixed] == pytest.approx(
        [alone[row["pair"]] for row in fixed], abs=1e-6
    )
    metrics = {result.metric for result in CorruptionAttack().summarise(table)}
    assert metrics == {"asr_on_corrupted", "median_on_corrupted", "ease_ratio"}


def test_who_knows_the_corruption_attacks_the_model_behind_it(
    tmp_path: Path, toy_model: Path, toy_faces: Path
) -> None:
    context = Context(tmp_path)
    plan = _plan(
        context, toy_model, toy_faces, attacks=[], attacks_through=["bim(steps=4)"], pairs=4
    )
    assert {cell.condition["order"] for cell in plan.cells} == {"aimed"}
    table = _records(plan, context)
    model = load_model(toy_model)
    rows = _rows(table, goal="dodge", corruption="jpeg", severity=5)
    games = load_games(context, plan.models[0], plan.data[0], tuple(r["pair"] for r in rows))
    assert games.probe.references is not None
    threshold = clean_threshold(context, plan.models[0], plan.data[0], "fmr=0.05")
    rules = Rules(goal=Goal.DODGE, threat=Threat(norm="linf", eps=6 / 255), threshold=threshold)
    behind = Channelled(model, Channel(Treatment("jpeg", (5,)), 5))
    known = replace(
        games.probe,
        references=None,
        reference_embeddings=model.embed(games.probe.references),
    )
    result = fight(behind, known, make_attack("bim(steps=4)"), rules).result
    ids = [row["left"] for row in rows]
    sent = corrupt_images(round8(result.images), "jpeg", 5, ids=ids)
    margin = threshold.value - model.similarity(sent, games.probe.references)
    by_pair = {row["pair"]: row["margin_both"] for row in rows}
    found = np.array([by_pair[name] for name in games.probe.ids])
    played = ~result.won_clean
    assert played.any()
    np.testing.assert_allclose(found[played], margin[played], atol=1e-5)
    metrics = {result.metric for result in CorruptionAttack().summarise(table)}
    assert metrics == {"asr_aimed", "asr_aimed_beyond_corruption"}


def test_aimed_attacks_leave_no_pair_alone(
    tmp_path: Path, toy_model: Path, toy_faces: Path
) -> None:
    context = Context(tmp_path)
    through = {"attacks": [], "attacks_through": ["bim(steps=4)"], "corruptions": ["shot_noise"]}
    plan = _plan(context, toy_model, toy_faces, **through, severities=[5], chains=[], pairs=None)
    rows = _rows(_records(plan, context), goal="dodge")
    assert any(row["won_corrupted"] for row in rows), "some pairs break without an attack"
    assert all(row["distance"] > 5 / 255 for row in rows)


def test_a_model_behind_noise_answers_each_picture_alike_and_lets_gradients_through(
    toy_model: Path,
) -> None:
    model = load_model(toy_model)
    behind = Channelled(model, Channel(Treatment("shot_noise", (3,)), 3))
    images = np.random.default_rng(0).random((3, 3, 112, 112), dtype=np.float32)
    answers = behind.embed(images)
    np.testing.assert_array_equal(answers, behind.embed(images))
    np.testing.assert_allclose(answers[1:2], behind.embed(images[1:2]), atol=1e-6)
    assert np.abs(answers - model.embed(images)).max() > 1e-3
    same = np.repeat(images[:1], 2, axis=0)
    same[1, 0, 0, 0] = 1 - same[1, 0, 0, 0]
    noises = behind.embed(same)
    assert np.abs(noises[0] - noises[1]).max() > 1e-3, "another picture, another draw"
    point = torch.tensor(images, requires_grad=True)
    seen = behind.embed_grad(point)
    np.testing.assert_allclose(seen.detach().numpy(), answers, atol=1e-5)
    seen.sum().backward()
    assert point.grad is not None and float(point.grad.abs().sum()) > 0
    assert behind.embed(images[:0]).shape[0] == 0


def test_a_larger_draw_reuses_the_cells_of_a_smaller_one(
    tmp_path: Path, toy_model: Path, toy_faces: Path
) -> None:
    def cells(pairs: int) -> set[Any]:
        entry = {"name": "corruption_attack", "params": SMALL | {"pairs": pairs}}
        spec = make_plan_spec(
            [toy_model], f"folder:{toy_faces}", evaluators=[entry], rows_per_cell=4
        )
        return set(plan_run(spec, Context(tmp_path)).cells)

    assert cells(8) < cells(12)


@pytest.mark.parametrize(
    ("params", "says"),
    [
        ({"attacks": ["smallest:bim"]}, "use up a budget"),
        ({"attacks_through": ["fmn"]}, "use up a budget"),
        ({"corruptions": [], "chains": []}, "needs a corruption"),
        ({"severities": [9]}, "1, 2, 3, 4, 5"),
        ({"attacks": ["lgc"]}, "landmarks"),
        ({"chains": ["sparkle:3"]}, "sparkle"),
        ({"linf": ["8/255", "0.9/255"]}, "no change within linf 0.9/255"),
        ({"attacks": [], "attacks_through": ["bim"], "l2": ["0.2/255"]}, "no change within l2"),
    ],
    ids=str,
)
def test_what_cannot_be_run_is_refused_before_any_work(params: dict[str, Any], says: str) -> None:
    with pytest.raises(SpecError, match=says):
        make_evaluator(EvaluatorSpec(name="corruption_attack", params=SMALL | params))


def test_budgets_below_a_grey_level_are_for_pictures_that_stay_floats() -> None:
    params = SMALL | {"attacks": [], "attacks_on_corrupted": ["bim"], "linf": ["0.9/255"]}
    make_evaluator(EvaluatorSpec(name="corruption_attack", params=params))


def test_a_randomised_model_is_judged_by_several_looks(
    tmp_path: Path, toy_model: Path, toy_faces: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    context = Context(tmp_path)
    plan = _plan(context, toy_model, toy_faces, pairs=2, goals=["dodge"], attacks=["fgsm"])
    clean_threshold(context, plan.models[0], plan.data[0], "fmr=0.05")
    dice = Dice(load_model(toy_model))
    looks = 0
    embed = dice.embed

    def counting(images: Any) -> Any:
        nonlocal looks
        looks += len(images)
        return embed(images)

    monkeypatch.setattr(dice, "embed", counting)
    monkeypatch.setattr(Context, "model", lambda self, ref: dice)
    (cell,) = plan.cells
    table = CorruptionAttack().run(cell, context)
    assert isinstance(table, pa.Table)
    # Two games under five conditions, each judged with and without the attack by ten looks.
    assert looks >= 2 * 5 * 2 * 10
