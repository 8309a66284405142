"""Every number that follows from attacks and corruptions together.

Rates are of the pairs that are decided correctly when nothing is done to them, and carry Wilson's
interval. Smallest changes are in grey levels, 0 where the corruption alone breaks the pair and
infinite where the attack fails; they carry the distribution-free interval of a median.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from onnxfr.budgets import write_eps
from onnxfr.evaluators.base import Result
from onnxfr.evaluators.outcomes import GREY, unplayable_pairs
from onnxfr.evaluators.treatment import CLEAN, is_chain
from onnxfr.metrics.attack_success import median_cost
from onnxfr.metrics.intervals import Estimate, rate

_GAME = ("model", "data", "method", "goal", "norm", "eps", "order")

Flags = NDArray[np.bool_]


def condition_name(corruption: str, severity: int) -> str:
    """Return a condition as chains write it: ``jpeg@3``; a chain and no corruption stay as is."""
    return corruption if corruption == CLEAN or is_chain(corruption) else f"{corruption}@{severity}"


@dataclass(frozen=True, eq=False)
class Combined:
    """The pairs of one attack, goal and budget under one corruption, in one order."""

    model: str
    data: str
    method: str
    goal: str
    norm: str
    eps: float | None
    order: str
    corruption: str
    severity: int
    rows: pa.Table

    @property
    def name(self) -> str:
        """The corruption and its severity."""
        return condition_name(self.corruption, self.severity)

    @property
    def game(self) -> tuple[object, ...]:
        """What the conditions of one attack share."""
        return tuple(getattr(self, name) for name in _GAME)

    @property
    def budget(self) -> str:
        """The budget as people write it; empty for the smallest change."""
        return "" if self.eps is None else f"eps={write_eps(self.eps)}"

    def won(self, name: str) -> Flags:
        """Tell where the attacker has his way: clean, attacked, corrupted or both."""
        return np.asarray(self.rows[f"won_{name}"].to_pylist(), dtype=np.bool_)

    @cached_property
    def right(self) -> Flags:
        """The pairs that are decided correctly when nothing is done."""
        return ~self.won("clean")

    @cached_property
    def cost(self) -> NDArray[np.float64]:
        """Grey levels that the attack needs on the corrupted picture."""
        distance = GREY * np.asarray(self.rows["distance"].to_numpy(zero_copy_only=False))
        reached = np.where(self.won("both"), distance, np.inf)
        return np.where(self.won("corrupted"), 0.0, reached)

    def rates(self) -> dict[str, Estimate]:
        """Return what is left of the attack, beside what the corruption does by itself."""
        right, both, alone = self.right, self.won("both"), self.won("corrupted")
        return {
            "asr_corrupted": rate(both[right]),
            "asr_corruption_alone": rate(alone[right]),
            "asr_beyond_corruption": rate(both[right & ~alone]),
            "asr_survival": rate(both[right & self.won("attacked")]),
        }


def combined(records: pa.Table) -> list[Combined]:
    """Return the conditions in order of appearance; unplayable pairs are left out."""
    played = records.filter(pc.equal(records["outcome"], "played"))
    names = (*_GAME, "corruption", "severity")
    places: dict[tuple[Any, ...], list[int]] = {}
    columns = [played[name].to_pylist() for name in names]
    for at, key in enumerate(zip(*columns, strict=True)):
        places.setdefault(key, []).append(at)
    return [
        Combined(**dict(zip(names, key, strict=True)), rows=played.take(pa.array(at)))
        for key, at in places.items()
    ]


def results_of(records: pa.Table) -> list[Result]:
    """Return the results of a run's records, game by game."""
    found = combined(records)
    results: list[Result] = []
    for game in dict.fromkeys(each.game for each in found):
        members = [each for each in found if each.game == game]
        first = members[0]
        if first.order == "attack_first":
            results.append(_result(first, "asr_8bit", alone(first), first.budget))
            for each in members:
                for metric, estimate in each.rates().items():
                    results.append(_result(each, metric, estimate))
        elif first.order == "aimed":
            for each in members:
                found_rates = each.rates()
                results.append(_result(each, "asr_aimed", found_rates["asr_corrupted"]))
                beyond = found_rates["asr_beyond_corruption"]
                results.append(_result(each, "asr_aimed_beyond_corruption", beyond))
        elif first.eps is not None:
            for each in members:
                results.append(_result(each, "asr_on_corrupted", on_corrupted(each)))
        else:
            results.extend(_smallest(members))
    return [*results, *unplayable_pairs(records, "corruption_attack")]


def alone(member: Combined) -> Estimate:
    """Return the success of the attack by itself, as an 8-bit picture, on pairs right before."""
    return rate(member.won("attacked")[member.right])


def on_corrupted(member: Combined) -> Estimate:
    """Return the success at a budget on pairs that are right and stay so when corrupted."""
    return rate(member.won("both")[member.right & ~member.won("corrupted")])


def ease(member: Combined, clean: Combined) -> Estimate:
    """Return the median over pairs of the change needed, corrupted over clean; below 1 is easier.

    Over the pairs right when clean that the attack breaks then, whatever it does when corrupted.
    """
    before = dict(zip(clean.rows["pair"].to_pylist(), clean.cost.tolist(), strict=True))
    costs = [
        cost / before[pair]
        for pair, cost in zip(member.rows["pair"].to_pylist(), member.cost.tolist(), strict=True)
        if 0 < before.get(pair, 0.0) < math.inf
    ]
    if not costs:
        return Estimate(math.nan, math.nan, math.nan, 0, "")
    return median_cost(costs)


def _smallest(members: list[Combined]) -> Iterator[Result]:
    clean = next((each for each in members if each.corruption == CLEAN), None)
    for each in members:
        yield _result(each, "median_on_corrupted", median_cost(each.cost))
        if clean is not None and each is not clean:
            yield _result(each, "ease_ratio", ease(each, clean))


def _result(
    member: Combined, metric: str, estimate: Estimate, condition: str | None = None
) -> Result:
    first = member.rows.slice(0, 1).to_pylist()[0]
    if condition is None:
        condition = ",".join(part for part in (member.budget, member.name) if part)
    return Result(
        evaluator="corruption_attack",
        model=member.model,
        data=member.data,
        metric=metric,
        value=_finite(estimate.value),
        low=_finite(estimate.low),
        high=_finite(estimate.high),
        n=estimate.n,
        method=member.method,
        goal=member.goal,
        norm=member.norm,
        condition=condition,
        protocol=str(first["protocol"]),
        threshold=float(first["threshold"]),
        threshold_origin=str(first["threshold_origin"]),
    )


def _finite(value: float) -> float | None:
    return float(value) if math.isfinite(value) else None
