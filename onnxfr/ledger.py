"""The books of one game: what every row has asked, and its closest win so far."""

from __future__ import annotations

import copy
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray

from onnxfr.threat import Threat
from onnxfr.types import Images

Rows = NDArray[np.intp]
Counts = NDArray[np.int64]

_ROUGH = 1.001
"""More than a float32 sum of squares of a picture can be wrong by."""


class BudgetExhausted(Exception):
    """Every row asked about has used up its cap: a signal that ends an attack, no failure."""


class Improvement(NamedTuple):
    """A row came closer: after how many questions, and how close."""

    row: int
    queries: int
    gradients: int
    distance: float


class Starts:
    """Gradients at the pictures from which every attempt of a search starts: computed once.

    One search's own: the pictures, the model and what is asked of it must stay the same.
    """

    def __init__(self) -> None:
        self._known: dict[int, tuple[torch.Tensor, torch.Tensor]] = {}

    def gradients(
        self, rows: Rows, compute: Callable[[Rows], tuple[torch.Tensor, torch.Tensor]]
    ) -> tuple[torch.Tensor, torch.Tensor]:
        """Return margins and gradients of some rows; ``compute`` is asked for the new ones."""
        new = np.flatnonzero([int(row) not in self._known for row in rows])
        if new.size:
            for k, margin, slope in zip(new, *compute(new), strict=True):
                self._known[int(rows[k])] = margin, slope
        margins, slopes = zip(*(self._known[int(row)] for row in rows), strict=True)
        return torch.stack(margins), torch.stack(slopes)


class Ledger:
    """Counters and best pictures for all rows of a probe."""

    def __init__(self, clean: Images, threat: Threat) -> None:
        self._clean, self.rules = clean, threat
        self._above: Ledger | None = None
        self.queries: Counts = np.zeros(len(clean), dtype=np.int64)
        self.gradients: Counts = np.zeros(len(clean), dtype=np.int64)
        self.bad_gradients: Counts = np.zeros(len(clean), dtype=np.int64)
        self.refusals: Counts = np.zeros(len(clean), dtype=np.int64)
        self.unasked: Counts = np.zeros(len(clean), dtype=np.int64)
        self.ended: NDArray[np.bool_] = np.zeros(len(clean), dtype=np.bool_)
        self.best: Images = clean.copy()
        self.best_distance: NDArray[np.float64] = np.full(len(clean), np.inf)
        self.trace: list[Improvement] = []

    def fork(self, rows: Rows, rules: Threat, *, reports: bool) -> Ledger:
        """Return books in which no row has won yet, for one attempt of some rows by other rules.

        Questions are charged in these books, too; wins are noted here as well if ``reports``.
        """
        attempt, eps = copy.copy(self), rules.eps
        if isinstance(eps, np.ndarray) and eps.ndim:
            budgets = np.zeros(len(self._clean))
            budgets[rows] = eps
            eps = budgets
        attempt.rules = replace(self.rules, eps=eps)
        attempt.best, attempt.trace = self._clean.copy(), []
        attempt.best_distance = np.full(len(self._clean), np.inf)
        attempt._above = self if reports else None
        return attempt

    def charge_queries(self, rows: Rows) -> tuple[Rows, Counts]:
        """Charge decisions or scores; return which the caps allow, and each one's number."""
        numbers = self.queries[rows] + _how_often_before(rows) + 1
        return np.flatnonzero(self._charge(self.queries, rows)), numbers

    def charge_gradients(self, rows: Rows) -> NDArray[np.bool_]:
        """Charge gradients; return which of them the caps allow."""
        return self._charge(self.gradients, rows)

    def _charge(self, counter: Counts, rows: Rows) -> NDArray[np.bool_]:
        served = np.ones(len(rows), dtype=np.bool_)
        cap = self.rules.max_queries
        if cap is not None and len(rows):
            served = counter[rows] + _how_often_before(rows) < cap
            if not served.any():
                raise BudgetExhausted
        np.add.at(counter, rows[served], 1)
        return served

    def settle(self, rows: Rows, refused: NDArray[np.bool_], unasked: NDArray[np.bool_]) -> None:
        """Count charged questions without a verdict; uncharge those nobody could be asked."""
        np.add.at(self.refusals, rows[refused], 1)
        np.subtract.at(self.queries, rows[unasked], 1)
        np.add.at(self.unasked, rows[unasked], 1)
        if len(rows) and bool(unasked.all()):
            raise BudgetExhausted

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

    def record(
        self,
        images: Sequence[NDArray[np.float32]],
        rows: Rows,
        numbers: Counts | None = None,
    ) -> None:
        """Keep winning pictures that lie within the threat and closer than the row's best.

        Args:
            images: pictures that won.
            rows: their games.
            numbers: of the questions that showed it; the last ones if left out.
        """
        if not len(images) or images[0].shape != self._clean.shape[1:]:
            return
        if self._above is not None:
            self._above.record(images, rows, numbers)
        closer = [k for k, row in enumerate(rows) if self._may_be_closer(images[k], int(row))]
        if not closer:
            return
        numbers = (self.queries[rows] if numbers is None else numbers)[closer]
        kept, rows = np.stack([images[k] for k in closer]), rows[closer]
        threat = self.rules.take(rows)
        distance = threat.distance(self._clean[rows], kept).astype(np.float64)
        allowed = threat.allows(self._clean[rows], kept)
        for k in np.flatnonzero((distance < self.best_distance[rows]) & allowed):
            row = int(rows[k])
            if distance[k] < self.best_distance[row]:
                self.best[row] = kept[k]
                self.best_distance[row] = distance[k]
                asked = int(numbers[k]), int(self.gradients[row])
                self.trace.append(Improvement(row, *asked, float(distance[k])))

    def _may_be_closer(self, image: NDArray[np.float32], row: int) -> bool:
        """Tell by a quick float32 sum whether the exact distance is worth its price."""
        best = self.best_distance[row]
        if not np.isfinite(best):
            return True
        change = image - self._clean[row]
        if self.rules.norm == "linf":
            return bool(max(change.max(), -change.min()) < best)
        return bool(np.vdot(change, change) < best**2 * change.size * _ROUGH)


class Standing:
    """What the books say about some rows: the part of a window on a game that asks nobody."""

    _ledger: Ledger
    _rows: Rows

    def __len__(self) -> int:
        return len(self._rows)

    @property
    def rules(self) -> Threat:
        """The rules that a picture keeps which counts as a win; attacks may be given narrower ones.

        Pictures that will be rounded, say: they are played within less and judged as files.
        """
        return self._ledger.rules.take(self._rows)

    def mark_ended(self, rows: Rows | int, ended: bool = True) -> None:
        """Note that an attack has nothing more to ask about some rows, or begins to ask."""
        self._ledger.ended[self._rows[rows]] = ended

    @property
    def queries(self) -> NDArray[np.int64]:
        """Decisions and scores charged to each row."""
        return self._ledger.queries[self._rows]

    @property
    def gradients(self) -> NDArray[np.int64]:
        """Gradients charged to each row."""
        return self._ledger.gradients[self._rows]

    @property
    def best(self) -> Images:
        """The closest win of each row; the clean picture where there is none."""
        return self._ledger.best[self._rows]

    @property
    def best_distance(self) -> NDArray[np.float64]:
        """The distance of each row's closest win; infinite where there is none."""
        return self._ledger.best_distance[self._rows]

    @property
    def bad_gradients(self) -> NDArray[np.int64]:
        """How many gradients of each row were zero everywhere or not finite."""
        return self._ledger.bad_gradients[self._rows]

    @property
    def refusals(self) -> NDArray[np.int64]:
        """How many questions of each row were charged but got no verdict."""
        return self._ledger.refusals[self._rows]

    @property
    def cut_short(self) -> NDArray[np.bool_]:
        """Which rows lack an answer for want of calls, or an end: more calls could change them."""
        return (self._ledger.unasked[self._rows] > 0) | ~self._ledger.ended[self._rows]

    @property
    def trace(self) -> list[Improvement]:
        """Every improvement of ``best`` in the order it came, rows as in this oracle."""
        place = {int(row): k for k, row in enumerate(self._rows)}
        found = self._ledger.trace
        return [entry._replace(row=place[entry.row]) for entry in found if entry.row in place]


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
