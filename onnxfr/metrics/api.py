"""Rates of a verifier that may refuse to answer (OODFace's commercial-API metrics)."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike

from onnxfr.errors import MetricError
from onnxfr.metrics._checks import flags
from onnxfr.metrics.intervals import Estimate, rate


@dataclass(frozen=True)
class ApiRates:
    """Rejection rate, accuracy over answered pairs (ASA) and over all pairs (AA)."""

    rr: Estimate
    asa: Estimate
    aa: Estimate


def api_rates(correct: ArrayLike, rejected: ArrayLike, level: float = 0.95) -> ApiRates:
    """Return RR, ASA and AA; a rejected pair is never correct, and AA = ASA * (1 - RR).

    When everything is rejected ASA is NaN with the interval [0, 1].
    """
    refused = flags(rejected, "rejected")
    right = flags(correct, "correct", refused.size)
    if refused.size == 0:
        raise MetricError("no pairs: at least one request is needed")
    answered = ~refused
    return ApiRates(
        rr=rate(refused, level),
        asa=rate(right[answered], level),
        aa=rate(right & answered, level),
    )


def overall_accuracy(asa: float, rr: float) -> float:
    """Return AA from printed ASA and RR (fractions): the identity that finds misprints."""
    if not (0.0 <= asa <= 1.0 and 0.0 <= rr <= 1.0) or np.isnan(asa + rr):
        raise MetricError(f"ASA and RR must lie in [0, 1], got {asa} and {rr}")
    return asa * (1.0 - rr)
