"""A quoted number with its uncertainty, and the binomial intervals that most of them carry.

Wilson (1927) is the default because it behaves at 0 and 1 where verification rates live;
Clopper-Pearson (1934) is there for those who must never be under the nominal level.
"""

from __future__ import annotations

from dataclasses import asdict, dataclass

import numpy as np
from numpy.typing import ArrayLike
from scipy import special

from onnxfr.errors import MetricError
from onnxfr.metrics._checks import flags, fraction


@dataclass(frozen=True)
class Estimate:
    """A value, the interval around it, and how many observations stand behind it.

    ``n == 0`` gives ``value`` NaN and the interval of total ignorance, [0, 1] for a rate.
    """

    value: float
    low: float
    high: float
    n: int
    method: str
    level: float = 0.95

    def __str__(self) -> str:
        return f"{self.value:.4f} [{self.low:.4f}, {self.high:.4f}] (n={self.n})"

    def complement(self) -> Estimate:
        """Return the estimate of one minus this rate."""
        return Estimate(
            1.0 - self.value, 1.0 - self.high, 1.0 - self.low, self.n, self.method, self.level
        )

    def as_dict(self) -> dict[str, float | int | str]:
        """Return plain fields for JSON."""
        return asdict(self)


def _check_count(successes: float, n: int, level: float) -> None:
    fraction(level, "level")
    if n < 0 or not 0 <= successes <= n:
        raise MetricError(f"expected 0 <= successes <= n, got {successes} of {n}")


def wilson(successes: float, n: int, level: float = 0.95) -> Estimate:
    """Wilson score interval; ``successes`` may be fractional (a mean over folds times n)."""
    _check_count(successes, n, level)
    if n == 0:
        return Estimate(float("nan"), 0.0, 1.0, 0, "wilson", level)
    z = float(special.ndtri(0.5 + level / 2))
    p = successes / n
    centre = p + z * z / (2 * n)
    spread = z * float(np.sqrt(p * (1 - p) / n + z * z / (4 * n * n)))
    scale = 1 + z * z / n
    low = 0.0 if p == 0.0 else max(0.0, (centre - spread) / scale)
    high = 1.0 if p == 1.0 else min(1.0, (centre + spread) / scale)
    return Estimate(p, low, high, n, "wilson", level)


def clopper_pearson(successes: int, n: int, level: float = 0.95) -> Estimate:
    """Exact (conservative) binomial interval from the beta quantiles."""
    _check_count(successes, n, level)
    if n == 0:
        return Estimate(float("nan"), 0.0, 1.0, 0, "clopper-pearson", level)
    tail = (1 - level) / 2
    low = float(special.betaincinv(successes, n - successes + 1, tail)) if successes else 0.0
    high = 1.0
    if successes < n:
        high = float(special.betaincinv(successes + 1, n - successes, 1 - tail))
    return Estimate(successes / n, low, high, n, "clopper-pearson", level)


def rate(hits: ArrayLike, level: float = 0.95) -> Estimate:
    """Return the share of true elements with its Wilson interval."""
    array = flags(hits, "hits")
    return wilson(int(array.sum()), array.size, level)


def rule_of_three(n: int) -> float:
    """Return the 95 % upper bound 3/n of a rate of which n trials showed not one case."""
    if n < 1:
        raise MetricError(f"the rule of three needs at least one trial, got {n}")
    return min(1.0, 3.0 / n)
