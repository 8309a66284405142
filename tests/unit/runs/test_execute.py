from __future__ import annotations

import logging
import re
from pathlib import Path

import pytest
from toy_runs import toy_cells, toy_work

from onnxfr.runs.cells import Cell
from onnxfr.runs.engines.local import LocalEngine
from onnxfr.runs.execute import Outcome, execute, missing
from onnxfr.runs.store import RunStore
from onnxfr.runs.work import Silent


def run_all(
    folder: Path, cells: list[Cell], workers: int = 1, budget: float | None = None
) -> Outcome:
    store = RunStore(folder)
    with store.working():
        store.write_manifest({}, cells)
        return execute(
            cells, store, LocalEngine(workers), toy_work(folder / "cache"), budget=budget
        )


def test_a_run_leaves_one_record_per_row_and_a_second_run_does_nothing(tmp_path: Path) -> None:
    cells = toy_cells(rows=20, size=6)
    first = run_all(tmp_path, cells)
    assert (first.ending, first.done, first.reused, first.exit_code) == ("finished", 4, 0, 0)
    stamps = {path: path.stat().st_mtime_ns for path in (tmp_path / "cells").iterdir()}
    again = run_all(tmp_path, cells)
    assert (again.done, again.reused) == (0, 4)
    assert stamps == {path: path.stat().st_mtime_ns for path in (tmp_path / "cells").iterdir()}
    records = RunStore.open(tmp_path).records("toy_hash")
    assert records["row"].to_pylist() == list(range(20))


def test_another_seed_reuses_nothing(tmp_path: Path) -> None:
    run_all(tmp_path, toy_cells())
    outcome = run_all(tmp_path, toy_cells(seed=1))
    assert outcome.reused == 0
    assert RunStore.open(tmp_path).records().num_rows == 20


def test_the_same_cell_planned_twice_runs_once(tmp_path: Path) -> None:
    cells = toy_cells()
    assert run_all(tmp_path, cells + cells).done == len(cells)


def test_a_failing_cell_is_noted_and_the_others_go_on(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    cells = toy_cells(rows=4, size=2, methods=["refuse", "crash", "plain"])
    with caplog.at_level(logging.DEBUG, logger="onnxfr"):
        outcome = run_all(tmp_path, cells)
    assert (outcome.done, len(outcome.failed), outcome.exit_code) == (2, 4, 1)
    store = RunStore.open(tmp_path)
    messages = sorted(set(store.failed().values()))
    assert messages[0] == "expected a picture, got a toy; give another"
    assert re.fullmatch(
        r"unexpected ZeroDivisionError: on purpose, in evaluator toy_hash "
        r"\(.*toy_runs\.py, line \d+\); the trace is in the run's log",
        messages[1],
    )
    assert "Traceback" in caplog.text
    assert run_all(tmp_path, cells).reused == 2, "failed cells are tried again, good ones are not"


def test_a_note_of_failure_goes_when_the_cell_succeeds(tmp_path: Path) -> None:
    cells = toy_cells()
    store = RunStore(tmp_path)
    with store.working():
        store.write_manifest({}, cells)
        store.write_failure(cells[0], "broken before")
    assert store.failed() == {cells[0].key: "broken before"}
    run_all(tmp_path, cells)
    assert store.failed() == {}


@pytest.mark.parametrize("workers", [1, 2])
def test_an_unfinished_cell_is_kept_and_told_of_and_run_again(tmp_path: Path, workers: int) -> None:
    more = tmp_path / "more"
    cells = toy_cells(rows=8, size=4, methods=["plain", f"short:{more}"])
    for _ in range(2):
        outcome = run_all(tmp_path / "run", cells, workers)
        assert (outcome.ending, outcome.exit_code, outcome.remaining) == ("unfinished", 0, 2)
        assert all("no call was left" in why for why in outcome.unfinished.values())
        store = RunStore.open(tmp_path / "run")
        assert store.records().num_rows == 8 + 2 and store.failed() == {}
    more.touch()
    last = run_all(tmp_path / "run", cells, workers)
    assert (last.ending, last.done, last.reused, last.unfinished) == ("finished", 2, 2, {})
    assert RunStore.open(tmp_path / "run").records().num_rows == 16


def test_the_most_informative_cells_come_first(tmp_path: Path) -> None:
    cells = toy_cells(rows=4, size=2, methods=["first", "second", "third"])
    todo = missing(list(reversed(cells)), RunStore(tmp_path))
    assert [cell.method for cell in todo] == ["first"] * 2 + ["second"] * 2 + ["third"] * 2


@pytest.mark.parametrize("workers", [1, 2])
def test_a_budget_stops_between_cells_and_the_next_run_goes_on(
    tmp_path: Path, workers: int
) -> None:
    cells = toy_cells(rows=40, size=1, delay=0.2)
    outcome = run_all(tmp_path, cells, workers, budget=1.5)
    assert outcome.ending == "budget"
    assert outcome.exit_code == 0
    assert outcome.remaining == 40 - outcome.done > 0
    assert RunStore.open(tmp_path).records().num_rows == outcome.done
    assert len(missing(cells, RunStore(tmp_path))) == 40 - outcome.done


def test_no_budget_left_means_no_cell_starts(tmp_path: Path) -> None:
    outcome = run_all(tmp_path, toy_cells(), budget=0.0)
    assert (outcome.done, outcome.remaining, outcome.ending) == (0, 4, "budget")


def test_an_interruption_drops_the_current_cell_only(tmp_path: Path) -> None:
    cells = toy_cells(rows=3, size=1, methods=["plain", "interrupt"])
    outcome = run_all(tmp_path, cells)
    assert (outcome.ending, outcome.exit_code) == ("interrupted", 130)
    assert (outcome.done, outcome.remaining) == (3, 3)
    assert RunStore.open(tmp_path).records().num_rows == 3


def test_the_watcher_hears_of_every_cell(tmp_path: Path) -> None:
    class Ears(Silent):
        def __init__(self) -> None:
            self.heard: list[str] = []

        def started(self, cell: Cell) -> None:
            self.heard.append("started")

        def advanced(self, cell: Cell, done: int, total: int) -> None:
            self.heard.append(f"{done}/{total}")

    ears = Ears()
    cells = toy_cells(rows=2, size=2)
    store = RunStore(tmp_path)
    with store.working():
        execute(cells, store, LocalEngine(), toy_work(tmp_path), watcher=ears)
    assert ears.heard == ["started", "1/2", "2/2"]
