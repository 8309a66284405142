"""Attacks and corruptions together: pixels, numbers and page, on a small real model."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
import torch
from toy_faces import Dice, make_plan_spec, make_run

from onnxfr.attacks import make_attack
from onnxfr.corruptions import apply_chain, corrupt, corrupt_images
from onnxfr.data.images import load_pixels, to_images
from onnxfr.data.pairs import open_pairs
from onnxfr.errors import SpecError
from onnxfr.evaluators.attacked import Rules, fight
from onnxfr.evaluators.base import Result
from onnxfr.evaluators.channelled import Channelled
from onnxfr.evaluators.corruption_attack import CorruptionAttack
from onnxfr.evaluators.corruption_attack_records import PICTURES
from onnxfr.evaluators.corruption_attack_results import results_of
from onnxfr.evaluators.games import clean_threshold, load_games
from onnxfr.evaluators.planning import Plan, make_evaluator, plan_run
from onnxfr.evaluators.report.section import SECTIONS, View
from onnxfr.evaluators.report.write import read_content, write_report
from onnxfr.evaluators.treatment import Channel, Treatment
from onnxfr.models.wrapper import load_model
from onnxfr.probe import round8
from onnxfr.runs.context import Context
from onnxfr.runs.records import join, to_table
from onnxfr.runs.spec import EvaluatorSpec
from onnxfr.runs.store import RunStore
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
    ],
    ids=str,
)
def test_what_cannot_be_run_is_refused_before_any_work(params: dict[str, Any], says: str) -> None:
    with pytest.raises(SpecError, match=says):
        make_evaluator(EvaluatorSpec(name="corruption_attack", params=SMALL | params))


def _row(pair: int, clean: bool, attacked: bool, corrupted: bool, both: bool) -> dict[str, Any]:
    constants = {
        "model": "m",
        "data": "d",
        "method": "bim",
        "goal": "dodge",
        "norm": "linf",
        "eps": 8 / 255,
        "order": "attack_first",
        "corruption": "jpeg",
        "severity": 3,
        "outcome": "played",
        "protocol": "ours",
        "threshold": 0.2,
        "threshold_origin": "d@fmr=1e-3",
        "distance": 8 / 255,
    }
    won = {
        "won_clean": clean,
        "won_attacked": attacked,
        "won_corrupted": corrupted,
        "won_both": both,
    }
    return constants | {"pair": f"{pair}"} | won


def test_rates_are_of_the_pairs_right_when_nothing_is_done() -> None:
    rows = [
        _row(0, True, True, True, True),
        _row(1, False, True, False, True),
        _row(2, False, True, False, False),
        _row(3, False, True, True, True),
        _row(4, False, False, False, False),
    ]
    found = {r.metric: r for r in results_of(pa.Table.from_pylist(rows))}
    told = {name: (result.value, result.n) for name, result in found.items()}
    assert told == {
        "asr_8bit": (0.75, 4),
        "asr_corrupted": (0.5, 4),
        "asr_corruption_alone": (0.25, 4),
        "asr_beyond_corruption": (pytest.approx(1 / 3), 3),
        "asr_survival": (pytest.approx(2 / 3), 3),
    }
    assert found["asr_8bit"].condition == "eps=8/255"
    assert found["asr_survival"].condition == "eps=8/255,jpeg@3"
    assert found["asr_survival"].threshold_origin == "d@fmr=1e-3"


def test_ease_compares_each_pair_with_its_clean_picture() -> None:
    def rows(corruption: str, changes: list[tuple[bool, bool, float]]) -> list[dict[str, Any]]:
        return [
            _row(k, False, False, corrupted, both)
            | {"eps": None, "order": "corruption_first", "corruption": corruption}
            | {"distance": grey / 255}
            for k, (corrupted, both, grey) in enumerate(changes)
        ]

    clean = rows("clean", [(False, True, 4.0), (False, True, 2.0), (False, False, 9.0)])
    jpeg = rows("jpeg", [(False, True, 2.0), (True, True, 0.0), (False, True, 1.0)])
    schema = pa.Table.from_pylist(clean[:1]).schema.set(
        list(clean[0]).index("eps"), pa.field("eps", pa.float64())
    )
    results = results_of(pa.Table.from_pylist(clean + jpeg, schema=schema))

    def value(metric: str, condition: str) -> Result:
        (result,) = [r for r in results if (r.metric, r.condition) == (metric, condition)]
        return result

    assert value("median_on_corrupted", "clean").value == pytest.approx(4.0)
    assert value("median_on_corrupted", "jpeg@3").value == pytest.approx(1.0)
    ease = value("ease_ratio", "jpeg@3")
    # Pair 2 was never broken when clean: there is nothing to compare it with.
    assert (ease.value, ease.n) == (pytest.approx(0.25), 2)


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


def test_a_model_that_is_wrong_on_every_pair_still_has_a_page() -> None:
    table = pa.Table.from_pylist([_row(k, True, True, True, True) for k in range(3)])
    for name in PICTURES:
        table = table.append_column(name, pa.nulls(3, pa.binary()))
    section = SECTIONS.get("corruption_attack")()
    view = View(table, tuple(results_of(table)), {})
    assert "0 pairs right before" in section.body(view)
    assert section.verdicts(view) == [] and section.headlines(view) == []


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory, toy_model: Path, toy_faces: Path) -> Path:
    folder = tmp_path_factory.mktemp("together")
    params = SMALL | {"attacks_on_corrupted": ["smallest:fgsm", "pgd(steps=2)"]}
    return make_run(
        folder / "run",
        toy_model,
        f"folder:{toy_faces}",
        folder / "cache",
        evaluators=[{"name": "corruption_attack", "params": params}],
    )


def test_the_page_shows_both_orders_with_maps_and_faces(run: Path) -> None:
    page = write_report(RunStore.open(run), run / "report").page.read_text(encoding="utf-8")
    assert "Attacks and corruptions together" in page
    # For each goal what is left, and what the corruption does alone.
    assert page.count('<svg class="chart"') == 2 * 2
    assert page.count("On corrupted pictures:") == 2 * 2
    # Three corruptions a goal: five faces where the attack comes first, four where it does not.
    assert page.count("data:image/jpeg;base64") == 2 * 3 * (5 + 4)
    assert "Wins that survive" in page and "Corrupted over clean" in page


def test_verdicts_name_attack_corruption_and_the_corruption_alone(run: Path) -> None:
    sentences = [verdict.sentence for verdict in read_content(RunStore.open(run)).verdicts()]
    assert len(sentences) == 2
    for sentence in sentences:
        assert "bim(steps=4), linf 6/255" in sentence
        assert "the corruption alone" in sentence and "@fmr" in sentence
