"""Stored attacks as arrays: what summaries, lights and report sections compute on."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from onnxfr.evaluators.base import Result

GREY = 255.0
"""Distances are told in grey levels, as RobFR prints them."""

VISIBILITY = {"psnr": 1.0, "ssim": 1.0, "linf": GREY, "l2": GREY, "l2n": GREY}
"""Columns that say how visible a change is, and what brings them into the unit they are told in."""


def attack_label(row: Mapping[str, Any]) -> str:
    """Return the name results give an attack: one that a surrogate primed is another attack."""
    surrogate = row.get("surrogate")
    return f"{row['method']} (primed by {surrogate})" if surrogate else str(row["method"])


class GameKey(NamedTuple):
    """What attacks on the same games share."""

    model: str
    data: str
    goal: str
    norm: str


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

    @property
    def games(self) -> GameKey:
        """The games that were played."""
        return GameKey(self.model, self.data, self.goal, self.norm)

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
    places: dict[tuple[Any, ...], list[int]] = {}
    for place, key in enumerate(zip(*(rows[name].to_pylist() for name in names), strict=True)):
        places.setdefault(key, []).append(place)
    found = []
    for key, at in places.items():
        every = rows.take(pa.array(at))
        played = every.filter(pc.equal(every["outcome"], "played"))
        if played.num_rows:
            found.append(Attacked(**dict(zip(names, key, strict=True)), rows=played))
    return found


def envelope(groups: Sequence[Attacked]) -> tuple[list[str], NDArray[np.float64]]:
    """Return the pairs all groups share and the least cost any of them needed for each."""
    tables = [dict(zip(g.rows["pair"].to_pylist(), g.cost, strict=True)) for g in groups]
    shared = [pair for pair in tables[0] if all(pair in table for table in tables)]
    costs = np.array([[table[pair] for pair in shared] for table in tables])
    return shared, costs.reshape(len(tables), len(shared))


def by_games(groups: Sequence[Attacked]) -> list[list[Attacked]]:
    """Return the attacks of each set of games together."""
    found: dict[GameKey, list[Attacked]] = {}
    for group in groups:
        found.setdefault(group.games, []).append(group)
    return list(found.values())


def clean_wrong_pairs(records: pa.Table, evaluator: str) -> Iterator[Result]:
    """Yield how many of the pairs played were lost without an attack, per goal.

    Success rates are of the others, so they say nothing without this number.
    """
    lost: dict[tuple[str, str, str], dict[str, bool]] = {}
    for row in records.filter(pc.equal(records["outcome"], "played")).to_pylist():
        game = lost.setdefault((row["model"], row["data"], row["goal"]), {})
        game[row["pair"]] = row["won_clean"]
    for (model, data, goal), pairs in lost.items():
        yield Result(
            evaluator=evaluator,
            model=model,
            data=data,
            goal=goal,
            metric="clean_wrong_pairs",
            value=float(sum(pairs.values())),
            n=len(pairs),
        )


def unplayable_pairs(records: pa.Table, evaluator: str) -> Iterator[Result]:
    """Yield how many pairs of each model and data set could not be played."""
    lost = records.filter(pc.equal(records["outcome"], "unplayable"))
    pairs: dict[tuple[str, str], set[str]] = {}
    for row in lost.to_pylist():
        # The row of a check speaks of no pair.
        if row.get("pair") is not None:
            pairs.setdefault((row["model"], row["data"]), set()).add(row["pair"])
    for (model, data), names in pairs.items():
        yield Result(
            evaluator=evaluator,
            model=model,
            data=data,
            metric="unplayable_pairs",
            value=float(len(names)),
            n=len(names),
        )
