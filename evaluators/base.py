"""The contract every evaluator meets, and the registry that finds them.

An evaluator answers one question about models in three steps: ``plan`` cuts the question into
cells, ``run`` turns one cell into flat records (one row per pair), ``summarise`` turns records into
results. Its dataclass fields shape the plan and the summary only: whatever ``run`` depends on must
be in the cell, because the cell's content hash decides whether a stored shard may be reused.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any, ClassVar, TypeAlias

import pyarrow as pa
from pydantic import ConfigDict

from onnxfr.registry import Registry
from onnxfr.runs.cells import Cell, Cost, DataRef, Json, ModelRef, Rows
from onnxfr.runs.context import Context

Records: TypeAlias = pa.Table | Sequence[Mapping[str, Any]]
"""One flat row per pair; values are text, numbers, booleans, bytes or None."""


@dataclass(frozen=True, kw_only=True)
class Result:
    """One number of a report, with its interval and everything needed to read it alone."""

    evaluator: str
    model: str
    metric: str
    value: float | None
    low: float | None = None
    high: float | None = None
    n: int = 0
    method: str = ""
    goal: str = ""
    norm: str = ""
    condition: str = ""
    data: str = ""
    protocol: str = ""
    threshold: float | None = None
    threshold_origin: str = ""

    def to_dict(self) -> dict[str, Any]:
        """Return the tidy row that reports and ``summary.json`` hold."""
        return asdict(self)


@dataclass(frozen=True, kw_only=True)
class PlanContext:
    """What a plan is made from: the run's models and data, already identified by content."""

    models: tuple[ModelRef, ...]
    data: tuple[DataRef, ...]
    context: Context
    seed: int = 0
    protocol: str = "ours"
    fmr: float = 1e-3
    """The false-match rate at which thresholds are frozen on clean data."""
    strict: bool = False
    """Whether an unreadable picture stops the run instead of being left out and reported."""
    rows_per_cell: int = 500
    code: str = ""

    def cell(
        self,
        evaluator: Evaluator,
        model: ModelRef,
        data: DataRef,
        *,
        method: str = "",
        params: Json | None = None,
        condition: Json | None = None,
        rows: Rows = None,
        others: tuple[ModelRef, ...] = (),
        priority: float = 0.0,
        cost: Cost | None = None,
    ) -> Cell:
        """Return a cell of this run, with seed and versions filled in."""
        return Cell(
            evaluator=evaluator.name,
            version=evaluator.version,
            model=model,
            data=data,
            method=method,
            params=params or {},
            condition=condition or {},
            rows=rows,
            seed=self.seed,
            others=others,
            code=self.code,
            priority=priority,
            cost=cost or Cost(),
        )


@dataclass(frozen=True)
class Evaluator(ABC):
    """One question. Subclasses are frozen dataclasses whose fields all have defaults."""

    name: ClassVar[str]
    version: ClassVar[int]
    """Raise it whenever records of the same cell would come out differently."""
    asks_services: ClassVar[bool] = False
    """Whether it can do with a verifier that only compares, such as a service."""

    __pydantic_config__: ClassVar[ConfigDict] = ConfigDict(extra="forbid", strict=False)

    @abstractmethod
    def plan(self, context: PlanContext) -> list[Cell]:
        """Return the cells of a run; the same context gives the same cells in the same order."""

    @abstractmethod
    def run(self, cell: Cell, context: Context) -> Records:
        """Return one flat record per row of the cell, from the cell alone.

        Columns the store adds by itself and that records must not have: ``cell``, ``evaluator``,
        ``model``, ``method``, ``condition`` (JSON text), ``data``. A cell that cannot be completed
        for now returns ``runs.records.unfinished``: its rows are kept until a later run has more.
        """

    @abstractmethod
    def summarise(self, records: pa.Table) -> list[Result]:
        """Return the results of this evaluator's records of a whole run; a pure function."""


EVALUATORS: Registry[type[Evaluator]] = Registry("evaluator", "onnxfr.evaluators")
"""Evaluator classes by name; ``@EVALUATORS.register("verification")`` stands in their own file."""
