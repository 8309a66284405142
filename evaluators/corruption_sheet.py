"""One model's decisions under every condition, and how they turn into results with intervals."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import numpy as np

from onnxfr.evaluators.base import Result
from onnxfr.evaluators.corruption_table import Degraded, Floats, Judged, resampled
from onnxfr.metrics.bootstrap import outer_quantiles, rate_of_people
from onnxfr.metrics.intervals import Estimate
from onnxfr.metrics.thresholds import Threshold


@dataclass(frozen=True, eq=False)
class Sheet:
    """One model's judged table with its resampled accuracies."""

    degraded: Degraded
    judged: Judged
    replicates: Floats

    @classmethod
    def make(cls, degraded: Degraded, judged: Judged) -> Sheet:
        """Resample people once for all conditions."""
        return cls(degraded, judged, resampled(degraded, judged.correct))

    @property
    def accuracy(self) -> Floats:
        """The share of correct pairs: clean first, then each condition."""
        means: Floats = self.judged.correct.mean(axis=1)
        return means

    @cached_property
    def balanced(self) -> tuple[Floats, Floats]:
        """Mean accuracy of genuine and of impostor pairs, and its resamples.

        Who gives one answer to all has one half of it, however many pairs of each kind there are.
        """
        correct, same = self.judged.correct, self.degraded.clean.same
        means = [correct[:, kind].mean(axis=1) for kind in (same, ~same)]
        draws = [resampled(self.degraded, correct, kind) for kind in (same, ~same)]
        return (means[0] + means[1]) / 2, (draws[0] + draws[1]) / 2

    @property
    def label(self) -> str:
        """What stands for all conditions together in the column ``method``."""
        return f"{self.degraded.preset}/{self.degraded.apply_to}"

    def estimate(self, value: float, draws: Floats) -> Estimate:
        """Return a value with the interval of its resamples."""
        low, high = outer_quantiles(draws, (0.025, 0.975))
        n = self.degraded.clean.pair.size
        # A percentile interval need not hold its own value when errors are few.
        low, high = min(low, value), max(high, value)
        return Estimate(value, low, high, n, "identity-bootstrap-percentile")

    def share(self, value: float, draws: Floats) -> Estimate:
        """Return a rate, or a mean of rates, with the interval of its resamples."""
        return rate_of_people(self.estimate(value, draws), *self.degraded.people)

    def result(
        self,
        metric: str,
        estimate: Estimate | float | None,
        *,
        method: str = "",
        condition: str = "",
        threshold: Threshold | None = None,
        n: int = 0,
    ) -> Result:
        """Return one tidy result of this model; without a method it speaks of all conditions."""
        value = low = high = None
        if isinstance(estimate, Estimate):
            value, low, high, n = estimate.value, estimate.low, estimate.high, estimate.n
        elif estimate is not None:
            value = float(estimate)
        value, low, high = (
            None if each is None or not np.isfinite(each) else each for each in (value, low, high)
        )
        return Result(
            evaluator="corruption",
            model=self.degraded.clean.model,
            method=method or self.label,
            data=self.degraded.clean.data,
            metric=metric,
            value=value,
            low=None if value is None else low,
            high=None if value is None else high,
            n=n,
            condition=condition,
            protocol=self.judged.protocol,
            threshold=None if threshold is None else threshold.value,
            threshold_origin="" if threshold is None else threshold.origin,
        )
