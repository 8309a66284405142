"""``onnxfr compare``: what changed between two runs, and a gate for continuous integration."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

if TYPE_CHECKING:
    from onnxfr.evaluators.base import Result
    from onnxfr.evaluators.report.expression import Match, Outcome
    from onnxfr.evaluators.report.page import Content
    from onnxfr.evaluators.report.paired import Difference, PairedComparison

_CHANCE = 0.05
_IDENTITY = ("evaluator", "data", "method", "goal", "norm")
"""Columns that tell one result from another, beside its model, metric, condition and protocol."""


def compare(
    run_a: Annotated[Path, typer.Argument(help="The run to compare with, such as last release's.")],
    run_b: Annotated[Path, typer.Argument(help="The run in question.")],
    fail_if: Annotated[
        list[str] | None,
        typer.Option(
            help="Exit with 1 if this holds for B: 'accuracy < 0.99', 'asr_all@4/255 > 0.5', "
            "'delta.tar@1e-3 < -0.005'; repeatable."
        ),
    ] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print one JSON object.")] = False,
) -> None:
    """Compare two runs: paired differences with intervals, McNemar's test, CI exit codes.

    Example: onnxfr compare runs/v1 runs/v2 --fail-if "delta.accuracy < -0.005"
    """
    from onnxfr.evaluators.report import comparison
    from onnxfr.evaluators.report.expression import parse
    from onnxfr.evaluators.report.gate import judge_runs
    from onnxfr.evaluators.report.write import read_content
    from onnxfr.runs.store import RunStore

    for text in fail_if or []:
        parse(text)
    a, b = read_content(RunStore.open(run_a)), read_content(RunStore.open(run_b))
    paired = comparison.compare_paired(a, b)
    every = comparison.compare_results(a, b)
    deltas = [*comparison.as_results(every, paired), *comparison.unresolved(a, b)]
    gates = [judge_runs(text, a, b, deltas) for text in fail_if or []]
    if as_json:
        answer = {
            "a": _about(run_a, a),
            "b": _about(run_b, b),
            "asked_differently": comparison.asked_differently(a, b),
            "paired": [each.to_dict() for each in paired],
            "results": [_row(*each) for each in every],
            "fail_if": [_gate(gate) for gate in gates],
        }
        typer.echo(json.dumps(answer, indent=1))
    else:
        _tell_gaps(a, b)
        for setting in comparison.asked_differently(a, b):
            typer.echo(f"asked differently: {setting}")
        _tell(paired, every)
        for gate in gates:
            _tell_gate(gate)
    if any(gate.holds for gate in gates):
        raise typer.Exit(1)


def _about(run: Path, content: Content) -> dict[str, Any]:
    return {
        "run": str(run),
        "models": [model["name"] for model in content.manifest["models"]],
        "data": [entry["name"] for entry in content.manifest["data"]],
        "gaps": [gap.sentence for gap in content.gaps()],
    }


def _row(left: Result, right: Result, difference: Difference) -> dict[str, Any]:
    return (
        {"model_a": left.model, "model_b": right.model}
        | {name: getattr(left, name) for name in _IDENTITY}
        | vars(difference)
    )


def _gate(gate: Outcome) -> dict[str, Any]:
    return {
        "expression": gate.expression,
        "holds": gate.holds,
        "looked_at": [_looked_at(match) for match in gate.matches],
    }


def _looked_at(match: Match) -> dict[str, Any]:
    columns = ("value", "model", "metric", "condition", "protocol", *_IDENTITY)
    return {"test": match.test.text, "holds": match.holds} | {
        name: getattr(match.result, name) for name in columns
    }


def _tell_gaps(a: Content, b: Content) -> None:
    for name, content in (("A", a), ("B", b)):
        for gap in content.gaps():
            typer.echo(f"{name} is incomplete: {gap.sentence}")


def _tell(paired: list[PairedComparison], every: list[tuple[Result, Result, Difference]]) -> None:
    told = set()
    for each in paired:
        typer.echo(
            f"A {each.model_a}, B {each.model_b} on {each.shared} shared pairs of {each.data}"
        )
        if each.note:
            typer.echo(f"  not compared pair by pair: {each.note}")
            continue
        told.add(("verification", each.model_b, each.data))
        for difference in each.differences:
            typer.echo(_line(difference))
        for name, duel in each.duels.items():
            verdict = "beyond chance" if duel.p_value < _CHANCE else "could be chance"
            typer.echo(
                f"  {name + ' pairs':<22} only A right {duel.only_a}, only B right {duel.only_b} "
                f"of {duel.pairs}; McNemar p = {duel.p_value:.2g}, {verdict}"
            )
    others = [
        (left, right, difference)
        for left, right, difference in every
        if (right.evaluator, right.model, right.data) not in told
    ]
    for left, right, difference in others:
        typer.echo(f"{_whose(left, right)}:{_line(difference)}")
    if not paired and not others:
        typer.echo("the runs have nothing in common to compare")


def _whose(left: Result, right: Result) -> str:
    from onnxfr.evaluators.report.wording import where_text

    before = f"{left.model} -> " if left.model != right.model else ""
    return f"{right.evaluator}, {before}{where_text(right)}"


def _tell_gate(gate: Outcome) -> None:
    typer.echo(f"{'FAILED' if gate.holds else 'passed'}: fail if {gate.expression}")
    for match in gate.matches:
        if match.holds:
            found = match.result
            typer.echo(f"  {_whose(found, found)}: {_name(found)} is {match.value:.6g}")


def _name(each: Result | Difference) -> str:
    name = f"{each.metric}@{each.condition}" if each.condition else each.metric
    return f"{name} ({each.protocol})" if each.protocol else name


def _line(each: Difference) -> str:
    interval = "" if each.low is None else f" [{each.low:+.4f}, {each.high:+.4f}]"
    return f"  {_name(each):<22} {each.a:.4f} -> {each.b:.4f}  {each.difference:+.4f}{interval}"
