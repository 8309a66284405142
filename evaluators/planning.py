"""From a specification to cells, from a cell to its table, from records to results."""

from __future__ import annotations

import dataclasses
import importlib
import logging
from collections.abc import Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from functools import cache
from importlib import resources
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa
from pydantic import TypeAdapter, ValidationError

from onnxfr.data.placement import placement_warning
from onnxfr.errors import SpecError, UnknownName, naming
from onnxfr.evaluators.base import EVALUATORS, Evaluator, PlanContext, Result
from onnxfr.models.certificate import read_certificate
from onnxfr.runs.cells import Cell, Cost, DataRef, ModelRef
from onnxfr.runs.context import Context
from onnxfr.runs.provenance import code_version
from onnxfr.runs.records import to_table
from onnxfr.runs.spec import EvaluatorSpec, RunSpec, Suite, explain, merge, read_suite
from onnxfr.runs.store import RunStore
from onnxfr.runs.toml_lines import line_of
from onnxfr.runs.work import Report

if TYPE_CHECKING:
    from onnxfr.models.wrapper import FRModel

log = logging.getLogger(__name__)

SOURCES = ("onnxfr", "onnxfr.evaluators")
"""Packages whose sources decide the numbers of a cell."""


@dataclass(frozen=True)
class Plan:
    """A run in full: the expanded specification, its evaluators, models, data and cells."""

    spec: RunSpec
    evaluators: tuple[Evaluator, ...]
    models: tuple[ModelRef, ...]
    data: tuple[DataRef, ...]
    cells: tuple[Cell, ...]
    code: str

    def work(self, cache: Path) -> RunCell:
        """Return what a worker does with a cell of this plan."""
        return RunCell(cache, tuple(sorted({type(each).__module__ for each in self.evaluators})))

    @property
    def cost(self) -> Cost:
        """The estimated work of all cells."""
        return sum((cell.cost for cell in self.cells), Cost())


@dataclass(frozen=True)
class RunCell:
    """The work of an engine's worker: looks up the evaluator and keeps models between cells."""

    cache: Path
    modules: tuple[str, ...] = ()
    """Where the evaluators are defined, so that workers know those of other packages too."""

    def __call__(self, cell: Cell, report: Report) -> pa.Table:
        """Return the records of one cell."""
        for module in self.modules:
            importlib.import_module(module)
        evaluator = EVALUATORS.get(cell.evaluator)()
        context = worker_context(self.cache).reporting(report)
        with answerable(evaluator):
            records = evaluator.run(cell, context)
        return to_table(cell, records)


@cache
def worker_context(folder: Path) -> Context:
    """Return this process's context with its embedding cache in ``folder``."""
    return Context(folder)


def suites() -> dict[str, Suite]:
    """Return every named suite, sorted by name."""
    folder = resources.files("onnxfr.evaluators").joinpath("presets")
    files = sorted((f for f in folder.iterdir() if f.name.endswith(".toml")), key=lambda f: f.name)
    return {
        file.name.removesuffix(".toml"): read_suite(file.name, file.read_text(encoding="utf-8"))
        for file in files
    }


def expand(spec: RunSpec) -> RunSpec:
    """Return the specification with its suite's evaluators and settings written out.

    A protocol is one that a suite follows: any other word would label numbers with a protocol that
    nobody followed, or miss a rule of the one that was meant.
    """
    known = suites()
    protocols = sorted({suite.protocol for suite in known.values()})
    if spec.protocol not in protocols:
        raise UnknownName(
            f"no protocol is called {spec.protocol!r}; there are {', '.join(protocols)}"
        )
    if spec.suite is None:
        return spec
    if spec.suite not in known:
        raise UnknownName(f"no suite is called {spec.suite!r}; there are {', '.join(known)}")
    return merge(spec, known[spec.suite])


def check_evaluators(spec: RunSpec, source: str, text: str) -> None:
    """Raise where the evaluators of a TOML text are unknown or have wrong parameters."""
    for number, entry in enumerate(spec.evaluators):
        try:
            make_evaluator(entry, text, ("evaluators", number, "params"))
        except (SpecError, UnknownName) as bad:
            line = line_of(text, ("evaluators", number, "name"))
            raise SpecError(f"{source}, evaluator at line {line}: {bad}") from bad


def make_evaluator(
    spec: EvaluatorSpec, text: str | None = None, place: Sequence[str | int] = ()
) -> Evaluator:
    """Return the evaluator with its parameters, or raise saying which parameter is wrong.

    Args:
        spec: name and parameters.
        text: the TOML text they come from, for line numbers.
        place: where in that text the parameters stand.
    """
    kind = EVALUATORS.get(spec.name)
    try:
        return TypeAdapter(kind).validate_python(spec.params)
    except ValidationError as bad:
        allowed = ", ".join(f.name for f in dataclasses.fields(kind)) or "none"
        raise SpecError(
            f"parameters of {spec.name!r} are not valid: {explain(bad, text, place)}; "
            f"it knows these: {allowed}"
        ) from bad


def plan_run(spec: RunSpec, context: Context) -> Plan:
    """Open models and data, and cut the run into cells; the same inputs give the same plan."""
    full = expand(spec)
    evaluators = tuple(make_evaluator(entry) for entry in full.evaluators)
    models = tuple(context.identify(ref) for ref in dict.fromkeys(full.models))
    _distinct(
        [model.name for model in models],
        "models",
        "in its card or, if it is a service, by its option name (remote:ADAPTER,name=NEW)",
    )
    _check_services(evaluators, models)
    data = tuple(
        context.describe(entry, seed=full.seed, limit=full.max_pairs, strict=full.strict)
        for entry in dict.fromkeys(full.data)
    )
    _distinct(
        [entry.name for entry in data], "data sets", "by its option name (KIND:PATH,name=NEW)"
    )
    code = code_version(SOURCES)
    planning = PlanContext(
        models=models,
        data=data,
        context=context,
        seed=full.seed,
        protocol=full.protocol,
        fmr=full.fmr,
        strict=full.strict,
        rows_per_cell=full.rows_per_cell,
        code=code,
    )
    cells: dict[Cell, None] = {}
    for each in evaluators:
        with answerable(each):
            cells.update(dict.fromkeys(each.plan(planning)))
    return Plan(full, evaluators, models, data, tuple(cells), code)


def manifest_of(plan: Plan, context: Context) -> dict[str, Any]:
    """Return what the manifest says about a plan, apart from its cells."""
    return {
        "spec": plan.spec.to_json(),
        "code": plan.code,
        "protocol": plan.spec.protocol,
        "fmr": plan.spec.fmr,
        "seed": plan.spec.seed,
        "models": [
            {
                "name": model.name,
                "ref": model.ref,
                "sha256": model.sha256,
                "device": context.device(model),
                "card": context.model(model).card.model_dump(mode="json"),
                "certificate": _certificate(context.model(model)),
            }
            for model in plan.models
        ],
        "data": [dataclasses.asdict(entry) for entry in plan.data],
        "problems": {
            entry.spec: [str(problem) for problem in context.pairs(entry).problems]
            for entry in plan.data
        },
        "placement": _placement(plan, context),
        "evaluators": [
            {"name": each.name, "version": each.version, "params": _params(each)}
            for each in plan.evaluators
        ],
    }


def _placement(plan: Plan, context: Context) -> dict[str, str]:
    """Return what to say, loudly, of data sets whose crops hold the faces in the wrong place."""
    if all(_params(each).get("align") == "yes" for each in plan.evaluators):
        return {}
    found = {entry.spec: placement_warning(context.pairs(entry)) for entry in plan.data}
    told = {spec: warning for spec, warning in found.items() if warning}
    for warning in told.values():
        log.warning("%s", warning)
    return told


def _certificate(model: FRModel) -> dict[str, Any] | None:
    from onnxfr.models.wrapper import OnnxModel  # torch comes with it; workers do without

    if not isinstance(model, OnnxModel):
        return None
    return read_certificate(model.folder, model.card.sha256)


def estimate(plan: Plan, cells: Sequence[Cell], context: Context) -> float:
    """Return the seconds these cells would take one after the other on this machine."""
    pace = {model.sha256: context.seconds_per_image(model) for model in plan.models}
    slowest = max(pace.values(), default=0.0)
    return sum(cell.cost.units * pace.get(cell.model.sha256, slowest) for cell in cells)


def summarise_run(store: RunStore) -> list[Result]:
    """Return every result of a stored run: a pure function of its manifest and records."""
    results: list[Result] = []
    for entry in store.manifest()["evaluators"]:
        evaluator = make_evaluator(EvaluatorSpec(name=entry["name"], params=entry["params"]))
        records = store.records(entry["name"])
        if records.num_rows:
            with answerable(evaluator):
                results.extend(evaluator.summarise(records))
    return results


def answerable(evaluator: Evaluator) -> AbstractContextManager[None]:
    """Say whose code failed where an evaluator raises what it should not."""
    return naming(f"evaluator {evaluator.name}", type(evaluator).__module__)


def _params(evaluator: Evaluator) -> Any:
    return TypeAdapter(type(evaluator)).dump_python(evaluator, mode="json")


def _distinct(names: Sequence[str], kind: str, where: str) -> None:
    twice = sorted({name for name in names if names.count(name) > 1})
    if twice:
        raise SpecError(
            f"two {kind} are called {twice[0]!r}; results are told apart by name, "
            f"so give one another name {where}"
        )


def _check_services(evaluators: Sequence[Evaluator], models: Sequence[ModelRef]) -> None:
    """Raise where an evaluator would ask a service for what it does not tell."""
    services = [model.name for model in models if model.ref.startswith("remote:")]
    wanting = [each.name for each in evaluators if not each.asks_services]
    if services and wanting:
        able = ", ".join(name for name, kind in EVALUATORS.items() if kind.asks_services)
        raise SpecError(
            f"{services[0]} is a service and only compares pictures, but {wanting[0]} asks for "
            f"embeddings; evaluate services by {able}, and other models in a run of their own"
        )
