"""The books of one game: what every row has asked, and its closest win so far."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray

from onnxfr.threat import Threat
from onnxfr.types import Images

Rows = NDArray[np.intp]
Counts = NDArray[np.int64]


class BudgetExhausted(Exception):
    """Every row asked about has used up its cap: a signal that ends an attack, no failure."""


class Improvement(NamedTuple):
    """A row came closer: after how many questions, and how close."""

    row: int
    queries: int
    gradients: int
    distance: float


class Ledger:
    """Counters and best pictures for all rows of a probe."""

    def __init__(self, clean: Images, threat: Threat) -> None:
        self._clean, self._threat = clean, threat
        self.queries: Counts = np.zeros(len(clean), dtype=np.int64)
        self.gradients: Counts = np.zeros(len(clean), dtype=np.int64)
        self.bad_gradients: Counts = np.zeros(len(clean), dtype=np.int64)
        self.refusals: Counts = np.zeros(len(clean), dtype=np.int64)
        self.best: Images = clean.copy()
        self.best_distance: NDArray[np.float64] = np.full(len(clean), np.inf)
        self.trace: list[Improvement] = []

    def charge_queries(self, rows: Rows) -> NDArray[np.bool_]:
        """Charge decisions or scores; return which of them the caps allow."""
        return self._charge(self.queries, rows)

    def charge_gradients(self, rows: Rows) -> NDArray[np.bool_]:
        """Charge gradients; return which of them the caps allow."""
        return self._charge(self.gradients, rows)

    def _charge(self, counter: Counts, rows: Rows) -> NDArray[np.bool_]:
        served = np.ones(len(rows), dtype=np.bool_)
        cap = self._threat.max_queries
        if cap is not None and len(rows):
            served = counter[rows] + _how_often_before(rows) < cap
            if not served.any():
                raise BudgetExhausted
        np.add.at(counter, rows[served], 1)
        return served

    def note_refusals(self, rows: Rows, refused: NDArray[np.bool_]) -> None:
        """Count questions that were charged but got no verdict."""
        np.add.at(self.refusals, rows[refused], 1)

    def clean_gradient(self, rows: Rows, gradient: torch.Tensor) -> torch.Tensor:
        """Return the gradient with rows that hold NaN or infinity set to zero, and count those."""
        size = gradient.reshape(len(gradient), -1).abs().sum(1)
        finite = torch.isfinite(size)
        bad = (~finite | (size == 0)).cpu().numpy()
        np.add.at(self.bad_gradients, rows[bad], 1)
        if bool(finite.all()):
            return gradient
        shape = (-1, *[1] * (gradient.ndim - 1))
        return torch.where(finite.reshape(shape), gradient, torch.zeros_like(gradient))

    def record(self, images: Images, rows: Rows) -> None:
        """Keep winning pictures that lie within the threat and closer than the row's best."""
        threat = self._threat.take(rows)
        if images.shape[1:] != self._clean.shape[1:]:
            return
        clean = self._clean[places(rows)]
        distance = threat.distance(clean, images).astype(np.float64)
        closer = distance < self.best_distance[rows]
        if not closer.any():
            return
        for k in np.flatnonzero(closer & threat.allows(clean, images)):
            row = int(rows[k])
            if distance[k] < self.best_distance[row]:
                self.best[row] = images[k]
                self.best_distance[row] = distance[k]
                asked = int(self.queries[row]), int(self.gradients[row])
                self.trace.append(Improvement(row, *asked, float(distance[k])))


def _how_often_before(rows: Rows) -> Counts:
    """Return for each entry how many earlier entries are equal to it."""
    order = np.argsort(rows, kind="stable")
    ranked = rows[order]
    first = np.concatenate([[True], ranked[1:] != ranked[:-1]])
    starts = np.maximum.accumulate(np.where(first, np.arange(len(rows)), 0))
    before = np.empty(len(rows), dtype=np.int64)
    before[order] = np.arange(len(rows)) - starts
    return before


def places(rows: Rows) -> slice | Rows:
    """Return rows as a slice where they are neighbours in order: a view costs nothing."""
    together = rows[-1] - rows[0] + 1 == len(rows) and bool((np.diff(rows) == 1).all())
    return slice(int(rows[0]), int(rows[-1]) + 1) if together else rows
