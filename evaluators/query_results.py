"""Numbers of the query evaluator: what so many questions buy, from the traces in its records."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from onnxfr.budgets import write_eps
from onnxfr.evaluators.base import Result
from onnxfr.evaluators.outcomes import (
    GREY,
    VISIBILITY,
    attack_label,
    clean_wrong_pairs,
    unplayable_pairs,
)
from onnxfr.metrics.attack_success import median_cost, success_auc, success_curve
from onnxfr.metrics.intervals import Estimate

QUOTED = (100, 200, 500, 1_000, 2_000, 5_000, 10_000, 20_000)
"""Numbers of questions at which results are quoted, as far as the cap goes."""

_ROUNDING = 1e-6
_KEYS = ("model", "data", "method", "goal", "norm", "eps")


@dataclass(frozen=True)
class Asked:
    """The fair games of one model, data set, attack, goal, norm and budget.

    Pairs that were lost before the attack are no games: nothing had to be asked.
    """

    model: str
    data: str
    method: str
    goal: str
    norm: str
    eps: float | None
    seeks: str
    cap: int
    threshold: float
    threshold_origin: str
    protocol: str
    traces: tuple[tuple[tuple[int, float], ...], ...]
    won: NDArray[np.bool_]
    queries: NDArray[np.int64]
    rows: tuple[dict[str, Any], ...]

    @property
    def quoted(self) -> tuple[int, ...]:
        """The quoted numbers of questions up to the cap, and the cap."""
        return tuple(sorted({*(q for q in QUOTED if q <= self.cap), self.cap}))

    def distance_at(self, queries: int) -> NDArray[np.float64]:
        """Return each pair's closest win after so many questions; infinite where there is none."""
        best = [
            min((far for asked, far in trace if asked <= queries), default=np.inf)
            for trace in self.traces
        ]
        return np.array(best, dtype=np.float64)

    def queries_to(self, eps: float) -> NDArray[np.float64]:
        """Return after how many questions each pair was won within ``eps``; else infinite."""
        first = [
            min((asked for asked, far in trace if far <= eps + 1e-6), default=np.inf)
            for trace in self.traces
        ]
        return np.array(first, dtype=np.float64)


def asked_of(records: pa.Table) -> list[Asked]:
    """Return the games of the records, grouped, in order of appearance."""
    groups: dict[tuple[Any, ...], list[dict[str, Any]]] = {}
    for row in records.to_pylist():
        row["method"] = attack_label(row)
        if row["outcome"] == "played" and not row["won_clean"]:
            groups.setdefault(tuple(row[name] for name in _KEYS), []).append(row)
    found = []
    for key, rows in groups.items():
        first = rows[0]
        found.append(
            Asked(
                **dict(zip(_KEYS, key, strict=True)),
                seeks=first["seeks"],
                cap=int(first["max_queries"]),
                threshold=first["threshold"],
                threshold_origin=first["threshold_origin"],
                protocol=first["protocol"],
                traces=tuple(_proven(row) for row in rows),
                won=np.array([row["won"] for row in rows], dtype=np.bool_),
                queries=np.array([row["queries"] for row in rows], dtype=np.int64),
                rows=tuple(rows),
            )
        )
    return found


def _proven(row: dict[str, Any]) -> tuple[tuple[int, float], ...]:
    """Return the trace of a pair that the judge granted at the end; nothing else is a success.

    A verifier that changed its mind on the way has told wins that do not hold: none was nearer than
    the final picture. One that was never asked about counts when all questions were asked.
    """
    if not row["won"]:
        return ()
    if row.get("randomised") and row["seeks"] == "any":
        # Books note lucky answers, too; the attack ended when it had asked often enough to believe.
        return ((int(row["queries"]), float(row["distance"])),)
    trace = [(int(q), max(float(d), row["distance"])) for q, d in json.loads(row["trace"])]
    if not trace or row["distance"] < min(far for _, far in trace) - _ROUNDING:
        trace.append((int(row["queries"]), float(row["distance"])))
    return tuple(trace)


def results_of(records: pa.Table, targets: Mapping[str, Sequence[float]]) -> list[Result]:
    """Return the results of every group; ``targets`` are the distances decision attacks aim at."""
    results: list[Result] = []
    for asked in asked_of(records):
        for eps in (asked.eps,) if asked.eps is not None else tuple(targets[asked.norm]):
            results.extend(_success(asked, eps))
        if asked.seeks == "smallest":
            for queries in asked.quoted:
                found = median_cost(GREY * asked.distance_at(queries))
                results.append(_result(asked, "median_distance", f"queries={queries}", found))
        mean = float(asked.queries.mean())
        results.append(
            _result(
                asked,
                "mean_queries",
                _budget_of(asked),
                Estimate(mean, mean, mean, len(asked.won), "mean"),
            )
        )
        results.extend(_visibility(asked))
    results.extend(clean_wrong_pairs(records, "query"))
    results.extend(unplayable_pairs(records, "query"))
    return results


def _budget_of(asked: Asked) -> str:
    """Return the condition that tells an attack's budgets apart; nothing where it has none."""
    return "" if asked.eps is None else f"eps={write_eps(asked.eps)}"


def _visibility(asked: Asked) -> Iterator[Result]:
    """Yield how visible the wins are: medians over the pairs won, of the pictures at the end."""
    won = [row for row in asked.rows if row["won"]]
    label = _budget_of(asked)
    for name, scale in VISIBILITY.items() if won else ():
        # A change that rounds to nothing has no finite PSNR.
        values = [np.inf if row[name] is None else scale * row[name] for row in won]
        middle = float(np.median(values))
        found = Estimate(middle, middle, middle, len(won), "none")
        yield _result(asked, f"{name}_median", label, found)


def _success(asked: Asked, eps: float) -> list[Result]:
    cost = asked.queries_to(eps)
    curve = success_curve(cost, asked.quoted)
    label = f"eps={write_eps(eps)}"
    results = [
        _result(
            asked,
            "asr",
            f"{label}, queries={queries}",
            Estimate(float(value), float(low), float(high), curve.n, "wilson"),
        )
        for queries, value, low, high in zip(
            asked.quoted, curve.asr, curve.low, curve.high, strict=True
        )
    ]
    results.append(_result(asked, "median_queries", label, median_cost(cost)))
    area = success_auc(cost, asked.cap)
    results.append(_result(asked, "asr_auc", label, Estimate(area, area, area, curve.n, "none")))
    return results


def _result(asked: Asked, metric: str, condition: str, found: Estimate) -> Result:
    def finite(value: float) -> float | None:
        return float(value) if np.isfinite(value) else None

    whole = found.low == found.high == found.value
    return Result(
        evaluator="query",
        model=asked.model,
        method=asked.method,
        goal=asked.goal,
        norm=asked.norm,
        data=asked.data,
        metric=metric,
        condition=condition,
        value=finite(found.value),
        low=None if whole else finite(found.low),
        high=None if whole else finite(found.high),
        n=found.n,
        protocol=asked.protocol,
        threshold=asked.threshold,
        threshold_origin=asked.threshold_origin,
    )
