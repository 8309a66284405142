"""The traffic lights of an evaluation: stored flags, and those that compare its attacks."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from onnxfr import checks
from onnxfr.attacks import make_attack
from onnxfr.evaluators.outcomes import Attacked, GameKey, by_games, envelope
from onnxfr.types import Access

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
    for row in rows:
        key = GameKey(*(str(row[name]) for name in GameKey._fields))
        pairs[key] = row["flag_pairs"] or 0
        if row.get("flag"):
            flag = checks.Flag(row["flag"], row["light"], row["flag_value"], row["flag_message"])
            found.setdefault(key, []).append(flag)
    for members in by_games(groups):
        key = members[0].games
        found.setdefault(key, []).extend(_comparing(members))
        pairs.setdefault(key, len(members[0].won))
    return [Lights(key, tuple(flags), pairs[key]) for key, flags in found.items() if flags]


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
