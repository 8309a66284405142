"""``onnxfr run``: plan, work off what is missing, keep the records; run again to resume."""

from __future__ import annotations

import hashlib
import json
import logging
import re
import shlex
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from onnxfr.errors import OnnxfrError, SpecError

if TYPE_CHECKING:
    from onnxfr.runs.execute import Outcome
    from onnxfr.runs.spec import RunSpec
    from onnxfr.runs.store import RunStore

_DURATION = re.compile(r"(?:(\d+(?:\.\d+)?)h)?(?:(\d+(?:\.\d+)?)m)?(?:(\d+(?:\.\d+)?)s)?")


def run(
    spec: Annotated[Path | None, typer.Argument(help="A run specification (TOML).")] = None,
    model: Annotated[list[str] | None, typer.Option(help="Model file or name; repeatable.")] = None,
    data: Annotated[
        list[str] | None, typer.Option(help="Data set, such as lfw:PATH or orl; repeatable.")
    ] = None,
    suite: Annotated[str | None, typer.Option(help="One of 'onnxfr ls presets': quick.")] = None,
    output: Annotated[
        Path | None, typer.Option("--output", "-o", help="Run directory; default runs/NAME.")
    ] = None,
    dry_run: Annotated[bool, typer.Option(help="Print cells and cost, run nothing.")] = False,
    budget: Annotated[
        str | None, typer.Option(help="Stop after this time, most informative first: 30m, 1h30m.")
    ] = None,
    engine: Annotated[str | None, typer.Option(help="local or ray.")] = None,
    address: Annotated[str | None, typer.Option(help="Address of the Ray cluster.")] = None,
    gpus: Annotated[float | None, typer.Option(help="GPUs per cell on Ray.")] = None,
    workers: Annotated[int | None, typer.Option(help="Worker processes.")] = None,
    seed: Annotated[int | None, typer.Option(help="Seed of every random choice.")] = None,
    max_pairs: Annotated[int | None, typer.Option(help="Draw this many pairs.")] = None,
    strict: Annotated[bool, typer.Option(help="Stop at unreadable pictures.")] = False,
    max_calls: Annotated[
        int | None, typer.Option(min=0, help="Most calls to each remote service, ever.")
    ] = None,
    i_am_authorised: Annotated[
        bool, typer.Option("--i-am-authorised", help="The services' owners allow this test.")
    ] = False,
    as_json: Annotated[bool, typer.Option("--json", help="Print one JSON object.")] = False,
) -> None:
    """Evaluate models on data; run the same command again to resume."""
    seconds = None if budget is None else parse_duration(budget)
    flags = {
        "models": model,
        "data": data,
        "suite": suite,
        "seed": seed,
        "max_pairs": max_pairs,
        "strict": strict or None,
    }
    engine_flags = {"name": engine, "address": address, "gpus": gpus, "workers": workers}
    asked = read_asked(spec, _given(flags), _given(engine_flags))
    from onnxfr.cli.services import with_services

    place = _place(asked, output)
    asked = with_services(asked, place, max_calls, i_am_authorised)
    if dry_run:
        _preview(asked, place, as_json)
        return
    outcome, store, results = _work(asked, place, seconds, quiet=as_json)
    _tell(outcome, store, results, as_json)
    if outcome.exit_code:
        raise typer.Exit(outcome.exit_code)


def read_asked(path: Path | None, flags: dict[str, Any], engine: dict[str, Any]) -> RunSpec:
    """Return the specification of a file, of flags, or of a file with flags over it."""
    from onnxfr.evaluators.planning import check_evaluators
    from onnxfr.runs.spec import RunSpec, read_spec, read_text, resolve, validate

    base: dict[str, Any] = {}
    if path is not None:
        from_file = read_spec(path)
        check_evaluators(from_file, path.name, read_text(path))
        base = from_file.model_dump(exclude_unset=True)
    elif not flags:
        raise SpecError(
            "expected a specification file, or --model, --data and --suite; got neither. Try: "
            "onnxfr run --model sface --data orl --suite quick"
        )
    content = {**base, **flags}
    if engine:
        content["engine"] = {**base.get("engine", {}), **engine}
    asked = validate(RunSpec, content, source="one of the options")
    # What the file names has been found beside it; only what was typed is relative to here.
    here = resolve(asked, Path.cwd())
    return asked.model_copy(update={name: getattr(here, name) for name in flags})


def parse_duration(text: str) -> float:
    """Return the seconds in a text such as ``30m``, ``1h30m`` or ``45s``."""
    found = _DURATION.fullmatch(text.strip())
    if not found or not any(found.groups()):
        raise SpecError(f"expected a duration such as 30m, 1h30m or 45s, got {text!r}")
    hours, minutes, seconds = (float(part or 0) for part in found.groups())
    return hours * 3600 + minutes * 60 + seconds


def _given(flags: dict[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in flags.items() if value not in (None, [])}


def _place(spec: RunSpec, output: Path | None) -> Path:
    if output is not None:
        return output.absolute()
    content = spec.model_dump(mode="json", exclude={"engine"})
    digest = hashlib.sha256(json.dumps(content, sort_keys=True).encode()).hexdigest()[:8]
    return Path.cwd() / "runs" / f"{spec.suite or spec.evaluators[0].name}-{digest}"


def _work(
    asked: RunSpec, place: Path, budget: float | None, *, quiet: bool
) -> tuple[Outcome, RunStore, list[dict[str, Any]]]:
    from onnxfr.cli.progress import RunProgress
    from onnxfr.cli.services import open_services
    from onnxfr.evaluators.planning import (
        manifest_of,
        plan_run,
        summarise_run,
        worker_context,
    )
    from onnxfr.runs.engines import make_engine
    from onnxfr.runs.execute import execute
    from onnxfr.runs.store import RunStore

    cache = embedding_cache()
    context = worker_context(cache)
    plan = plan_run(asked, context)
    open_services(plan, context)
    manifest = manifest_of(plan, context)
    engine = make_engine(plan.spec.engine, len(plan.cells))
    if not engine.in_process:
        context.release()
    store = RunStore(place)
    with store.working(), _logging_to(store.log_file):
        store.write_manifest(manifest, plan.cells)
        started = datetime.now(UTC)
        with RunProgress(quiet=quiet) as watcher:
            outcome = execute(
                plan.cells, store, engine, plan.work(cache), budget=budget, watcher=watcher
            )
        store.add_session(_session(started, outcome, plan.spec.engine.model_dump()))
        try:
            results = [result.to_dict() for result in summarise_run(store)]
        except OnnxfrError as error:
            if not (outcome.remaining or outcome.failed):
                raise
            # Half a run may hold too little for a statistic; that is no reason to fail it.
            logging.getLogger(__name__).warning("no results of the part done so far: %s", error)
            results = []
    return outcome, store, results


def embedding_cache() -> Path:
    """Return where embeddings are kept between runs."""
    from onnxfr.paths import cache_dir

    return cache_dir() / "embeddings"


def _session(started: datetime, outcome: Outcome, engine: dict[str, Any]) -> dict[str, Any]:
    from onnxfr.runs.provenance import provenance

    return {
        "started": started.isoformat(timespec="seconds"),
        "seconds": round(outcome.seconds, 3),
        "ending": outcome.ending,
        "done": outcome.done,
        "reused": outcome.reused,
        "failed": len(outcome.failed),
        "engine": engine,
        "provenance": provenance(),
    }


class _LogFile(logging.FileHandler):
    """A log that never fails the run: a full disk is reported by what could not be stored."""

    def emit(self, record: logging.LogRecord) -> None:
        with suppress(OSError):
            super().emit(record)

    def handleError(self, record: logging.LogRecord) -> None:
        return None


@contextmanager
def _logging_to(path: Path) -> Iterator[None]:
    handler = _LogFile(path, encoding="utf-8", delay=True)
    handler.setFormatter(logging.Formatter("%(asctime)s %(levelname)s %(name)s: %(message)s"))
    root = logging.getLogger("onnxfr")
    before = root.level
    root.addHandler(handler)
    root.setLevel(logging.DEBUG)
    try:
        yield
    finally:
        root.removeHandler(handler)
        root.setLevel(before)
        handler.close()


def _preview(asked: RunSpec, place: Path, as_json: bool) -> None:
    from onnxfr.cli.services import describe_price, price_services
    from onnxfr.evaluators.planning import estimate, plan_run, worker_context
    from onnxfr.runs.execute import missing
    from onnxfr.runs.store import RunStore

    context = worker_context(embedding_cache())
    plan = plan_run(asked, context)
    store = RunStore(place)
    todo = missing(plan.cells, store)
    seconds = estimate(plan, todo, context)
    images = sum(cell.cost.images for cell in todo)
    gradients = sum(cell.cost.gradients for cell in todo)
    prices = price_services(plan, todo, context)
    if as_json:
        cells = [
            {"key": c.key, "label": c.label, **vars(c.cost), "priority": c.priority} for c in todo
        ]
        summary = {
            "run": str(store.folder),
            "cells": len(plan.cells),
            "present": len(plan.cells) - len(todo),
            "images": images,
            "gradients": gradients,
            "seconds": round(seconds, 1),
            "services": prices,
            "missing": cells,
        }
        typer.echo(json.dumps(summary, indent=1))
        return
    for cell in todo:
        typer.echo(f"{cell.label}: {cell.cost.images} images, {cell.cost.gradients} gradients")
    for price in prices:
        typer.echo(describe_price(price))
    typer.echo(
        f"{len(plan.cells)} cells, {len(plan.cells) - len(todo)} present, {len(todo)} to run: "
        f"{images} images and {gradients} gradients, about {_readable(seconds)} on this machine; "
        f"nothing was run. Records would go to {store.folder}"
    )


def _tell(outcome: Outcome, store: RunStore, results: list[dict[str, Any]], as_json: bool) -> None:
    if as_json:
        summary = {
            "run": str(store.folder),
            "ending": outcome.ending,
            "done": outcome.done,
            "reused": outcome.reused,
            "remaining": outcome.remaining,
            "failed": outcome.failed,
            "unfinished": outcome.unfinished,
            "seconds": round(outcome.seconds, 3),
            "results": results,
        }
        typer.echo(json.dumps(summary, indent=1))
        return
    for key, message in outcome.failed.items():
        typer.echo(f"cell {key} failed: {message}", err=True)
    for why in outcome.unfinished.values():
        typer.echo(f"unfinished: {why}", err=True)
    typer.echo(
        f"{outcome.done} cells done, {outcome.reused} reused, {len(outcome.failed)} failed, "
        f"{outcome.remaining} to go, {_readable(outcome.seconds)}; records in {store.folder}"
    )
    if outcome.ending == "interrupted":
        typer.echo("interrupted: run the same command again to resume; finished cells are kept")
    elif outcome.ending == "budget":
        typer.echo("the time budget is used up: run the same command again to go on")
    elif outcome.ending == "unfinished":
        typer.echo(
            "some cells hold less than was asked for, see above; run again to go on, or look at "
            f"what there is: onnxfr report {shlex.quote(str(store.folder))}"
        )
    else:
        typer.echo(f"next: onnxfr report {shlex.quote(str(store.folder))}")


def _readable(seconds: float) -> str:
    if seconds < 90:
        return f"{seconds:.1f} s"
    return f"{seconds / 60:.0f} min" if seconds < 5400 else f"{seconds / 3600:.1f} h"
