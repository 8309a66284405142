"""Work off the missing cells of a plan, keep what comes back, and stop cleanly when asked to."""

from __future__ import annotations

import logging
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Literal

from onnxfr.runs.cells import Cell
from onnxfr.runs.records import why_unfinished
from onnxfr.runs.store import RunStore
from onnxfr.runs.work import Attempt, Engine, Silent, Watcher, Work

log = logging.getLogger(__name__)

Ending = Literal["finished", "unfinished", "budget", "interrupted"]


@dataclass(frozen=True)
class Outcome:
    """What one invocation did."""

    ending: Ending
    reused: int
    done: int
    failed: dict[str, str] = field(default_factory=dict)
    unfinished: dict[str, str] = field(default_factory=dict)
    """Why cells hold less than was asked for; the next run goes on with them."""
    remaining: int = 0
    seconds: float = 0.0

    @property
    def exit_code(self) -> int:
        """0 when all is there or a budget has ended it, 1 when cells failed, 130 if interrupted."""
        if self.ending == "interrupted":
            return 130
        return 1 if self.failed else 0


def missing(cells: Sequence[Cell], store: RunStore) -> list[Cell]:
    """Return the cells without intact records, most informative first, equal ones in plan order."""
    unique = dict.fromkeys(cells)
    return sorted((cell for cell in unique if not store.has(cell)), key=lambda cell: -cell.priority)


def execute(
    cells: Sequence[Cell],
    store: RunStore,
    engine: Engine,
    work: Work,
    *,
    budget: float | None = None,
    watcher: Watcher | None = None,
) -> Outcome:
    """Run what is missing; the caller owns ``store`` (``with store.working()``).

    Args:
        cells: the plan.
        store: where records are found and kept.
        engine: where cells run.
        work: what turns a cell into a table.
        budget: seconds after which no further cell starts.
        watcher: told about progress.
    """
    todo = missing(cells, store)
    pace = _Pace(budget)
    kept = _Kept(store)
    ending: Ending = "finished"
    watcher = watcher or Silent()
    watcher.begins(todo)
    log.info("%d cells, %d missing, engine %s", len(cells), len(todo), engine.name)
    attempts = engine.run(pace.feed(todo), work, watcher)
    try:
        for attempt in attempts:
            pace.learn(attempt)
            kept.add(attempt)
    except KeyboardInterrupt:
        ending = "interrupted"
    finally:
        _close(attempts)
    if ending == "finished" and pace.stopped:
        ending = "budget"
    elif ending == "finished" and kept.unfinished:
        ending = "unfinished"
    log.info("%s: %d done, %d failed", ending, kept.done, len(kept.failed))
    return Outcome(
        ending=ending,
        reused=len(dict.fromkeys(cells)) - len(todo),
        done=kept.done,
        failed=kept.failed,
        unfinished=kept.unfinished,
        remaining=len(todo) - kept.done - len(kept.failed),
        seconds=pace.elapsed(),
    )


@dataclass
class _Kept:
    """Stores what comes of cells, and counts it."""

    store: RunStore
    done: int = 0
    failed: dict[str, str] = field(default_factory=dict)
    unfinished: dict[str, str] = field(default_factory=dict)

    def add(self, attempt: Attempt) -> None:
        cell = attempt.cell
        if attempt.table is None:
            log.error("%s failed: %s", cell.label, attempt.message)
            if attempt.trace:
                log.debug("trace of %s:\n%s", cell.label, attempt.trace)
            self.store.write_failure(cell, attempt.message)
            self.failed[cell.key] = attempt.message
            return
        self.store.write(cell, attempt.table)
        why = why_unfinished(attempt.table)
        if why is None:
            log.info("%s done in %.2f s", cell.label, attempt.seconds)
            self.done += 1
        else:
            log.warning("%s is unfinished: %s", cell.label, why)
            self.unfinished[cell.key] = f"{cell.label}: {why}"


class _Pace:
    """Hands out cells until the time is up, judging a cell's duration by those before it."""

    def __init__(self, budget: float | None) -> None:
        self._begin = time.monotonic()
        self._budget = budget
        self._seconds: dict[str, float] = {}
        self._units: dict[str, float] = {}
        self.stopped = False

    def elapsed(self) -> float:
        return time.monotonic() - self._begin

    def learn(self, attempt: Attempt) -> None:
        kind = attempt.cell.evaluator
        self._seconds[kind] = self._seconds.get(kind, 0.0) + attempt.seconds
        self._units[kind] = self._units.get(kind, 0.0) + max(attempt.cell.cost.units, 1.0)

    def feed(self, cells: Sequence[Cell]) -> Iterator[Cell]:
        for cell in cells:
            if self._budget is not None and self._ends(cell) > self._budget:
                self.stopped = True
                return
            yield cell

    def _ends(self, cell: Cell) -> float:
        kind = cell.evaluator
        rate = self._seconds.get(kind, 0.0) / self._units.get(kind, 1.0)
        return self.elapsed() + rate * max(cell.cost.units, 1.0)


def _close(attempts: Iterator[Attempt]) -> None:
    # Ends worker processes now rather than when the generator happens to be collected.
    close = getattr(attempts, "close", None)
    if close is not None:
        close()
