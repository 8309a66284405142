from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
from toy_runs import alive, records_of, toy_cells, toy_work

from onnxfr.runs.engines.local import LocalEngine
from onnxfr.runs.execute import execute
from onnxfr.runs.store import RunStore
from onnxfr.runs.work import Silent


def test_two_processes_give_what_one_gives(tmp_path: Path) -> None:
    cells = toy_cells(rows=30, size=4, methods=["a", "b"])
    answers = []
    for workers in (1, 2):
        store = RunStore(tmp_path / str(workers))
        with store.working():
            store.write_manifest({}, cells)
            outcome = execute(cells, store, LocalEngine(workers), toy_work(tmp_path / "cache"))
        assert outcome.done == len(cells)
        answers.append(records_of(store))
    assert answers[0] == answers[1]


def test_a_killed_worker_costs_one_retry(tmp_path: Path) -> None:
    marks = tmp_path / "marks"
    marks.mkdir()
    cells = toy_cells(rows=4, size=2, methods=[f"die_once:{marks}", "plain"])
    store = RunStore(tmp_path / "run")
    with store.working():
        outcome = execute(cells, store, LocalEngine(2), toy_work(tmp_path / "cache"))
    assert len(list(marks.iterdir())) == 2, "both cells were killed once"
    assert (outcome.done, outcome.failed) == (4, {})


def test_a_cell_that_kills_every_worker_fails_alone(tmp_path: Path) -> None:
    cells = toy_cells(rows=4, size=2, methods=["die", "plain"])
    store = RunStore(tmp_path / "run")
    with store.working():
        outcome = execute(cells, store, LocalEngine(2), toy_work(tmp_path / "cache"))
    assert outcome.done == 2
    assert len(outcome.failed) == 2
    assert all("died 2 times, last with signal 9" in text for text in outcome.failed.values())


def test_errors_in_workers_come_back_as_text(tmp_path: Path) -> None:
    cells = toy_cells(rows=2, size=1, methods=["refuse", "crash"])
    attempts = list(LocalEngine(2).run(iter(cells), toy_work(tmp_path), Silent()))
    assert sorted(attempt.message.split(" ")[0] for attempt in attempts) == [
        "expected",
        "expected",
        "unexpected",
        "unexpected",
    ]
    assert sum("Traceback" in attempt.trace for attempt in attempts) == 2


def test_a_worker_that_is_told_to_stop_may_keep_what_it_has(tmp_path: Path) -> None:
    """One that asks a service waits for answers under way, which are paid for."""
    cells = toy_cells(rows=4, size=2, methods=["plain", f"last_words:{tmp_path}"])[:3]
    attempts = LocalEngine(2).run(iter(cells), toy_work(tmp_path / "cache"), Silent())
    for _ in range(2):
        next(attempts)
    deadline = time.monotonic() + 60
    while not (tmp_path / "begun").exists():
        assert time.monotonic() < deadline
        time.sleep(0.01)
    attempts.close()  # type: ignore[attr-defined]
    assert (tmp_path / "said").exists()


def test_workers_end_with_their_parent(tmp_path: Path) -> None:
    script = tmp_path / "parent.py"
    script.write_text(
        "import sys\n"
        "from pathlib import Path\n"
        "from toy_runs import toy_cells, toy_work\n"
        "from onnxfr.runs.engines.local import LocalEngine\n"
        "from onnxfr.runs.work import Silent\n"
        "if __name__ == '__main__':\n"
        "    place = Path(sys.argv[1])\n"
        "    quick = toy_cells(rows=2, size=1, methods=[f'pid:{place}'], delay=0.3)\n"
        "    slow = toy_cells(rows=2, size=1, delay=60.0)\n"
        "    list(LocalEngine(2).run(iter(quick + slow), toy_work(place), Silent()))\n"
    )
    pids = tmp_path / "pids"
    pids.mkdir()
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
    parent = subprocess.Popen([sys.executable, str(script), str(pids)], env=environment)
    try:
        deadline = time.monotonic() + 60
        while len(list(pids.iterdir())) < 2 and time.monotonic() < deadline:
            time.sleep(0.05)
        workers = [int(path.name) for path in pids.iterdir()]
        assert len(workers) == 2
        assert all(alive(pid) for pid in workers)
    finally:
        parent.send_signal(signal.SIGKILL)
        parent.wait()
    deadline = time.monotonic() + 20
    while any(alive(pid) for pid in workers) and time.monotonic() < deadline:
        time.sleep(0.1)
    assert not any(alive(pid) for pid in workers)


def test_workers_are_sized_to_the_machine_and_the_work() -> None:
    assert LocalEngine.sized(None, 0).workers == 1
    assert LocalEngine.sized(8, 3).workers == 3
    assert LocalEngine.sized(2, 100).workers == 2
    assert LocalEngine.sized(1, 100).in_process


@pytest.mark.parametrize("workers", [1, 2])
def test_no_cells_no_processes(tmp_path: Path, workers: int) -> None:
    assert list(LocalEngine(workers).run(iter([]), toy_work(tmp_path), Silent())) == []
