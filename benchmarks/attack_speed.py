"""What an attack costs: our steps against bare torch, our PGD against peers, our search's saving.

Run: python benchmarks/attack_speed.py MODEL --data lfw:PATH [--pairs 8] [--rounds 5] [--search 6]
[--leave 24]

Ratios only, everything interleaved in one run. Peers (Foolbox, torchattacks, ART) are timed where
they can be imported: run it with the Python of an environment that has onnxfr and them.
"""

from __future__ import annotations

import argparse
import resource
import time
from collections.abc import Callable, Sequence
from dataclasses import replace

import numpy as np
import torch
from _attack_world import World
from _peer_attacks import (
    Peer,
    TwoLogits,
    art_pgd,
    foolbox_attack,
    torchattacks_attack,
    without_torchvision,
)

from onnxfr.attacks import make_attack
from onnxfr.probe import round8
from onnxfr.rng import RowRng
from onnxfr.threat import Threat
from onnxfr.types import Goal

STEPS = 20
EPS = 8 / 255


def against(
    bare: Callable[[], object], runs: dict[str, Callable[[], object]], rounds: int
) -> dict[str, list[float]]:
    """Return the processor time of each run relative to ``bare`` just before and just after it.

    A neighbour on the other half of the core slows everything down for seconds at a time: only
    what runs within the same seconds can be compared. The order turns from round to round.
    """
    found: dict[str, list[float]] = {name: [] for name in runs}
    names = list(runs)
    for run in (bare, *runs.values()):
        run()
    before = _seconds(bare)
    for k in range(rounds):
        for name in names[k % len(names) :] + names[: k % len(names)]:
            spent, after = _seconds(runs[name]), _seconds(bare)
            found[name].append(2 * spent / (before + after))
            before = after
    return found


def _seconds(run: Callable[[], object]) -> float:
    begin = time.process_time()
    run()
    return time.process_time() - begin


def bare_loop(world: World) -> Callable[[], object]:
    """Return forward and backward passes of the converted graph and nothing else."""
    assert world.probe.references is not None
    reference = torch.from_numpy(world.model.embed(world.probe.references))
    images = torch.from_numpy(world.probe.images)

    def run() -> None:
        for _ in range(STEPS):
            point = images.clone().requires_grad_()
            cosine = (world.model.embed_grad(point) * reference).sum()
            torch.autograd.grad(cosine, point)

    return run


def steps_and_peers(world: World, rounds: int) -> None:
    """Time twenty gradients bare, ours with and without the judge, and the peers' PGD.

    Nobody is timed embedding the references. The judge's own work is the onnxruntime passes before
    the attack, after it and after rounding to 8 bits; of the peers only Foolbox looks again. So
    every peer is timed twice: as it is, and with the passes that make its pictures a verdict.
    """
    probe, threat = world.probe, Threat(norm="linf", eps=EPS)
    assert probe.references is not None
    # An oracle that has the pictures embeds them again, whatever else it is given.
    known = world.model.embed(probe.references)
    ours = replace(probe, references=None, reference_embeddings=known)
    pgd, leaving = (
        make_attack("pgd", {"steps": STEPS, "step_ratio": 1.5, "stop_on_win": stop})
        for stop in (False, True)
    )

    def loop() -> object:
        oracle = world.oracle(ours, threat)
        return pgd.run(oracle, ours, threat, RowRng(0, ours.ids, "speed"))

    def peer(make: Callable[[TwoLogits], Peer]) -> Peer:
        return make(TwoLogits(world.model, probe, world.goal, world.threshold))

    def judged(run: Peer) -> Callable[[], object]:
        def looked() -> None:
            oracle = world.oracle(ours, threat)
            oracle.verify(ours.images)
            made = run()
            oracle.verify(made)
            oracle.verify(round8(made))

        return looked

    runs: dict[str, Callable[[], object]] = {
        "our PGD, loop": loop,
        "our PGD, judged": lambda: pgd(world.oracle(ours, threat), ours, threat, seed=0),
        "our PGD, winners leave": lambda: leaving(world.oracle(ours, threat), ours, threat, seed=0),
    }
    for name, make in {
        "Foolbox PGD": lambda logits: foolbox_attack(logits, probe, "pgd", threat, STEPS),
        "torchattacks PGD": lambda logits: torchattacks_attack(logits, probe, "pgd", threat, STEPS),
        "ART PGD": lambda logits: art_pgd(logits, probe, threat, STEPS),
    }.items():
        try:
            runs[name] = plain = peer(make)
            runs[f"{name}, judged"] = judged(plain)
        except ImportError as missing:
            print(f"{name}: not here ({missing})")
    print(
        f"{len(probe)} pairs at once, {STEPS} steps, {rounds} rounds, processor time relative to "
        "bare forward+backward: median, quartiles"
    )
    for name, ratios in against(bare_loop(world), runs, rounds).items():
        low, middle, high = np.percentile(ratios, [25, 50, 75])
        print(f"  {name:24} {middle:.3f}  ({low:.3f} – {high:.3f})")


def early_leavers(worlds: Sequence[World]) -> None:
    """Compare what is won with all steps and when winners leave, as float and as 8-bit pictures."""
    for world in worlds:
        probe = world.probe
        for eps in EPS, 1.5 / 255:
            threat = Threat(norm="linf", eps=eps)
            every, early = (
                make_attack("pgd", {"steps": STEPS, "step_ratio": 1.5, "stop_on_win": stop})(
                    world.oracle(probe, threat), probe, threat, seed=0
                )
                for stop in (False, True)
            )
            print(
                f"winners leave, {world.goal}, {len(probe)} pairs, eps {255 * eps:g}/255: won "
                f"{early.won.sum()} (all steps {every.won.sum()}), as 8-bit files "
                f"{early.won_8bit.sum()} ({every.won_8bit.sum()}), lost by leaving "
                f"{(every.won & ~early.won).sum()} and {(every.won_8bit & ~early.won_8bit).sum()}; "
                f"{early.gradients.mean():.1f} gradients and {early.queries.mean():.1f} questions "
                f"a pair ({every.gradients.mean():.1f})"
            )


def search_saving(world: World, pairs: int) -> None:
    """Compare gradients and medians of our search with RobFR's schedule on the same pairs."""
    probe, threat = world.probe.take(np.arange(pairs)), Threat(norm="linf")
    results = {}
    for schedule in ("ours", "robfr"):
        attack = make_attack(f"smallest(schedule={schedule}):bim")
        results[schedule] = attack(world.oracle(probe, threat), probe, threat, seed=0)
    ours, theirs = results["ours"], results["robfr"]
    medians = [255 * float(np.median(each.cost)) for each in (ours, theirs)]
    asked = [float(each.gradients.mean()) for each in (ours, theirs)]
    print(
        f"BIM minimum search, {world.goal}, {pairs} pairs: ours {asked[0]:.0f} gradients, RobFR's "
        f"{asked[1]:.0f}, ratio 1/{asked[1] / asked[0]:.1f}; medians {medians[0]:.3f} and "
        f"{medians[1]:.3f} ({100 * (medians[0] / medians[1] - 1):+.1f} %)"
    )


def memory(world: World) -> None:
    """Attack one block again and again: the peak must not grow with the number of pairs."""
    probe, threat = world.probe, Threat(norm="linf", eps=EPS)
    fgsm = make_attack("fgsm")
    peaks = []
    for blocks in (2, 8):
        for _ in range(blocks):
            fgsm(world.oracle(probe, threat), probe, threat, seed=0)
        peaks.append(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024)
    print(
        f"memory: peak {peaks[0]:.0f} MB after {2 * len(probe)} pairs, {peaks[1]:.0f} MB after "
        f"{10 * len(probe)}, in blocks of {len(probe)}"
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("model")
    parser.add_argument("--data", required=True)
    parser.add_argument("--pairs", type=int, default=8)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--search", type=int, default=6)
    parser.add_argument("--leave", type=int, default=0, help="pairs a goal, winners leaving")
    options = parser.parse_args()
    torch.set_num_threads(1)
    without_torchvision()
    world = World(options.model, options.data, Goal.DODGE, options.pairs)
    memory(world)
    if options.rounds:
        steps_and_peers(world, options.rounds)
    if options.search:
        search_saving(world, min(options.search, len(world.probe)))
    if options.leave:
        early_leavers([World(options.model, options.data, goal, options.leave) for goal in Goal])


if __name__ == "__main__":
    main()
