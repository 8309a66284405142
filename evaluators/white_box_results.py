"""Every number that follows from white-box records, and the flags that need a whole evaluation.

Rates carry Wilson's interval. Medians count failures as infinite and pairs wrong without an attack
as 0; they carry the distribution-free order interval, and ``median_by_identity`` the one that
resamples people. Distances are in grey levels (times 255), as RobFR prints them.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence

import numpy as np
import pyarrow as pa

from onnxfr.budgets import write_eps
from onnxfr.errors import MetricError
from onnxfr.evaluators.base import Result
from onnxfr.evaluators.outcomes import (
    VISIBILITY,
    Attacked,
    attacked_groups,
    by_games,
    envelope,
    unplayable_pairs,
)
from onnxfr.evaluators.white_box_lights import Lights, lights_of
from onnxfr.metrics.attack_success import attack_success, median_cost, robfr_score
from onnxfr.metrics.bootstrap import bootstrap
from onnxfr.metrics.intervals import Estimate, rate
from onnxfr.metrics.weighted import weighted_median

_RESAMPLES = 1000


def results_of(records: pa.Table, budgets: Mapping[str, Sequence[float]]) -> list[Result]:
    """Return the results of a run's records, attack by attack, then what compares attacks."""
    groups = attacked_groups(records)
    results: list[Result] = []
    for group in groups:
        results.extend(_effort(group))
        if group.eps is not None:
            results.extend(_rates(group))
            continue
        results.extend(_medians(group))
        for eps in budgets.get(group.norm, ()):
            results.extend(_rates(group.within(eps)))
    results.extend(_optimality(groups))
    results.extend(_lights(records, groups))
    results.extend(unplayable_pairs(records, "white_box"))
    return results


def _result(group: Attacked, metric: str, estimate: Estimate | float, n: int = 0) -> Result:
    value, origin = group.threshold
    if isinstance(estimate, float):
        estimate = Estimate(estimate, math.nan, math.nan, n, "")
    return Result(
        evaluator="white_box",
        model=group.model,
        data=group.data,
        metric=metric,
        value=_finite(estimate.value),
        low=_finite(estimate.low),
        high=_finite(estimate.high),
        n=estimate.n,
        method=group.method,
        goal=group.goal,
        norm=group.norm,
        condition="" if group.eps is None else f"eps={write_eps(group.eps)}",
        protocol=group.protocol,
        threshold=value,
        threshold_origin=origin,
    )


def _finite(value: float) -> float | None:
    return value if math.isfinite(value) else None


def _rates(group: Attacked) -> Iterator[Result]:
    """Yield success rates at one budget by all definitions."""
    after = group.won | group.won_clean
    success = attack_success(group.won_clean, after)
    yield _result(group, "asr_all", success.asr_all)
    yield _result(group, "asr_clean_correct", success.asr_clean_correct)
    yield _result(group, "robust_acc", success.robust_acc)
    if "@fmr" in group.threshold[1]:
        name = "robust_fnmr" if group.goal == "dodge" else "robust_fmr"
        yield _result(group, name, success.asr_all)
    fair = ~group.won_clean
    if group.rows["seeks"][0].as_py() == "any":
        yield _result(group, "asr_8bit", rate((group.column("won_8bit") > 0)[fair]))


def _medians(group: Attacked) -> Iterator[Result]:
    """Yield the median smallest change, by our rule and, under RobFR's protocol, by its script."""
    yield _result(group, "median_distance", median_cost(group.cost))
    first, second = (group.rows[f"{side}_identity"].to_pylist() for side in ("left", "right"))
    if None not in first and None not in second:
        try:
            by_people = bootstrap(
                weighted_median(group.cost), first, second, seed=0, resamples=_RESAMPLES
            )
            yield _result(group, "median_by_identity", by_people)
        except MetricError:  # too few people, or a median that is infinite
            pass
    if group.protocol == "robfr" and (group.cost > 0).any():
        score = robfr_score(group.cost, group.won | group.won_clean)
        yield _result(group, "robfr_median", score.median, score.kept)


def _effort(group: Attacked) -> Iterator[Result]:
    """Yield what wins cost and how visible they are: medians over the pairs won."""
    yield _result(group, "gradients_mean", float(group.column("gradients").mean()), len(group.won))
    won = int(group.won.sum())
    for name, scale in VISIBILITY.items() if won else ():
        values = scale * group.column(name)[group.won]
        yield _result(group, f"{name}_median", float(np.median(values)), won)


def _optimality(groups: Sequence[Attacked]) -> Iterator[Result]:
    """Yield how near each search comes to the lower envelope of all of them, pair by pair.

    The mean over pairs of (least change any attack needed) / (change this one needed): 1 is on the
    envelope, a failure counts 0. The idea is AttackBench's (Cina et al. 2024), which compares areas
    under curves; ratios per pair do not hang on where the curves are cut off.
    """
    for members in by_games([g for g in groups if g.eps is None]):
        _, costs = envelope(members)
        costs = costs[:, (costs > 0).all(axis=0) & np.isfinite(costs).any(axis=0)]
        if len(members) < 2 or not costs.size:
            continue
        best = costs.min(axis=0)
        for group, cost in zip(members, costs, strict=True):
            yield _result(group, "optimality", float((best / cost).mean()), costs.shape[1])


def _lights(records: pa.Table, groups: Sequence[Attacked]) -> Iterator[Result]:
    for lights in lights_of(records, groups):

        def light(metric: str, value: float, condition: str = "", at: Lights = lights) -> Result:
            return Result(
                evaluator="white_box",
                metric=metric,
                value=_finite(value),
                condition=condition,
                n=at.pairs,
                **at.games._asdict(),
            )

        for colour in ("red", "yellow"):
            yield light(f"checks_{colour}", sum(flag.light == colour for flag in lights.flags))
        for flag in lights.worst_of_each():
            yield light(f"check_{flag.name}", flag.value, f"light={flag.light}")
