"""``onnxfr verify``: how well does a model tell people apart on clean pairs?"""

from __future__ import annotations

import json
import shlex
import tempfile
import time
from contextlib import contextmanager
from datetime import UTC, datetime
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from onnxfr.cli.verify_answer import Protocol, answer_of
from onnxfr.errors import SpecError

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from onnxfr.evaluators.base import Result
    from onnxfr.runs.spec import RunSpec
    from onnxfr.runs.store import RunStore


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
        typer.Option(
            help="Whose threshold the accuracy has; default: the first of kfold10, fmr, oracle and "
            "fixed that the pairs can serve."
        ),
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
    if threshold is not None and protocol not in (None, Protocol.FIXED):
        raise SpecError(f"--threshold belongs to --protocol fixed, got --protocol {protocol}")
    params = {
        "flip": flip,
        "align": align.value,
        "strict": strict,
        "examples": examples,
        "thresholds": [] if threshold is None else [threshold],
    }
    settings = {"fmr": fmr, "seed": seed, "strict": strict, "max_pairs": pairs}
    spec = _spec(model, data, params, settings)
    with _place(output) as folder:
        results = _work(spec, folder, quiet=as_json)
    wanted = Protocol.FIXED if threshold is not None else protocol
    answer = answer_of(results, wanted, fmr=fmr, threshold=threshold)
    if as_json:
        typer.echo(json.dumps(answer, indent=1))
    else:
        _tell(answer, output)


def _spec(model: str, data: str, params: dict[str, Any], settings: dict[str, Any]) -> RunSpec:
    from onnxfr.runs.spec import make_spec

    content = {
        "models": [model],
        "data": [data],
        "evaluators": [{"name": "verification", "params": params}],
        **{name: value for name, value in settings.items() if value is not None},
    }
    return make_spec(content, Path.cwd())


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
        store.write_manifest(manifest, plan.cells)
        work = RunCell(cache)
        for cell in plan.cells:
            if not store.has(cell):
                store.write(cell, work(cell, report))
                done += 1
        _note_session(store, started, time.monotonic() - begin, done, len(plan.cells) - done)
        return summarise_run(store)


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
        typer.echo(f"next: onnxfr report {shlex.quote(str(output))}")


def _line(name: str, value: float, interval: Sequence[float], remark: str) -> None:
    low, high = interval
    typer.echo(f"{name:<14} {100 * value:.2f} % [{100 * low:.2f}, {100 * high:.2f}]  {remark}")
