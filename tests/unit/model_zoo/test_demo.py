"""The demo's five lines, and the whole story where a network is at hand."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import typer
from typer.testing import CliRunner

from onnxfr.cli.demo import demo, what_matters
from onnxfr.errors import LicenceError
from onnxfr.evaluators.base import Result
from onnxfr.evaluators.report.section import Verdict


def application() -> typer.Typer:
    app = typer.Typer()
    app.command()(demo)
    return app


def result(metric: str, value: float) -> Result:
    return Result(evaluator="verification", model="m", metric=metric, value=value)


def test_verdicts_come_first_and_numbers_fill_up_to_five_lines() -> None:
    verdicts = [Verdict("caution", "It refuses some."), Verdict("info", "It works.")]
    results = [result("rejected_pairs", 3), result("eer", 0.01), result("d_prime", 4.5)]
    lines = what_matters(verdicts, results)
    assert lines[:2] == ["It refuses some.", "It works."]
    assert len(lines) == 5
    assert "1.00 %" in lines[2]
    assert len(what_matters(verdicts * 4, results)) == 5


def test_every_section_has_its_say_before_any_speaks_twice() -> None:
    verdicts = [
        Verdict("info", f"{name} {k}", section=name)
        for name in ("clean", "attack")
        for k in (1, 2, 3)
    ]
    assert what_matters(verdicts, [])[:3] == ["clean 1", "attack 1", "clean 2"]


def test_a_restrictive_licence_stops_the_demo_at_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("ONNXFR_CACHE", str(tmp_path / "cache"))
    answer = CliRunner().invoke(application(), ["--model", "w600k_mbf", "-o", str(tmp_path / "r")])
    assert isinstance(answer.exception, LicenceError)
    assert not (tmp_path / "r").exists()


@pytest.mark.network
@pytest.mark.slow
def test_the_whole_story_from_nothing_to_a_report(tmp_path: Path) -> None:
    answer = CliRunner().invoke(application(), ["-o", str(tmp_path / "run")])
    assert answer.exception is None, answer.output
    page = tmp_path / "run" / "report" / "report.html"
    assert str(page) in answer.output.replace("\n", "")
    assert answer.output.count("\n  * ") == 5
    assert all(f"{k}/5" in answer.output for k in range(1, 6))
    summary = json.loads((page.parent / "summary.json").read_text(encoding="utf-8"))
    accuracy = [r["value"] for r in summary["results"] if r["metric"] == "accuracy"]
    assert max(accuracy) > 0.99
