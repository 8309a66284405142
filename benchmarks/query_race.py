r"""Races our HopSkipJump and Boundary against Foolbox's and ART's: questions per processor second.

    python benchmarks/query_race.py w600k_mbf --threshold 0.2185 --data LFW \
        --peer-python OTHER/bin/python --pairs 4 --queries 300 --rounds 3

The same network file, pairs, starts and budget for all, one thread each, in turns within a round,
so that a busy machine slows all alike. Peers play one pair at a time, as they do; ours plays its
pairs together. Data and OTHER are those of ``decision_peers.py``. Loading models and packages does
not count; the counting and judging of answers does, for both sides.
"""

from __future__ import annotations

import argparse
from pathlib import Path

import numpy as np
from decision_peers import play_ours, play_peer, read_probe, with_starts

from onnxfr.models.wrapper import load_model
from onnxfr.types import Goal

ATTACKS = ("hopskipjump", "boundary")
WHO = ("onnxfr", "foolbox", "art")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("model")
    parser.add_argument("--threshold", type=float, required=True)
    parser.add_argument("--data", type=Path, required=True, help="folder of lfw_112 and pairs.txt")
    parser.add_argument("--peer-python", required=True, help="Python that has the peers")
    parser.add_argument("--pairs", type=int, default=4)
    parser.add_argument("--queries", type=int, default=300)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--seed", type=int, default=0)
    options = parser.parse_args()
    options.threads, options.eps, options.peer_engine = 1, None, "plain"
    model = load_model(options.model, threads=1)
    options.folder = model.folder
    goal = Goal.DODGE
    pairs = read_probe(options.data, goal, options.pairs)
    probe = with_starts(model, pairs, goal, options.threshold)
    rows = list(range(len(probe)))
    print(f"{len(rows)} pairs, {options.queries} questions each; questions per processor second")
    for name in ATTACKS:
        rates: dict[str, list[float]] = {who: [] for who in WHO}
        for _ in range(options.rounds):
            for who in WHO:
                if who == "onnxfr":
                    lines = list(play_ours(model, name, probe, goal, rows, options))
                else:
                    lines = list(play_peer(who, name, probe, goal, rows, options))
                asked = sum(line["queries"] for line in lines)
                rates[who].append(asked / sum(line["seconds"] for line in lines))
        for who in WHO:
            ratio = np.median(np.divide(rates["onnxfr"], rates[who]))
            each = " ".join(f"{rate:.0f}" for rate in rates[who])
            print(f"{name:<12} {who:<9} {np.median(rates[who]):6.0f} ({each})  ours {ratio:.2f} x")


if __name__ == "__main__":
    main()
