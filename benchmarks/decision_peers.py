"""Compares our decision attacks with Foolbox's and ART's at equal numbers of questions.

    python benchmarks/decision_peers.py w600k_mbf --threshold 0.2185 --data LFW \
        --peer-python OTHER/bin/python --pairs 10 --queries 2000 --out results.jsonl

LFW is a folder with ``lfw_112/`` and ``pairs.txt``. OTHER is an environment with foolbox 3.3.4,
adversarial-robustness-toolbox 1.20.1, torch and onnxruntime. All play the same pairs from the same
starts (the reference, or the nearest face of other people that is not taken for it). Distances are
root mean square changes in grey levels. ``--out`` keeps every finished pair's curve: the same
command goes on where it was stopped, and ``--table`` only prints what is there.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import tempfile
import time
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from onnxfr.attacks import make_attack
from onnxfr.data.images import decode, to_images
from onnxfr.models.wrapper import OnnxModel, load_model
from onnxfr.oracle import Oracle
from onnxfr.probe import Probe
from onnxfr.threat import Threat
from onnxfr.types import Goal, Images

PEERS = (
    *(("foolbox", "boundary"), ("foolbox", "hopskipjump"), ("art", "boundary")),
    *(("art", "hopskipjump"), ("art", "geoda"), ("art", "sign_opt")),
)
OURS = (
    *("boundary", "evolutionary", "hopskipjump", "qeba", "tangent", "cgba", "surfree", "geoda"),
    *("sign_opt", "opt"),
)
MARKS = (100, 200, 500, 1000, 2000, 5000, 10_000, 20_000)
POOL = 16
Line = dict[str, Any]


def read_probe(folder: Path, goal: Goal, pairs: int) -> Probe:
    """Return every seventh pair of the official list, and faces of other people as the pool."""
    columns = 3 if goal is Goal.DODGE else 4
    lines = [line.split() for line in (folder / "pairs.txt").read_text().splitlines()[1:]]
    rows = [row for row in lines if len(row) == columns][: 7 * pairs : 7]
    strangers = [row for row in lines if len(row) == 4][-7 * POOL :: 7]

    def pictures(named: list[tuple[str, str]]) -> Images:
        paths = [folder / "lfw_112" / n / f"{n}_{int(k):04d}.jpg" for n, k in named]
        return to_images([decode(path.read_bytes(), path.name) for path in paths])

    return Probe(
        pictures([(row[0], row[1]) for row in rows]),
        tuple("/".join(row) for row in rows),
        references=pictures([(row[-2] if columns == 4 else row[0], row[-1]) for row in rows]),
        pool=pictures([(row[0], row[1]) for row in strangers]),
    )


def with_starts(model: OnnxModel, probe: Probe, goal: Goal, threshold: float) -> Probe:
    """Return the pairs that need an attack, each with the start that all attacks share."""
    assert probe.references is not None and probe.pool is not None
    sign = -1 if goal is Goal.DODGE else 1
    margin = sign * (model.similarity(probe.images, probe.references) - threshold)
    probe = probe.take(np.flatnonzero(margin <= 0))
    assert probe.references is not None and probe.pool is not None
    if goal is Goal.IMPERSONATE:
        return replace(probe, starts=probe.references)
    far = np.square(probe.images[:, None] - probe.pool[None]).sum(axis=(2, 3, 4))
    cosine = model.embed(probe.references) @ model.embed(probe.pool).T
    nearest = np.argmin(np.where(cosine > threshold, np.inf, far), axis=1)
    return replace(probe, starts=probe.pool[nearest])


def play_ours(model: OnnxModel, name: str, probe: Probe, goal: Goal, options: Any) -> list[Line]:
    """Return our curves, one line per pair."""
    threat = Threat(norm="l2", max_queries=options.queries)
    oracle = Oracle(model, probe, threat, goal=goal, threshold=options.threshold, device="cpu")
    start = time.perf_counter()
    result = make_attack(name)(oracle, probe, threat, seed=options.seed)
    seconds = (time.perf_counter() - start) / len(probe)
    lines = []
    for row in range(len(probe)):
        curve = [(e.queries, e.distance) for e in result.trace if e.row == row]
        queries = int(result.queries[row])
        lines.append({"pair": row, "curve": curve, "queries": queries, "seconds": seconds})
    return lines


def play_peer(who: str, name: str, probe: Probe, goal: Goal, options: Any) -> Iterator[Line]:
    """Yield a peer's curves as its environment finishes them."""
    job = {
        **{"who": who, "attack": name, "goal": goal.value, "queries": options.queries},
        **{"threshold": options.threshold, "seed": options.seed, "threads": options.threads},
        "model": str(options.folder / "model.onnx"),
    }
    worker = Path(__file__).with_name("_decision_peers_worker.py").resolve()
    with tempfile.TemporaryDirectory() as folder:
        assert probe.references is not None and probe.starts is not None
        (Path(folder) / "job.json").write_text(json.dumps(job))
        arrays = {"images": probe.images, "references": probe.references, "starts": probe.starts}
        np.savez(Path(folder) / "pairs.npz", **arrays)
        command = [options.peer_python, str(worker), folder]
        with subprocess.Popen(command, stdout=subprocess.PIPE, text=True, cwd=folder) as process:
            assert process.stdout
            for line in process.stdout:
                yield json.loads(line)
        if process.returncode:
            raise SystemExit(f"{who}'s {name} failed in {options.peer_python}; see above")


def at_marks(line: Line, marks: list[int]) -> list[float]:
    """Return the distance a pair had reached after each number of questions, in grey levels."""
    reached = []
    for mark in marks:
        closer = [distance for queries, distance in line["curve"] if queries <= mark]
        reached.append(255 * min(closer, default=np.inf))
    return reached


def print_table(lines: list[Line], queries: int) -> None:
    """Print medians over the pairs, one line per goal and attack."""
    marks = [mark for mark in MARKS if mark <= queries]
    print("median distance in grey levels; pairs; questions per second")
    print(f"{'goal':<13}{'who':<9}{'attack':<13}" + "".join(f"{m:>8}" for m in marks))
    for goal in Goal:
        for who, name in (*((("onnxfr", name)) for name in OURS), *PEERS):
            mine = [x for x in lines if (x["goal"], x["who"], x["attack"]) == (goal, who, name)]
            if mine:
                median = np.median([at_marks(line, marks) for line in mine], axis=0)
                rate = sum(x["queries"] for x in mine) / sum(x["seconds"] for x in mine)
                cells = "".join(f"{value:8.2f}" for value in median)
                print(f"{goal:<13}{who:<9}{name:<13}{cells}   n={len(mine)}  {rate:.0f}/s")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("model")
    parser.add_argument("--threshold", type=float, required=True)
    parser.add_argument("--data", type=Path, required=True, help="folder of lfw_112 and pairs.txt")
    parser.add_argument("--peer-python", help="Python that has Foolbox and ART; else ours only")
    parser.add_argument("--pairs", type=int, default=10, help="pairs a goal")
    parser.add_argument("--queries", type=int, default=2000)
    parser.add_argument("--attacks", nargs="+", help="only these, ours or peers'")
    parser.add_argument("--who", nargs="+", default=["onnxfr", "foolbox", "art"])
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--table", action="store_true", help="print what is there and end")
    options = parser.parse_args()
    done = options.out.read_text().splitlines() if options.out.exists() else []
    lines = [json.loads(line) for line in done]
    if options.table:
        return print_table(lines, options.queries)
    model = load_model(options.model, threads=options.threads)
    options.folder = model.folder
    for goal in Goal:
        pairs = read_probe(options.data, goal, options.pairs)
        probe = with_starts(model, pairs, goal, options.threshold)
        jobs = [("onnxfr", name) for name in OURS] + (list(PEERS) if options.peer_python else [])
        for who, name in jobs:
            facts = {"goal": goal.value, "who": who, "attack": name}
            played = {x["pair"] for x in lines if {k: x[k] for k in facts} == facts}
            wanted = options.attacks is None or name in options.attacks
            if who not in options.who or not wanted or len(played) >= len(probe):
                continue
            if who == "onnxfr":
                found = iter(play_ours(model, name, probe, goal, options))
            else:
                found = play_peer(who, name, probe, goal, options)
            for line in found:
                if line["pair"] not in played:
                    lines.append(facts | line)
                    with options.out.open("a") as file:
                        file.write(json.dumps(lines[-1]) + "\n")
    print_table(lines, options.queries)


if __name__ == "__main__":
    main()
