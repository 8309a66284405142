"""A line per thing at work with what is being done to it; nothing where nobody watches."""

from __future__ import annotations

import time
from types import TracebackType
from typing import Self

from rich.console import Console
from rich.progress import Progress, SpinnerColumn, TaskID, TextColumn, TimeElapsedColumn

from onnxfr.cli.progress import watched


class Steps:
    """Several things in progress at once, each with the name of its current step."""

    def __init__(self, *, quiet: bool = False) -> None:
        self._progress = Progress(
            SpinnerColumn(),
            TextColumn("{task.description}"),
            TimeElapsedColumn(),
            console=Console(stderr=True),
            disable=quiet or not watched(),
            transient=True,
        )
        self._tasks: dict[str, TaskID] = {}
        self._begun: dict[str, float] = {}

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

    def show(self, name: str, step: str) -> None:
        """Say what is being done to ``name`` now."""
        if name not in self._tasks:
            self._tasks[name] = self._progress.add_task("", total=None)
            self._begun[name] = time.perf_counter()
        self._progress.update(self._tasks[name], description=f"{name}: {step}")

    def done(self, name: str) -> float:
        """Take the line of ``name`` away and return how many seconds it stood."""
        self._progress.remove_task(self._tasks.pop(name))
        return time.perf_counter() - self._begun.pop(name)
