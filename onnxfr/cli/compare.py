"""``onnxfr compare``: what changed between two runs, and a gate for continuous integration."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

if TYPE_CHECKING:
    from onnxfr.evaluators.report.comparison import Difference, PairedComparison
    from onnxfr.evaluators.report.expression import Outcome
    from onnxfr.evaluators.report.page import Content

_CHANCE = 0.05


def compare(
    run_a: Annotated[Path, typer.Argument(help="The run to compare with, such as last release's.")],
    run_b: Annotated[Path, typer.Argument(help="The run in question.")],
    fail_if: Annotated[
        list[str] | None,
        typer.Option(
            help="Exit with 1 if this holds for B: 'accuracy < 0.99', 'asr@4/255 > 0.5', "
            "'delta.tar@1e-3 < -0.005'; repeatable."
        ),
    ] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print one JSON object.")] = False,
) -> None:
    """Compare two runs: paired differences with intervals, McNemar's test, CI exit codes.

    Example: onnxfr compare runs/v1 runs/v2 --fail-if "delta.accuracy < -0.005"
    """
    from onnxfr.evaluators.report.comparison import as_results, compare_paired, compare_results
    from onnxfr.evaluators.report.expression import judge, parse
    from onnxfr.evaluators.report.write import read_content
    from onnxfr.runs.store import RunStore

    for text in fail_if or []:
        parse(text)
    a, b = read_content(RunStore.open(run_a)), read_content(RunStore.open(run_b))
    paired = compare_paired(a, b)
    every = compare_results(a, b)
    scopes = {"a": a.results(), "b": b.results(), "delta": as_results(every, paired)}
    gates = [judge(text, scopes) for text in fail_if or []]
    if as_json:
        answer = {
            "a": _about(run_a, a),
            "b": _about(run_b, b),
            "paired": [each.to_dict() for each in paired],
            "results": [
                {"evaluator": left.evaluator, "model_a": left.model, "model_b": right.model}
                | {"data": left.data, "method": left.method}
                | vars(difference)
                for left, right, difference in every
            ],
            "fail_if": [_gate(gate) for gate in gates],
        }
        typer.echo(json.dumps(answer, indent=1))
    else:
        _tell(paired, [(left.evaluator, each) for left, _, each in every], gates)
    if any(gate.holds for gate in gates):
        raise typer.Exit(1)


def _about(run: Path, content: Content) -> dict[str, Any]:
    return {
        "run": str(run),
        "models": [model["name"] for model in content.manifest["models"]],
        "data": [entry["name"] for entry in content.manifest["data"]],
    }


def _gate(gate: Outcome) -> dict[str, Any]:
    return {
        "expression": gate.expression,
        "holds": gate.holds,
        "looked_at": [
            {
                "test": match.test.text,
                "holds": match.holds,
                "value": match.result.value,
                "model": match.result.model,
                "metric": match.result.metric,
                "condition": match.result.condition,
                "protocol": match.result.protocol,
            }
            for match in gate.matches
        ],
    }


def _tell(
    paired: list[PairedComparison], every: list[tuple[str, Difference]], gates: list[Outcome]
) -> None:
    for each in paired:
        typer.echo(
            f"A {each.model_a}, B {each.model_b} on {each.shared} shared pairs of {each.data}"
        )
        for difference in each.differences:
            typer.echo(_line(difference))
        for name, duel in each.duels.items():
            verdict = "beyond chance" if duel.p_value < _CHANCE else "could be chance"
            typer.echo(
                f"  {name + ' pairs':<22} only A right {duel.only_a}, only B right {duel.only_b} "
                f"of {duel.pairs}; McNemar p = {duel.p_value:.2g}, {verdict}"
            )
    others = [(name, each) for name, each in every if name != "verification" or not paired]
    for name, difference in others:
        typer.echo(f"{name}:{_line(difference)}")
    if not paired and not others:
        typer.echo("the runs have nothing in common to compare")
    for gate in gates:
        typer.echo(f"{'FAILED' if gate.holds else 'passed'}: fail if {gate.expression}")
        for match in gate.matches:
            if match.holds:
                where = f" at {match.result.condition}" if match.result.condition else ""
                typer.echo(f"  {match.result.metric}{where} is {match.result.value:.6g}")


def _line(each: Difference) -> str:
    name = f"{each.metric}@{each.condition}" if each.condition else each.metric
    name = f"{name} ({each.protocol})" if each.protocol and not each.condition else name
    interval = "" if each.low is None else f" [{each.low:+.4f}, {each.high:+.4f}]"
    return f"  {name:<22} {each.a:.4f} -> {each.b:.4f}  {each.difference:+.4f}{interval}"
