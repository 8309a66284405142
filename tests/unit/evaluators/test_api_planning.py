"""What the api evaluator refuses before a call is paid, and which wins it counts."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from onnxfr.cli.services import open_services, price_services, with_services
from onnxfr.errors import SpecError
from onnxfr.evaluators.api_results import results_of
from onnxfr.evaluators.planning import Plan, plan_run
from onnxfr.runs.context import Context
from onnxfr.runs.spec import make_spec


def planned(faces: Path, cache: Path, *models: str, **params: Any) -> Plan:
    content = {
        "models": list(models),
        "data": [f"folder:{faces}"],
        "max_pairs": 24,
        "evaluators": [{"name": "api", "params": params}],
    }
    return plan_run(make_spec(content, faces), Context(cache))


@pytest.mark.parametrize(
    ("changes", "reason"),
    [
        ({"norm": "linf"}, "evolutionary works in l2, not in linf"),
        ({"max_queries": 0}, "max_queries"),
        ({"attacked_pairs": -1}, "attacked_pairs"),
        ({"recheck": -1}, "recheck"),
        ({"jpeg": 101}, "jpeg"),
        ({"eps": 8}, "a budget lies in"),
        ({"eps": -0.1}, "a budget lies in"),
    ],
    ids=lambda value: next(iter(value)) if isinstance(value, dict) else "",
)
def test_what_cannot_be_run_is_refused_before_a_call_is_paid(
    toy_model: Path, toy_faces: Path, tmp_path: Path, changes: dict[str, Any], reason: str
) -> None:
    with pytest.raises(SpecError, match=reason):
        planned(toy_faces, tmp_path, str(toy_model), **changes)


@pytest.mark.parametrize("name", ["verification", "white_box", "query"])
def test_evaluators_that_need_embeddings_refuse_a_service(
    toy_model: Path, toy_faces: Path, tmp_path: Path, name: str
) -> None:
    content = {
        "models": [str(toy_model), f"remote:onnxfr,journal={tmp_path / 'j'}"],
        "data": [f"folder:{toy_faces}"],
        "evaluators": [{"name": "api"}, {"name": name}],
    }
    with pytest.raises(SpecError, match=f"onnxfr is a service .* {name} asks .* services by api,"):
        plan_run(make_spec(content, toy_faces), Context(tmp_path))


def test_two_services_through_one_adapter_are_told_apart_by_the_names_they_are_given(
    toy_faces: Path, tmp_path: Path
) -> None:
    content: dict[str, Any] = {
        "models": [f"remote:onnxfr,url=http://127.0.0.1:{port}" for port in (1, 2)],
        "data": [f"folder:{toy_faces}"],
        "max_pairs": 24,
        "evaluators": [{"name": "api"}],
    }
    spec = with_services(make_spec(content, toy_faces), tmp_path, None, authorised=False)
    with pytest.raises(SpecError, match=r"two models are called 'onnxfr'.*remote:ADAPTER,name=NEW"):
        plan_run(spec, Context(tmp_path))
    content["models"] = [f"{each},name=n{k}" for k, each in enumerate(content["models"])]
    spec = with_services(make_spec(content, toy_faces), tmp_path, None, authorised=False)
    context = Context(tmp_path)
    plan = plan_run(spec, context)
    assert [model.name for model in plan.models] == ["n0", "n1"]
    prices = price_services(plan, plan.cells, context)
    assert [each["service"] for each in prices] == ["n0", "n1"]
    open_services(plan, context)
    assert {each.name for each in tmp_path.glob("journal-*.jsonl")} == {
        "journal-n0.jsonl",
        "journal-n1.jsonl",
    }


def test_a_budget_may_be_written_in_grey_levels(
    toy_model: Path, toy_faces: Path, tmp_path: Path
) -> None:
    plan = planned(toy_faces, tmp_path, str(toy_model), eps="4/255")
    assert {cell.params.get("eps") for cell in plan.cells} == {None, 4 / 255}


def test_a_change_of_exactly_the_budget_is_within_it() -> None:
    clean, changed = np.float32(0.0), np.float32(8 / 255)
    distance = float(changed - clean)
    assert distance > 8 / 255
    row = {
        "model": "m", "data": "d", "method": "rays", "condition": "dodge", "goal": "dodge",
        "norm": "linf", "outcome": "played", "won": True, "won_clean": False, "short": False,
        "eps": 8 / 255, "max_queries": 10, "queries": 10, "refusals": 0, "distance": distance,
        "distance_at_10": distance, "threshold": None, "threshold_origin": "own",
    }  # fmt: skip
    results = results_of(pa.Table.from_pylist([row]))
    (rate,) = (each for each in results if each.metric == "asr")
    assert rate.value == 1
