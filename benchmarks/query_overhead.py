"""Questions per second of the query attacks, as a share of the bare onnxruntime's pictures.

    python benchmarks/query_overhead.py w600k_mbf --rows 64 --questions 20 [--attacks boundary ...]

Bare is a loop of ``session.run`` over the model's own file, batches of the same size, made before
the clock starts: half of it before each turn of the attack and half after, in one process on one
thread. CPU seconds are compared, so that a busy machine does not decide; set OMP_NUM_THREADS=1, or
the matrix products' idle threads count too. Random pictures will do: what is timed is the work
around the model.
"""

from __future__ import annotations

import argparse
import time
from typing import Any

import numpy as np
import onnxruntime
import torch

from onnxfr.attacks import ATTACKS, make_attack
from onnxfr.models.wrapper import OnnxModel, load_model
from onnxfr.oracle import Oracle
from onnxfr.probe import Probe
from onnxfr.threat import Threat
from onnxfr.types import Access, Goal


class Bare:
    """Plain onnxruntime on the model's own file."""

    def __init__(self, model: OnnxModel, batch: int) -> None:
        options = onnxruntime.SessionOptions()
        options.intra_op_num_threads = 1
        path = str(model.folder / "model.onnx")
        self.session = onnxruntime.InferenceSession(path, options, ["CPUExecutionProvider"])
        shape = (batch, 3, *model.card.input_size)
        images = np.random.default_rng(0).random(shape, dtype=np.float32)
        self.feed, self.batch = {self.session.get_inputs()[0].name: images}, batch
        self.session.run(None, self.feed)

    def seconds(self, pictures: int) -> float:
        """Return the CPU seconds of a plain loop, scaled to a number of pictures."""
        turns = -(-pictures // self.batch)
        start = time.process_time()
        for _ in range(turns):
            self.session.run(None, self.feed)
        return (time.process_time() - start) * pictures / (turns * self.batch)


def attack_seconds(model: OnnxModel, name: str, options: Any) -> tuple[float, int]:
    """Return the CPU seconds of an attack and the questions it asked."""
    rows = options.rows
    random = np.random.default_rng(1)
    shape = (rows, 3, *model.card.input_size)
    images, references = (random.random(shape, dtype=np.float32) for _ in range(2))
    attack = make_attack(name)
    budget = None if attack.seeks == "smallest" else 0.05
    threat = Threat(norm=attack.norms[0], max_queries=options.questions, eps=budget)
    probe = Probe(images, tuple(str(k) for k in range(rows)), references=references)
    # Impersonating the reference: the start wins, the clean picture does not.
    highest = float(model.similarity(images, references).max())
    threshold = (1 + highest) / 2
    settings = {"goal": Goal.IMPERSONATE, "threshold": threshold, "device": "cpu"}
    oracle = Oracle(model, probe, threat, batch_size=options.batch, **settings)
    # The judge looks at every pair before and after; that is no question of the attack.
    oracle.verify = lambda images: np.full(len(images), -1.0, np.float32)  # type: ignore[method-assign]
    start = time.process_time()
    attack(oracle, probe, threat)
    return time.process_time() - start, int(oracle.queries.sum())


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("model")
    parser.add_argument("--rows", type=int, default=64)
    parser.add_argument("--questions", type=int, default=20, help="per row")
    parser.add_argument("--batch", type=int, default=64)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--attacks", nargs="+")
    options = parser.parse_args()
    torch.set_num_threads(1)
    model = load_model(options.model, threads=1)
    model.embed(np.zeros((1, 3, *model.card.input_size), np.float32))
    bare = Bare(model, options.batch)
    black = [n for n, kind in ATTACKS.items() if kind.access < Access.GRADIENT]
    for name in options.attacks or black:
        ratios = []
        for _ in range(options.rounds):
            plain = bare.seconds(options.rows * options.questions // 2)
            ours, asked = attack_seconds(model, name, options)
            plain += bare.seconds(options.rows * options.questions // 2)
            ratios.append(plain * asked / (options.rows * options.questions) / ours)
        each = " ".join(f"{ratio:.2f}" for ratio in ratios)
        print(f"{name:<14} {asked:>6} questions  {np.median(ratios):.2f} x bare  ({each})")


if __name__ == "__main__":
    main()
