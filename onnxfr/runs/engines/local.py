"""Cells on this machine: in the process itself, or in a pool of worker processes.

Workers are spawned, never forked: inference runtimes hold threads that do not survive a fork. A
worker that dies costs its cell one retry, not the run; workers end when their parent is gone.
"""

from __future__ import annotations

import logging
import multiprocessing
import os
import signal
import threading
import time
from collections import deque
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from functools import partial
from multiprocessing.connection import Connection, wait
from multiprocessing.process import BaseProcess

from onnxfr.models.hardware import available_cores
from onnxfr.runs.cells import Cell
from onnxfr.runs.work import Attempt, Watcher, Work, attempt

log = logging.getLogger(__name__)

_ATTEMPTS = 2
_REPORT_EVERY = 0.2
_LAST_WORDS = 60.0
"""Seconds in which a worker that was told to stop may keep what a service is just answering."""
_THREAD_VARIABLES = ("ONNXFR_THREADS", "OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS")


@dataclass(frozen=True)
class LocalEngine:
    """Runs cells on ``workers`` processes; one worker means this very process."""

    workers: int = 1
    name: str = field(default="local", init=False)

    @classmethod
    def sized(cls, workers: int | None, cells: int) -> LocalEngine:
        """Return an engine for this machine: by default one worker per two cores.

        Inference threads inside a worker use its share of the cores.
        """
        wanted = workers if workers is not None else max(1, available_cores() // 2)
        return cls(max(1, min(wanted, cells)))

    @property
    def in_process(self) -> bool:
        """Whether cells run in the process that asks."""
        return self.workers == 1

    def run(self, cells: Iterator[Cell], work: Work, watcher: Watcher) -> Iterator[Attempt]:
        """Yield one attempt per cell, in order of completion."""
        if self.workers > 1:
            yield from _Pool(self.workers, work, watcher).run(cells)
            return
        for cell in cells:
            watcher.started(cell)
            outcome = attempt(cell, work, partial(watcher.advanced, cell))
            watcher.finished(outcome)
            yield outcome


@dataclass
class _Worker:
    process: BaseProcess
    pipe: Connection
    cell: Cell | None = None


class _Pool:
    """Worker processes, each with its own pipe, so that one death is one cell's affair."""

    def __init__(self, size: int, work: Work, watcher: Watcher) -> None:
        self._size = size
        self._work = work
        self._watcher = watcher
        self._workers: list[_Worker] = []
        self._retry: deque[Cell] = deque()
        self._deaths: dict[str, int] = {}
        self._context = multiprocessing.get_context("spawn")

    def run(self, cells: Iterator[Cell]) -> Iterator[Attempt]:
        try:
            while True:
                self._feed(cells)
                busy = {worker.pipe: worker for worker in self._workers if worker.cell}
                if not busy:
                    return
                for pipe in wait(list(busy)):
                    outcome = self._listen(busy[pipe])  # type: ignore[index]
                    if outcome is not None:
                        self._watcher.finished(outcome)
                        yield outcome
        finally:
            self._stop()

    def _feed(self, cells: Iterator[Cell]) -> None:
        while sum(worker.cell is not None for worker in self._workers) < self._size:
            cell = self._retry.popleft() if self._retry else next(cells, None)
            if cell is None:
                return
            idle = [worker for worker in self._workers if worker.cell is None]
            worker = idle[0] if idle else self._start()
            worker.cell = cell
            self._watcher.started(cell)
            # A worker that died idle shows as an end of file when it is listened to.
            with suppress(BrokenPipeError, ConnectionResetError):
                worker.pipe.send(cell)

    def _start(self) -> _Worker:
        ours, theirs = self._context.Pipe()
        process = self._context.Process(target=_serve, args=(theirs, self._work), daemon=True)
        with _thread_share(max(1, available_cores() // self._size)), _without_ctrl_c():
            process.start()
        theirs.close()
        worker = _Worker(process, ours)
        self._workers.append(worker)
        return worker

    def _listen(self, worker: _Worker) -> Attempt | None:
        assert worker.cell is not None
        try:
            message = worker.pipe.recv()
        except (EOFError, OSError):
            return self._bury(worker)
        if isinstance(message, Attempt):
            worker.cell = None
            return message
        self._watcher.advanced(worker.cell, *message)
        return None

    def _bury(self, worker: _Worker) -> Attempt | None:
        cell = worker.cell
        assert cell is not None
        self._workers.remove(worker)
        worker.pipe.close()
        worker.process.join()
        code = worker.process.exitcode or 0
        how = f"signal {-code}" if code < 0 else f"exit code {code}"
        self._deaths[cell.key] = self._deaths.get(cell.key, 0) + 1
        if self._deaths[cell.key] < _ATTEMPTS:
            log.warning("the worker of %s died (%s); trying again", cell.label, how)
            self._retry.append(cell)
            return None
        return Attempt(
            cell,
            message=f"its worker process died {_ATTEMPTS} times, last with {how}; often memory "
            "ran out: use fewer workers (--workers) or smaller cells (rows_per_cell)",
        )

    def _stop(self) -> None:
        for worker in self._workers:
            worker.pipe.close()
            if worker.cell is not None:
                worker.process.terminate()
        until = time.monotonic() + _LAST_WORDS
        try:
            for worker in self._workers:
                worker.process.join(max(0.0, until - time.monotonic()))
        finally:  # also by Ctrl-C for the second time
            for worker in self._workers:
                worker.process.kill()
                worker.process.join()
            self._workers.clear()


def _serve(pipe: Connection, work: Work) -> None:
    # Ctrl-C reaches the whole process group; only the parent decides what it means. Its word to
    # stop ends the cell as Ctrl-C would: what a service is just answering is waited for and kept.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    threading.Thread(target=_die_with_parent, daemon=True).start()
    last = 0.0

    def report(done: int, total: int) -> None:
        nonlocal last
        now = time.monotonic()
        if now - last >= _REPORT_EVERY:
            last = now
            pipe.send((done, total))

    with suppress(KeyboardInterrupt):
        while True:
            try:
                cell = pipe.recv()
            except (EOFError, OSError):
                return
            outcome = attempt(cell, work, report)
            with suppress(BrokenPipeError, ConnectionResetError):
                pipe.send(outcome)


def _die_with_parent() -> None:
    parent = multiprocessing.parent_process()
    if parent is not None:
        parent.join()
        os._exit(1)


@contextmanager
def _without_ctrl_c() -> Iterator[None]:
    """Let a child started inside this block not hear of Ctrl-C, not even while it imports.

    Here it is heard at the end of the block.
    """
    if not hasattr(signal, "pthread_sigmask"):  # on Windows
        yield
        return
    from multiprocessing import resource_tracker  # of no use on Windows

    # Started with the first child, multiprocessing's own helper would lift the block.
    resource_tracker.ensure_running()
    before = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)


@contextmanager
def _thread_share(threads: int) -> Iterator[None]:
    """Let a child started inside this block use only its share of the cores."""
    before = {name: os.environ.get(name) for name in _THREAD_VARIABLES}
    os.environ.update({name: os.environ.get(name) or str(threads) for name in _THREAD_VARIABLES})
    try:
        yield
    finally:
        for name, value in before.items():
            if value is None:
                del os.environ[name]
            else:
                os.environ[name] = value
