"""The api evaluator on a local model and on the same model behind HTTP, and its report."""

from __future__ import annotations

import json
import shutil
import sys
from importlib import resources
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
from onnxfr.evaluators.planning import Plan, manifest_of, plan_run
from onnxfr.evaluators.report.page import page
from onnxfr.evaluators.report.section import SECTIONS, View
from onnxfr.evaluators.report.write import read_content
from onnxfr.models.remote.reference import parse_reference
from onnxfr.models.wrapper import load_model
from onnxfr.runs.context import Context
from onnxfr.runs.engines.local import LocalEngine
from onnxfr.runs.execute import Outcome, execute
from onnxfr.runs.records import join, to_table
from onnxfr.runs.spec import make_spec
from onnxfr.runs.store import RunStore

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


def run_remotely(toy: Path, folder: Path, port: int, budget: int | None) -> Outcome:
    cap = "" if budget is None else f",budget={budget}"
    reference = f"remote:onnxfr,url=http://127.0.0.1:{port},journal={folder / 'j'}{cap}"
    plan, context = planned(toy, reference, folder / "cache", goals=["impersonate"])
    store = RunStore(folder / "run")
    with store.working():
        store.write_manifest(manifest_of(plan, context), plan.cells)
        return execute(plan.cells, store, LocalEngine(), plan.work(folder / "cache"))


def told(folder: Path) -> tuple[dict[tuple[str, ...], Any], list[str], str]:
    """Return what a stored run says in numbers, in sentences and on its page."""
    content = read_content(RunStore.open(folder / "run"))
    sentences = [verdict.sentence for verdict in content.verdicts()]
    return numbers(content.results()), sentences, page(content)


def test_more_calls_continue_a_run_that_ran_out_of_them(toy: Path, tmp_path: Path) -> None:
    port, whole = free_port(), tmp_path / "whole"
    with served_here(load_model(toy / "toy"), THRESHOLD, port):
        assert run_remotely(toy, whole, port, None).ending == "finished"
        for budget in (10, 60, 60):
            outcome = run_remotely(toy, tmp_path, port, budget)
            assert (outcome.ending, outcome.failed, outcome.exit_code) == ("unfinished", {}, 0)
            assert all("raise --max-calls" in why for why in outcome.unfinished.values())
            assert spent(tmp_path) == budget
        assert run_remotely(toy, tmp_path, port, None).ending == "finished"
        again = run_remotely(toy, tmp_path, port, None)
    assert (again.done, again.ending) == (0, "finished")
    # Not a call more than without any interruption, and the same results.
    assert spent(tmp_path) == spent(whole)
    assert told(tmp_path) == told(whole)


def spent(folder: Path) -> int:
    lines = [json.loads(line) for line in (folder / "j").read_text().splitlines()]
    return sum(line["calls"] for line in lines if "ask" in line)


def test_clean_pairs_that_were_not_asked_are_counted(toy: Path, tmp_path: Path) -> None:
    port = free_port()
    with served_here(load_model(toy / "toy"), THRESHOLD, port):
        run_remotely(toy, tmp_path, port, 10)
    found, sentences, html = told(tmp_path)
    assert found[("unasked_pairs", "", "", "")][0] == 14
    assert found[("rr", "", "", "")][3] == 10
    assert found[("unrepeated_pairs", "", "", "")][0] == 4
    assert found[("attacked_pairs", "evolutionary", "impersonate", "")][0] < 3
    assert any("14 pairs were not asked; 4 pairs were not asked again" in s for s in sentences)
    assert "Pairs not asked, no call was left" in html
    assert "No pair was asked often enough to say" in html


def test_attacks_cut_short_are_counted_and_judged_only_as_far_as_they_went(
    toy: Path, tmp_path: Path
) -> None:
    port = free_port()
    with served_here(load_model(toy / "toy"), THRESHOLD, port):
        run_remotely(toy, tmp_path, port, 60)
    found, sentences, html = told(tmp_path)
    attack = "evolutionary", "impersonate"
    assert found[("cut_short_pairs", *attack, "")][0] == 3
    # Every call was an answer to somebody: 24 for the clean pairs, the others for the attack.
    assert found[("calls", "", "", "")][0] == 24
    assert found[("calls", *attack, "")][0] == 60 - 24
    assert found[("refused_queries", *attack, "")][0] == 0
    rates = [key[3] for key in found if key[0] == "asr"]
    assert rates == ["eps=8/255, queries=10"]
    assert any("3 pairs cut short" in sentence for sentence in sentences)
    assert any("yes or no, 10 times a pair" in sentence for sentence in sentences)
    assert "The calls ran out: 3 pairs cut short" in html


def test_a_pair_that_cannot_be_read_hides_no_other(toy: Path, tmp_path: Path) -> None:
    shutil.copytree(toy, tmp_path / "toy")
    for picture in sorted((tmp_path / "toy" / "people").rglob("*.png"))[:6]:
        picture.write_bytes(b"no picture")
    plan, context = planned(
        tmp_path / "toy", str(toy / "toy"), tmp_path, goals=["impersonate"], attacked_pairs=12
    )
    table = records(plan, context)
    outcomes = [row["outcome"] for row in table.to_pylist() if row["method"] == "evolutionary"]
    assert outcomes[0] == "unplayable" and "played" in outcomes
    assert numbers(results_of(table))[("calls", "evolutionary", "impersonate", "")][0] > 0


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


def test_calls_are_counted_as_they_are_paid_for(toy: Path, tmp_path: Path) -> None:
    plain = resources.files("onnxfr.models.remote").joinpath("adapters", "onnxfr.toml").read_text()
    before, step, after = plain.partition("[[steps]]")
    request, answer, rules = after.partition("[answer]")
    twice = step + request + 'captures = { told = "match" }\n\n' + step + request + answer + rules
    (tmp_path / "twice.toml").write_text(before + twice)
    port = free_port()
    reference = (
        f"remote:{tmp_path / 'twice.toml'},url=http://127.0.0.1:{port},journal={tmp_path / 'j'}"
    )
    with served_here(load_model(toy / "toy"), THRESHOLD, port):
        plan, context = planned(toy, f"{reference},price=0.5", tmp_path / "a", recheck=0)
        (priced,) = price_services(plan, plan.cells, context)
        evaluator = EVALUATORS.get("api")()
        clean = evaluator.run(plan.cells[0], context)
        assert sum(row["calls"] for row in clean) == spent(tmp_path) == 2 * 24
        table = records(plan, context)
    found = numbers(results_of(table))
    assert found[("calls", "", "", "")][0] == 2 * 24
    (value, _, _, questions) = found[("calls", "evolutionary", "impersonate", "")]
    assert value == 2 * questions == 2 * 3 * 30
    assert sum(each[0] for key, each in found.items() if key[0] == "calls") <= priced["calls"]
    assert spent(tmp_path) <= priced["calls"] == 2 * (24 + 2 * 3 * (30 + 3))
    assert priced["price"] == 0.5 * priced["calls"]
    view = View(table, tuple(results_of(table)), {})
    section = SECTIONS.get("api")()
    (row,) = (each for each in section.headlines(view) if each.measure == "Questions asked")
    assert (row.value, row.note) == ("114", "clean and attacks; 228 calls")
    assert "24 questions (48 calls)" in str(section.body(view))
    assert any("30 times a pair" in each.sentence for each in section.verdicts(view))


def test_attacks_that_ask_for_more_are_refused(toy: Path, tmp_path: Path) -> None:
    content = {
        "models": [str(toy / "toy")],
        "data": [f"folder:{toy / 'people'}"],
        "evaluators": [{"name": "api", "params": {"attacks": ["bim"]}}],
    }
    with pytest.raises(SpecError, match="more than decisions"):
        plan_run(make_spec(content, toy), Context(tmp_path))
