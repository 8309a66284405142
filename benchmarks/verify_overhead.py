"""What a whole verification costs beyond the bare embedding of its distinct pictures.

    python benchmarks/verify_overhead.py MODEL_FOLDER lfw:PATH [--pairs N] [--repeat 3]

Bare: decoded pictures already in memory, through ``model.embed`` in batches of 64. Whole: opening
and hashing the data, reading, decoding, embedding into an empty cache, records, all metrics and
their bootstraps. Both take turns, because a shared machine drifts. The ratio of the best times
should stay below 1.1 for LFW's 6,000 pairs; that of processor times hardly depends on the load.
"""

from __future__ import annotations

import argparse
import tempfile
import time
from pathlib import Path

import numpy as np

from onnxfr.data.images import to_images
from onnxfr.data.pairs import open_pairs
from onnxfr.data.stream import read_all
from onnxfr.evaluators.planning import plan_run
from onnxfr.evaluators.verification import Verification
from onnxfr.models.wrapper import load_model
from onnxfr.runs.context import Context
from onnxfr.runs.records import to_table
from onnxfr.runs.spec import make_spec
from onnxfr.types import Pixels

_BATCH = 64
Clocks = tuple[float, float]


def bare(model: str, data: str, limit: int | None) -> tuple[Clocks, int]:
    pairs = open_pairs(data, pairs=limit)
    pictures = [item for _, item in read_all(pairs, strict=True)]
    batches = [to_images(pictures[at : at + _BATCH]) for at in range(0, len(pictures), _BATCH)]
    loaded = load_model(model)
    loaded.embed(batches[0])
    begin = _clocks()
    for batch in batches:
        loaded.embed(batch)
    return _since(begin), len(pictures)


def _clocks() -> Clocks:
    return time.perf_counter(), time.process_time()


def _since(begin: Clocks) -> Clocks:
    now = _clocks()
    return now[0] - begin[0], now[1] - begin[1]


def whole(model: str, data: str, limit: int | None) -> dict[str, Clocks]:
    content = {"models": [model], "data": [data], "evaluators": [{"name": "verification"}]}
    spec = make_spec(content | ({"max_pairs": limit} if limit else {}), Path.cwd())
    with tempfile.TemporaryDirectory() as cache:
        context = Context(Path(cache))
        loaded = context.model(spec.models[0])
        height, width = loaded.card.input_size
        loaded.embed(to_images([_grey(height, width)] * _BATCH))
        parts: dict[str, Clocks] = {}
        begin = start = _clocks()
        plan = plan_run(spec, context)
        parts["plan"], start = _since(start), _clocks()
        (cell,) = plan.cells
        table = to_table(cell, Verification().run(cell, context))
        parts["run"], start = _since(start), _clocks()
        Verification().summarise(table)
        parts["summarise"] = _since(start)
        parts["all"] = _since(begin)
        context.embeddings.close()
    return parts


def _grey(height: int, width: int) -> Pixels:
    return np.full((height, width, 3), 128, dtype=np.uint8)


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    parser.add_argument("model")
    parser.add_argument("data")
    parser.add_argument("--pairs", type=int)
    parser.add_argument("--repeat", type=int, default=3)
    asked = parser.parse_args()
    embedding: list[Clocks] = []
    verifying: list[Clocks] = []
    for number in range(asked.repeat):
        bare_time, images = bare(asked.model, asked.data, asked.pairs)
        parts = whole(asked.model, asked.data, asked.pairs)
        embedding.append(bare_time)
        verifying.append(parts["all"])
        told = "; ".join(f"{name} {a:.2f} s ({b:.2f} s)" for name, (a, b) in parts.items())
        print(f"{number + 1}: {images} pictures, times (and processor times):")
        print(f"   bare {bare_time[0]:.2f} s ({bare_time[1]:.2f} s); {told}")
    for place, name in enumerate(("times", "processor times")):
        best = [min(times[place] for times in part) for part in (verifying, embedding)]
        rounds = [a[place] / b[place] for a, b in zip(verifying, embedding, strict=True)]
        print(
            f"ratio of the best {name}: {best[0] / best[1]:.3f}; "
            f"median over rounds: {np.median(rounds):.3f}"
        )


if __name__ == "__main__":
    main()
