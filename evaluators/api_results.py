"""Results of API records: rates of clean pairs, and how fast decision attacks get close."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
import pyarrow as pa

from onnxfr.budgets import write_eps
from onnxfr.evaluators.base import Result
from onnxfr.evaluators.outcomes import GREY, attack_label
from onnxfr.metrics.api import api_rates
from onnxfr.metrics.attack_success import median_cost
from onnxfr.metrics.intervals import Estimate, rate

_QUERIES = (10, 20, 50, 100, 200, 500, 1000, 2000, 5000, 10_000, 20_000)
_ANSWERED = ("judged", "rejected", "invalid")
_ROUNDING = 1e-6
"""A change of exactly the budget, in grey levels, may be a float32 above it."""

Rows = list[dict[str, Any]]


def checkpoints(max_queries: int) -> list[int]:
    """Return the numbers of questions at which curves have their points."""
    return [*(q for q in _QUERIES if q < max_queries), max_queries]


def results_of(records: pa.Table) -> list[Result]:
    """Return all results, model by model, method by method."""
    found: list[Result] = []
    for method, rows in grouped(records):
        if method == "clean":
            found.extend(_clean(rows))
        elif method == "recheck":
            found.extend(_recheck(rows))
        else:
            found.extend(_attack(rows))
    return found


def grouped(records: pa.Table) -> Iterator[tuple[str, Rows]]:
    """Yield the rows of each model, data set, method and goal, in order of appearance."""
    groups: dict[tuple[str, ...], Rows] = {}
    for row in records.to_pylist():
        key = (row["model"], row["data"], row["method"], row["condition"], attack_label(row))
        groups.setdefault(key, []).append(row)
    for wanted, rows in groups.items():
        yield wanted[2], rows


def _clean(rows: Rows) -> list[Result]:
    said = [row for row in rows if row["outcome"] in _ANSWERED]
    results = [
        _count(rows, "pairs", len(rows)),
        _result(rows, "calls", sum(row["calls"] for row in rows), n=len(said)),
        *_missing(rows, "unasked_pairs", [row["outcome"] == "unasked" for row in rows]),
    ]
    if not said:
        return results
    # An answer that makes no sense is no verdict: it counts like a rejection, and on its own.
    refused = np.array([row["outcome"] != "judged" for row in said])
    right = np.array([row["match"] == row["same"] for row in said]) & ~refused
    rates = api_rates(right, refused)
    results += [
        _estimate(rows, "rr", rates.rr),
        _estimate(rows, "asa", rates.asa),
        _estimate(rows, "aa", rates.aa),
    ]
    invalid = [row["outcome"] == "invalid" for row in said]
    if any(invalid):
        results.append(_estimate(rows, "invalid", rate(invalid)))
    for metric, same in (("fnmr", True), ("fmr", False)):
        wrong = [
            row["match"] != same
            for row in said
            if row["outcome"] == "judged" and row["same"] == same
        ]
        if wrong:
            results.append(_estimate(rows, metric, rate(wrong)))
    return results


def _recheck(rows: Rows) -> list[Result]:
    changed = [row["changed"] for row in rows if row.get("changed") is not None]
    results = [_estimate(rows, "changed_mind", rate(changed))] if changed else []
    return results + _missing(rows, "unrepeated_pairs", [bool(row.get("short")) for row in rows])


def _attack(rows: Rows) -> list[Result]:
    played = [row for row in rows if row["outcome"] == "played"]
    fought = [row for row in played if not row["won_clean"]]
    results = [
        _count(rows, "attacked_pairs", len(fought)),
        _result(rows, "clean_wrong_pairs", len(played) - len(fought), n=len(played)),
        *_missing(rows, "unasked_pairs", [row["outcome"] == "unasked" for row in rows]),
        *_missing(rows, "cut_short_pairs", [bool(row.get("short")) for row in played]),
    ]
    if not fought:
        return results
    asked = sum(row["queries"] for row in fought)
    # Records of version 3 tell no calls; a question was one.
    calls = sum(row.get("calls") or row["queries"] for row in fought)
    results.append(_result(rows, "calls", calls, n=asked))
    eps = fought[0]["eps"]
    for q in checkpoints(fought[0]["max_queries"]):
        # Nobody knows what a game cut short before would have come to.
        followed = [row for row in fought if not row.get("short") or row["queries"] >= q]
        if not followed:
            break
        # What the judge took back at the end is no success, however close it had come.
        distances = [row[f"distance_at_{q}"] if row["won"] else None for row in followed]
        cost = np.array([np.inf if each is None else each for each in distances])
        near = rate(cost <= eps + _ROUNDING)
        results.append(_estimate(rows, "asr", near, f"eps={write_eps(eps)}, queries={q}"))
        median = median_cost(GREY * cost)
        results.append(_estimate(rows, "median_distance", median, f"queries={q}"))
    if asked:
        share = sum(row["refusals"] for row in fought) / asked
        results.append(_result(rows, "refused_queries", share, n=asked))
    return results


def _missing(rows: Rows, metric: str, flags: Sequence[bool]) -> list[Result]:
    """Return how many pairs got less than was to be asked; nothing where all is there."""
    return [_count(rows, metric, sum(flags))] if any(flags) else []


def _count(rows: Rows, metric: str, value: int) -> Result:
    return _result(rows, metric, float(value), n=value)


def _estimate(rows: Rows, metric: str, found: Estimate, condition: str = "") -> Result:
    low, high = (value if np.isfinite(value) else None for value in (found.low, found.high))
    return _result(rows, metric, found.value, low, high, found.n, condition)


def _result(
    rows: Rows,
    metric: str,
    value: float,
    low: float | None = None,
    high: float | None = None,
    n: int = 0,
    condition: str = "",
) -> Result:
    first = rows[0]
    threshold = first["threshold"]
    known = threshold is not None and np.isfinite(threshold)
    return Result(
        evaluator="api",
        model=first["model"],
        metric=metric,
        value=float(value) if np.isfinite(value) else None,
        low=low,
        high=high,
        n=n,
        method="" if first["method"] in ("clean", "recheck") else attack_label(first),
        goal=first.get("goal") or "",
        norm=first.get("norm") or "",
        condition=condition,
        data=first["data"],
        protocol="api",
        threshold=float(threshold) if known else None,
        threshold_origin=first["threshold_origin"],
    )


def points_of(results: Sequence[Result], metric: str) -> list[tuple[int, Result]]:
    """Return the points of a curve over questions."""
    return [
        (int(result.condition.rpartition("queries=")[2]), result)
        for result in results
        if result.metric == metric and "queries=" in result.condition
    ]
