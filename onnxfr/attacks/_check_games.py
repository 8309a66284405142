"""The games that the checks of an evaluation play themselves; they return numbers, no verdicts."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
from numpy.typing import NDArray

from onnxfr.attacks._dice import held
from onnxfr.attacks.base import ATTACKS, AttackResult
from onnxfr.attacks.composition import make_attack
from onnxfr.oracle import Oracle
from onnxfr.probe import Probe
from onnxfr.rng import RowRng
from onnxfr.threat import Threat
from onnxfr.types import Norm

Floats = NDArray[np.float64]
Play = Callable[[Threat], Oracle]
"""Returns a fresh oracle on the same pairs under other rules."""

_SQUARE_QUERIES = 300
_STEP_RATIO = 1.5
_SAME = 1e-5


def black_box(
    play: Play, probe: Probe, threat: Threat, white: AttackResult, seed: int
) -> NDArray[np.bool_] | None:
    """Return which pairs Square wins among those BIM left; None where there is no Square."""
    if "square" not in ATTACKS or threat.norm not in ATTACKS.get("square").norms:
        return None
    rows = np.flatnonzero(~white.won & ~white.won_clean)
    won = np.zeros(len(probe), dtype=np.bool_)
    if rows.size:
        capped = Threat(norm=threat.norm, eps=threat.eps, max_queries=_SQUARE_QUERIES)
        window, games = play(capped).part(rows), probe.take(rows)
        won[rows] = make_attack("square")(window, games, capped, seed=seed).won
    return won


def noise_success(play: Play, probe: Probe, norm: Norm, eps: float, seed: int) -> float:
    """Return the share of pairs that fall to random noise as large as the budget."""
    threat = Threat(norm=norm, eps=eps)
    oracle = play(threat)
    draws = oracle.tensor(RowRng(seed, probe.ids, "noise").normal(probe.images.shape[1:]))
    clean = oracle.tensor(probe.images)
    noisy = threat.project(clean, clean + eps * threat.steepest(draws))
    before = oracle.verify(probe.images) > 0
    won = oracle.decide(noisy)[~before]
    return float(won.mean()) if won.size else 0.0


def slopes(oracle: Oracle, probe: Probe, norm: Norm) -> tuple[Floats, Floats]:
    """Return how the margin grows along a random direction and along the gradient's own."""
    threat = Threat(norm=norm)
    clean = oracle.tensor(probe.images)
    _, slope = oracle.gradient(clean)
    dice = oracle.tensor(RowRng(0, probe.ids, "slopes").normal(probe.images.shape[1:]))
    # A direction that has a part along the gradient and a part that has not, lest 0 agree with 0.
    along = threat.steepest(slope) + threat.steepest(dice)
    step = 0.25 / 255
    up, down = (oracle.score((clean + sign * step * along).clamp(0, 1)) for sign in (1, -1))
    moved = (clean + step * along).clamp(0, 1) - (clean - step * along).clamp(0, 1)
    told = (slope * moved).flatten(1).sum(1).cpu().numpy()
    return told.astype(np.float64), (up - down).astype(np.float64)


def curves(
    oracle: Oracle,
    probe: Probe,
    threat: Threat,
    steps: int,
    before: Callable[[], None] = lambda: None,
) -> Floats:
    """Return the margins that BIM sees on its way, ``(steps + 1, rows)``.

    Args:
        oracle: who is asked.
        probe: the pairs.
        threat: norm and budget.
        steps: gradient steps; one more gradient looks at where they end.
        before: called ahead of every gradient.
    """
    clean = oracle.tensor(probe.images)
    x, seen = clean.clone(), []
    size = threat.radius(clean) * _STEP_RATIO / steps
    for _ in range(steps + 1):
        before()
        margin, slope = oracle.gradient(x)
        seen.append(margin.cpu().numpy().astype(np.float64))
        x = threat.project(clean, x + size * threat.steepest(slope))
    return np.stack(seen)


def held_curves(oracle: Oracle, probe: Probe, threat: Threat, steps: int) -> Floats | None:
    """Return the same with the model's dice held still; None where they cannot be held."""
    clean = oracle.tensor(probe.images)
    with held(oracle) as restore:
        looks = []
        for _ in range(2):
            restore()
            looks.append(oracle.gradient(clean)[0])
        if bool(((looks[0] - looks[1]).abs() > _SAME).any()):
            return None
        return curves(oracle, probe, threat, steps, restore)
