"""Bootstrap over identities: pairs that share a person are not independent evidence.

Each replicate draws as many identities as there are, with replacement. A genuine pair weighs the
multiplicity of its identity, an impostor pair the product of the multiplicities of its two (the
pigeonhole bootstrap, Owen 2007). No resampling scheme is exact for crossed effects (McCullagh
2000); this one errs on the wide side: the noise of impostor pairs that share nobody counts three
times in the variance. A statistic takes weights ``(B, N)`` and returns ``(B,)`` values.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import replace
from typing import Literal

import numpy as np
from numpy.typing import ArrayLike
from scipy import special

from onnxfr.errors import MetricError
from onnxfr.metrics._checks import Floats, Ints, fraction, vector
from onnxfr.metrics.intervals import Estimate, wilson
from onnxfr.rng import stream

Statistic = Callable[[Floats], Floats]
Method = Literal["percentile", "bca"]

_CHUNK_BYTES = 32 * 2**20
_MOST_UNDEFINED = 0.1
_ROUNDING = 1e-9


def _identities(first: ArrayLike, second: ArrayLike) -> tuple[Ints, Ints, int]:
    a, b = vector(first, "first"), vector(second, "second")
    if a.size != b.size or a.size == 0:
        raise MetricError(
            f"first and second name the two identities of each pair; got {a.size} and {b.size}"
        )
    names, index = np.unique(np.concatenate([a, b]), return_inverse=True)
    if names.size < 2:
        raise MetricError("a bootstrap over identities needs at least two of them")
    return index[: a.size], index[a.size :], int(names.size)


def _pair_weights(counts: Floats, a: Ints, b: Ints) -> Floats:
    weights: Floats = np.take(counts, a, axis=1)
    two = np.flatnonzero(a != b)
    weights[:, two] *= np.take(counts, b[two], axis=1)
    return weights


def identity_weights(
    first: ArrayLike, second: ArrayLike, *, seed: int, resamples: int
) -> Iterator[Floats]:
    """Yield blocks of pair weights, ``(rows, N)``, ``resamples`` rows in all."""
    a, b, people = _identities(first, second)
    rng = stream(seed, "identity-bootstrap")
    block = max(1, _CHUNK_BYTES // (8 * max(a.size, people)))
    for start in range(0, resamples, block):
        rows = min(block, resamples - start)
        drawn = rng.integers(0, people, (rows, people)) + people * np.arange(rows)[:, None]
        counts = np.bincount(drawn.ravel(), minlength=rows * people).reshape(rows, people)
        yield _pair_weights(counts.astype(np.float64), a, b)


def _jackknife(statistic: Statistic, first: ArrayLike, second: ArrayLike) -> Floats:
    a, b, people = _identities(first, second)
    block = max(1, _CHUNK_BYTES // (8 * max(a.size, people)))
    values = []
    for start in range(0, people, block):
        counts = np.ones((min(block, people - start), people))
        counts[np.arange(counts.shape[0]), start + np.arange(counts.shape[0])] = 0.0
        values.append(statistic(_pair_weights(counts, a, b)))
    return np.concatenate(values)


def _bca_tails(value: float, replicates: Floats, left_out: Floats, level: float) -> list[float]:
    share = (replicates < value).mean() + (replicates == value).mean() / 2
    edge = 0.5 / replicates.size
    bias = special.ndtri(np.clip(share, edge, 1 - edge))
    spread = left_out[np.isfinite(left_out)]
    spread = spread.mean() - spread
    scale = (spread**2).sum() ** 1.5
    acceleration = float((spread**3).sum() / (6 * scale)) if scale > 0 else 0.0
    tails = []
    for probability in ((1 - level) / 2, (1 + level) / 2):
        z = bias + special.ndtri(probability)
        tails.append(float(special.ndtr(bias + z / (1 - acceleration * z))))
    return tails


def bootstrap(
    statistic: Statistic,
    first: ArrayLike,
    second: ArrayLike,
    *,
    seed: int,
    resamples: int = 1000,
    level: float = 0.95,
    method: Method = "percentile",
    drawn: Iterable[Floats] | None = None,
) -> Estimate:
    """Return a statistic of the pairs with its identity-clustered bootstrap interval.

    ``first`` and ``second`` name the people in the two images of each pair. Replicates in which
    the statistic is undefined (NaN) are left out; more than a tenth of them is an error. Infinite
    ones count as what they are, so that an end of the interval may be infinite. ``drawn``
    are the blocks of :func:`identity_weights` for the same arguments, where several statistics of
    the same pairs share them.
    """
    fraction(level, "level")
    if resamples < 2 or method not in ("percentile", "bca"):
        raise MetricError("expected at least 2 resamples and method 'percentile' or 'bca'")
    pairs = vector(first, "first").size
    blocks = drawn or identity_weights(first, second, seed=seed, resamples=resamples)
    replicates = np.concatenate([statistic(weights) for weights in blocks])
    value = float(statistic(np.ones((1, pairs)))[0])
    defined = replicates[~np.isnan(replicates)]
    if defined.size < (1 - _MOST_UNDEFINED) * resamples or not np.isfinite(value):
        raise MetricError(
            f"the statistic is undefined in {resamples - defined.size} of {resamples} resamples: "
            "too few identities of one class"
        )
    tails = [(1 - level) / 2, (1 + level) / 2]
    if method == "bca":
        tails = _bca_tails(value, defined, _jackknife(statistic, first, second), level)
    low, high = outer_quantiles(defined, tails)
    return Estimate(value, low, high, pairs, f"identity-bootstrap-{method}", level)


def rate_of_people(estimate: Estimate, first: ArrayLike, second: ArrayLike) -> Estimate:
    """Return a resampled rate; where no draw differs from it, Wilson's interval of the people.

    A set without a single error has none in any draw either, so that the bootstrap would call the
    rate certain. What is left then is how many people there were to show one.
    """
    if estimate.high - estimate.low > _ROUNDING or estimate.value not in (0.0, 1.0):
        return estimate
    _, _, people = _identities(first, second)
    bounds = wilson(estimate.value * people, people, estimate.level)
    return replace(estimate, low=bounds.low, high=bounds.high, method="wilson-people")


def outer_quantiles(replicates: Floats, tails: Sequence[float]) -> tuple[float, float]:
    """Return the two ends of an interval; between a finite and an infinite value the outer one.

    Replicates that are NaN are left out.
    """
    known = replicates[~np.isnan(replicates)]
    if np.isfinite(known).all():
        low, high = np.quantile(known, tails)
    else:
        low = np.quantile(known, tails[0], method="lower")
        high = np.quantile(known, tails[1], method="higher")
    return float(low), float(high)


def bootstrap_difference(
    statistic_a: Statistic,
    statistic_b: Statistic,
    first: ArrayLike,
    second: ArrayLike,
    *,
    seed: int,
    resamples: int = 1000,
    level: float = 0.95,
    method: Method = "percentile",
) -> Estimate:
    """Return A minus B on the same resampled pairs, so that what they share cancels."""
    return bootstrap(
        lambda weights: statistic_a(weights) - statistic_b(weights),
        first,
        second,
        seed=seed,
        resamples=resamples,
        level=level,
        method=method,
    )
