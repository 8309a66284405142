"""A parallel map that keeps order and bounds what is in flight.

Threads, not processes: OpenCV releases the interpreter lock while it detects, decodes and warps,
and pictures need not be copied between processes.
"""

from __future__ import annotations

import os
from collections import deque
from collections.abc import Callable, Generator, Iterable
from concurrent.futures import Future, ThreadPoolExecutor
from typing import TypeVar

from onnxfr.errors import SpecError

A = TypeVar("A")
B = TypeVar("B")


def worker_count(workers: int | None) -> int:
    """Return how many workers to use: as asked, else one for each core we may run on."""
    if workers is None:
        cores = getattr(os, "sched_getaffinity", None)
        return len(cores(0)) if cores else os.cpu_count() or 1
    if workers < 1:
        raise SpecError(f"expected at least 1 worker, got {workers}")
    return workers


def ordered_map(
    function: Callable[[A], B], items: Iterable[A], workers: int | None = None
) -> Generator[B, None, None]:
    """Yield ``function(item)`` in order; at most two items per worker wait or run."""
    count = worker_count(workers)
    waiting: deque[Future[B]] = deque()
    with ThreadPoolExecutor(count, thread_name_prefix="align") as pool:
        try:
            for item in items:
                waiting.append(pool.submit(function, item))
                if len(waiting) >= 2 * count:
                    yield waiting.popleft().result()
            while waiting:
                yield waiting.popleft().result()
        finally:
            for future in waiting:
                future.cancel()
