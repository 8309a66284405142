"""Many pairs at once: each pair's attack is a generator that asks, one driver answers them all.

A *walk* yields the pictures it wants answered and is sent the answers, so an attack reads as if its
pair were alone. The driver cuts the questions of all walks into batches of the oracle's full size
and goes on with whichever walk has its answers: no walk waits for a slower one, pictures are only
made when there is room for them in the next batch, and a pair's walk begins when those before it
cannot fill a batch. Caps are kept here: a walk that wants more than its pair has left is asked what
is left, and ends. A walk may use the array it asked about again once it has the answers.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Generator
from dataclasses import dataclass, field
from typing import Any, TypeVar

import numpy as np
from numpy.typing import NDArray

from onnxfr.oracle import Oracle
from onnxfr.threat import Threat
from onnxfr.types import Images

Picture = NDArray[np.float32]
"""One picture or direction, ``(3, H, W)``."""
Answers = NDArray[Any]
"""One answer per picture asked: bools for decisions, margins for scores."""
Result = TypeVar("Result")
Walk = Generator[Images, Answers, Result]
Ask = Callable[[Images, NDArray[np.intp]], Answers]

CHUNK = 16
"""Most pictures a walk should make at once; a population is asked in pieces of this size."""


@dataclass
class _Turn:
    """One live walk: what it wants answered and what it has been told so far."""

    row: int
    walk: Walk[Picture | None]
    answers: Answers | None = None
    pictures: Images = field(default_factory=lambda: np.zeros((0, 3, 1, 1), np.float32))
    told: list[Answers] = field(default_factory=list)
    asked: int = 0
    last: bool = False


def questions_left(oracle: Oracle, threat: Threat) -> NDArray[np.int64]:
    """Return how many more decisions and scores each row may ask; a huge number without a cap."""
    if threat.max_queries is None:
        return np.full(len(oracle), np.iinfo(np.int64).max)
    return np.maximum(threat.max_queries - oracle.queries, 0)


def drive(
    oracle: Oracle, ask: Ask, threat: Threat, walk_of: Callable[[int], Walk[Picture | None]]
) -> list[Picture | None]:
    """Run the walk of every row to its end; return what each returned, None where a cap ended it.

    Args:
        oracle: whose rows are played.
        ask: ``oracle.decide`` or ``oracle.score``.
        threat: its cap counts.
        walk_of: makes the walk of a row; called when the row's turn comes, so that at most a batch
            of rows holds any state at a time.
    """
    ends: list[Picture | None] = [None] * len(oracle)
    left = questions_left(oracle, threat)
    size = oracle.batch_size
    unborn = deque(range(len(oracle)))
    ready: deque[_Turn] = deque()
    asking: deque[_Turn] = deque()
    pending, desk = 0, _Desk(ask, size)
    oracle.mark_ended(np.arange(len(oracle)), False)
    while unborn or ready or asking:
        while (ready or unborn) and pending < size:
            if not ready:
                row = unborn.popleft()
                ready.append(_Turn(row, walk_of(row)))
            turn = ready.popleft()
            if _advance(turn, ends, left):
                asking.append(turn)
                pending += len(turn.pictures)
            else:
                oracle.mark_ended(turn.row)
        if asking:
            pending -= desk.answer(asking, ready)
    return ends


def _advance(turn: _Turn, ends: list[Picture | None], left: NDArray[np.int64]) -> bool:
    """Let a walk go on to its next question; return whether it has one it may ask."""
    if turn.last:
        turn.walk.close()
        return False
    try:
        wanted = next(turn.walk) if turn.answers is None else turn.walk.send(turn.answers)
    except StopIteration as end:
        ends[turn.row] = end.value
        return False
    assert len(wanted), "a walk asked about no picture"
    turn.pictures = wanted[: left[turn.row]]
    turn.last = len(turn.pictures) < len(wanted)
    left[turn.row] -= len(turn.pictures)
    turn.told, turn.asked = [], 0
    if not len(turn.pictures):
        turn.walk.close()
        return False
    return True


class _Desk:
    """Where batches are put together, in memory that is used again: fresh pages are slow."""

    def __init__(self, ask: Ask, size: int) -> None:
        self._ask, self._size = ask, size
        self._batch: Images | None = None

    def answer(self, asking: deque[_Turn], ready: deque[_Turn]) -> int:
        """Ask one batch of the waiting questions; return how many pictures it held."""
        parts: list[tuple[_Turn, Images]] = []
        room = self._size
        for turn in asking:
            part = turn.pictures[turn.asked : turn.asked + room]
            parts.append((turn, part))
            room -= len(part)
            if not room:
                break
        rows = np.repeat([turn.row for turn, _ in parts], [len(part) for _, part in parts])
        answers = self._ask(self._joined([part for _, part in parts]), rows)
        start = 0
        for turn, part in parts:
            turn.told.append(answers[start : start + len(part)])
            turn.asked += len(part)
            start += len(part)
            if turn.asked == len(turn.pictures):
                turn.answers = np.concatenate(turn.told)
                asking.popleft()
                ready.append(turn)
        return start

    def _joined(self, parts: list[Images]) -> Images:
        if len(parts) == 1:
            return parts[0]
        if self._batch is None:
            self._batch = np.empty((self._size, *parts[0].shape[1:]), np.float32)
        return np.concatenate(parts, out=self._batch[: sum(map(len, parts))])
