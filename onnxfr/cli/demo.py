"""``onnxfr demo``: a real model, real faces, an evaluation and its report, from nothing."""

from __future__ import annotations

import shutil
import textwrap
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

if TYPE_CHECKING:
    from onnxfr.data.pairs import PairSet
    from onnxfr.evaluators.base import Result
    from onnxfr.evaluators.report.section import Verdict
    from onnxfr.evaluators.report.write import Written
    from onnxfr.runs.store import RunStore

_LINES = 5
_SUITE = "quick"
_FILLERS = ("eer", "d_prime", "rejected_pairs", "auc", "accuracy_std")


def demo(
    output: Annotated[Path, typer.Option("--output", "-o", help="Run directory.")] = Path(
        "runs/demo"
    ),
    data: Annotated[str, typer.Option(help="Faces; orl is fetched.")] = "orl",
    model: Annotated[str, typer.Option(help="A zoo name or a folder of an admitted model.")] = (
        "sface"
    ),
) -> None:
    """Fetch a model and faces, check, evaluate, write a report, and say what matters.

    Example: onnxfr demo -o runs/demo
    """
    begin = time.perf_counter()
    story = _Story(total=5)
    with story.step("model") as step:
        step.result = _get_model(model, step.now)
    with story.step("faces") as step:
        step.now(f"opening {data}, fetched if need be")
        step.result = _faces_line(_open_faces(data))
    with story.step("check") as step:
        step.now("comparing both engines and their gradients")
        step.result = _check(model, data)
    with story.step("evaluate") as step:
        store, results = _evaluate(model, data, output.absolute())
        step.result = _results_line(results)
    with story.step("report") as step:
        written = _write(store)
        step.result = f"{written.page.stat().st_size / 1e6:.1f} MB, opens without a network"
    _tell(written, results, time.perf_counter() - begin)


@dataclass
class _Step:
    """One step at work: ``now`` says what is being done, ``result`` what came of it."""

    now: Callable[[str], None]
    result: str = ""


class _Story:
    """One short line per step: what is done and how long it took."""

    def __init__(self, total: int) -> None:
        self._total, self._number = total, 0

    @contextmanager
    def step(self, title: str) -> Iterator[_Step]:
        """Run one step and print its line at the end."""
        from onnxfr.cli.steps import Steps

        self._number += 1
        name = f"{self._number}/{self._total} {title}"
        begin = time.perf_counter()
        with Steps() as steps:
            step = _Step(partial(steps.show, name))
            yield step
        seconds = f"{time.perf_counter() - begin:5.1f} s"
        typer.echo(f"{typer.style(f'{name:<13}', bold=True)} {seconds}  {step.result}")


def _get_model(name: str, now: Callable[[str], None]) -> str:
    from onnxfr.models.wrapper import load_model

    if not Path(name).is_dir():
        from onnxfr.model_zoo.obtaining import get

        get(name, tell=now)
    card = load_model(name).card
    size = f"{card.input_height}x{card.input_width} -> {card.embedding_dim}"
    return f"{card.name}, {size}, licence {card.licence}"


def _open_faces(data: str) -> PairSet:
    from onnxfr.data.pairs import open_pairs

    return open_pairs(data)


def _faces_line(pairs: PairSet) -> str:
    people = {image.identity for image in pairs.images if image.identity is not None}
    of = f" of {len(people)} people" if people else ""
    return f"{pairs.name}, {len(pairs.images)} pictures{of}, {len(pairs)} pairs to draw from"


def _check(name: str, data: str) -> str:
    """Certify the model on the very faces it will be judged with."""
    from onnxfr.cli.faces import some_faces
    from onnxfr.models.certificate import read_certificate, write_certificate
    from onnxfr.models.parity import certify
    from onnxfr.models.wrapper import load_model

    loaded = load_model(name)
    stored = read_certificate(loaded.folder, loaded.card.sha256) or {}
    if stored.get("pictures") != "real faces":
        certificate = certify(loaded, some_faces(data, most=32))
        write_certificate(certificate, loaded.folder)
        stored = certificate.to_json()
    error, apart = stored["gradient"]["max_rel_err"], stored["parity"]["max_abs"]
    slopes = "no gradients" if error is None else f"gradients within {100 * error:.1f} %"
    same = "" if apart is None else f"both engines agree to {apart:.0e}, "
    return f"certificate {stored['status']}: {same}{slopes}"


def _evaluate(model: str, data: str, folder: Path) -> tuple[RunStore, list[Result]]:
    from onnxfr.cli.progress import RunProgress
    from onnxfr.evaluators.planning import manifest_of, plan_run, summarise_run, worker_context
    from onnxfr.paths import cache_dir
    from onnxfr.runs.engines import make_engine
    from onnxfr.runs.execute import execute
    from onnxfr.runs.spec import make_spec
    from onnxfr.runs.store import RunStore

    cache = cache_dir() / "embeddings"
    context = worker_context(cache)
    spec = make_spec({"models": [model], "data": [data], "suite": _SUITE}, Path.cwd())
    plan = plan_run(spec, context)
    manifest = manifest_of(plan, context)
    engine = make_engine(plan.spec.engine, len(plan.cells))
    if not engine.in_process:
        context.release()
    store = RunStore(folder)
    with store.working():
        store.write_manifest(manifest, plan.cells)
        with RunProgress() as watcher:
            outcome = execute(plan.cells, store, engine, plan.work(cache), watcher=watcher)
        for key, message in outcome.failed.items():
            typer.echo(f"cell {key} failed: {message}", err=True)
        if outcome.exit_code:
            raise typer.Exit(outcome.exit_code)
        return store, summarise_run(store)


def _results_line(results: Sequence[Result]) -> str:
    evaluators = sorted({result.evaluator for result in results})
    return f"suite {_SUITE}: {', '.join(evaluators)}; {len(results)} numbers"


def _write(store: RunStore) -> Written:
    from onnxfr.evaluators.report.write import write_report

    return write_report(store, store.folder / "report")


def _tell(written: Written, results: Sequence[Result], seconds: float) -> None:
    typer.echo("")
    width = min(shutil.get_terminal_size().columns, 100)
    for line in what_matters(written.verdicts, results):
        typer.echo(textwrap.fill(line, width, initial_indent="  * ", subsequent_indent="    "))
    typer.echo("")
    typer.echo(f"report  {typer.style(str(written.page), bold=True)}")
    typer.echo(f"took    {seconds:.0f} s")
    typer.echo("next    your own model: onnxfr import vendor.onnx -o DIR --data folder:FACES")


def what_matters(verdicts: Sequence[Verdict], results: Sequence[Result]) -> list[str]:
    """Return five lines: findings of every section, filled up with numbers they do not mention."""
    from onnxfr.evaluators.report.wording import measure_name, value_text

    place: dict[str, int] = {}
    ranked = []
    for verdict in verdicts:
        place[verdict.section] = place.get(verdict.section, 0) + 1
        ranked.append((place[verdict.section], verdict.sentence))
    # The first finding of each section before the second of any.
    lines = [sentence for _, sentence in sorted(ranked, key=lambda entry: entry[0])]
    for metric in _FILLERS:
        chosen = next((result for result in results if result.metric == metric), None)
        if chosen is not None:
            lines.append(f"{measure_name(chosen)}: {value_text(chosen)}")
    return lines[:_LINES]
