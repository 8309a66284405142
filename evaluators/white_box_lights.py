"""The traffic lights of an evaluation: stored flags, and those that compare its attacks."""

from __future__ import annotations

import math
from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass, replace

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from onnxfr import checks
from onnxfr.attacks import make_attack
from onnxfr.evaluators.outcomes import Attacked, GameKey, by_games, envelope
from onnxfr.types import Access

_BOTH = ("aa_fr",)
"""Attacks whose stages ask for gradients and for scores."""
_WORST_FIRST: tuple[checks.Light, ...] = ("red", "yellow", "green")


@dataclass(frozen=True)
class Lights:
    """All flags of one model, data set, goal and norm."""

    games: GameKey
    flags: tuple[checks.Flag, ...]
    pairs: int

    @property
    def worst(self) -> checks.Light:
        """The light that decides."""
        return min((flag.light for flag in self.flags), key=_WORST_FIRST.index, default="green")

    def worst_of_each(self) -> list[checks.Flag]:
        """Return one flag of each name: a check may have been made more than once."""
        found: dict[str, checks.Flag] = {}
        for flag in sorted(self.flags, key=lambda flag: _WORST_FIRST.index(flag.light)):
            found.setdefault(flag.name, flag)
        return list(found.values())


def lights_of(records: pa.Table, groups: Sequence[Attacked]) -> list[Lights]:
    """Return the stored flags and those that follow from comparing attacks."""
    rows = records.filter(pc.equal(records["method"], "checks")).to_pylist()
    found: dict[GameKey, list[checks.Flag]] = {}
    pairs: dict[GameKey, int] = {}
    budgets: dict[GameKey, set[float]] = {}
    for row in rows:
        key = GameKey(*(str(row[name]) for name in GameKey._fields))
        pairs[key] = row["flag_pairs"] or 0
        budgets.setdefault(key, set()).update([row["eps"]] if row["eps"] else [])
        if row.get("flag"):
            flag = checks.Flag(row["flag"], row["light"], row["flag_value"], row["flag_message"])
            found.setdefault(key, []).append(flag)
    for members in by_games(groups):
        key = members[0].games
        found.setdefault(key, []).extend(_comparing(members, budgets.get(key, ())))
        pairs.setdefault(key, len(members[0].won))
    return [Lights(key, tuple(flags), pairs[key]) for key, flags in found.items() if flags]


def _comparing(members: Sequence[Attacked], budgets: Collection[float]) -> Iterator[checks.Flag]:
    """Yield the flags that compare attacks, on pairs that all of the compared have played."""
    searches = [g for g in members if g.eps is None and g.plain_name in checks.STRONGEST_FIRST]
    names = [group.plain_name for group in searches]
    pairs, costs = envelope(searches) if len(set(names)) > 1 else ([], np.zeros((0, 0)))
    if pairs:
        least: dict[str, float] = {}
        for name, median in zip(names, np.median(costs, axis=1).tolist(), strict=True):
            # Of an attack in several settings only the best says what it can do.
            least[name] = min(median, least.get(name, math.inf))
        yield checks.order_of_medians(least)
    for method in dict.fromkeys(group.method for group in members if group.eps is not None):
        curve = [group for group in members if group.method == method]
        pairs, costs = envelope(curve)
        if len(curve) > 1 and pairs:
            rates = np.isfinite(costs).mean(axis=1).tolist()
            flag = checks.growing_budget([g.eps or 0.0 for g in curve], rates, len(pairs))
            yield replace(flag, message=f"{method}: {flag.message}")
    yield from _black_boxes(members, sorted({*budgets, *(g.eps for g in members if g.eps)}))


def _black_boxes(members: Sequence[Attacked], budgets: Sequence[float]) -> Iterator[checks.Flag]:
    """Compare, budget by budget, what falls without gradients with what falls to any of them.

    An attack that seeks the smallest change counts at every budget that its change lies within. An
    attack that uses both gradients and scores is on neither side: its wins may be those of either.
    """
    judged = [group for group in members if group.plain_name not in _BOTH]
    for eps in budgets:
        at = [group.within(eps) if group.eps is None else group for group in judged]
        at = [group for group in at if group.eps == eps]
        blind = np.array([make_attack(g.method).access < Access.GRADIENT for g in at], np.bool_)
        if blind.all() or not blind.any():
            continue
        # One envelope: an unfinished run has pairs that only some of its attacks have played.
        pairs, costs = envelope(at)
        white, black = (np.isfinite(costs[some]).any(axis=0) for some in (~blind, blind))
        if pairs:
            yield checks.black_box_beats_white_box(white, black)
