"""Serves a model in half precision through OpenVINO, which newer x86 processors do far sooner.

For duels between attacks, where whoever plays asks the same function and only the number of
questions counts. Needs openvino and a processor that computes in float16: on others OpenVINO takes
bfloat16 instead, whose steps are as wide as a grey level. ``python benchmarks/_half_engine.py MODEL
--data LFW --threshold T`` tells how far the answers are from the model's own.
"""

from __future__ import annotations

import argparse
import time
from pathlib import Path
from typing import Any

import numpy as np
import openvino

from onnxfr.models.geometry import fit_array
from onnxfr.models.wrapper import OnnxModel, load_model
from onnxfr.types import Embeddings, Images

_BATCHES = (16, 4, 1)


class HalfModel(OnnxModel):
    """The same network with float16 weights and values; an answer hangs on no other picture."""

    def embed(self, images: Images) -> Embeddings:
        """Embed a batch in pieces of the sizes that were compiled."""
        pictures = fit_array(images, self.card.input_size)
        found = np.empty((len(pictures), self.card.embedding_dim), np.float32)
        done = 0
        for size in _BATCHES:
            while len(pictures) - done >= size:
                piece = slice(done, done + size)
                found[piece] = self._compiled(size)(np.ascontiguousarray(pictures[piece]))[0]
                done += size
        return found / np.linalg.norm(found, axis=1, keepdims=True)

    def _compiled(self, size: int) -> Any:
        kept = self.__dict__.setdefault("_networks", {})
        if size not in kept:
            core = openvino.Core()
            network = core.read_model(self._path)
            network.reshape([size, 3, *self.card.input_size])
            hints = {"INFERENCE_PRECISION_HINT": "f16", "NUM_STREAMS": 1}
            threads = {"INFERENCE_NUM_THREADS": self._threads or 1}
            kept[size] = core.compile_model(network, "CPU", hints | threads)
        return kept[size]


def load_half(folder: str | Path, threads: int = 1) -> HalfModel:
    """Return a model of the zoo or of a folder, in half precision."""
    able = openvino.Core().get_property("CPU", "OPTIMIZATION_CAPABILITIES")
    if "FP16" not in able:
        raise SystemExit(f"this processor has no float16 arithmetic, only {', '.join(able)}")
    return HalfModel(load_model(folder).folder, threads=threads)


def main() -> None:
    from decision_peers import read_probe

    from onnxfr.types import Goal

    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("model")
    parser.add_argument("--data", type=Path, required=True, help="folder of lfw_112 and pairs.txt")
    parser.add_argument("--threshold", type=float, required=True)
    parser.add_argument("--pairs", type=int, default=400, help="a goal")
    options = parser.parse_args()
    models = {"float32": load_model(options.model, threads=1), "half": load_half(options.model)}
    scores: dict[str, list[np.ndarray]] = {name: [] for name in models}
    right, seconds = dict.fromkeys(models, 0.0), dict.fromkeys(models, 0.0)
    for goal in Goal:
        probe = read_probe(options.data, goal, options.pairs)
        for name, model in models.items():
            begin = time.process_time()
            scores[name].append(model.similarity(probe.images, probe.references))
            seconds[name] += time.process_time() - begin
            accepted = scores[name][-1] > options.threshold
            right[name] += float(np.mean(accepted == (goal is Goal.DODGE))) / len(Goal)
    gap = np.concatenate(scores["half"]) - np.concatenate(scores["float32"])
    print(
        f"{options.model}, {len(gap)} pairs: right {right['float32']:.4f} in float32, "
        f"{right['half']:.4f} in half; scores differ by {gap.std():.6f} (standard deviation), "
        f"{np.abs(gap).max():.6f} at most; {seconds['float32'] / seconds['half']:.1f} times as fast"
    )


if __name__ == "__main__":
    main()
