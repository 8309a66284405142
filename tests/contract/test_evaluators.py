"""What every registered evaluator promises, tried on a small real model and real picture files."""

from __future__ import annotations

import dataclasses
import json
import re
import sys
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from pydantic import TypeAdapter

sys.path.insert(0, str(Path(__file__).parents[1] / "unit" / "runs"))

from toy_runs import write_faces, write_model

from onnxfr.errors import SpecError
from onnxfr.evaluators.base import EVALUATORS, Evaluator, Result
from onnxfr.evaluators.planning import (
    Plan,
    RunCell,
    make_evaluator,
    plan_run,
    suites,
)
from onnxfr.runs.context import Context
from onnxfr.runs.engines.local import LocalEngine
from onnxfr.runs.execute import execute
from onnxfr.runs.records import join, to_table
from onnxfr.runs.spec import EvaluatorSpec, make_spec
from onnxfr.runs.store import RunStore

NAMES = EVALUATORS.names()
SMALL: dict[str, dict[str, Any]] = {
    "white_box": {
        "attacks": ["smallest:fgsm", "bim(steps=3)"],
        "norms": ["linf"],
        "linf": ["8/255"],
        "pairs": 4,
        "checks": 2,
        "precision": "float64",
    },
    "query": {
        "attacks": ["square(steps=30)", "boundary"],
        "norms": ["l2"],
        "l2": ["8/255", "16/255"],
        "pairs": 4,
        "max_queries": 60,
    },
    "corruption": {"corruptions": ["jpeg", "shot_noise"], "severities": [1, 5], "examples": 1},
    "corruption_attack": {
        "attacks": ["bim(steps=3)"],
        "attacks_through": ["bim(steps=2)"],
        "attacks_on_corrupted": ["smallest:fgsm", "pgd(steps=2)"],
        "linf": ["4/255"],
        "corruptions": ["shot_noise"],
        "severities": [1, 5],
        "chains": ["resize:0.5 > jpeg:30"],
        "pairs": 4,
        "precision": "float64",
    },
    "transfer": {"attacks": ["mim"], "steps": 4, "pairs": 16},
}
"""Parameters that keep a run short; an evaluator without an entry runs as it is."""
TYPES = {
    str(kind): kind
    for kind in (pa.string(), pa.bool_(), pa.int64(), pa.float64(), pa.binary(), pa.null())
}
GOLDEN = Path(__file__).parents[1] / "golden" / "evaluators"
every_evaluator = pytest.mark.parametrize("name", NAMES)


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("made")
    write_model(folder / "model")
    write_faces(folder / "faces", people=8, each=4)
    return folder


def plan(name: str, made: Path, context: Context, **more: Any) -> Plan:
    asked = {
        "models": ["model/toy"],
        "data": ["folder:faces"],
        "max_pairs": 40,
        "rows_per_cell": 15,
        "fmr": 0.1,
        "evaluators": [{"name": name, "params": SMALL.get(name, {}) | more}],
    }
    return plan_run(make_spec(asked, made), context)


@pytest.fixture
def context(tmp_path: Path) -> Context:
    return Context(tmp_path / "embeddings")


def run_plan(planned: Plan, context: Context) -> pa.Table:
    return join(
        [
            to_table(cell, EVALUATORS.get(cell.evaluator)().run(cell, context))
            for cell in planned.cells
        ]
    )


@every_evaluator
def test_it_is_a_frozen_dataclass_with_defaults(name: str) -> None:
    kind = EVALUATORS.get(name)
    assert issubclass(kind, Evaluator)
    assert dataclasses.is_dataclass(kind)
    assert kind.name == name
    assert isinstance(kind.version, int)
    assert kind.version >= 1
    made = kind()
    assert kind.__dataclass_params__.frozen  # type: ignore[attr-defined]
    assert hash(made) == hash(kind())


@every_evaluator
def test_its_parameters_survive_json_and_refuse_strangers(name: str) -> None:
    kind = EVALUATORS.get(name)
    dumped = TypeAdapter(kind).dump_json(kind())
    assert make_evaluator(EvaluatorSpec(name=name, params=json.loads(dumped))) == kind()
    with pytest.raises(SpecError, match="no_such_parameter"):
        make_evaluator(EvaluatorSpec(name=name, params={"no_such_parameter": 1}))


@every_evaluator
def test_its_plan_is_deterministic_and_says_what_it_costs(
    name: str, made: Path, context: Context, tmp_path: Path
) -> None:
    first = plan(name, made, context)
    second = plan(name, made, Context(tmp_path / "other"))
    assert first.cells
    assert [cell.key for cell in first.cells] == [cell.key for cell in second.cells]
    assert len({cell.key for cell in first.cells}) == len(first.cells)
    assert first.cost.units > 0
    assert all(cell.evaluator == name for cell in first.cells)


@pytest.mark.parametrize("rule", ["orcale", "fmr=2", "fixed=1.2"])
@pytest.mark.parametrize(
    "name", [name for name in NAMES if hasattr(EVALUATORS.get(name), "threshold")]
)
def test_a_threshold_that_cannot_be_had_is_refused_before_the_work(
    name: str, rule: str, made: Path, context: Context
) -> None:
    with pytest.raises(SpecError, match=re.escape(repr(rule))):
        plan(name, made, context, threshold=rule)


@every_evaluator
def test_interrupted_and_resumed_equals_uninterrupted(
    name: str, made: Path, context: Context, tmp_path: Path
) -> None:
    planned = plan(name, made, context)
    whole = run_plan(planned, context)
    store = RunStore(tmp_path / "run")
    work = planned.work(tmp_path / "fresh")
    for part in (planned.cells[:1], planned.cells):
        with store.working():
            store.write_manifest({}, planned.cells)
            outcome = execute(part, store, LocalEngine(), work)
        assert outcome.failed == {}
    assert_same_records(store.records(), whole)


@every_evaluator
def test_rows_do_not_depend_on_how_they_are_cut(name: str, made: Path, context: Context) -> None:
    planned = plan(name, made, context)
    backwards = [
        to_table(cell, EVALUATORS.get(name)().run(cell, context))
        for cell in reversed(planned.cells)
    ]
    assert_same_records(join(backwards[::-1]), run_plan(planned, context))


def _question(result: Result) -> tuple[str, ...]:
    return (
        *(result.method, result.goal, result.norm),
        *(result.metric, result.condition, result.protocol),
    )


@every_evaluator
def test_its_results_are_tidy_and_repeatable(name: str, made: Path, context: Context) -> None:
    planned = plan(name, made, context)
    records = run_plan(planned, context)
    evaluator = planned.evaluators[0]
    results = evaluator.summarise(records)
    assert results
    assert results == evaluator.summarise(records)
    keys = [(r.model, r.data, *_question(r)) for r in results]
    assert len(set(keys)) == len(keys), "two results answer one question: none could be compared"
    for result in results:
        assert isinstance(result, Result)
        assert result.evaluator == name
        assert result.metric
        json.dumps(result.to_dict(), allow_nan=False)
        if result.low is not None and result.high is not None and result.value is not None:
            assert result.low <= result.value + 1e-9
            assert result.value <= result.high + 1e-9


@every_evaluator
def test_its_summary_equals_its_golden_table(name: str) -> None:
    place = GOLDEN / f"{name}.json"
    if not EVALUATORS.get(name).__module__.startswith("onnxfr."):
        pytest.skip("an evaluator that other tests define for themselves")
    assert place.is_file(), f"make it: python tests/golden/evaluators/make.py {name}"
    golden = json.loads(place.read_text(encoding="utf-8"))
    evaluator = make_evaluator(EvaluatorSpec(name=name, params=golden["params"]))
    columns, kinds = golden["columns"], golden["schema"]
    table = pa.table({key: pa.array(columns[key], TYPES[kind]) for key, kind in kinds.items()})
    results = evaluator.summarise(table)
    found = [result.to_dict() for result in results]
    assert len(found) == len(golden["results"])
    for mine, expected in zip(found, golden["results"], strict=True):
        for field, value in expected.items():
            assert mine[field] == (pytest.approx(value) if isinstance(value, float) else value)


@pytest.mark.parametrize("suite", suites())
def test_every_suite_names_evaluators_that_exist(suite: str) -> None:
    assert suites()[suite].description
    for entry in suites()[suite].evaluators:
        make_evaluator(entry)


def test_work_survives_pickling(tmp_path: Path) -> None:
    import pickle

    work = RunCell(tmp_path, ("onnxfr.evaluators.base",))
    assert pickle.loads(pickle.dumps(work)) == work


def assert_same_records(left: pa.Table, right: pa.Table) -> None:
    assert left.column_names == right.column_names
    assert left.num_rows == right.num_rows
    for name in left.column_names:
        for a, b in zip(left[name].to_pylist(), right[name].to_pylist(), strict=True):
            assert a == (pytest.approx(b, abs=1e-5, nan_ok=True) if isinstance(b, float) else b)
