"""Work off the missing cells of a plan, keep what comes back, and stop cleanly when asked to."""

from __future__ import annotations

import logging
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Literal

from onnxfr.runs.cells import Cell
from onnxfr.runs.store import RunStore
from onnxfr.runs.work import Attempt, Engine, Silent, Watcher, Work

log = logging.getLogger(__name__)

Ending = Literal["finished", "budget", "interrupted"]


@dataclass(frozen=True)
class Outcome:
    """What one invocation did."""

    ending: Ending
    reused: int
    done: int
    failed: dict[str, str] = field(default_factory=dict)
    remaining: int = 0
    seconds: float = 0.0

    @property
    def exit_code(self) -> int:
        """0 when all asked for is there, 1 when cells failed, 130 when interrupted."""
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
    done, failed = 0, dict[str, str]()
    ending: Ending = "finished"
    watcher = watcher or Silent()
    watcher.begins(todo)
    log.info("%d cells, %d missing, engine %s", len(cells), len(todo), engine.name)
    attempts = engine.run(pace.feed(todo), work, watcher)
    try:
        for attempt in attempts:
            pace.learn(attempt)
            if _keep(attempt, store):
                done += 1
            else:
                failed[attempt.cell.key] = attempt.message
    except KeyboardInterrupt:
        ending = "interrupted"
    finally:
        _close(attempts)
    if ending == "finished" and pace.stopped:
        ending = "budget"
    log.info("%s: %d done, %d failed", ending, done, len(failed))
    return Outcome(
        ending=ending,
        reused=len(dict.fromkeys(cells)) - len(todo),
        done=done,
        failed=failed,
        remaining=len(todo) - done - len(failed),
        seconds=pace.elapsed(),
    )


def _keep(attempt: Attempt, store: RunStore) -> bool:
    """Store what came of a cell, and tell whether that is records."""
    label = attempt.cell.label
    if attempt.table is not None:
        store.write(attempt.cell, attempt.table)
        log.info("%s done in %.2f s", label, attempt.seconds)
        return True
    log.error("%s failed: %s", label, attempt.message)
    if attempt.trace:
        log.debug("trace of %s:\n%s", label, attempt.trace)
    store.write_failure(attempt.cell, attempt.message)
    return False


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
