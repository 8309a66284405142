"""What every engine shares: one attempt at one cell, and how it is told about."""

from __future__ import annotations

import time
import traceback
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Protocol

import pyarrow as pa

from onnxfr.errors import CodeError, OnnxfrError
from onnxfr.runs.cells import Cell

Report = Callable[[int, int], None]
"""Called with (done, total) to move the progress bar of the current cell."""

Work = Callable[[Cell, Report], pa.Table]
"""Turns a cell into its table; must survive pickling, because workers are other processes."""


@dataclass(frozen=True)
class Attempt:
    """How a cell went: a table, or a message for people and a trace for the log."""

    cell: Cell
    table: pa.Table | None = None
    message: str = ""
    trace: str = ""
    seconds: float = 0.0


class Watcher(Protocol):
    """Whoever wants to know how far a run is."""

    def begins(self, cells: Sequence[Cell]) -> None:
        """These cells are about to run."""

    def started(self, cell: Cell) -> None:
        """A worker took a cell."""

    def advanced(self, cell: Cell, done: int, total: int) -> None:
        """A cell moved on."""

    def finished(self, attempt: Attempt) -> None:
        """A cell ended, well or not."""


class Silent:
    """The watcher that ignores everything."""

    def begins(self, cells: Sequence[Cell]) -> None:
        """Ignore."""

    def started(self, cell: Cell) -> None:
        """Ignore."""

    def advanced(self, cell: Cell, done: int, total: int) -> None:
        """Ignore."""

    def finished(self, attempt: Attempt) -> None:
        """Ignore."""


class Engine(Protocol):
    """Something that works off cells; takes the next one only when a worker is free."""

    @property
    def name(self) -> str:
        """What the command line calls it."""

    @property
    def in_process(self) -> bool:
        """Whether cells run in the process that asks."""

    def run(self, cells: Iterator[Cell], work: Work, watcher: Watcher) -> Iterator[Attempt]:
        """Yield one attempt per cell, in order of completion."""


def attempt(cell: Cell, work: Work, report: Report) -> Attempt:
    """Run one cell; an error becomes part of the answer, an interruption passes through."""
    begin = time.monotonic()
    try:
        table = work(cell, report)
    except Exception as error:
        ours = isinstance(error, OnnxfrError)
        message = str(error) if ours else f"unexpected {type(error).__name__}: {error}"
        trace = ""
        if not ours or isinstance(error, CodeError):
            message += "; the trace is in the run's log"
            trace = traceback.format_exc()
        return Attempt(cell, message=message, trace=trace, seconds=time.monotonic() - begin)
    return Attempt(cell, table=table, seconds=time.monotonic() - begin)
