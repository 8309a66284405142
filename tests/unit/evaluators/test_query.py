"""Query attacks through the evaluator: plans, records, surrogates."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from toy_faces import make_model, make_plan_spec

from onnxfr.errors import SpecError
from onnxfr.evaluators.crafting import make_surrogate
from onnxfr.evaluators.games import load_games, rows_of
from onnxfr.evaluators.planning import RunCell, make_evaluator, manifest_of, plan_run
from onnxfr.evaluators.priming import primed
from onnxfr.evaluators.query import Query
from onnxfr.evaluators.report.section import SECTIONS, View
from onnxfr.models.wrapper import load_model
from onnxfr.runs.context import Context
from onnxfr.runs.records import join, to_table
from onnxfr.runs.spec import EvaluatorSpec, RunSpec
from onnxfr.runs.store import RunStore
from onnxfr.types import Goal

SETTINGS = {
    "attacks": ["square", "hopskipjump"],
    "norms": ["l2"],
    "l2": ["24/255"],
    "pairs": 3,
    "max_queries": 120,
    "align": "no",
    "examples": 3,
    "threshold": "oracle",
}


def _spec(model: Path, faces: Path, **params: Any) -> RunSpec:
    spec = make_plan_spec([model], f"folder:{faces}")
    entry = EvaluatorSpec(name="query", params={**SETTINGS, **params})
    return spec.model_copy(update={"evaluators": (entry,)})


def test_gradient_attacks_are_refused(tmp_path: Path, toy_model: Path, toy_faces: Path) -> None:
    with pytest.raises(SpecError, match="gradients"):
        plan_run(_spec(toy_model, toy_faces, attacks=["bim"]), Context(tmp_path))


@pytest.mark.parametrize("files", [{"quantise": True}, {"jpeg": 90}])
def test_budgets_that_no_file_can_use_are_refused(
    tmp_path: Path, toy_model: Path, toy_faces: Path, files: dict[str, Any]
) -> None:
    fine = {"attacks": ["square"], "norms": ["linf"], "linf": ["0.5/255"]}
    with pytest.raises(SpecError, match="a file holds no change"):
        plan_run(_spec(toy_model, toy_faces, **fine, **files), Context(tmp_path))
    plan_run(_spec(toy_model, toy_faces, **fine), Context(tmp_path))
    # What decision attacks reach is measured; a distance nobody can reach is an answer, too.
    asking = fine | {"attacks": ["rays"]}
    plan_run(_spec(toy_model, toy_faces, **asking, **files), Context(tmp_path))


def test_the_report_shows_what_questions_buy(
    tmp_path: Path, toy_model: Path, toy_faces: Path
) -> None:
    context = Context(tmp_path / "cache")
    plan = plan_run(_spec(toy_model, toy_faces), context)
    store = RunStore(tmp_path / "run")
    with store.working():
        store.write_manifest(manifest_of(plan, context), plan.cells)
        for cell in plan.cells:
            store.write(cell, RunCell(tmp_path / "cache")(cell, lambda done, total: None))
    records = store.records("query")
    assert records["queries"].to_numpy().max() <= 120
    evaluator = make_evaluator(EvaluatorSpec(name="query", params=SETTINGS))
    results = evaluator.summarise(records)
    view = View(records, tuple(results), store.manifest())
    section = SECTIONS.get("query")()
    body = section.body(view)
    assert "hopskipjump" in body and body.count("<svg") >= 4 and "data:image/jpeg" in body
    sentences = [verdict.sentence for verdict in section.verdicts(view)]
    assert len(sentences) == 2 and all("120 questions" in each for each in sentences)
    assert len(section.headlines(view)) == 2


def test_a_surrogate_gives_decision_attacks_their_start(
    tmp_path: Path, toy_model: Path, other_model: Path, toy_faces: Path
) -> None:
    context = Context(tmp_path)
    plan = plan_run(
        _spec(toy_model, toy_faces, attacks=["boundary"], surrogate=str(other_model)), context
    )
    assert all(cell.others for cell in plan.cells)
    rows = [row for cell in plan.cells for row in Query().run(cell, context)]
    assert all(row["primed"] and row["surrogate"] == "other" for row in rows)
    table = join([to_table(cell, Query().run(cell, context)) for cell in plan.cells])
    told = {r.method for r in Query().summarise(table) if r.metric != "clean_wrong_pairs"}
    assert told == {"boundary (primed by other)"}


def test_a_surrogate_of_another_frame_is_refused_before_raw_pictures_are_cut(
    tmp_path: Path, toy_model: Path, toy_faces: Path
) -> None:
    """Its change would lie 13 pixels beside the face."""
    wider = make_model(tmp_path / "wider", size=128)
    mixed = _spec(toy_model, toy_faces, attacks=["boundary"], surrogate=str(wider), align="yes")
    with pytest.raises(SpecError, match="arcface at 112x112 and arcface at 128x128"):
        plan_run(mixed, Context(tmp_path / "cache"))
    scores = _spec(toy_model, toy_faces, attacks=["square"], surrogate=str(wider), align="yes")
    assert plan_run(scores, Context(tmp_path / "cache")).cells, "which use no surrogate"


def test_starts_differ_from_the_clean_picture_where_the_surrogate_is_wrong_by_itself(
    tmp_path: Path, toy_model: Path, other_model: Path, toy_faces: Path
) -> None:
    context = Context(tmp_path)
    model, other = (context.identify(str(path)) for path in (toy_model, other_model))
    data = context.describe(f"folder:{toy_faces}")
    rows = rows_of(context.pairs(data), Goal.DODGE, 6)
    games = load_games(context, model, data, rows, align="no")
    surrogate = make_surrogate(context, [other], "margin", data, "fixed=0.999", align="no")
    starts = primed(surrogate, games.probe, Goal.DODGE, seed=0)
    change = np.abs(starts - games.probe.images).max(axis=(1, 2, 3))
    assert (change > 8 / 255).all()


@pytest.fixture(scope="module")
def small_model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return make_model(tmp_path_factory.mktemp("model") / "small", seed=2, size=80)


def test_a_surrogate_gives_qeba_its_directions_however_the_run_is_cut(
    tmp_path: Path, toy_model: Path, small_model: Path, toy_faces: Path
) -> None:
    asked = {"attacks": ["qeba(space=surrogate)"], "goals": ["dodge"], "max_queries": 60}
    with pytest.raises(SpecError, match="set surrogate"):
        plan_run(_spec(toy_model, toy_faces, **asked), Context(tmp_path))
    found = []
    for size in (3, 1):
        spec = _spec(toy_model, toy_faces, surrogate=str(small_model), **asked)
        context = Context(tmp_path)
        plan = plan_run(spec.model_copy(update={"rows_per_cell": size}), context)
        rows = [row for cell in plan.cells for row in Query().run(cell, context)]
        found.append({row["pair"]: row["distance"] for row in rows})
    assert len(found[0]) == 3 and any(found[0].values())
    assert found[1] == pytest.approx(found[0], abs=1e-5)


def test_a_surrogate_without_gradients_is_refused(
    tmp_path: Path, toy_model: Path, toy_faces: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    context = Context(tmp_path)
    monkeypatch.setattr(type(load_model(toy_model)), "differentiable", False)
    with pytest.raises(SpecError, match="no differentiable form"):
        plan_run(_spec(toy_model, toy_faces, surrogate=str(toy_model)), context)
