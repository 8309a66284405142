"""``onnxfr suite``: make a fixed set of adversarial pictures, and score models on it."""

from __future__ import annotations

import json
import re
import shlex
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from onnxfr.errors import SpecError

if TYPE_CHECKING:
    from onnxfr.evaluators.suites import SuiteScore
    from onnxfr.metrics.intervals import Estimate

suite_app = typer.Typer(
    help="Fixed adversarial suites: make one from surrogates, score models on it."
)


class Goals(StrEnum):
    """What the attacker wants."""

    BOTH = "both"
    DODGE = "dodge"
    IMPERSONATE = "impersonate"


class EnsembleMode(StrEnum):
    """How several surrogates are attacked as one."""

    MARGIN = "margin"
    LOSS = "loss"
    ALTERNATING = "alternating"
    GRADIENT = "gradient"


@suite_app.command("make")
def make(
    models: Annotated[list[str], typer.Option("--models", help="Surrogate; repeatable.")],
    data: Annotated[str, typer.Option(help="Pairs: lfw:PATH, folder:PATH, orl, ...")],
    output: Annotated[Path, typer.Option("--output", "-o", help="New folder for the suite.")],
    attack: Annotated[str, typer.Option(help="Such as mim, dim+tim or lgc.")] = "dim",
    budget: Annotated[str, typer.Option(help="linf:8/255 or l2:4/255.")] = "linf:8/255",
    goal: Annotated[Goals, typer.Option(help="Which goals to attack for.")] = Goals.BOTH,
    pairs: Annotated[int, typer.Option(help="Pairs per goal.", min=1)] = 100,
    steps: Annotated[int, typer.Option(help="Gradient steps.", min=1)] = 100,
    mode: Annotated[EnsembleMode, typer.Option(help="How surrogates are joined.")] = (
        EnsembleMode.MARGIN
    ),
    threshold: Annotated[
        str, typer.Option(help="Surrogates' thresholds: fmr=1e-3, oracle, card or fixed=0.3.")
    ] = "fmr=1e-3",
    landmarks: Annotated[
        str, typer.Option(help="For lgc: a 2d106det file, or accept-licence to fetch it.")
    ] = "",
    seed: Annotated[int, typer.Option(help="Seed of every random choice.")] = 0,
    as_json: Annotated[bool, typer.Option("--json", help="Print one JSON object.")] = False,
) -> None:
    """Attack surrogates and keep the pictures: 8-bit PNG files and a manifest.

    Example: onnxfr suite make --models sface --models edgeface_s --data lfw:PATH -o suite/
    """
    from onnxfr.cli.progress import bar
    from onnxfr.cli.run import embedding_cache
    from onnxfr.evaluators.suites import SuiteOrder, make_suite
    from onnxfr.runs.context import Context
    from onnxfr.types import Goal

    goals = (Goal.DODGE, Goal.IMPERSONATE) if goal is Goals.BOTH else (Goal(goal.value),)
    order = SuiteOrder(
        name=re.sub(r"[^A-Za-z0-9._-]+", "-", output.absolute().name).strip("-._")[:80] or "suite",
        models=tuple(models),
        data=data,
        attack=attack,
        budget=budget,
        goals=goals,
        pairs=pairs,
        steps=steps,
        mode=mode.value,
        threshold=threshold,
        landmarks=landmarks,
        seed=seed,
    )
    context = Context(embedding_cache())
    with bar("attacking the surrogates") as report:
        manifest = make_suite(context, order, output.absolute(), report)
    count, members = len(manifest.pairs), len(manifest.surrogates)
    beaten = sum(pair.won_surrogates == members for pair in manifest.pairs)
    if as_json:
        answer = {"suite": str(output), "pairs": count, "fool_all_surrogates": beaten}
        typer.echo(json.dumps(answer | {"licence": manifest.licence}, indent=2))
        return
    typer.echo(f"{count} pictures, {beaten} of them fool all {members} surrogates: {output}")
    typer.echo(manifest.licence)
    words = shlex.join([f"suite:{output}", "--data", data])
    typer.echo(f"next: onnxfr suite score MODEL {words}")


@suite_app.command("score")
def score(
    model: Annotated[str, typer.Argument(help="Folder of an admitted model, or a zoo name.")],
    suite: Annotated[str, typer.Argument(help="suite:PATH or the suite's folder.")],
    data: Annotated[
        str | None,
        typer.Option(
            help="Clean pairs for the threshold; default: the suite's own, which are few."
        ),
    ] = None,
    threshold: Annotated[
        str, typer.Option(help="fmr=1e-3, oracle, card or fixed=0.3.")
    ] = "fmr=1e-3",
    as_json: Annotated[bool, typer.Option("--json", help="Print one JSON object.")] = False,
) -> None:
    """Show a suite to a model and say how often it is fooled, at its own threshold.

    Example: onnxfr suite score model/ suite:suite/ --data lfw:PATH
    """
    from onnxfr.cli.run import embedding_cache
    from onnxfr.evaluators.suites import score_suite
    from onnxfr.paths import expanded
    from onnxfr.runs.context import Context

    place = suite.removeprefix("suite:")
    if re.search(r",[a-z_]+=", place):
        raise SpecError(f"expected suite:PATH without options, got {suite!r}")
    folder = expanded(place).absolute()
    found = score_suite(Context(embedding_cache()), model, folder, rule=threshold, data=data)
    if as_json:
        typer.echo(json.dumps(_as_json(found), indent=2))
        return
    origin = found.threshold.origin
    typer.echo(f"{found.model} on {found.suite}, threshold {found.threshold.value:.4f} ({origin})")
    for entry in found.goals:
        rate, fair = entry.success.asr_all, entry.success.asr_clean_correct
        of_right = f"of the {fair.n} right before: {100 * fair.value:.1f} %"
        typer.echo(
            f"  {entry.goal:<12} fooled {100 * rate.value:.1f} % of {rate.n} "
            f"({100 * rate.low:.1f} - {100 * rate.high:.1f} %); "
            f"{of_right if fair.n else 'none was right before'}; "
            f"wrong without attack: {entry.wrong_clean}"
        )
    for note in found.notes:
        typer.echo(f"  note: {note}")


def _as_json(found: SuiteScore) -> dict[str, Any]:
    return {
        "suite": found.suite,
        "model": found.model,
        "threshold": found.threshold.value,
        "threshold_origin": found.threshold.origin,
        "goals": {
            str(entry.goal): {
                "asr_all": _plain(entry.success.asr_all),
                "asr_clean_correct": _plain(entry.success.asr_clean_correct),
                "robust_acc": _plain(entry.success.robust_acc),
                "wrong_clean": entry.wrong_clean,
            }
            for entry in found.goals
        },
        "notes": list(found.notes),
    }


def _plain(estimate: Estimate) -> dict[str, Any]:
    """Return a rate as JSON values; one of no pairs has none."""
    found = estimate.as_dict()
    return found if estimate.n else found | dict.fromkeys(("value", "low", "high"))
