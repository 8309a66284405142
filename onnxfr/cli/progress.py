"""Progress bars on the standard error stream; nothing where nobody watches (pipes, CI)."""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from types import TracebackType
from typing import Self

from rich.console import Console
from rich.progress import (
    BarColumn,
    MofNCompleteColumn,
    Progress,
    SpinnerColumn,
    TaskID,
    TextColumn,
    TimeElapsedColumn,
    TimeRemainingColumn,
)

from onnxfr.runs.cells import Cell
from onnxfr.runs.work import Attempt, Report


def watched() -> bool:
    """Tell whether a person looks at the standard error stream."""
    return Console(stderr=True).is_terminal and not os.environ.get("CI")


def make_progress(*, quiet: bool = False) -> Progress:
    """Return bars with a count, the time gone and the time left."""
    return Progress(
        SpinnerColumn(),
        TextColumn("{task.description}"),
        BarColumn(),
        MofNCompleteColumn(),
        TimeElapsedColumn(),
        TimeRemainingColumn(elapsed_when_finished=True),
        console=Console(stderr=True),
        disable=quiet or not watched(),
        transient=True,
    )


@contextmanager
def bar(description: str, *, quiet: bool = False) -> Iterator[Report]:
    """Show one bar; the value given is called with (done, total)."""
    with make_progress(quiet=quiet) as progress:
        task = progress.add_task(description, total=None)

        def report(done: int, total: int) -> None:
            progress.update(task, completed=done, total=total)

        yield report


class RunProgress:
    """One bar for the run, weighted by the cells' cost, and one per cell at work."""

    def __init__(self, *, quiet: bool = False) -> None:
        self._progress = make_progress(quiet=quiet)
        self._weights: dict[str, int] = {}
        self._parts: dict[str, float] = {}
        self._tasks: dict[str, TaskID] = {}
        self._run: TaskID | None = None

    def __enter__(self) -> Self:
        self._progress.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._progress.stop()

    def begins(self, cells: Sequence[Cell]) -> None:
        """These cells are about to run."""
        self._weights = {cell.key: max(1, round(cell.cost.units)) for cell in cells}
        self._run = self._progress.add_task("run", total=sum(self._weights.values()))

    def started(self, cell: Cell) -> None:
        """A worker took a cell."""
        if cell.key not in self._tasks:
            self._tasks[cell.key] = self._progress.add_task(f"  {cell.label}", total=None)

    def advanced(self, cell: Cell, done: int, total: int) -> None:
        """A cell moved on."""
        if cell.key in self._tasks:
            self._progress.update(self._tasks[cell.key], completed=done, total=total)
        self._parts[cell.key] = self._weights.get(cell.key, 1) * done / max(total, 1)
        self._show()

    def finished(self, attempt: Attempt) -> None:
        """A cell ended, well or not."""
        task = self._tasks.pop(attempt.cell.key, None)
        if task is not None:
            self._progress.remove_task(task)
        self._parts[attempt.cell.key] = self._weights.get(attempt.cell.key, 1)
        self._show()

    def _show(self) -> None:
        if self._run is not None:
            self._progress.update(self._run, completed=round(sum(self._parts.values())))
