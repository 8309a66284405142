"""From an attack with a budget to the smallest budget it needs, for each pair on its own.

``robfr`` repeats RobFR's schedule: doubling from 16/255 and ten bisections, or for single-step
attacks, whose success is not monotone in eps, a scan of 32 budgets and five bisections; every row
takes part in every round. ``ours`` starts where the clean gradient points, aims by the margins
(secant), counts every iterate that wins, lets finished rows leave, and computes the gradient at
the clean picture, where every budget's run begins, only once. Score attacks end at their
first win, so that only its sign is known of a budget: there ``ours`` halves the bracket.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, ClassVar, Literal

import numpy as np
from numpy.typing import NDArray

from onnxfr.attacks.base import Attack, register
from onnxfr.attacks.composition import make_attack
from onnxfr.attacks.white_box.bim import BIM
from onnxfr.errors import SpecError
from onnxfr.oracle import Oracle, Starts
from onnxfr.probe import Probe
from onnxfr.rng import RowRng
from onnxfr.threat import Threat
from onnxfr.types import Access, Images

Floats = NDArray[np.float64]
Rows = NDArray[np.intp]

_DOUBLINGS = 5
_BISECTIONS = 10
_SCANNED = 32
_SCAN_BISECTIONS = 5
# The margin rises faster on the way than at the clean picture; measured on MobileFaceNets.
_SHORTER_THAN_LINEAR = 0.85


@register("smallest_budget")
@dataclass(frozen=True)
class SmallestBudget(Attack):
    """Minimum-perturbation form of any attack that takes a budget.

    Args:
        attack: the attack, or its name, or ``{"name": ..., "parameters": ...}``.
        schedule: ``ours`` or ``robfr``.
        first: the top of both scans for single-step attacks, RobFR's first budget for the others,
            and ours where no gradient is to be had.
        precision: ours ends when the bracket is this narrow, relative to the budget.
        rounds: most runs of the attack for one row in ours.
    """

    attack: Attack = field(default_factory=BIM)
    schedule: Literal["ours", "robfr"] = "ours"
    first: float = 16 / 255
    precision: float = 0.02
    rounds: int = 12

    seeks: ClassVar[Literal["any", "smallest"]] = "smallest"
    paper: ClassVar[str] = "Yang et al., RobFR, 2020 (arXiv:2007.04118)"

    def __post_init__(self) -> None:
        """Accept the attack by name and take over what it may ask."""
        inner: Any = self.attack
        if isinstance(inner, str):
            inner = make_attack(inner)
        elif isinstance(inner, Mapping):
            inner = make_attack(inner["name"], inner.get("parameters"))
        if inner.seeks != "any":
            raise SpecError(f"{inner.label} looks for the smallest change by itself")
        object.__setattr__(self, "attack", inner)
        object.__setattr__(self, "access", max(inner.access, Access.SCORE))
        object.__setattr__(self, "norms", inner.norms)
        object.__setattr__(self, "needs", inner.needs)

    @property
    def label(self) -> str:
        """``smallest:`` and the attack's own name."""
        return f"smallest:{self.attack.label}"

    def parameters(self) -> dict[str, Any]:
        """Return the hyper-parameters, those of the attack included."""
        inner = {"name": self.attack.label, "parameters": self.attack.parameters()}
        return super().parameters() | {"attack": inner}

    def check(self, oracle: Oracle, probe: Probe, threat: Threat) -> None:
        """Check what the attack itself needs."""
        super().check(oracle, probe, threat)
        self.attack.check(oracle, probe, threat.within(self.first))

    def run(self, oracle: Oracle, probe: Probe, threat: Threat, rng: RowRng) -> Images:
        """Search each row's smallest budget; the oracle keeps the closest wins."""
        search = _Search(self.attack, oracle, probe, threat, rng)
        largest = np.full(len(probe), 1.0) if threat.eps is None else _per_row(threat, len(probe))
        single = getattr(self.attack, "steps", 2) == 1
        if self.schedule == "robfr":
            search.oracle = oracle.part(np.arange(len(probe)), recording=False)
            search.starts = None
            _robfr(search, self.first, single)
        elif single:
            _scan(search, self.first, np.arange(len(probe)), leaving=True)
        else:
            _aimed(
                search, self, largest, 1 / 255 if oracle.quantise and threat.norm == "linf" else 0
            )
        return oracle.best


def _per_row(threat: Threat, rows: int) -> Floats:
    return np.broadcast_to(np.asarray(threat.eps, dtype=np.float64), (rows,)).copy()


@dataclass
class _Search:
    attack: Attack
    oracle: Oracle
    probe: Probe
    threat: Threat
    rng: RowRng

    def __post_init__(self) -> None:
        self.judge = self.oracle
        self.starts: Starts | None = Starts()

    def attempt(self, eps: Floats, rows: Rows) -> Floats:
        """Run the attack with a budget per row; return the margins of what it made."""
        rules = self.threat.take(rows).within(np.clip(eps, 0.0, 1.0))
        probe = self.probe.take(rows)
        # Who has won with another budget has not won with this one.
        window = self.oracle.attempt(rows, rules, self.starts)
        made = self.attack.run(window, probe, rules, self.rng.take(rows))
        made = rules.project(probe.images, made)
        margins = self.judge.score(made, rows).astype(np.float64)
        if self.attack.access == Access.GRADIENT:
            return margins
        # Score attacks end at their first win: its margin tells nothing about the budget.
        return np.where(margins > 0, 1.0, -1.0)


def _robfr(search: _Search, first: float, single: bool) -> None:
    rows = np.arange(len(search.probe))
    if single:
        return _scan(search, first, rows, leaving=False)
    low, high = np.zeros(len(rows)), np.full(len(rows), first)
    found = np.zeros(len(rows), dtype=np.bool_)
    for _ in range(_DOUBLINGS + 1):
        open_rows = rows[~found]
        if not open_rows.size:
            break
        margins = search.attempt(high[open_rows], open_rows)
        found[open_rows] = margins > 0
        failed = rows[~found]
        low[failed], high[failed] = high[failed], np.minimum(high[failed] * 2, 1.0)
    _bisect(search, low, high, rows[found], _BISECTIONS)


def _bisect(search: _Search, low: Floats, high: Floats, rows: Rows, rounds: int) -> None:
    for _ in range(rounds if rows.size else 0):
        middle = (low[rows] + high[rows]) / 2
        won = search.attempt(middle, rows) > 0
        high[rows[won]], low[rows[~won]] = middle[won], middle[~won]


def _scan(search: _Search, top: float, rows: Rows, *, leaving: bool) -> None:
    """Find the first cell of a scan that wins, then bisect in it."""
    high = np.full(len(rows), np.inf)
    for k in range(1, _SCANNED + 1):
        asked = rows[~np.isfinite(high)] if leaving else rows
        if not asked.size:
            break
        eps = np.full(len(asked), top * k / _SCANNED)
        won = search.attempt(eps, asked) > 0
        high[asked[won]] = np.minimum(high[asked[won]], eps[won])
    low = high - top / _SCANNED
    _bisect(search, low, high, rows[np.isfinite(high)], _SCAN_BISECTIONS)


def _aimed(search: _Search, settings: SmallestBudget, largest: Floats, grain: float) -> None:
    """Aim by the margins; ``grain`` is what budgets are multiples of, 0 if they may be anything."""
    rows = np.arange(len(search.probe))
    clean_margin, eps = _first_aim(search, settings)
    if grain:  # between two whole grey levels files are the same game
        eps = grain * np.maximum(np.round(eps / grain), 1)
    eps = np.minimum(eps, largest)
    bracket = _Bracket(clean_margin, settings.precision, grain)
    for _ in range(settings.rounds):
        bracket.note(rows, eps[rows], search.attempt(eps[rows], rows))
        rows = rows[~bracket.closed()[rows] & (bracket.low[rows] < largest[rows])]
        if not rows.size:
            break
        eps[rows] = np.minimum(bracket.next_aim(), largest)[rows]


class _Bracket:
    """Each row's largest budget that failed, smallest that won, and last two that were tried."""

    def __init__(self, clean_margin: Floats, precision: float, grain: float) -> None:
        self.precision, self.grain = precision, grain
        self.low, self.high = np.zeros(len(clean_margin)), np.full(len(clean_margin), np.inf)
        self.last, self.last_margin = self.low.copy(), clean_margin.copy()
        self.before, self.before_margin = self.low.copy(), clean_margin.copy()

    def note(self, rows: Rows, eps: Floats, margins: Floats) -> None:
        """Take in the result of one attempt."""
        won = margins > 0
        self.high[rows[won]] = np.minimum(self.high[rows[won]], eps[won])
        self.low[rows[~won]] = np.maximum(self.low[rows[~won]], eps[~won])
        # Success need not be monotone: a closer win overrules an earlier failure.
        upset = self.low >= self.high
        self.low[upset] = 0.0
        self.before[rows], self.before_margin[rows] = self.last[rows], self.last_margin[rows]
        self.last[rows], self.last_margin[rows] = eps, margins

    def root(self) -> Floats:
        """Return where the margin should vanish, by the secant through the last two points."""
        run, rise = self.last - self.before, self.last_margin - self.before_margin
        with np.errstate(divide="ignore", invalid="ignore"):
            root = self.last - self.last_margin * run / rise
        limit = np.where(np.isfinite(self.high), self.high, 2.5 * np.maximum(self.low, 1e-4))
        root = np.where(np.isfinite(root) & (run * rise > 0), root, (self.low + limit) / 2)
        return np.asarray(np.clip(root, self.low, limit), dtype=np.float64)

    def closed(self) -> NDArray[np.bool_]:
        """Return which rows are known well enough."""
        narrow = self.high <= np.maximum(
            self.low * (1 + self.precision), self.low + 1.5 * self.grain
        )
        # Between points this near the secant is good to second order: no confirmation is needed.
        near = np.abs(self.last - self.before) <= 0.35 * self.last
        sure = near & (self.high == self.last)
        sure &= self.high <= self.root() * (1 + self.precision / 2)
        return np.asarray(narrow | sure)

    def next_aim(self) -> Floats:
        """Return the next budget to try: just above the root, inside the bracket."""
        gap = np.where(np.isfinite(self.high), self.high - self.low, 0.0)
        low = np.maximum(self.low + 0.05 * gap, self.low * (1 + self.precision / 4))
        high = np.where(np.isfinite(self.high), self.high - 0.05 * gap, np.inf)
        aim = self.root() * (1 + self.precision / 4)
        aim = np.clip(aim, np.minimum(low, high), high)
        if self.grain:
            aim = self.grain * np.round(aim / self.grain)
            aim = np.clip(aim, self.low + self.grain, self.high - self.grain)
        return np.asarray(aim, dtype=np.float64)


def _first_aim(search: _Search, settings: SmallestBudget) -> tuple[Floats, Floats]:
    probe, rows = search.probe, np.arange(len(search.probe))
    if settings.attack.access < Access.GRADIENT:
        return np.full(len(rows), -1.0), np.full(len(rows), settings.first)
    margin, slope = search.oracle.gradient(search.oracle.tensor(probe.images))
    steepness = search.threat.slope(slope).clamp_min(1e-12)
    margins = margin.cpu().numpy().astype(np.float64)
    aim = -margins / steepness.cpu().numpy().astype(np.float64)
    return margins, np.clip(aim * _SHORTER_THAN_LINEAR, 1e-4, 1.0)
