"""Thresholds that remember where they come from, and whether the data could resolve them.

A threshold without its origin is the commonest way to compare two numbers that do not compare:
the same model looks twice as robust at a best-accuracy threshold as at FMR 1e-4. ``value`` is a
cosine (or a vendor's own score) and a pair is accepted when its score is strictly greater.
"""

from __future__ import annotations

import math
import re
from dataclasses import dataclass
from enum import StrEnum

import numpy as np
from numpy.typing import ArrayLike

from onnxfr.errors import MetricError, SpecError
from onnxfr.metrics._checks import Bools, both_classes, floats, fraction, pair_scores

_ORIGIN = re.compile(r"fixed|[^@\s]+@[^@\s]+")


class Resolution(StrEnum):
    """How well a set of impostor pairs can tell a false match rate."""

    UNRESOLVED = "unresolved"
    """Under 3/FMR impostors: even no false match at all would not prove the rate."""
    COARSE = "coarse"
    """Between 3/FMR and 30/FMR: measurable, with an error of more than 30 %."""
    FINE = "fine"
    """At least 30/FMR: within 30 % of the truth with 90 % confidence."""


@dataclass(frozen=True)
class Threshold:
    """A decision threshold on the similarity and the label of its origin.

    ``origin`` is ``fixed`` or ``<data>@<rule>``: ``lfw@10fold``, ``lfw@oracle``, ``lfw@fmr=1e-3``.
    """

    value: float
    origin: str = "fixed"
    target: float | None = None
    resolution: Resolution | None = None

    def __post_init__(self) -> None:
        if not math.isfinite(self.value):
            raise MetricError(f"a threshold must be a finite number, got {self.value}")
        if not _ORIGIN.fullmatch(self.origin):
            raise MetricError(
                f"origin must be 'fixed' or '<data>@<rule>' such as 'lfw@fmr=1e-3', "
                f"got {self.origin!r}"
            )

    @classmethod
    def from_distance(cls, distance: float, origin: str = "fixed") -> Threshold:
        """Return the cosine threshold of a squared-distance one."""
        return cls(distance_to_cosine(distance), origin)

    @classmethod
    def at_rate(cls, value: float, rate: str, target: float, impostors: int) -> Threshold:
        """Return the threshold at a rate, say ``lfw@fmr``, seen on so many impostors.

        Where they are too few, the origin says so: it stands beside every number, and the rate
        alone would claim what nobody has seen.
        """
        found = resolution(target, impostors)
        flag = f"~{found}" if found is Resolution.UNRESOLVED else ""
        return cls(value, f"{rate}={rate_label(target)}{flag}", target, found)

    @property
    def distance(self) -> float:
        """The same threshold on the squared distance of unit embeddings."""
        return cosine_to_distance(self.value)

    def accepts(self, scores: ArrayLike) -> Bools:
        """Return which scores are matches; NaN never is."""
        return floats(scores, "scores") > self.value


def checked_cosine(value: float, said: str = "") -> float:
    """Return a threshold that a user stated, or raise: beyond 1 nobody would ever be accepted.

    Manuals often state a distance instead, which is the likeliest reason for such a number.

    Args:
        value: the number.
        said: the user's own words, where they were more than the number.
    """
    if not -1 <= value <= 1:
        raise SpecError(
            f"a threshold is a cosine, from -1 to 1; got {repr(said) if said else f'{value:g}'}; a "
            "distance d between embeddings of unit length is the cosine 1 - d*d/2"
        )
    return value


def cosine_to_distance(cosine: float) -> float:
    """Squared distance of two unit vectors with this cosine, ``2 - 2c``."""
    return 2.0 - 2.0 * cosine


def distance_to_cosine(distance: float) -> float:
    """Cosine of two unit vectors at this squared distance, ``1 - d/2``."""
    return 1.0 - distance / 2.0


def rate_label(target: float) -> str:
    """Write a rate the way operating points are quoted: ``1e-3``, ``2.5e-4``."""
    mantissa, exponent = f"{target:.6e}".split("e")
    return f"{mantissa.rstrip('0').rstrip('.')}e{int(exponent)}"


def impostors_needed(target: float, rule: int = 3) -> int:
    """Impostor pairs that resolve a false match rate by the rule of 3 (exist) or 30 (measure)."""
    fraction(target, "the target FMR")
    # The quotient of two decimal fractions lands a hair above the integer it should be.
    return math.ceil(rule / target - 1e-6)


def resolution(target: float, impostors: int) -> Resolution:
    """Say whether so many impostor pairs can tell a false match rate of ``target``."""
    if impostors < impostors_needed(target, 3):
        return Resolution.UNRESOLVED
    return Resolution.FINE if impostors >= impostors_needed(target, 30) else Resolution.COARSE


def threshold_at_fmr(
    scores: ArrayLike,
    same: ArrayLike,
    target: float,
    *,
    rejected: ArrayLike | None = None,
    data: str = "data",
) -> Threshold:
    """Return the lowest threshold whose FMR on these impostor pairs does not exceed ``target``.

    Genuine pairs are ignored, so ``same`` may be all false. A target finer than one impostor gives
    the highest impostor score (ZeroFMR), flagged as unresolved. Rejected impostors count as
    non-matches.
    """
    fraction(target, "the target FMR")
    values, genuine, _ = pair_scores(scores, same, rejected)
    impostor = values[~genuine]
    if impostor.size == 0 or not np.isfinite(impostor).any():
        raise MetricError(
            "a threshold at an FMR needs at least one scored impostor pair; measure it on data "
            "that have some, or state the threshold"
        )
    # 1e-9: 0.001 * 3000 must be three false matches, not two.
    allowed = int(target * impostor.size + 1e-9)
    value = float(np.partition(impostor, impostor.size - 1 - allowed)[impostor.size - 1 - allowed])
    if not math.isfinite(value):
        value = float(np.nextafter(values[np.isfinite(values)].min(), -np.inf))
    return Threshold.at_rate(value, f"{data}@fmr", target, impostor.size)


def threshold_at_eer(
    scores: ArrayLike, same: ArrayLike, *, rejected: ArrayLike | None = None, data: str = "data"
) -> Threshold:
    """Return the observed score at which FMR and FNMR are closest."""
    values, genuine, _ = pair_scores(scores, same, rejected)
    both_classes(genuine, "an EER threshold")
    candidates = np.unique(values[np.isfinite(values)])
    if candidates.size == 0:
        raise MetricError("an EER threshold needs at least one scored pair")
    impostor, mated = np.sort(values[~genuine]), np.sort(values[genuine])
    fmr = 1.0 - np.searchsorted(impostor, candidates, "right") / impostor.size
    fnmr = np.searchsorted(mated, candidates, "right") / mated.size
    return Threshold(float(candidates[np.argmin(np.abs(fmr - fnmr))]), f"{data}@eer")
