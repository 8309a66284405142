"""Are our attacks at least as strong as Foolbox's and torchattacks', with the same effort?

Run: python benchmarks/attack_peers.py MODEL --data lfw:PATH [--pairs 10] [--only fmn --only ddn]

Same model, pairs, threshold, budget and number of gradients; the peers attack two logits made of
the same margin. Every picture, theirs too, is judged by our onnxruntime verifier. Run it with the
Python of an environment that has onnxfr, foolbox and torchattacks. For fixed budgets the share
won and the margin reached are compared (torchattacks' APGD hands back the clean picture where it
does not win: look at the share), otherwise the distance in grey levels. Pair by pair, "better"
counts where ours comes closer or reaches the larger margin; distances within 0.1 % and margins
within 0.001 are level. Ratios below 1 are in our favour.
"""

from __future__ import annotations

import argparse
from collections.abc import Callable
from typing import NamedTuple

import numpy as np
import torch
from _attack_world import World
from _peer_attacks import (
    Peer,
    TwoLogits,
    foolbox_attack,
    outcome,
    torchattacks_attack,
    without_torchvision,
)
from numpy.typing import NDArray

from onnxfr.attacks import make_attack
from onnxfr.probe import Probe
from onnxfr.threat import Threat
from onnxfr.types import Goal, Norm

Costs = NDArray[np.floating]
_LEVEL = 1e-3
Maker = Callable[[TwoLogits, Probe, str, Threat, int], Peer]


class Duel(NamedTuple):
    """One attack of ours against the same one of a peer."""

    name: str
    ours: str
    peer: str
    make: Maker
    norm: Norm
    eps: float | None
    steps: int


DUELS = (
    Duel("bim", "bim", "Foolbox", foolbox_attack, "linf", 1 / 255, 20),
    Duel("pgd", "pgd(steps=20,step_ratio=1.5)", "Foolbox", foolbox_attack, "linf", 1 / 255, 20),
    Duel("apgd", "apgd(steps=20)", "torchattacks", torchattacks_attack, "linf", 1.3 / 255, 20),
    Duel("deepfool", "deepfool(steps=50)", "Foolbox", foolbox_attack, "l2", None, 50),
    Duel("fmn", "fmn", "Foolbox", foolbox_attack, "l2", None, 100),
    Duel("fmn", "fmn", "Foolbox", foolbox_attack, "linf", None, 100),
    Duel("ddn", "ddn", "Foolbox", foolbox_attack, "l2", None, 100),
    Duel("cw", "cw(growths=1,bisections=2)", "Foolbox", foolbox_attack, "l2", None, 400),
)


def fight(world: World, duel: Duel) -> str:
    """Return a row of the table."""
    probe, threat = world.probe, Threat(norm=duel.norm, eps=duel.eps)
    result = make_attack(duel.ours)(world.oracle(probe, threat), probe, threat, seed=0)
    logits = TwoLogits(world.model, probe, world.goal, world.threshold)
    made = duel.make(logits, probe, duel.name, threat, duel.steps)()
    theirs = outcome(world.oracle(probe, threat), probe, threat, made)
    if duel.eps is None:
        said, paired = distances(result.cost, theirs)
    else:
        reached = [world.oracle(probe, threat).verify(each) for each in (result.images, made)]
        said, paired = margins((result.cost, theirs), (reached[0], reached[1]))
    asked = f"{result.gradients.mean():.0f}"
    game = f"{world.goal}, {duel.norm}"
    return f"| {duel.name} | {game} | {said[0]} ({asked}) | {duel.peer} {said[1]} | {paired} |"


def distances(ours: Costs, theirs: Costs) -> tuple[list[str], str]:
    """Return both medians, and the comparison pair by pair."""
    said = [f"{255 * float(np.median(cost)):.3f}" for cost in (ours, theirs)]
    both = np.isfinite(ours) & np.isfinite(theirs)
    ratio = float(np.median(ours[both] / theirs[both])) if both.any() else float("nan")
    return (
        said,
        f"{ratio:.3f}; {_counts(ours * (1 + _LEVEL) < theirs, theirs * (1 + _LEVEL) < ours)}",
    )


def margins(costs: tuple[Costs, Costs], reached: tuple[Costs, Costs]) -> tuple[list[str], str]:
    """Return the shares won and mean margins, and the comparison pair by pair."""
    said = [
        f"{np.isfinite(cost).sum()}/{len(cost)} won, {each.mean():+.4f}"
        for cost, each in zip(costs, reached, strict=True)
    ]
    gain = reached[0] - reached[1]
    return said, f"{np.median(gain):+.4f}; {_counts(gain > _LEVEL, gain < -_LEVEL)}"


def _counts(better: NDArray[np.bool_], worse: NDArray[np.bool_]) -> str:
    return f"{better.sum()}/{len(better) - better.sum() - worse.sum()}/{worse.sum()}"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("model")
    parser.add_argument("--data", required=True)
    parser.add_argument("--pairs", type=int, default=10)
    parser.add_argument("--only", action="append")
    parser.add_argument("--goal", action="append", type=Goal)
    options = parser.parse_args()
    torch.set_num_threads(1)
    without_torchvision()
    print("| attack | game | ours (gradients) | peer | median ratio or gain; better/level/worse |")
    print("|---|---|---|---|---|")
    for goal in options.goal or Goal:
        world = World(options.model, options.data, goal, options.pairs)
        for duel in DUELS:
            if not options.only or duel.name in options.only:
                print(fight(world, duel), flush=True)


if __name__ == "__main__":
    main()
