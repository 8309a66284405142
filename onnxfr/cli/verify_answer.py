"""What ``onnxfr verify`` answers: one quoted accuracy and all that is needed to read it."""

from __future__ import annotations

from collections.abc import Sequence
from enum import StrEnum
from typing import TYPE_CHECKING, Any

from onnxfr.errors import MetricError
from onnxfr.metrics.thresholds import impostors_needed, rate_label

if TYPE_CHECKING:
    from onnxfr.evaluators.base import Result


class Protocol(StrEnum):
    """How the quoted accuracy gets its threshold."""

    KFOLD10 = "kfold10"
    ORACLE = "oracle"
    FIXED = "fixed"
    FMR = "fmr"


_IN_TURN = (Protocol.KFOLD10, Protocol.FMR, Protocol.ORACLE, Protocol.FIXED)
"""What is quoted where nothing was asked: the first that the pairs can serve. One kind of pairs
alone serves fixed thresholds only."""


def answer_of(
    results: Sequence[Result],
    protocol: Protocol | None,
    *,
    fmr: float,
    threshold: float | None = None,
) -> dict[str, Any]:
    """Return what ``--json`` prints: the quoted accuracy and everything needed to read it."""
    numbers = {(r.metric, r.protocol, r.condition): r for r in results}
    counts = {r.metric: int(r.value or 0) for r in results if r.metric.endswith("_pairs")}
    quoted = _quoted(results, protocol, fmr, threshold)
    spread = numbers.get(("accuracy_std", quoted.protocol, quoted.condition))
    people = numbers.get(("accuracy_by_identity", quoted.protocol, quoted.condition))
    points = [_point(r) for r in results if r.metric == "tar"]
    single = {r.metric: r for r in results if r.metric in ("eer", "auc", "d_prime")}
    return {
        "model": quoted.model,
        "data": quoted.data,
        "flip": quoted.method == "flip",
        "protocol": quoted.protocol,
        "accuracy": quoted.value,
        "std": None if spread is None else spread.value,
        "interval": [quoted.low, quoted.high],
        "interval_by_identity": None if people is None else [people.low, people.high],
        "threshold": quoted.threshold,
        "threshold_origin": quoted.threshold_origin,
        "tar_at_fmr": {point["fmr"]: point["tar"] for point in points},
        "operating_points": points,
        **{name: result.value for name, result in single.items()},
        "pairs": quoted.n,
        "genuine": counts["genuine_pairs"],
        "impostor": counts["impostor_pairs"],
        "rejected": counts["rejected_pairs"],
        "unreadable": counts["unreadable_pairs"],
    }


def _point(tar: Result) -> dict[str, Any]:
    return {
        "fmr": tar.condition.removeprefix("fmr="),
        "tar": tar.value,
        "interval": None if tar.low is None else [tar.low, tar.high],
        "threshold": tar.threshold,
        "resolved": tar.value is not None,
        "n": tar.n,
    }


def _quoted(
    results: Sequence[Result], protocol: Protocol | None, fmr: float, threshold: float | None
) -> Result:
    """Return the accuracy that a protocol means, or say why there is none."""
    found = [r for r in results if r.metric == "accuracy" and r.value is not None]
    if not found:
        raise MetricError(
            "no accuracy can be given: genuine and impostor pairs with a score are needed; "
            "check the data and, if faces were not found, --align; one kind of pairs can be "
            "judged at a threshold of yours: --threshold"
        )
    ways = (protocol,) if protocol else _IN_TURN
    for way in ways:
        chosen = _of(way, found, fmr)
        if way is Protocol.FIXED and threshold is not None:
            chosen = [r for r in chosen if r.threshold == threshold]
        if chosen:
            return chosen[0]
    instead = [way for way in _IN_TURN if _of(way, found, fmr)]
    raise MetricError(_lacking(ways[0], fmr, instead))


def _of(protocol: Protocol, found: Sequence[Result], fmr: float) -> list[Result]:
    """Return the accuracies that were measured under a protocol."""
    if protocol is Protocol.KFOLD10:
        return [r for r in found if r.protocol.startswith("kfold")]
    if protocol is Protocol.FMR:
        wanted = f"fmr={rate_label(fmr)}"
        return [r for r in found if r.protocol == "fmr" and r.condition == wanted]
    return [r for r in found if r.protocol == protocol]


def _lacking(protocol: Protocol, fmr: float, instead: Sequence[Protocol]) -> str:
    """Say what a protocol lacks, and only name those instead that these pairs can serve."""
    use = f"use --protocol {' or '.join(instead)}" if instead else "give a --threshold"
    if protocol is Protocol.KFOLD10:
        return f"these pairs have no folds to cross-validate over; {use}"
    if protocol is Protocol.FIXED:
        return "the model's card has no threshold; give one with --threshold"
    if protocol is Protocol.ORACLE or Protocol.ORACLE not in instead:
        return (
            f"genuine and impostor pairs with a score are needed for --protocol {protocol}; {use}"
        )
    return (
        f"a false-match rate of {fmr:g} needs at least {impostors_needed(fmr)} impostor pairs; "
        f"choose a larger --fmr or more pairs, or {use}"
    )
