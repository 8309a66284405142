r"""Compares our query attacks with Foolbox's, ART's and torchattacks' at equal questions.

    python benchmarks/decision_peers.py w600k_mbf --threshold 0.2185 --data LFW \
        --peer-python OTHER/bin/python --pairs 10 --queries 2000 --out results.jsonl

LFW is a folder with ``lfw_112/`` and ``pairs.txt``. OTHER is an environment with foolbox 3.3.4,
adversarial-robustness-toolbox 1.20.1, torchattacks 3.5.1, torch, onnxruntime and onnxfr. All play
the same pairs; decision attacks (l2) begin at the same starts: the reference, or the nearest face
of other people that is not taken for it. Distances are root mean square changes in grey levels;
Square (linf, budget ``--eps``) is judged by how many questions its first win took.

Peers ask our engine, which is the same function answered sooner, unless ``--peer-engine plain``.
``--out`` keeps one line per pair and attack, so the same command goes on where it was stopped;
pairs played with fewer questions are played anew. ``--table`` only prints what is there: medians
over the pairs, and for every attack that a peer has too the median over the pairs of our distance
as a share of the peer's, with a 95 % bootstrap interval.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import tempfile
import time
from collections.abc import Iterator
from dataclasses import replace
from itertools import product
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from onnxfr.attacks import make_attack
from onnxfr.budgets import read_eps
from onnxfr.data.images import decode, to_images
from onnxfr.models.wrapper import OnnxModel, load_model
from onnxfr.oracle import Oracle
from onnxfr.probe import Probe
from onnxfr.rng import stream
from onnxfr.threat import Threat
from onnxfr.types import Goal, Images

PEERS = (
    *(("foolbox", "hopskipjump"), ("art", "hopskipjump"), ("foolbox", "boundary")),
    *(("art", "boundary"), ("art", "geoda"), ("art", "sign_opt")),
    *(("torchattacks", "square"), ("art", "square")),
)
OURS = (
    *("hopskipjump", "boundary", "geoda", "sign_opt", "square", "evolutionary", "tangent"),
    *("surfree", "cgba", "qeba", "opt"),
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


def threat_of(name: str, options: Any) -> Threat:
    """Return the rules an attack is compared under."""
    if name == "square":
        return Threat(norm="linf", eps=options.eps, max_queries=options.queries)
    return Threat(norm="l2", max_queries=options.queries)


def play_ours(
    model: OnnxModel, name: str, probe: Probe, goal: Goal, pairs: list[int], options: Any
) -> Iterator[Line]:
    """Yield our curves, one line per pair."""
    threat, some = threat_of(name, options), probe.take(np.array(pairs))
    oracle = Oracle(model, some, threat, goal=goal, threshold=options.threshold, device="cpu")
    start = time.process_time()
    result = make_attack(name)(oracle, some, threat, seed=options.seed)
    seconds = (time.process_time() - start) / len(pairs)
    for row, pair in enumerate(pairs):
        curve = [(e.queries, e.distance) for e in result.trace if e.row == row]
        queries = int(result.queries[row])
        yield {"pair": pair, "curve": curve, "queries": queries, "seconds": seconds}


def play_peer(
    who: str, name: str, probe: Probe, goal: Goal, pairs: list[int], options: Any
) -> Iterator[Line]:
    """Yield a peer's curves as its environment finishes them."""
    job = {
        **{"who": who, "attack": name, "goal": goal.value, "queries": options.queries},
        **{"threshold": options.threshold, "seed": options.seed, "threads": options.threads},
        "engine": options.peer_engine,
        **{"norm": threat_of(name, options).norm, "eps": options.eps, "pairs": pairs},
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


def condensed(line: Line, name: str, options: Any) -> Line:
    """Return a pair's line with what the table needs of its curve."""
    kept = {"pair": line["pair"], "queries": line["queries"], "seconds": round(line["seconds"], 2)}
    kept["seed"] = options.seed
    if name == "square":
        won = [asked for asked, far in line["curve"] if far <= options.eps + 1e-6]
        return kept | {"eps": options.eps, "won_at": min(won, default=None)}
    reached = {}
    for mark in (mark for mark in MARKS if mark <= options.queries):
        closer = [far for asked, far in line["curve"] if asked <= mark]
        reached[str(mark)] = round(255 * min(closer), 4) if closer else None
    return kept | {"reached": reached}


def print_table(lines: list[Line]) -> None:
    """Print medians over the pairs and the ratios of ours to each peer's."""
    attacks = [("onnxfr", name) for name in OURS] + list(PEERS)
    for goal in Goal:
        found = {key: by_pair(lines, goal, *key) for key in attacks}
        marks = sorted({int(m) for x in lines if x["goal"] == goal for m in x.get("reached", {})})
        print(f"\n{goal}: median distance in grey levels after so many questions")
        print(f"{'':<25}" + "".join(f"{mark:>22}" for mark in marks))
        for (who, name), pairs in found.items():
            if pairs and name != "square":
                asked = max(int(mark) for x in pairs.values() for mark in x["reached"])
                cells = [np.median(reached(pairs, mark)) for mark in marks if mark <= asked]
                text = "".join(f"{cell:22.2f}" for cell in cells)
                text += f"{'–':>22}" * (len(marks) - len(cells))
                rate = sum(x["queries"] for x in pairs.values())
                rate /= max(sum(x["seconds"] for x in pairs.values()), 1e-9)
                print(f"{who:<12} {name:<12}{text}   n={len(pairs)}  {rate:.0f} per CPU second")
        for who, name in PEERS:
            ours, theirs = found["onnxfr", name], found[who, name]
            both = sorted(set(ours) & set(theirs))
            if both and name != "square":
                text = "".join(f"{_ratio(ours, theirs, both, mark):>22}" for mark in marks)
                print(f"ours / {who:<6}{name:<12}{text}   n={len(both)}")
        _print_square(found)


def by_pair(lines: list[Line], goal: Goal, who: str, name: str) -> dict[int, Line]:
    wanted = (goal, who, name)
    return {x["pair"]: x for x in lines if (x["goal"], x["who"], x["attack"]) == wanted}


def reached(pairs: dict[int, Line], mark: int) -> NDArray[np.float64]:
    found = [line["reached"].get(str(mark)) for line in pairs.values()]
    return np.array([np.inf if value is None else value for value in found], dtype=np.float64)


def _ratio(ours: dict[int, Line], theirs: dict[int, Line], both: list[int], mark: int) -> str:
    """Return the median over pairs of our share of the peer's distance, and its interval."""
    mine = reached({pair: ours[pair] for pair in both}, mark)
    other = reached({pair: theirs[pair] for pair in both}, mark)
    ratio = np.where(np.isinf(mine) & np.isinf(other), 1.0, mine / other)
    draws = stream(0, "bootstrap", mark).integers(0, len(ratio), (2000, len(ratio)))
    low, high = np.quantile(np.median(ratio[draws], axis=1), [0.025, 0.975])
    return f"{np.median(ratio):.3f} [{low:.2f}, {high:.2f}]"


def _print_square(found: dict[tuple[str, str], dict[int, Line]]) -> None:
    asked = max((x["queries"] for pairs in found.values() for x in pairs.values()), default=0)
    marks = [mark for mark in MARKS if mark <= asked]
    for (who, name), pairs in found.items():
        if pairs and name == "square":
            at = np.array([x["won_at"] or np.inf for x in pairs.values()])
            cells = "".join(f"{mark:>7}: {np.mean(at <= mark):5.0%}" for mark in marks)
            eps = next(iter(pairs.values()))["eps"]
            print(f"{who:<12} square won within {255 * eps:.3g}/255 after{cells}   n={len(pairs)}")


def covers(line: Line, queries: int) -> bool:
    """Return whether a pair was played to its end with so many questions, not with fewer."""
    if "reached" not in line:
        return line["won_at"] is not None or line["queries"] >= queries
    return all(str(mark) in line["reached"] for mark in MARKS if mark <= queries)


def read_lines(path: Path) -> list[Line]:
    """Return what was measured so far."""
    return [json.loads(line) for line in path.read_text().splitlines()] if path.exists() else []


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("model")
    parser.add_argument("--threshold", type=float, required=True)
    parser.add_argument("--data", type=Path, required=True, help="folder of lfw_112 and pairs.txt")
    parser.add_argument("--peer-python", help="Python that has the peers; else ours only")
    parser.add_argument("--peer-engine", choices=("ours", "plain"), default="ours")
    parser.add_argument("--pairs", type=int, default=10, help="pairs a goal")
    parser.add_argument("--block", type=int, default=10, help="pairs of ours played at once")
    parser.add_argument("--queries", type=int, default=2000)
    parser.add_argument("--eps", type=read_eps, default=read_eps("6/255"), help="Square's budget")
    parser.add_argument("--attacks", nargs="+", help="only these, ours or peers'")
    parser.add_argument("--who", nargs="+", default=["onnxfr", "foolbox", "art", "torchattacks"])
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--table", action="store_true", help="print what is there and end")
    options = parser.parse_args()
    lines = read_lines(options.out)
    if options.table:
        return print_table(lines)
    model = load_model(options.model, threads=options.threads)
    options.folder = model.folder
    jobs = [("onnxfr", name) for name in OURS] + (list(PEERS) if options.peer_python else [])
    probes = {goal: read_probe(options.data, goal, options.pairs) for goal in Goal}
    for goal in Goal:
        probes[goal] = with_starts(model, probes[goal], goal, options.threshold)
    for (who, name), goal in product(jobs, Goal):
        facts = {"goal": goal.value, "who": who, "attack": name}
        same = [x for x in lines if {k: x[k] for k in facts} == facts]
        played = {x["pair"] for x in same if covers(x, options.queries)}
        missing = [pair for pair in range(len(probes[goal])) if pair not in played]
        wanted = options.attacks is None or name in options.attacks
        if who not in options.who or not wanted or not missing:
            continue
        for at in range(0, len(missing), options.block):
            block = missing[at : at + options.block]
            if who == "onnxfr":
                found = play_ours(model, name, probes[goal], goal, block, options)
            else:
                found = play_peer(who, name, probes[goal], goal, block, options)
            for line in found:
                lines.append(facts | condensed(line, name, options))
                with options.out.open("a") as file:
                    file.write(json.dumps(lines[-1]) + "\n")
    print_table(lines)


if __name__ == "__main__":
    main()
