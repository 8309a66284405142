"""``onnxfr verify``: how well does a model tell people apart on clean pairs?"""

from __future__ import annotations

import json
import tempfile
import time
from contextlib import contextmanager
from datetime import UTC, datetime
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from onnxfr.errors import MetricError, SpecError

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from onnxfr.evaluators.base import Result
    from onnxfr.runs.context import Context
    from onnxfr.runs.spec import RunSpec
    from onnxfr.runs.store import RunStore


class Protocol(StrEnum):
    """How the quoted accuracy gets its threshold."""

    KFOLD10 = "kfold10"
    ORACLE = "oracle"
    FIXED = "fixed"
    FMR = "fmr"


class Align(StrEnum):
    """Whether faces are detected and aligned first."""

    AUTO = "auto"
    YES = "yes"
    NO = "no"


def verify(
    model: Annotated[str, typer.Argument(help="Folder of an admitted model, or a zoo name.")],
    data: Annotated[str, typer.Option(help="Pairs: lfw:PATH, folder:PATH, bin:FILE, orl, ...")],
    protocol: Annotated[
        Protocol | None,
        typer.Option(help="Whose threshold the accuracy has; default kfold10, fmr without folds."),
    ] = None,
    threshold: Annotated[
        float | None, typer.Option(help="Judge at this cosine as well; implies fixed.")
    ] = None,
    fmr: Annotated[float, typer.Option(help="False-match rate of the operating point.")] = 1e-3,
    flip: Annotated[
        bool, typer.Option("--flip", help="Add the mirrored picture's embedding.")
    ] = False,
    align: Annotated[
        Align, typer.Option(help="Detect and align faces; auto: unless the data is aligned.")
    ] = Align.AUTO,
    pairs: Annotated[int | None, typer.Option(help="Draw this many pairs.")] = None,
    seed: Annotated[int, typer.Option(help="Seed of every draw.")] = 0,
    strict: Annotated[bool, typer.Option("--strict", help="Stop at unreadable pictures.")] = False,
    examples: Annotated[
        int, typer.Option(help="Hard pairs per class whose faces go into the records.")
    ] = 6,
    output: Annotated[
        Path | None, typer.Option("--output", "-o", help="Keep the run here, for 'onnxfr report'.")
    ] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print one JSON object.")] = False,
) -> None:
    """Verify pairs of faces: accuracy, error rates and intervals under a named protocol.

    Example: onnxfr verify models/vendor --data lfw:faces/lfw_112 -o runs/vendor
    """
    from onnxfr.runs.spec import make_spec

    if threshold is not None and protocol not in (None, Protocol.FIXED):
        raise SpecError(f"--threshold belongs to --protocol fixed, got --protocol {protocol}")
    params = {
        "flip": flip,
        "align": align.value,
        "strict": strict,
        "examples": examples,
        "thresholds": [] if threshold is None else [threshold],
    }
    content: dict[str, Any] = {
        "models": [model],
        "data": [data],
        "evaluators": [{"name": "verification", "params": params}],
        "fmr": fmr,
        "seed": seed,
        "strict": strict,
    }
    spec = make_spec(content if pairs is None else content | {"max_pairs": pairs}, Path.cwd())
    with _place(output) as folder:
        results = _work(spec, folder, quiet=as_json)
    wanted = Protocol.FIXED if threshold is not None else protocol
    answer = answer_of(results, wanted, fmr=fmr, threshold=threshold)
    if as_json:
        typer.echo(json.dumps(answer, indent=1))
    else:
        _tell(answer, output)


@contextmanager
def _place(output: Path | None) -> Iterator[Path]:
    if output is not None:
        yield output.absolute()
        return
    with tempfile.TemporaryDirectory(prefix="onnxfr-verify-") as temporary:
        yield Path(temporary)


def _work(spec: RunSpec, folder: Path, *, quiet: bool) -> Sequence[Result]:
    from onnxfr.cli.progress import bar
    from onnxfr.evaluators.planning import (
        RunCell,
        manifest_of,
        plan_run,
        summarise_run,
        worker_context,
    )
    from onnxfr.paths import cache_dir
    from onnxfr.runs.store import RunStore

    cache = cache_dir() / "embeddings"
    context = worker_context(cache)
    store = RunStore(folder)
    begin, started, done = time.monotonic(), datetime.now(UTC), 0
    with store.working(), bar("verifying", quiet=quiet) as report:
        plan = plan_run(spec, context)
        manifest = manifest_of(plan, context)
        for entry in manifest["models"]:
            entry.setdefault("certificate", _certificate(entry["ref"], context))
        store.write_manifest(manifest, plan.cells)
        work = RunCell(cache)
        for cell in plan.cells:
            if not store.has(cell):
                store.write(cell, work(cell, report))
                done += 1
        _note_session(store, started, time.monotonic() - begin, done, len(plan.cells) - done)
        return summarise_run(store)


def _certificate(ref: str, context: Context) -> dict[str, Any] | None:
    from onnxfr.models.parity import read_certificate
    from onnxfr.models.wrapper import OnnxModel

    model = context.model(ref)
    return read_certificate(model.folder) if isinstance(model, OnnxModel) else None


def _note_session(
    store: RunStore, started: datetime, seconds: float, done: int, reused: int
) -> None:
    from onnxfr.runs.provenance import provenance

    store.add_session(
        {
            "started": started.isoformat(timespec="seconds"),
            "seconds": round(seconds, 3),
            "ending": "finished",
            "done": done,
            "reused": reused,
            "failed": 0,
            "engine": {"name": "local", "workers": 1},
            "provenance": provenance(),
        }
    )


def answer_of(
    results: Sequence[Result],
    protocol: Protocol | None,
    *,
    fmr: float,
    threshold: float | None = None,
) -> dict[str, Any]:
    """Return what ``--json`` prints: the quoted accuracy and everything needed to read it."""
    numbers = {(r.metric, r.protocol, r.condition): r for r in results}
    counts = {r.metric: int(r.value or 0) for r in results if r.metric.endswith("_pairs")}
    quoted = _quoted(results, protocol, fmr, threshold)
    spread = numbers.get(("accuracy_std", quoted.protocol, quoted.condition))
    people = numbers.get(("accuracy_by_identity", quoted.protocol, quoted.condition))
    points = [_point(r) for r in results if r.metric == "tar"]
    single = {r.metric: r for r in results if r.metric in ("eer", "auc", "d_prime")}
    return {
        "model": quoted.model,
        "data": quoted.data,
        "flip": quoted.method == "flip",
        "protocol": quoted.protocol,
        "accuracy": quoted.value,
        "std": None if spread is None else spread.value,
        "interval": [quoted.low, quoted.high],
        "interval_by_identity": None if people is None else [people.low, people.high],
        "threshold": quoted.threshold,
        "threshold_origin": quoted.threshold_origin,
        "tar_at_fmr": {point["fmr"]: point["tar"] for point in points},
        "operating_points": points,
        **{name: result.value for name, result in single.items()},
        "pairs": quoted.n,
        "genuine": counts["genuine_pairs"],
        "impostor": counts["impostor_pairs"],
        "rejected": counts["rejected_pairs"],
        "unreadable": counts["unreadable_pairs"],
    }


def _point(tar: Result) -> dict[str, Any]:
    return {
        "fmr": tar.condition.removeprefix("fmr="),
        "tar": tar.value,
        "interval": None if tar.low is None else [tar.low, tar.high],
        "threshold": tar.threshold,
        "resolved": tar.value is not None,
        "n": tar.n,
    }


def _quoted(
    results: Sequence[Result], protocol: Protocol | None, fmr: float, threshold: float | None
) -> Result:
    """Return the accuracy that a protocol means, or say why there is none."""
    from onnxfr.metrics.thresholds import rate_label

    found = [r for r in results if r.metric == "accuracy" and r.value is not None]
    if not found:
        raise MetricError(
            "no accuracy can be given: genuine and impostor pairs with a score are needed; "
            "check the data and, if faces were not found, --align"
        )
    ways = [protocol] if protocol else [Protocol.KFOLD10, Protocol.FMR, Protocol.ORACLE]
    wanted = f"fmr={rate_label(fmr)}"
    for way in ways:
        if way is Protocol.KFOLD10:
            chosen = [r for r in found if r.protocol.startswith("kfold")]
        elif way is Protocol.FIXED:
            chosen = [r for r in found if r.protocol == "fixed"]
            chosen = [r for r in chosen if threshold is None or r.threshold == threshold]
        elif way is Protocol.FMR:
            chosen = [r for r in found if r.protocol == "fmr" and r.condition == wanted]
        else:
            chosen = [r for r in found if r.protocol == way]
        if chosen:
            return chosen[0]
    raise MetricError(_lacking(ways[0], fmr))


def _lacking(protocol: Protocol, fmr: float) -> str:
    if protocol is Protocol.KFOLD10:
        return "these pairs have no folds to cross-validate over; use --protocol fmr or oracle"
    if protocol is Protocol.FIXED:
        return "the model's card has no threshold; give one with --threshold"
    from onnxfr.metrics.thresholds import impostors_needed

    return (
        f"a false-match rate of {fmr:g} needs at least {impostors_needed(fmr)} impostor pairs; "
        "choose a larger --fmr or more pairs"
    )


def _tell(answer: dict[str, Any], output: Path | None) -> None:
    flip = ", flip" if answer["flip"] else ""
    typer.echo(
        f"{answer['model']} on {answer['data']}{flip}: {answer['pairs']} pairs "
        f"({answer['genuine']} genuine, {answer['impostor']} impostor)"
    )
    spread = "" if answer["std"] is None else f" ± {100 * answer['std']:.2f} over folds,"
    _line(
        "accuracy",
        answer["accuracy"],
        answer["interval"],
        f"{answer['protocol']},{spread} "
        f"threshold {answer['threshold']:.3f} ({answer['threshold_origin']})",
    )
    for point in answer["operating_points"]:
        name = f"TAR@FMR {point['fmr']}"
        if point["resolved"]:
            _line(name, point["tar"], point["interval"], f"threshold {point['threshold']:.3f}")
        else:
            typer.echo(f"{name:<14} not measurable with {point['n']} impostor pairs")
    if answer.get("eer") is not None:
        typer.echo(f"{'EER':<14} {100 * answer['eer']:.2f} %")
    typer.echo(f"{'rejected':<14} {answer['rejected']} pairs without a usable face")
    if answer["unreadable"]:
        typer.echo(f"{'left out':<14} {answer['unreadable']} pairs with an unreadable picture")
    if output is not None:
        typer.echo(f"next: onnxfr report {output}")


def _line(name: str, value: float, interval: Sequence[float], remark: str) -> None:
    low, high = interval
    typer.echo(f"{name:<14} {100 * value:.2f} % [{100 * low:.2f}, {100 * high:.2f}]  {remark}")
