"""From an attack with a budget to the smallest budget it needs, for each pair on its own.

``robfr`` repeats RobFR's schedule: doubling from 16/255 and ten bisections, or for single-step
attacks, whose success is not monotone in eps, a scan of 32 budgets and five bisections; every row
takes part in every round. ``ours`` starts where the clean gradient points, uses the margins to aim
(regula falsi), counts every iterate that wins, and lets finished rows leave.
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
from onnxfr.oracle import Oracle
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


@register("smallest_budget")
@dataclass(frozen=True)
class SmallestBudget(Attack):
    """Minimum-perturbation form of any attack that takes a budget.

    Args:
        attack: the attack, or its name, or ``{"name": ..., "parameters": ...}``.
        schedule: ``ours`` or ``robfr``.
        first: RobFR's first budget, the top of its scan, and ours where no gradient is to be had.
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
        if self.schedule not in ("ours", "robfr"):
            raise SpecError(f"a schedule is ours or robfr, got {self.schedule!r}")
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
            _robfr(search, self.first, single)
        elif single:
            _scan(search, self.first, np.arange(len(probe)), leaving=True)
        else:
            _aimed(search, self, largest)
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

    def attempt(self, eps: Floats, rows: Rows) -> tuple[Floats, Floats]:
        """Run the attack with a budget per row; return margins and distances of what it made."""
        rules = self.threat.take(rows).within(np.clip(eps, 0.0, 1.0))
        probe = self.probe.take(rows)
        made = self.attack.run(self.oracle.part(rows), probe, rules, self.rng.take(rows))
        made = rules.project(probe.images, made)
        margins = self.judge.score(made, rows).astype(np.float64)
        return margins, rules.distance(probe.images, made).astype(np.float64)


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
        margins, _ = search.attempt(high[open_rows], open_rows)
        found[open_rows] = margins > 0
        failed = rows[~found]
        low[failed], high[failed] = high[failed], np.minimum(high[failed] * 2, 1.0)
    _bisect(search, low, high, rows[found], _BISECTIONS)


def _bisect(search: _Search, low: Floats, high: Floats, rows: Rows, rounds: int) -> None:
    for _ in range(rounds if rows.size else 0):
        middle = (low[rows] + high[rows]) / 2
        won = search.attempt(middle, rows)[0] > 0
        high[rows[won]], low[rows[~won]] = middle[won], middle[~won]


def _scan(search: _Search, top: float, rows: Rows, *, leaving: bool) -> None:
    """Find the first cell of a scan that wins, then bisect in it."""
    high = np.full(len(rows), np.inf)
    for k in range(1, _SCANNED + 1):
        asked = rows[~np.isfinite(high)] if leaving else rows
        if not asked.size:
            break
        eps = np.full(len(asked), top * k / _SCANNED)
        won = search.attempt(eps, asked)[0] > 0
        high[asked[won]] = np.minimum(high[asked[won]], eps[won])
    low = high - top / _SCANNED
    _bisect(search, low, high, rows[np.isfinite(high)], _SCAN_BISECTIONS)


def _aimed(search: _Search, settings: SmallestBudget, largest: Floats) -> None:
    rows = np.arange(len(search.probe))
    clean_margin, eps = _first_aim(search, settings)
    eps = np.minimum(eps, largest)
    low, high = np.zeros(len(rows)), np.full(len(rows), np.inf)
    low_margin, high_margin = clean_margin.copy(), np.full(len(rows), np.inf)
    for _ in range(settings.rounds):
        margins, distances = search.attempt(eps[rows], rows)
        won = margins > 0
        better = rows[won & (distances < high[rows])]
        high[better], high_margin[better] = (
            v[won & (distances < high[rows])] for v in (distances, margins)
        )
        worse = rows[~won & (eps[rows] > low[rows])]
        low_margin[worse] = margins[~won & (eps[rows] > low[rows])]
        low[worse] = eps[worse]
        # An iterate on the way may have won more closely than the end of the run.
        closest = search.judge.best_distance
        nearer = closest < high
        high[nearer], high_margin[nearer] = closest[nearer], 0.0
        upset = low >= high
        low[upset], low_margin[upset] = 0.0, clean_margin[upset]
        open_bracket = high > np.maximum(low, 1e-9) * (1 + settings.precision)
        rows = rows[open_bracket[rows] & (low[rows] < largest[rows])]
        if not rows.size:
            break
        eps[rows] = _next_aim(low, low_margin, high, high_margin, settings.precision)[rows]
        eps = np.minimum(eps, largest)


def _first_aim(search: _Search, settings: SmallestBudget) -> tuple[Floats, Floats]:
    probe, rows = search.probe, np.arange(len(search.probe))
    if settings.attack.access < Access.GRADIENT:
        margins = search.judge.score(probe.images, rows).astype(np.float64)
        return margins, np.full(len(rows), settings.first)
    margin, slope = search.oracle.gradient(search.oracle.tensor(probe.images))
    steepness = search.threat.slope(slope).clamp_min(1e-12)
    margins = margin.cpu().numpy().astype(np.float64)
    aim = -margins / steepness.cpu().numpy().astype(np.float64)
    return margins, np.clip(aim * (1 + settings.precision), 1e-4, 1.0)


def _next_aim(
    low: Floats, low_margin: Floats, high: Floats, high_margin: Floats, precision: float
) -> Floats:
    """Return where the margin should vanish, on the side that narrows the bracket most."""
    bounded = np.isfinite(high)
    top = np.where(bounded, high, 2 * np.maximum(low, 1e-4))
    rise = np.where(bounded, high_margin, -low_margin) - low_margin
    root = low + (top - low) * np.clip(-low_margin / np.maximum(rise, 1e-12), 0.0, 1.0)
    # Above the root first, so that the next win is close; once it is, just below that win.
    near = bounded & (high <= root * (1 + precision))
    aim = np.where(near, high / (1 + 0.9 * precision), root * (1 + precision / 4))
    inside = np.clip(aim, low + 0.05 * (top - low), top - np.where(bounded, 0.05 * (top - low), 0))
    narrow = bounded & (high <= np.maximum(low, 1e-9) * (1 + 4 * precision))
    inside = np.where(narrow & ~near, (low + top) / 2, inside)
    return np.asarray(np.where(near, np.maximum(aim, low), inside), dtype=np.float64)
