"""Two runs side by side: what changed, by how much, and whether chance could explain it.

Where both runs judged the same pairs the difference is paired: people are resampled once for both
models, and McNemar's test looks at the pairs only one of them gets right. Everything else is
compared by Newcombe's interval, which treats the runs as independent and so errs on the wide side.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import Any

from onnxfr.errors import SpecError
from onnxfr.evaluators.base import Result
from onnxfr.evaluators.report.page import Content
from onnxfr.evaluators.report.paired import Difference, PairedComparison, compare_pairs
from onnxfr.evaluators.scored import Scored, split

_PAIRED = "verification"
"""The evaluator whose records are compared pair by pair."""

_NO_QUESTION = ("examples", "strict")
"""Settings that decide what is shown or refused, and no number."""


def asked_differently(a: Content, b: Content) -> list[str]:
    """Say which settings differ: a difference of numbers may then be theirs, not the models'."""
    told = [
        _differs(name, a.manifest[name], b.manifest[name])
        for name in ("protocol", "fmr", "seed")
        if a.manifest[name] != b.manifest[name]
    ]
    told.extend(_other_pairs(a, b))
    ours, theirs = (
        {entry["name"]: entry["params"] for entry in run.manifest["evaluators"]} for run in (a, b)
    )
    for evaluator in (name for name in ours if name in theirs):
        one, other = ours[evaluator], theirs[evaluator]
        told.extend(
            _differs(f"{name} of {evaluator}", one[name], other[name])
            for name in one
            if name in other and name not in _NO_QUESTION and one[name] != other[name]
        )
    return told


def _other_pairs(a: Content, b: Content) -> Iterator[str]:
    """Tell of data sets of one name that do not hold the same pairs: thresholds move with them."""
    theirs = {entry["name"]: entry for entry in b.manifest["data"]}
    for ours in a.manifest["data"]:
        other = theirs.get(ours["name"])
        if other is not None and other["fingerprint"] != ours["fingerprint"]:
            drawn = [f"{e['pairs']} drawn with seed {e['seed']}" for e in (ours, other)]
            yield f"the pairs of {ours['name']} are others: {drawn[0]} in A, {drawn[1]} in B"


def compare_paired(a: Content, b: Content) -> list[PairedComparison]:
    """Compare the verification records of two runs, model by model, on their shared pairs."""
    if _PAIRED not in a.views or _PAIRED not in b.views:
        return []
    names = match_models(a, b)
    ours, theirs = split(a.views[_PAIRED].records), split(b.views[_PAIRED].records)
    found = []
    for left in ours:
        for right in theirs:
            if names.get(left.model) == right.model and left.data == right.data:
                shared, other = _share(left, right)
                if shared is not None and other is not None:
                    found.append(compare_pairs(shared, other))
    return found


def compare_results(a: Content, b: Content) -> list[tuple[Result, Result, Difference]]:
    """Compare every tidy result that both runs could measure."""
    found = []
    for result, other in _matched(a, b):
        if result.value is None or other.value is None:
            continue
        low, high = _newcombe(result, other)
        difference = Difference(
            result.metric,
            result.condition,
            result.protocol,
            result.value,
            other.value,
            other.value - result.value,
            low,
            high,
            "newcombe" if low is not None else "",
        )
        found.append((result, other, difference))
    return found


def unresolved(a: Content, b: Content) -> list[Result]:
    """Return what both runs list but not both could measure: differences without a value."""
    return [
        replace(other, value=None, low=None, high=None)
        for result, other in _matched(a, b)
        if result.value is None or other.value is None
    ]


def as_results(
    pairs: Sequence[tuple[Result, Result, Difference]], paired: Sequence[PairedComparison]
) -> list[Result]:
    """Return the differences as results, paired ones where there are any."""
    better = {
        (_PAIRED, each.model_b, each.data, d.metric, d.condition, _way(d.protocol)): d
        for each in paired
        for d in each.differences
    }
    found = []
    for _, b, plain in pairs:
        key = (b.evaluator, b.model, b.data, b.metric, b.condition, _way(b.protocol))
        best = better.get(key, plain)
        found.append(replace(b, value=best.difference, low=best.low, high=best.high))
    return found


def _matched(a: Content, b: Content) -> Iterator[tuple[Result, Result]]:
    """Yield every result of A with the one of B that answers the same question."""
    names = match_models(a, b)
    theirs = {_key(result, result.model): result for result in b.results()}
    for result in a.results():
        other = theirs.get(_key(result, names.get(result.model, "")))
        if other is not None:
            yield result, other


def _differs(name: str, ours: Any, theirs: Any) -> str:
    words = [
        ", ".join(map(str, value)) if isinstance(value, list) else str(value)
        for value in (ours, theirs)
    ]
    return f"{name} is {words[0] or 'none'} in A and {words[1] or 'none'} in B"


def _way(protocol: str) -> str:
    # Shared pairs may span fewer folds than either run has.
    return protocol.rstrip("0123456789")


def match_models(a: Content, b: Content) -> dict[str, str]:
    """Return which model of B each model of A is compared with."""
    ours = [model["name"] for model in a.manifest["models"]]
    theirs = [model["name"] for model in b.manifest["models"]]
    common = [name for name in ours if name in theirs]
    if common:
        return {name: name for name in common}
    if len(ours) == len(theirs) == 1:
        return {ours[0]: theirs[0]}
    raise SpecError(
        f"the runs share no model name: A has {', '.join(ours)}, B has {', '.join(theirs)}; "
        "compare runs of one model each, or of models with the same names"
    )


def _key(result: Result, model: str) -> tuple[str, ...]:
    r = result
    parts = (r.evaluator, r.method, r.goal, r.norm, r.condition, r.metric, r.data, r.protocol)
    return (model, *parts)


def _share(a: Scored, b: Scored) -> tuple[Scored | None, Scored | None]:
    """Return both restricted to the pairs they have in common, in A's order."""
    place = {pair: row for row, pair in enumerate(b.pair.tolist())}
    rows = [row for row, pair in enumerate(a.pair.tolist()) if pair in place]
    others = [place[pair] for pair in a.pair[rows].tolist()]
    if not rows:
        return None, None
    if (a.same[rows] != b.same[others]).any():
        raise SpecError(
            f"the runs disagree on which pairs of {a.data} are genuine; they used different lists"
        )
    return a.take(rows), b.take(others)


def _newcombe(a: Result, b: Result) -> tuple[float | None, float | None]:
    if None in (a.value, a.low, a.high, b.value, b.low, b.high):
        return None, None
    assert a.value is not None and a.low is not None and a.high is not None
    assert b.value is not None and b.low is not None and b.high is not None
    difference = b.value - a.value
    down = ((b.value - b.low) ** 2 + (a.high - a.value) ** 2) ** 0.5
    up = ((b.high - b.value) ** 2 + (a.value - a.low) ** 2) ** 0.5
    return difference - down, difference + up
