"""Runs that are killed without warning, again and again, end with an undisturbed run's records."""

from __future__ import annotations

import json
import os
import random
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest

from onnxfr.runs.store import RunStore

DRIVER = """
import json, signal, sys
from pathlib import Path
from toy_runs import toy_cells, toy_work
from onnxfr.runs.engines.local import LocalEngine
from onnxfr.runs.execute import execute
from onnxfr.runs.store import RunStore

if __name__ == "__main__":
    # A shell that runs tests in the background makes its children deaf to Ctrl-C.
    signal.signal(signal.SIGINT, signal.default_int_handler)
    folder, workers, cells = Path(sys.argv[1]), int(sys.argv[2]), int(sys.argv[3])
    plan = toy_cells(rows=cells * 3, size=3, methods=["a", "b"], delay=0.01)
    store = RunStore(folder)
    with store.working():
        store.write_manifest({}, plan)
        print("working", flush=True)
        outcome = execute(plan, store, LocalEngine(workers), toy_work(folder / "cache"))
    print(json.dumps({"ending": outcome.ending, "done": outcome.done, "reused": outcome.reused}))
    sys.exit(outcome.exit_code)
"""


@pytest.fixture
def driver(tmp_path: Path) -> Path:
    path = tmp_path / "driver.py"
    path.write_text(DRIVER)
    return path


def start(driver: Path, folder: Path, workers: int, cells: int) -> subprocess.Popen[str]:
    helpers = Path(__file__).parents[1] / "unit" / "runs"
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join([str(helpers), *sys.path])}
    command = [sys.executable, str(driver), str(folder), str(workers), str(cells)]
    return subprocess.Popen(command, env=environment, stdout=subprocess.PIPE, text=True)


def finish(process: subprocess.Popen[str]) -> dict[str, Any]:
    out, _ = process.communicate(timeout=120)
    assert process.returncode == 0
    answer: dict[str, Any] = json.loads(out.splitlines()[-1])
    return answer


def records(folder: Path) -> list[dict[str, Any]]:
    rows: list[dict[str, Any]] = RunStore.open(folder).records().to_pylist()
    return sorted(rows, key=lambda row: (row["method"], row["row"]))


def await_progress(process: subprocess.Popen[str], folder: Path) -> None:
    """Wait until the run has written a shard, or has ended."""
    before = len(list((folder / "cells").glob("*.parquet")))
    deadline = time.monotonic() + 60
    while len(list((folder / "cells").glob("*.parquet"))) == before and process.poll() is None:
        assert time.monotonic() < deadline
        time.sleep(0.005)


@pytest.mark.parametrize(("workers", "kills"), [(1, 10), (2, 3)])
def test_kill_minus_nine_at_random_moments(
    tmp_path: Path, driver: Path, workers: int, kills: int
) -> None:
    cells = 60
    finish(start(driver, tmp_path / "whole", 1, cells))
    chance = random.Random(workers)
    killed_at_work = 0
    for _ in range(kills):
        process = start(driver, tmp_path / "torn", workers, cells)
        assert process.stdout is not None
        process.stdout.readline()
        if chance.random() < 0.7:
            await_progress(process, tmp_path / "torn")
        time.sleep(chance.uniform(0.0, 0.1))
        killed_at_work += process.poll() is None
        process.send_signal(signal.SIGKILL)
        process.communicate()
    assert killed_at_work >= kills // 2
    last = finish(start(driver, tmp_path / "torn", workers, cells))
    assert last["done"] + last["reused"] == 2 * cells
    assert last["reused"] > 0, "work done before a kill is kept"
    assert records(tmp_path / "torn") == records(tmp_path / "whole")
    assert not list((tmp_path / "torn").rglob(".tmp-*"))


@pytest.mark.parametrize("workers", [1, 2])
def test_ctrl_c_leaves_a_run_that_resumes(tmp_path: Path, driver: Path, workers: int) -> None:
    process = start(driver, tmp_path / "run", workers, 150)
    assert process.stdout is not None
    process.stdout.readline()
    await_progress(process, tmp_path / "run")
    process.send_signal(signal.SIGINT)
    out, _ = process.communicate(timeout=60)
    assert process.returncode == 130
    assert json.loads(out.splitlines()[-1])["ending"] == "interrupted"
    last = finish(start(driver, tmp_path / "run", workers, 150))
    assert last["done"] + last["reused"] == 300
    assert last["reused"] > 0
    assert len(records(tmp_path / "run")) == 900


def test_ctrl_c_while_workers_start_shows_no_trace(tmp_path: Path, driver: Path) -> None:
    helpers = Path(__file__).parents[1] / "unit" / "runs"
    process = subprocess.Popen(
        [sys.executable, str(driver), str(tmp_path / "run"), "2", "50"],
        env={**os.environ, "PYTHONPATH": os.pathsep.join([str(helpers), *sys.path])},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
    )
    children = Path(f"/proc/{process.pid}/task/{process.pid}/children")
    if not children.exists():
        process.kill()
        pytest.skip("this system does not tell a process's children")
    deadline = time.monotonic() + 60
    # The first is multiprocessing's own, the others are workers that begin to import.
    while len(children.read_text().split()) < 2:
        assert time.monotonic() < deadline
        time.sleep(0.005)
    time.sleep(0.15)
    os.killpg(process.pid, signal.SIGINT)
    _, err = process.communicate(timeout=60)
    assert process.returncode == 130 and "Traceback" not in err, err
