"""Concurrent requests share one call of the model: whatever waits when it is free goes in."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable, Sequence
from concurrent.futures import Executor

from onnxfr.errors import OnnxfrError
from onnxfr.types import Embeddings, Pixels

Waiting = tuple[Sequence[Pixels], "asyncio.Future[Embeddings]"]
"""One request's crops and where their embeddings go."""


class Overloaded(OnnxfrError):
    """More requests wait than the service is ready to hold."""


class MicroBatcher:
    """Collects crops while the model is busy and embeds them together.

    There is no waiting time to tune: an idle model starts at once, a busy one finds a batch ready.
    """

    def __init__(
        self,
        embed: Callable[[Sequence[Pixels]], Embeddings],
        executor: Executor,
        *,
        max_batch: int = 64,
        max_waiting: int = 1024,
    ) -> None:
        self._embed, self._executor = embed, executor
        self._max_batch, self._max_waiting = max_batch, max_waiting
        self._waiting: deque[Waiting] = deque()
        self._worker: asyncio.Task[None] | None = None
        self.largest = 0

    async def embed(self, crops: Sequence[Pixels]) -> Embeddings:
        """Return the embeddings of one request's crops."""
        if len(self._waiting) >= self._max_waiting:
            raise Overloaded(f"{self._max_waiting} requests are waiting already; try again later")
        answer: asyncio.Future[Embeddings] = asyncio.get_running_loop().create_future()
        self._waiting.append((crops, answer))
        if self._worker is None or self._worker.done():
            self._worker = asyncio.create_task(self._work())
        return await answer

    async def _work(self) -> None:
        loop = asyncio.get_running_loop()
        while self._waiting:
            taken = self._take()
            crops = [crop for each, _ in taken for crop in each]
            self.largest = max(self.largest, len(crops))
            try:
                found = await loop.run_in_executor(self._executor, self._embed, crops)
            except Exception as error:
                for _, answer in taken:
                    if not answer.done():
                        answer.set_exception(error)
                continue
            start = 0
            for each, answer in taken:
                # A client that left has cancelled its future.
                if not answer.done():
                    answer.set_result(found[start : start + len(each)])
                start += len(each)

    def _take(self) -> list[Waiting]:
        taken: list[Waiting] = []
        crops = 0
        while self._waiting and (not taken or crops + len(self._waiting[0][0]) <= self._max_batch):
            taken.append(self._waiting.popleft())
            crops += len(taken[-1][0])
        return taken
