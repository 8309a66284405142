"""Find, by a short measurement, how onnxruntime serves one model fastest on this machine.

Two ways to use k cores compete: k threads inside one run, or k lanes that each run a chunk on one
thread. Under load and for small layers lanes win, for few large layers threads may. Each stage
measures its candidates interleaved and keeps the fastest repetition, because noise from other
processes only ever adds time; a candidate replaces the default only by a clear margin. All are
timed over as many pictures, or short chunks would find quiet moments that longer ones cannot. Work
on one thread is measured in processor time, which a busy machine hardly changes; only runs on
several threads need the wall clock.
"""

from __future__ import annotations

import hashlib
import json
import logging
import os
import tempfile
import time
from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any, TypeVar

import numpy as np

from onnxfr.types import Images

log = logging.getLogger(__name__)

CHUNKS = (1, 4, 8, 16, 32, 64)
_FORMAT = 2
_CLEAR_MARGIN = 0.95
_CHUNK_MARGIN = 0.98
_REPETITIONS = 5
_FINE_SECONDS = 1e-4
_TIMED_IMAGES = 16
_TIMED_SHARE = 0.08

Runner = Callable[[Images], Any]
"""Answer one chunk of images."""

Choice = TypeVar("Choice")


@dataclass(frozen=True)
class Setting:
    """How one model is served: ``lanes`` chunks in flight, each on ``threads`` threads."""

    threads: int
    lanes: int
    chunk: int
    split_prelu: bool


def default_setting(cores: int, fixed_batch: int | None = None) -> Setting:
    """Return what serves well everywhere, for use before or without a measurement."""
    return Setting(threads=1, lanes=cores, chunk=fixed_batch or 4, split_prelu=True)


class Tuner:
    """One measurement session under a time budget."""

    def __init__(
        self,
        runner: Callable[[int, bool], Runner],
        shape: tuple[int, int, int],
        cores: int,
        fixed_batch: int | None = None,
        budget_seconds: float = 2.5,
    ) -> None:
        """Prepare a measurement.

        Args:
            runner: opens the model with (threads, split_prelu).
            shape: one image.
            cores: threads that may be busy at once.
            fixed_batch: the only batch size the model takes, if there is one.
            budget_seconds: when to stop; at least one repetition of each stage always runs.
        """
        self._runner, self._cores, self._fixed_batch = runner, cores, fixed_batch
        # Noise, not zeros: products of zeros and denormals run at another speed.
        self._pictures = np.random.default_rng(0).random(
            (max(CHUNKS[-1], fixed_batch or 1), *shape), dtype=np.float32
        )
        self._budget_seconds = budget_seconds
        self._deadline = 0.0
        self._warm: set[tuple[int, bool]] = set()
        self._least_images = _TIMED_IMAGES

    def tune(self, *, can_split: bool) -> Setting:
        """Choose rewrite, layout and chunk size, in this order."""
        self._deadline = time.perf_counter() + self._budget_seconds
        best = default_setting(self._cores, self._fixed_batch)
        if can_split:
            alone = replace(best, lanes=1, chunk=self._fixed_batch or 1)
            plain = replace(alone, split_prelu=False)
            winner = self._race([alone, plain], share=0.3)
            best = replace(best, split_prelu=winner.split_prelu)
        else:
            best = replace(best, split_prelu=False)
        layouts = [
            replace(best, threads=threads, lanes=lanes) for threads, lanes in _layouts(self._cores)
        ]
        best = self._race(layouts, share=0.5)
        if self._fixed_batch is None:
            sizes = [best, *(replace(best, chunk=c) for c in CHUNKS if c != best.chunk)]
            best = self._race(sizes, share=1.0, margin=_CHUNK_MARGIN)
        return best

    def _race(
        self, settings: Sequence[Setting], share: float, margin: float = _CLEAR_MARGIN
    ) -> Setting:
        """Return the fastest; the first is the incumbent and keeps its place in a near tie."""
        if len(settings) == 1:
            return settings[0]
        start = time.perf_counter()
        stop = start + max(0.0, self._deadline - start) * share
        fastest: dict[Setting, float] = {}
        for repetition in range(_REPETITIONS):
            for setting in _promising(settings, fastest):
                expected = min(fastest.values(), default=0.0) * setting.lanes
                expected *= max(setting.chunk, self._least_images)
                if repetition + len(fastest) > 1 and time.perf_counter() + expected > stop:
                    continue
                spent = self._seconds_per_image(setting)
                fastest[setting] = min(spent, fastest.get(setting, spent))
        log.debug("onnxruntime settings, seconds per image: %s", fastest)
        return clear_winner(fastest, settings[0], margin)

    def _warm_up(self, setting: Setting, run: Runner) -> None:
        """Let a session allocate before it is timed; a slow model then gets shorter timings."""
        key = (setting.threads, setting.split_prelu)
        if key not in self._warm:
            self._warm.add(key)
            start = time.perf_counter()
            run(self._pictures[: self._fixed_batch or 1])
            affordable = _TIMED_SHARE * self._budget_seconds / (time.perf_counter() - start)
            self._least_images = max(1, min(self._least_images, int(affordable)))

    def _seconds_per_image(self, setting: Setting) -> float:
        run = self._runner(setting.threads, setting.split_prelu)
        self._warm_up(setting, run)
        chunk = self._pictures[: setting.chunk]
        clock = _clock(setting.threads)
        spent: list[float] = []

        def timed(images: Images) -> None:
            start = clock()
            run(images)
            spent.append(clock() - start)

        rounds = max(1, self._least_images // setting.chunk)
        with ThreadPoolExecutor(setting.lanes) as pool:
            chunks = [chunk] * (setting.lanes * rounds)
            in_lanes(pool if setting.lanes > 1 else None, timed, chunks)
        return sum(spent) / (len(spent) * setting.chunk * setting.lanes)


def in_lanes(
    pool: ThreadPoolExecutor | None, work: Callable[[Choice], Any], items: Iterable[Choice]
) -> None:
    """Do the work for every item, in the pool if there is one; the first failure is raised."""
    if pool is None:
        for item in items:
            work(item)
        return
    jobs = [pool.submit(work, item) for item in items]
    try:
        for job in jobs:
            job.result()
    finally:
        for job in jobs:
            job.cancel()


def _clock(threads: int) -> Callable[[], float]:
    usable = time.get_clock_info("thread_time").resolution < _FINE_SECONDS
    return time.thread_time if threads == 1 and usable else time.perf_counter


def clear_winner(
    seconds: dict[Setting, float], incumbent: Setting, margin: float = _CLEAR_MARGIN
) -> Setting:
    """Return the fastest setting, or the incumbent where the gain could be noise."""
    winner = min(seconds, key=seconds.__getitem__)
    return incumbent if seconds[winner] > margin * seconds[incumbent] else winner


def _layouts(cores: int) -> list[tuple[int, int]]:
    """List (threads, lanes), the default first; half the cores may win where two share one unit."""
    wanted = [(1, cores), (cores, 1)]
    if cores >= 4:
        wanted += [(2, cores // 2), (cores // 2, 2), (1, cores // 2), (cores // 2, 1)]
    return list(dict.fromkeys(wanted))


def _promising(settings: Sequence[Setting], fastest: dict[Setting, float]) -> list[Setting]:
    """Drop what one repetition showed to be far behind, so the rest is measured more often."""
    limit = 1.25 * min(fastest.values(), default=0.0)
    return [setting for setting in settings if fastest.get(setting, 0.0) <= limit]


class SettingCache:
    """Measured settings on disk, one small file per model, machine and engine version."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder

    def path(self, key: dict[str, str | int]) -> Path:
        """Return the file that belongs to a key."""
        text = json.dumps({"format": _FORMAT, **key}, sort_keys=True)
        return self._folder / f"{hashlib.sha256(text.encode()).hexdigest()[:32]}.json"

    def read(self, key: dict[str, str | int], cores: int) -> Setting | None:
        """Return the stored setting, or None when there is none that makes sense."""
        try:
            record = json.loads(self.path(key).read_text(encoding="utf-8"))
            raw = record["setting"]
            setting = Setting(**raw)
        except (OSError, ValueError, KeyError, TypeError):
            return None
        counts = (setting.threads, setting.lanes, setting.chunk)
        sane = (
            record.get("key") == key
            and isinstance(setting.split_prelu, bool)
            and all(type(count) is int and count >= 1 for count in counts)
            and setting.threads * setting.lanes <= cores
        )
        return setting if sane else None

    def write(self, key: dict[str, str | int], setting: Setting) -> None:
        """Store a setting; failing costs only a new measurement next time."""
        path = self.path(key)
        text = json.dumps({"key": key, "setting": asdict(setting)}, indent=1)
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
            handle, name = tempfile.mkstemp(dir=path.parent, suffix=".tmp")
            try:
                with os.fdopen(handle, "w", encoding="utf-8") as stream:
                    stream.write(text)
                Path(name).replace(path)
            except OSError:
                Path(name).unlink(missing_ok=True)
                raise
        except OSError as error:
            log.info("the onnxruntime setting is not cached in %s: %s", path.parent, error)
