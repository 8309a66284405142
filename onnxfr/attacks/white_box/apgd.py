"""APGD: projected ascent that chooses its step size itself (Croce and Hein 2020).

Steps and momentum of the library version. In verification the cosine and the margin differ by a
constant and a sign, so the two losses climb alike; they part where the margin is positive:
``cosine`` climbs on, which transfers better, ``margin`` is flat there, so its rows stop.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar, Literal

import numpy as np
import torch
from numpy.typing import NDArray

from onnxfr.attacks._iterative import random_point
from onnxfr.attacks.base import Attack, register
from onnxfr.oracle import Oracle
from onnxfr.probe import Probe, to_array
from onnxfr.rng import RowRng
from onnxfr.threat import Threat
from onnxfr.types import Images

_SUCCESSES = 0.75
_OLD_STEP, _NEW_STEP = 0.25, 0.75


def checkpoints(steps: int) -> list[int]:
    """Return the steps after which the step size is reconsidered."""
    window, least = max(int(0.22 * steps), 1), max(int(0.06 * steps), 1)
    shrink, found, at = max(int(0.03 * steps), 1), [], 0
    while at + window < steps:
        at += window
        found.append(at)
        window = max(window - shrink, least)
    return found


@register("apgd")
@dataclass(frozen=True)
class APGD(Attack):
    """Auto-PGD; ``loss`` decides whether a row goes on after its first win.

    Args:
        steps: gradient steps per run.
        restarts: runs per row; rows that have won are not run again.
        loss: ``cosine`` or ``margin``.
        random_start: begin at a random point of the ball.
        stop_on_win: let rows leave at their first win also with ``cosine``.
    """

    steps: int = 100
    restarts: int = 1
    loss: Literal["cosine", "margin"] = "cosine"
    random_start: bool = True
    stop_on_win: bool = False

    paper: ClassVar[str] = "Croce and Hein, ICML 2020 (arXiv:2003.01690)"

    def run(self, oracle: Oracle, probe: Probe, threat: Threat, rng: RowRng) -> Images:
        """Climb, again for the rows that have not won."""
        images = probe.images.copy()
        rows = np.arange(len(probe))
        for _ in range(self.restarts):
            some = oracle.part(rows), probe.take(rows), threat.take(rows), rng.take(rows)
            images[rows] = to_array(self._climb(*some))
            rows = np.flatnonzero(~np.isfinite(oracle.best_distance))
            if not rows.size:
                break
        return images

    def _climb(self, oracle: Oracle, probe: Probe, threat: Threat, rng: RowRng) -> torch.Tensor:
        clean = oracle.tensor(probe.images)
        result = clean.clone()
        start = random_point(clean, threat, rng) if self.random_start else clean
        climb = _Climb(oracle, threat, clean, start, self.steps)
        rows = np.arange(len(clean))
        stops = self.stop_on_win or self.loss == "margin"
        for turn in range(self.steps):
            climb.step(turn)
            done = climb.best_loss > 0
            if stops and bool(done.any()):
                finished = done.cpu().numpy()
                result[torch.as_tensor(rows[finished])] = climb.best[done]
                climb, rows = climb.take(np.flatnonzero(~finished)), rows[~finished]
                if not rows.size:
                    return result
        result[torch.as_tensor(rows)] = climb.best
        return result


class _Climb:
    """The rows still climbing: where they are, what they remember, how far they step."""

    _PER_ROW = ("clean", "x", "before", "best", "best_slope", "slope", "best_loss", "size")
    _COUNTS = ("loss", "rises", "noted_loss", "noted_halving")

    def __init__(
        self, oracle: Oracle, threat: Threat, clean: torch.Tensor, x: torch.Tensor, steps: int
    ) -> None:
        self.oracle, self.threat, self.clean = oracle, threat, clean
        self.x, self.before, self.best = x, x.clone(), x.clone()
        self.loss, self.slope = oracle.gradient(x, turn=0)
        self.best_loss, self.best_slope = self.loss.clone(), self.slope.clone()
        self.size = 2 * threat.radius(x)
        self.rises = torch.zeros_like(self.loss)
        self.noted_loss = self.best_loss.clone()
        self.noted_halving = torch.ones_like(self.loss, dtype=torch.bool)
        self.pauses, self.paused_at = set(checkpoints(steps)), 0

    def take(self, rows: NDArray[np.intp]) -> _Climb:
        """Keep some rows."""
        where = torch.as_tensor(rows)
        for field in (*self._PER_ROW, *self._COUNTS):
            setattr(self, field, getattr(self, field)[where])
        self.oracle, self.threat = self.oracle.part(rows), self.threat.take(rows)
        return self

    def step(self, turn: int) -> None:
        """Move, look, and at a checkpoint reconsider the step size."""
        project = self.threat.project
        aim = project(self.clean, self.x + self.size * self.threat.steepest(self.slope))
        if turn:
            inertia = _NEW_STEP * (aim - self.x) + _OLD_STEP * (self.x - self.before)
            aim = project(self.clean, self.x + inertia)
        self.before, self.x = self.x, aim
        loss, self.slope = self.oracle.gradient(aim, turn=turn + 1)
        self.rises += loss > self.loss
        self.loss = loss
        better = loss > self.best_loss
        wide = better.reshape(-1, 1, 1, 1)
        self.best = torch.where(wide, aim, self.best)
        self.best_slope = torch.where(wide, self.slope, self.best_slope)
        self.best_loss = torch.where(better, loss, self.best_loss)
        if turn + 1 in self.pauses:
            self._reconsider(turn + 1)

    def _reconsider(self, turn: int) -> None:
        few_rises = self.rises < _SUCCESSES * (turn - self.paused_at)
        stuck = ~self.noted_halving & (self.best_loss <= self.noted_loss)
        halve = few_rises | stuck
        wide = halve.reshape(-1, 1, 1, 1)
        self.size = torch.where(wide, self.size / 2, self.size)
        self.x = torch.where(wide, self.best, self.x)
        self.slope = torch.where(wide, self.best_slope, self.slope)
        self.loss = torch.where(halve, self.best_loss, self.loss)
        self.noted_halving, self.noted_loss = halve, self.best_loss.clone()
        self.rises, self.paused_at = torch.zeros_like(self.rises), turn
