"""Cells on a Ray cluster: the same work, the same tables, written by the process that drives it.

Workers return their table, so only models and data must be visible to every node, not the run
directory. Ray keeps worker processes between tasks, which keeps their models loaded; a task whose
worker dies is tried once more by Ray itself.
"""

from __future__ import annotations

import os
import socket
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass, field
from types import ModuleType
from typing import Any

from onnxfr.errors import EngineError, MissingExtra
from onnxfr.runs.cells import Cell
from onnxfr.runs.work import Attempt, Watcher, Work, attempt

_RETRIES = 1
_KNOCK_SECONDS = 10.0


@dataclass(frozen=True)
class RayEngine:
    """Runs cells as Ray tasks: on the cluster at ``address``, or on a private one for this run."""

    address: str | None = None
    gpus: float = 0.0
    workers: int | None = None
    name: str = field(default="ray", init=False)
    in_process: bool = field(default=False, init=False)

    def run(self, cells: Iterator[Cell], work: Work, watcher: Watcher) -> Iterator[Attempt]:
        """Yield one attempt per cell, in order of completion."""
        ray = _import_ray()
        started_here = self._connect(ray)
        running: dict[Any, Cell] = {}
        try:
            task = ray.remote(num_cpus=1, num_gpus=self.gpus, max_retries=_RETRIES)(_run_cell)
            shared = ray.put(work)
            width = self._width(ray)
            while True:
                while len(running) < width:
                    cell = next(cells, None)
                    if cell is None:
                        break
                    watcher.started(cell)
                    running[task.remote(cell, shared)] = cell
                if not running:
                    return
                ready, _ = ray.wait(list(running), num_returns=1)
                for reference in ready:
                    outcome = _collect(ray, reference, running.pop(reference))
                    watcher.finished(outcome)
                    yield outcome
        finally:
            for reference in running:
                with suppress(Exception):
                    ray.cancel(reference, force=True)
            if started_here:
                ray.shutdown()

    def _connect(self, ray: ModuleType) -> bool:
        if ray.is_initialized():
            return False
        if self.address is not None:
            _knock(self.address)
        try:
            if self.address is not None:
                ray.init(address=self.address, log_to_driver=False)
            else:
                ray.init(
                    address="local",
                    num_cpus=self.workers,
                    include_dashboard=False,
                    log_to_driver=False,
                )
        except (ConnectionError, RuntimeError, ValueError) as error:
            raise EngineError(
                f"no Ray cluster answers at {self.address or 'this machine'} ({error}); "
                "check --address, or leave it out for a cluster on this machine"
            ) from error
        return True

    def _width(self, ray: ModuleType) -> int:
        resources = ray.cluster_resources()
        width = int(resources.get("CPU", 1))
        if self.gpus:
            available = float(resources.get("GPU", 0.0))
            if available < self.gpus:
                raise EngineError(
                    f"each cell asks for {self.gpus:g} GPUs but the Ray cluster has {available:g}; "
                    "lower --gpus or add GPU nodes"
                )
            width = min(width, int(available / self.gpus))
        return max(1, min(width, self.workers or width))


def _knock(address: str) -> None:
    """Raise when nobody listens: Ray itself tries for minutes and then ends the process."""
    host, colon, port = address.removeprefix("ray://").rpartition(":")
    if not colon or not port.isdecimal():
        return
    try:
        socket.create_connection((host, int(port)), timeout=_KNOCK_SECONDS).close()
    except (OSError, OverflowError) as error:
        raise EngineError(
            f"no Ray cluster answers at {address} ({error}); "
            "check --address, or leave it out for a cluster on this machine"
        ) from error


def _run_cell(cell: Cell, work: Work) -> Attempt:
    # Ray gives a task one core; an engine that took all of them would fight the other tasks.
    os.environ.setdefault("ONNXFR_THREADS", "1")
    return attempt(cell, work, _ignore)


def _ignore(done: int, total: int) -> None:
    return None


def _collect(ray: ModuleType, reference: Any, cell: Cell) -> Attempt:
    try:
        outcome: Attempt = ray.get(reference)
    except ray.exceptions.RayError as error:
        first_line = (str(error).strip().splitlines() or [type(error).__name__])[0]
        return Attempt(
            cell,
            message=f"its Ray task failed {_RETRIES + 1} times ({type(error).__name__}: "
            f"{first_line}); often a worker ran out of memory: use smaller cells (rows_per_cell)",
            trace=str(error),
        )
    return outcome


def _import_ray() -> ModuleType:
    try:
        import ray
    except ImportError as missing:
        raise MissingExtra("ray", "ray") from missing
    module: ModuleType = ray
    return module
