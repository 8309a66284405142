"""Signs that an attack failed for the wrong reason: masked gradients, dice, too little effort.

After Carlini et al. 2019 ("On Evaluating Adversarial Robustness"), AutoAttack's flags and the
orderings that hold in RobFR's tables. Each check is a pure function of numbers an evaluation has
anyway; ``examine`` also runs the cheap ones that need the model. A flag names the page that says
what it means and what to do. None of them is a proof.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Literal

import numpy as np
from numpy.typing import ArrayLike, NDArray

from onnxfr.attacks import AttackResult, make_attack
from onnxfr.attacks import _check_games as games
from onnxfr.probe import Probe
from onnxfr.threat import Threat
from onnxfr.types import Norm

Light = Literal["green", "yellow", "red"]
Dice = Literal["none", "held", "loose"]
"""Whether a model has none, whether they were held still, or could not be."""

STRONGEST_FIRST = ("cw", "bim", "mim", "fgsm")
"""The order of medians in all 21 natural and adversarially trained models of RobFR."""

_POINT = 0.01
_NOT_RANDOM = 1e-5
_STILL = 1e-6
"""A margin that moves no more than this on the whole way has not been climbed."""
_LARGEST_PAIR = 0.1
"""With fewer than ten pairs a single one is no longer small change."""


@dataclass(frozen=True)
class Flag:
    """The outcome of one check; ``page`` is the anchor of its page in docs/checks.md."""

    name: str
    light: Light
    value: float
    message: str

    @property
    def page(self) -> str:
        """Where the flag is explained."""
        return f"docs/checks.md#{self.name.replace('_', '-')}"


def _flag(name: str, value: float, green: bool, yellow: bool, message: str) -> Flag:
    light: Light = "green" if green else "yellow" if yellow else "red"
    return Flag(name, light, float(value), message)


def _points(pairs: int, *limits: float) -> list[float]:
    """Return limits in points, widened where one pair, two pairs, ... are more than that."""
    one = min(1 / pairs, _LARGEST_PAIR) if pairs else 0.0
    return [max(limit, k * one) for k, limit in enumerate(limits, start=1)]


def unbounded_budget(asr: float) -> Flag:
    """Flag an attack that cannot win even when every pixel may take any value."""
    text = f"{asr:.1%} of pairs fall when the budget is the whole pixel range"
    return _flag("unbounded_budget", asr, asr >= 0.99, asr >= 0.9, text)


def _nothing_to_check() -> Flag:
    text = "every pair is wrong without an attack: there was nothing to check"
    return Flag("unbounded_budget", "yellow", 0.0, text)


def growing_budget(eps: Sequence[float], asr: Sequence[float], pairs: int = 0) -> Flag:
    """Flag a success rate that falls although the budget grows; ``pairs`` stand behind each."""
    green, yellow = _points(pairs, _POINT, 3 * _POINT)
    ordered = np.asarray(asr, dtype=np.float64)[np.argsort(eps)]
    drop = float(np.max(np.maximum.accumulate(ordered) - ordered, initial=0.0))
    text = f"the success rate falls by at most {drop:.1%} as the budget grows"
    return _flag("growing_budget", drop, drop <= green, drop <= yellow, text)


def order_of_medians(medians: Mapping[str, float], tolerance: float = 0.02) -> Flag:
    """Flag single-step attacks that need less than iterative ones."""
    present = [name for name in STRONGEST_FIRST if name in medians]
    pairs = list(pairwise(present))
    with np.errstate(invalid="ignore", divide="ignore"):
        excess = [_ratio(medians[a], medians[b]) - 1 for a, b in pairs]
    worst = max(excess, default=0.0)
    broken = [f"{a} > {b}" for (a, b), e in zip(pairs, excess, strict=True) if e > tolerance]
    text = (
        "the order of medians is broken: " + ", ".join(broken)
        if broken
        else ("the medians are ordered " + " <= ".join(present))
    )
    return _flag("order_of_medians", worst, worst <= tolerance, worst <= 5 * tolerance, text)


def _ratio(a: float, b: float) -> float:
    if np.isinf(a) and np.isinf(b):
        return 1.0
    return float("inf") if b == 0 < a else a / b if b else 1.0


def more_effort(
    name: Literal["more_steps", "more_restarts"], once: float, twice: float, pairs: int = 0
) -> Flag:
    """Flag an attack that wins clearly more often when its steps or restarts are doubled."""
    gain = twice - once
    green, yellow = _points(pairs, _POINT, 3 * _POINT)
    text = f"doubling gains {gain:+.1%} success"
    return _flag(name, gain, gain <= green, gain <= yellow, text)


def black_box_beats_white_box(white: ArrayLike, black: ArrayLike) -> Flag:
    """Flag pairs that an attack without gradients wins and one with gradients does not."""
    lost = ~np.asarray(white, dtype=np.bool_) & np.asarray(black, dtype=np.bool_)
    share = float(lost.mean()) if lost.size else 0.0
    text = f"{int(lost.sum())} of {lost.size} pairs fall to a black box but not to gradients"
    return _flag("black_box_beats_white_box", share, not lost.any(), share <= _POINT, text)


def harmful_noise(asr: float, pairs: int = 0) -> Flag:
    """Flag a model that falls to noise of the attack's size: no attack is needed there."""
    green, yellow = _points(pairs, 2 * _POINT, 0.1)
    text = f"{asr:.1%} of pairs fall to random noise of the same size"
    return _flag("harmful_noise", asr, asr <= green, asr <= yellow, text)


def unusable_gradients(bad: ArrayLike, asked: ArrayLike) -> Flag:
    """Flag gradients that are zero everywhere or not finite."""
    total = float(np.sum(asked))
    share = float(np.sum(bad)) / total if total else 0.0
    text = f"{share:.1%} of gradients are zero everywhere or not finite"
    return _flag("unusable_gradients", share, share == 0, share <= _POINT, text)


def changing_answers(scores: NDArray[np.float32]) -> Flag:
    """Flag a model whose answers differ between calls, ``scores`` (calls, rows)."""
    spread = float(np.ptp(scores, axis=0).max()) if scores.size else 0.0
    text = f"the same picture's score varies by up to {spread:.1e}"
    if spread > _NOT_RANDOM:
        text += "; average gradients over several calls (samples) and scores over fresh ones"
    return _flag("changing_answers", spread, spread <= _NOT_RANDOM, spread <= 1e-3, text)


def rounding_gap(won: ArrayLike, won_8bit: ArrayLike) -> Flag:
    """Flag wins that do not survive being saved as an 8-bit picture."""
    kept, rounded = (np.asarray(v, dtype=np.float64) for v in (won, won_8bit))
    gap = float(kept.mean() - rounded.mean()) if kept.size else 0.0
    green, yellow = _points(kept.size, _POINT, 0.1)
    text = f"{gap:+.1%} of pairs are won in floats only"
    return _flag("rounding_gap", gap, gap <= green, gap <= yellow, text)


def finite_differences(by_gradient: ArrayLike, by_scores: ArrayLike) -> Flag:
    """Flag gradients that do not say how the scores move."""
    slope, seen = (np.asarray(v, dtype=np.float64) for v in (by_gradient, by_scores))
    scale = np.maximum(np.maximum(np.abs(slope), np.abs(seen)), 1e-12)
    error = float(np.median(np.abs(slope - seen) / scale)) if slope.size else 0.0
    text = f"median disagreement of gradients and score differences {error:.0%}"
    return _flag("finite_differences", error, error <= 0.2, error <= 0.5, text)


def loss_curves(margins: ArrayLike, won: ArrayLike) -> Flag:
    """Flag ascents that go down or nowhere, and wins on the way that the attack did not keep.

    Args:
        margins: what the attack saw at each step, (steps, pairs).
        won: what it brought home.
    """
    seen, kept = np.asarray(margins, dtype=np.float64), np.asarray(won, dtype=np.bool_)
    moves = np.diff(seen, axis=0)
    way, down = np.abs(moves).sum(axis=0), np.maximum(-moves, 0).sum(axis=0)
    falls = np.where(way > _STILL, down / np.maximum(way, _STILL), 1.0)
    share = float(np.median(falls)) if falls.size else 0.0
    dropped = (seen.max(axis=0) > 0) & ~kept if falls.size else kept
    loss = float(dropped.mean()) if dropped.size else 0.0
    green, yellow = _points(dropped.size, _POINT, 3 * _POINT)
    text = f"{share:.0%} of the margin's way goes down or nowhere" + (
        f"; {int(dropped.sum())} of {dropped.size} pairs won on the way were not kept"
    )
    level = share <= 0.15 and loss <= green, share <= 0.3 and loss <= yellow
    return _flag("loss_curves", share, *level, text)


def fixed_dice(dice: Dice, asr: float = 1.0) -> Flag:
    """Flag a randomised model that resists even if it rolls the same dice at every call."""
    if dice == "none":
        text = "no dice to hold: answers do not change between calls, or no pair is left to attack"
        return Flag("fixed_dice", "green", asr, text)
    if dice == "loose":
        text = "the model's dice are out of reach: they could not be held still"
        return Flag("fixed_dice", "yellow", 0.0, text)
    text = f"{asr:.1%} of pairs fall to the whole pixel range while the dice are held still"
    return _flag("fixed_dice", asr, asr >= 0.99, asr >= 0.9, text)


def examine(
    play: games.Play, probe: Probe, *, norm: Norm, eps: float, seed: int = 0, steps: int = 20
) -> list[Flag]:
    """Run every check that needs no other evaluation, with BIM as the attack.

    Where only the success rate matters, rows leave as soon as they have won. Pairs that BIM does
    not win are also tried by Square, which asks for scores only, where that attack is there.
    """

    def attacked(name: str, budget: float, **settings: int) -> AttackResult:
        threat = Threat(norm=norm, eps=budget)
        return make_attack(name, settings)(play(threat), probe, threat, seed=seed)

    single, plain = attacked("fgsm", eps), attacked("bim", eps, steps=steps)
    fair = ~plain.won_clean
    pairs = int(fair.sum())

    def asr(result: AttackResult) -> float:
        return float(result.won[fair].mean()) if pairs else 0.0

    quick = {"steps": steps, "stop_on_win": True}
    larger = attacked("bim", min(2 * eps, 1.0), **quick)
    longer = attacked("bim", eps, **(quick | {"steps": 2 * steps}))
    everything = attacked("bim", 1.0, **quick)
    once, twice = (attacked("pgd", eps, restarts=n, **quick) for n in (1, 2))
    oracle, rules = play(Threat(norm=norm)), Threat(norm=norm, eps=eps)
    climbed = games.curves(play(rules), probe, rules, steps)
    answers = changing_answers(np.stack([oracle.score(probe.images) for _ in range(3)]))
    flags = [
        unbounded_budget(asr(everything)) if pairs else _nothing_to_check(),
        growing_budget([eps, 2 * eps, 1.0], [asr(plain), asr(larger), asr(everything)], pairs),
        more_effort("more_steps", asr(plain), asr(longer), pairs),
        more_effort("more_restarts", asr(once), asr(twice), pairs),
        single_step_beats_iterative(single.won[fair], plain.won[fair]),
        harmful_noise(games.noise_success(play, probe, norm, eps, seed), pairs),
        unusable_gradients(plain.bad_gradients, plain.gradients),
        answers,
        rounding_gap(plain.won[fair], plain.won_8bit[fair]),
        finite_differences(*games.slopes(oracle, probe, norm)),
        loss_curves(climbed[:, fair], plain.won[fair]),
        _hold_dice(play, probe, norm, steps, fair, answers.light != "green"),
    ]
    black = games.black_box(play, probe, rules, plain, seed)
    return (
        flags
        if black is None
        else [*flags, black_box_beats_white_box(plain.won[fair], black[fair])]
    )


def _hold_dice(
    play: games.Play,
    probe: Probe,
    norm: Norm,
    steps: int,
    fair: NDArray[np.bool_],
    randomised: bool,
) -> Flag:
    """Attack with the dice held still where there are any, and pairs to attack."""
    if not randomised or not fair.any():
        return fixed_dice("none")
    threat = Threat(norm=norm, eps=1.0)
    climbed = games.held_curves(play(threat), probe, threat, steps)
    if climbed is None:
        return fixed_dice("loose")
    return fixed_dice("held", float((climbed[:, fair].max(axis=0) > 0).mean()))


def single_step_beats_iterative(single: ArrayLike, iterative: ArrayLike) -> Flag:
    """Flag pairs that one step wins and many steps do not."""
    lost = np.asarray(single, dtype=np.bool_) & ~np.asarray(iterative, dtype=np.bool_)
    share = float(lost.mean()) if lost.size else 0.0
    green, yellow = _points(lost.size, _POINT, 0.05)
    text = f"{int(lost.sum())} of {lost.size} pairs fall to one step but not to many"
    return _flag("single_step_beats_iterative", share, share <= green, share <= yellow, text)
