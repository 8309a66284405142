"""Every number that follows from white-box records, and the flags that need a whole evaluation.

Rates carry Wilson's interval. Medians count failures as infinite and pairs wrong without an attack
as 0; they carry the distribution-free order interval, and ``median_by_identity`` the one that
resamples people. Distances are in grey levels (times 255), as RobFR prints them.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from onnxfr import checks
from onnxfr.attacks import make_attack
from onnxfr.errors import MetricError
from onnxfr.evaluators.base import Result
from onnxfr.metrics.attack_success import attack_success, median_cost, robfr_score
from onnxfr.metrics.bootstrap import bootstrap
from onnxfr.metrics.intervals import Estimate, rate
from onnxfr.metrics.weighted import weighted_median
from onnxfr.threat import write_eps
from onnxfr.types import Access

GREY = 255.0
_SAME_GAMES = ("model", "data", "goal", "norm")
_RESAMPLES = 1000


@dataclass(frozen=True, eq=False)
class Attacked:
    """The played pairs of one attack, goal, norm and budget against one model."""

    model: str
    data: str
    method: str
    goal: str
    norm: str
    eps: float | None
    """None for attacks that seek the smallest change."""
    rows: pa.Table
    unplayable: int

    @property
    def games(self) -> tuple[str, ...]:
        """What attacks on the same games share."""
        return tuple(str(getattr(self, name)) for name in _SAME_GAMES)

    def column(self, name: str) -> NDArray[np.float64]:
        """Return a column as numbers; missing ones are NaN."""
        return np.asarray(self.rows[name].to_numpy(zero_copy_only=False), dtype=np.float64)

    @cached_property
    def won(self) -> NDArray[np.bool_]:
        """Where the attack won, judged on floats."""
        return self.column("won") > 0

    @cached_property
    def won_clean(self) -> NDArray[np.bool_]:
        """Where no attack was needed."""
        return self.column("won_clean") > 0

    @cached_property
    def cost(self) -> NDArray[np.float64]:
        """Grey levels each win took: 0 where none was needed, infinite where there is none."""
        distance = np.where(self.won, GREY * self.column("distance"), np.inf)
        return np.where(self.won_clean, 0.0, distance)

    @property
    def threshold(self) -> tuple[float, str]:
        """The threshold and its origin."""
        first = self.rows.slice(0, 1).to_pylist()[0]
        return float(first["threshold"]), str(first["threshold_origin"])

    @property
    def protocol(self) -> str:
        """Whose protocol the run followed."""
        return str(self.rows["protocol"][0].as_py())

    @property
    def plain_name(self) -> str:
        """The attack without its search and settings: ``bim`` of ``smallest:bim(steps=5)``."""
        return self.method.rpartition(":")[2].partition("(")[0]

    def within(self, eps: float) -> Attacked:
        """Return the same rows judged at a budget, for attacks that seek the smallest change."""
        inside = self.column("distance") <= eps + 1e-6
        part = replace(self, eps=eps)
        part.__dict__["won"] = self.won & inside
        return part


def attacked_groups(records: pa.Table) -> list[Attacked]:
    """Return the attacks in the records, in order of appearance."""
    names = ("model", "data", "method", "goal", "norm", "eps")
    rows = records.filter(pc.not_equal(records["method"], "checks"))
    keys = list(zip(*(rows[name].to_pylist() for name in names), strict=True))
    places: dict[tuple[object, ...], list[int]] = {}
    for place, key in enumerate(keys):
        places.setdefault(key, []).append(place)
    found = []
    for key, at in places.items():
        every = rows.take(pa.array(at))
        played = every.filter(pc.equal(every["outcome"], "played"))
        if played.num_rows:
            left_out = every.num_rows - played.num_rows
            found.append(Attacked(*key, played, left_out))  # type: ignore[arg-type]
    return found


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
    results.extend(_refusals(records))
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
    for name in ("psnr", "ssim", "linf", "l2n") if won else ():
        scale = GREY if name in ("linf", "l2n") else 1.0
        values = scale * group.column(name)[group.won]
        yield _result(group, f"{name}_median", float(np.median(values)), won)


def envelope(groups: Sequence[Attacked]) -> tuple[list[str], NDArray[np.float64]]:
    """Return the pairs all groups share and the least cost any of them needed for each."""
    tables = [dict(zip(g.rows["pair"].to_pylist(), g.cost, strict=True)) for g in groups]
    shared = [pair for pair in tables[0] if all(pair in table for table in tables)]
    costs = np.array([[table[pair] for pair in shared] for table in tables])
    return shared, costs.reshape(len(tables), len(shared))


def _optimality(groups: Sequence[Attacked]) -> Iterator[Result]:
    """Yield how near each search comes to the lower envelope of all of them, pair by pair.

    The mean over pairs of (least change any attack needed) / (change this one needed): 1 is on the
    envelope, a failure counts 0. The idea is AttackBench's (Cina et al. 2024), which compares areas
    under curves; ratios per pair do not hang on where the curves are cut off.
    """
    for members in _by_games([g for g in groups if g.eps is None]):
        _, costs = envelope(members)
        costs = costs[:, (costs > 0).all(axis=0) & np.isfinite(costs).any(axis=0)]
        if len(members) < 2 or not costs.size:
            continue
        best = costs.min(axis=0)
        for group, cost in zip(members, costs, strict=True):
            yield _result(group, "optimality", float((best / cost).mean()), costs.shape[1])


def _by_games(groups: Sequence[Attacked]) -> list[list[Attacked]]:
    found: dict[tuple[str, ...], list[Attacked]] = {}
    for group in groups:
        found.setdefault(group.games, []).append(group)
    return list(found.values())


@dataclass(frozen=True)
class Lights:
    """All flags of one model, data set, goal and norm."""

    model: str
    data: str
    goal: str
    norm: str
    flags: tuple[checks.Flag, ...]
    pairs: int

    @property
    def worst(self) -> checks.Light:
        """The light that decides."""
        for light in ("red", "yellow"):
            if any(flag.light == light for flag in self.flags):
                return light  # type: ignore[return-value]
        return "green"


def lights_of(records: pa.Table, groups: Sequence[Attacked]) -> list[Lights]:
    """Return the stored flags and those that follow from comparing attacks."""
    rows = records.filter(pc.equal(records["method"], "checks")).to_pylist()
    found: dict[tuple[str, ...], list[checks.Flag]] = {}
    pairs: dict[tuple[str, ...], int] = {}
    for row in rows:
        key = tuple(str(row[name]) for name in _SAME_GAMES)
        pairs[key] = row["flag_pairs"] or 0
        if row.get("flag"):
            flag = checks.Flag(row["flag"], row["light"], row["flag_value"], row["flag_message"])
            found.setdefault(key, []).append(flag)
    for members in _by_games(groups):
        key = members[0].games
        found.setdefault(key, []).extend(_comparing(members))
        pairs.setdefault(key, len(members[0].won))
    return [Lights(*key, tuple(flags), pairs[key]) for key, flags in found.items() if flags]


def _comparing(members: Sequence[Attacked]) -> Iterator[checks.Flag]:
    medians = {
        group.plain_name: float(np.median(group.cost)) for group in members if group.eps is None
    }
    if len([name for name in checks.STRONGEST_FIRST if name in medians]) > 1:
        yield checks.order_of_medians(medians)
    for method in dict.fromkeys(group.method for group in members if group.eps is not None):
        curve = [group for group in members if group.method == method]
        if len(curve) > 1:
            rates = [float(group.won.mean()) for group in curve]
            budgets = [group.eps or 0.0 for group in curve]
            flag = checks.growing_budget(budgets, rates, len(curve[0].won))
            yield replace(flag, message=f"{method}: {flag.message}")
    yield from _black_boxes(members)


def _black_boxes(members: Sequence[Attacked]) -> Iterator[checks.Flag]:
    """Compare, budget by budget, what falls without gradients with what falls to any of them."""
    for eps in dict.fromkeys(group.eps for group in members if group.eps is not None):
        at = [group for group in members if group.eps == eps]
        blind = [g for g in at if make_attack(g.method).access < Access.GRADIENT]
        seeing = [g for g in at if g not in blind]
        if blind and seeing:
            white, black = (np.isfinite(envelope(some)[1]).any(axis=0) for some in (seeing, blind))
            yield checks.black_box_beats_white_box(white, black)


def _lights(records: pa.Table, groups: Sequence[Attacked]) -> Iterator[Result]:
    for lights in lights_of(records, groups):
        shared = {
            "evaluator": "white_box",
            "model": lights.model,
            "data": lights.data,
            "goal": lights.goal,
            "norm": lights.norm,
            "n": lights.pairs,
        }
        for light in ("red", "yellow"):
            count = sum(flag.light == light for flag in lights.flags)
            yield Result(metric=f"checks_{light}", value=float(count), **shared)
        for flag in lights.flags:
            yield Result(
                metric=f"check_{flag.name}",
                value=_finite(flag.value),
                condition=f"light={flag.light}",
                **shared,
            )


def _refusals(records: pa.Table) -> Iterator[Result]:
    """Yield how many pairs of each model and data set could not be played."""
    lost = records.filter(pc.equal(records["outcome"], "unplayable"))
    names = lost.select(["model", "data"]).to_pylist() if lost.num_rows else []
    for model, data in dict.fromkeys((row["model"], row["data"]) for row in names):
        rows = [row for row in lost.to_pylist() if (row["model"], row["data"]) == (model, data)]
        pairs = {row.get("pair") for row in rows}
        yield Result(
            evaluator="white_box",
            model=model,
            data=data,
            metric="unplayable_pairs",
            value=float(len(pairs)),
            n=len(pairs),
        )
