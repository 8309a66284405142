"""Verification records as arrays: what summaries, report sections and comparisons compute on."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from onnxfr.errors import MetricError
from onnxfr.metrics.bootstrap import Statistic, bootstrap, identity_weights, rate_of_people
from onnxfr.metrics.intervals import Estimate
from onnxfr.metrics.thresholds import Resolution, Threshold, resolution
from onnxfr.metrics.verification import OperatingPoint, at_fmr

TARGETS = (1e-2, 1e-3, 1e-4)
"""False-match rates that are always quoted, where the data resolve them."""

SEED, RESAMPLES = 0, 1000
"""How people are drawn for intervals."""

_MOST_KEPT = 10_000
_MOST_RESAMPLED = 200_000
"""Pairs beyond which Wilson's interval stands alone: resampling would need gigabytes."""


@dataclass(frozen=True, eq=False)
class Scored:
    """The readable pairs of one model, method and data set, with their scores."""

    model: str
    method: str
    data: str
    pair: NDArray[np.str_]
    scores: NDArray[np.float64]
    same: NDArray[np.bool_]
    rejected: NDArray[np.bool_]
    fold: NDArray[np.int64] | None
    group: NDArray[np.str_] | None
    first: NDArray[np.str_] | None
    second: NDArray[np.str_] | None
    fmr: float
    card_thresholds: tuple[Threshold, ...]
    unreadable: int
    aligned_here: bool
    rows: pa.Table

    @cached_property
    def resampled(self) -> list[NDArray[np.float64]] | None:
        """Weights of people drawn once for every statistic; None where they take much memory."""
        if self.first is None or self.second is None or self.pair.size > _MOST_KEPT:
            return None
        blocks = identity_weights(self.first, self.second, seed=SEED, resamples=RESAMPLES)
        return list(blocks)

    @property
    def label(self) -> str:
        """The data set's name in a form that fits into a threshold's origin."""
        return re.sub(r"[@\s]+", "-", self.data) or "data"

    @property
    def impostors(self) -> int:
        """How many impostor pairs there are, rejected ones included."""
        return int((~self.same).sum())

    @property
    def complete(self) -> bool:
        """Whether both classes have at least one scored pair."""
        scored = ~self.rejected
        return bool((scored & self.same).any() and (scored & ~self.same).any())

    @property
    def targets(self) -> tuple[float, ...]:
        """The quoted false-match rates and the one asked for, loosest first."""
        return tuple(sorted({*TARGETS, self.fmr}, reverse=True))

    def at(self, target: float) -> OperatingPoint:
        """Return the operating point at a target FMR."""
        return at_fmr(self.scores, self.same, target, self.rejected, data=self.label)

    def resolves(self, target: float) -> bool:
        """Tell whether there are impostors enough to speak of this FMR (rule of 3)."""
        return resolution(target, self.impostors) is not Resolution.UNRESOLVED

    def operating_point(self) -> OperatingPoint:
        """Return the point at the FMR asked for, or at the finest one that the data resolve."""
        return self.at(finest_target(self.fmr, self.impostors))

    def take(self, rows: Sequence[int]) -> Scored:
        """Return some of the pairs, in the order asked."""

        def some(values: NDArray[Any] | None) -> Any:
            return None if values is None else values[list(rows)]

        return replace(
            self,
            pair=some(self.pair),
            scores=some(self.scores),
            same=some(self.same),
            rejected=some(self.rejected),
            fold=some(self.fold),
            group=some(self.group),
            first=some(self.first),
            second=some(self.second),
        )


def rate_by_identity(
    scored: Scored, statistic: Callable[[], Statistic], among: NDArray[np.bool_] | None = None
) -> Estimate | None:
    """Return a rate of all pairs, or of those ``among`` them, with the interval of people."""
    if scored.first is None or scored.second is None or scored.pair.size > _MOST_RESAMPLED:
        return None
    try:
        found = bootstrap(
            statistic(),
            scored.first,
            scored.second,
            seed=SEED,
            resamples=RESAMPLES,
            drawn=scored.resampled,
        )
        counted = np.ones(scored.pair.size, dtype=np.bool_) if among is None else among
        found = replace(found, n=int(counted.sum()))
        return rate_of_people(found, scored.first[counted], scored.second[counted])
    except MetricError:
        return None


def finest_target(fmr: float, impostors: int) -> float:
    """Return the FMR asked for, or the finest quoted one that so many impostor pairs resolve."""
    targets = sorted({*TARGETS, fmr})
    fit = [
        target
        for target in targets
        if target >= fmr and resolution(target, impostors) is not Resolution.UNRESOLVED
    ]
    return min(fit, default=max(targets))


def split(records: pa.Table) -> list[Scored]:
    """Return one ``Scored`` per model, method and data set, in order of appearance."""
    names = ("model", "method", "data")
    rows = zip(*(records[name].to_pylist() for name in names), strict=True)
    found = []
    for wanted in dict.fromkeys(rows):
        mask = np.ones(records.num_rows, dtype=np.bool_)
        for name, value in zip(names, wanted, strict=True):
            mask &= np.asarray(pc.equal(records[name], value), dtype=np.bool_)
        found.append(_scored(records.filter(pa.array(mask)), *wanted))
    return found


def _scored(every: pa.Table, model: str, method: str, data: str) -> Scored:
    readable = every.filter(pc.not_equal(every["outcome"], "unreadable"))
    constants = every.slice(0, 1).to_pylist()[0]
    thresholds = tuple(
        Threshold(float(value), str(origin))
        for value, origin in json.loads(constants["card_thresholds"])
    )
    return Scored(
        model=model,
        method=method,
        data=data,
        pair=_texts(readable, "pair"),
        scores=np.asarray(readable["score"].to_numpy(zero_copy_only=False), dtype=np.float64),
        same=_flags(readable, "same"),
        rejected=_flags(readable, "rejected"),
        fold=_optional(readable, "fold"),
        group=_optional(readable, "group"),
        first=_optional(readable, "left_identity"),
        second=_optional(readable, "right_identity"),
        fmr=float(constants["fmr"]),
        card_thresholds=thresholds,
        unreadable=every.num_rows - readable.num_rows,
        aligned_here=bool(constants["aligned_here"]),
        rows=readable,
    )


def _texts(table: pa.Table, name: str) -> NDArray[np.str_]:
    return np.array(table[name].to_pylist(), dtype=np.str_)


def _flags(table: pa.Table, name: str) -> NDArray[np.bool_]:
    return np.asarray(table[name].to_pylist(), dtype=np.bool_)


def _optional(table: pa.Table, name: str) -> NDArray[Any] | None:
    column = table[name]
    if column.null_count or not table.num_rows:
        return None
    return np.array(column.to_pylist())
