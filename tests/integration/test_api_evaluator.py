"""The api evaluator on a local model and on the same model behind HTTP, and its report."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

sys.path.insert(0, str(Path(__file__).parent))
sys.path.insert(0, str(Path(__file__).parents[1] / "unit" / "evaluators"))

from remote_games import free_port, served_here
from toy_faces import make_faces, make_model

from onnxfr.cli.services import describe_price, price_services, with_services
from onnxfr.errors import NotAuthorised, SpecError
from onnxfr.evaluators.api_results import results_of
from onnxfr.evaluators.base import EVALUATORS, Result
from onnxfr.evaluators.planning import Plan, plan_run
from onnxfr.evaluators.report.section import SECTIONS, View
from onnxfr.models.remote.reference import parse_reference
from onnxfr.models.wrapper import load_model
from onnxfr.runs.context import Context
from onnxfr.runs.records import join, to_table
from onnxfr.runs.spec import make_spec

THRESHOLD = 0.5
PARAMS: dict[str, Any] = {
    "attacks": ["evolutionary"],
    "max_queries": 30,
    "attacked_pairs": 3,
    "threshold": f"fixed={THRESHOLD}",
    "align": "no",
    "recheck": 4,
}


@pytest.fixture(scope="module")
def toy(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("api")
    make_model(folder / "toy")
    make_faces(folder / "people")
    return folder


def planned(toy: Path, model: str, cache: Path, **changes: Any) -> tuple[Plan, Context]:
    content = {
        "models": [model],
        "data": [f"folder:{toy / 'people'}"],
        "max_pairs": 24,
        "evaluators": [{"name": "api", "params": PARAMS | changes}],
    }
    context = Context(cache)
    return plan_run(make_spec(content, toy), context), context


def records(plan: Plan, context: Context) -> pa.Table:
    evaluator = EVALUATORS.get("api")()
    return join([to_table(cell, evaluator.run(cell, context)) for cell in plan.cells])


def numbers(results: list[Result]) -> dict[tuple[str, ...], Any]:
    return {
        (r.metric, r.method, r.goal, r.condition): (r.value, r.low, r.high, r.n) for r in results
    }


def test_over_http_it_is_the_same_verifier(toy: Path, tmp_path: Path) -> None:
    local = results_of(records(*planned(toy, str(toy / "toy"), tmp_path / "a")))
    port = free_port()
    reference = f"remote:onnxfr,url=http://127.0.0.1:{port},journal={tmp_path / 'j'},budget=500"
    with served_here(load_model(toy / "toy"), THRESHOLD, port):
        plan, context = planned(toy, reference, tmp_path / "b")
        remote = results_of(records(plan, context))
        again = results_of(records(*planned(toy, reference, tmp_path / "c")))
    found, expected = numbers(remote), numbers(local)
    changed = found.pop(("changed_mind", "", "", ""))
    assert changed[0] == 0.0 and changed[3] == 4
    assert found == expected
    assert numbers(again) == numbers(remote)
    assert expected[("rr", "", "", "")][0] == 0.0
    assert expected[("aa", "", "", "")] == expected[("asa", "", "", "")]
    assert {r.threshold for r in remote} == {None}
    assert {r.threshold for r in local} == {THRESHOLD}


def test_blocks_of_pairs_give_the_same_numbers(toy: Path, tmp_path: Path) -> None:
    def found(size: int) -> tuple[int, dict[tuple[str, ...], Any]]:
        content = {
            "models": [str(toy / "toy")],
            "data": [f"folder:{toy / 'people'}"],
            "max_pairs": 24,
            "rows_per_cell": size,
            "evaluators": [{"name": "api", "params": PARAMS | {"goals": ["impersonate"]}}],
        }
        context = Context(tmp_path)
        plan = plan_run(make_spec(content, toy), context)
        return len(plan.cells), numbers(results_of(records(plan, context)))

    whole, together = found(100)
    parts, apart = found(2)
    assert whole == 2 and parts == 12 + 2
    assert {key: value for key, value in apart.items() if key[1]} == {
        key: value for key, value in together.items() if key[1]
    }


def test_a_coarse_jpeg_changes_what_an_attack_reaches(toy: Path, tmp_path: Path) -> None:
    model, goals = str(toy / "toy"), {"goals": ["impersonate"]}
    plain, coarse = (
        numbers(results_of(records(*planned(toy, model, tmp_path, jpeg=quality, **goals))))
        for quality in (None, 5)
    )
    key = ("median_distance", "evolutionary", "impersonate", "queries=30")
    assert plain[key] != coarse[key]


def test_its_section_says_what_was_measured(toy: Path, tmp_path: Path) -> None:
    table = records(*planned(toy, str(toy / "toy"), tmp_path / "a"))
    view = View(table, tuple(results_of(table)), {})
    section = SECTIONS.get("api")()
    sentences = [verdict.sentence for verdict in section.verdicts(view)]
    assert any("rejects 0.00 % of 24 pairs" in sentence for sentence in sentences)
    attacked = [each for each in sentences if "yes or no, 30 times a pair" in each]
    # The genuine pairs are lost without an attack: there is nothing to say about dodging.
    assert len(attacked) == 1 and "within 8 grey levels" in attacked[0]
    rows = {row.measure: row.value for row in section.headlines(view)}
    assert rows["Rejected over the API"] == "0.00 %"
    assert rows["Questions asked"] == str(24 + 3 * 30)
    body = str(section.body(view))
    assert body.count("<svg") == 2 and "Dodging by evolutionary" in body


def test_a_budget_that_ran_out_shows_in_the_sentence(toy: Path, tmp_path: Path) -> None:
    port = free_port()
    reference = f"remote:onnxfr,url=http://127.0.0.1:{port},journal={tmp_path / 'j'},budget=60"
    with served_here(load_model(toy / "toy"), THRESHOLD, port):
        table = records(*planned(toy, reference, tmp_path / "b", goals=["impersonate"]))
    view = View(table, tuple(results_of(table)), {})
    sentences = [verdict.sentence for verdict in SECTIONS.get("api")().verdicts(view)]
    assert any("times on average (at most 30)" in sentence for sentence in sentences), sentences


def test_a_plan_prices_a_service_without_keys_or_permission(toy: Path, tmp_path: Path) -> None:
    content = {
        "models": ["remote:aws_compare_faces,price=0.001"],
        "data": [f"folder:{toy / 'people'}"],
        "max_pairs": 24,
        "evaluators": [{"name": "api", "params": PARAMS}],
    }
    spec = with_services(make_spec(content, toy), tmp_path, 100, authorised=False)
    assert parse_reference(spec.models[0]).budget == 100
    context = Context(tmp_path / "cache")
    plan = plan_run(spec, context)
    (price,) = price_services(plan, plan.cells, context)
    questions = 24 + 4 + 2 * 3 * (30 + 3)
    assert price["calls"] == questions and price["price"] == pytest.approx(questions / 1000)
    assert f"at most {questions / 1000:.2f} USD" in describe_price(price)
    assert "price unknown" in describe_price(price | {"price": None})
    with pytest.raises(NotAuthorised):
        EVALUATORS.get("api")().run(plan.cells[0], context)


def test_attacks_that_ask_for_more_are_refused(toy: Path, tmp_path: Path) -> None:
    content = {
        "models": [str(toy / "toy")],
        "data": [f"folder:{toy / 'people'}"],
        "evaluators": [{"name": "api", "params": {"attacks": ["bim"]}}],
    }
    with pytest.raises(SpecError, match="more than decisions"):
        plan_run(make_spec(content, toy), Context(tmp_path))
