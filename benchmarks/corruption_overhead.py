"""What evaluating under corruption costs beyond the bare embedding of as many pictures.

    python benchmarks/corruption_overhead.py MODEL_FOLDER lfw:PATH [--pairs N] [--corruptions ...]

Bare: decoded pictures already in memory, through ``model.embed`` in the evaluator's batches. Whole:
reading, decoding, corrupting at five severities, embedding, records; both pictures of every pair.
The two take turns corruption by corruption, because a shared machine drifts. The ratio should stay
below 1.15; that of processor times hardly depends on the load. Memory is the peak after the first
corruption and at the end: it should not grow with the number of conditions.
"""

from __future__ import annotations

import argparse
import resource
import tempfile
import time
from pathlib import Path

import cv2

from onnxfr.corruptions import SEVERITIES
from onnxfr.data.images import to_images
from onnxfr.data.stream import read_all
from onnxfr.evaluators.corruption import CorruptedVerification
from onnxfr.evaluators.planning import plan_run
from onnxfr.evaluators.treatment import CLEAN
from onnxfr.models.wrapper import FRModel
from onnxfr.runs.context import Context
from onnxfr.runs.records import to_table
from onnxfr.runs.spec import make_spec
from onnxfr.types import Images

_BATCH = 16
"""As many pictures as the evaluator hands to the model at once."""

Clocks = tuple[float, float]


def clocks() -> Clocks:
    """Return time and processor time."""
    return time.perf_counter(), time.process_time()


def since(begin: Clocks) -> Clocks:
    """Return what has passed of both."""
    now = clocks()
    return now[0] - begin[0], now[1] - begin[1]


def bare(model: FRModel, batches: list[Images]) -> Clocks:
    """Embed every picture once per severity, already in memory."""
    begin = clocks()
    for batch in batches:
        for _ in SEVERITIES:
            model.embed(batch)
    return since(begin)


def peak() -> float:
    """Return the largest memory so far in MB."""
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    parser.add_argument("model")
    parser.add_argument("data")
    parser.add_argument("--pairs", type=int, default=400)
    parser.add_argument("--corruptions", nargs="+", default=["oodface"])
    asked = parser.parse_args()
    cv2.setNumThreads(1)
    params = {"apply_to": "both", "corruptions": asked.corruptions, "examples": 0}
    content = {
        "models": [asked.model],
        "data": [asked.data],
        "max_pairs": asked.pairs,
        "evaluators": [{"name": "corruption", "params": params}],
    }
    with tempfile.TemporaryDirectory() as cache:
        context = Context(Path(cache))
        plan = plan_run(make_spec(content, Path.cwd()), context)
        cells = [cell for cell in plan.cells if cell.method != CLEAN]
        model, pairs = context.model(plan.models[0]), context.pairs(plan.data[0])
        pictures = [item for _, item in read_all(pairs, strict=True)]
        parts = [pictures[at : at + _BATCH] for at in range(0, len(pictures), _BATCH)]
        batches = [to_images(part) for part in parts]
        model.embed(batches[0])
        totals = [[0.0, 0.0], [0.0, 0.0]]
        first = 0.0
        print(f"{len(pictures)} pictures x {len(SEVERITIES)} severities x {len(cells)} corruptions")
        for cell in cells:
            embedding = bare(model, batches)
            begin = clocks()
            to_table(cell, CorruptedVerification().run(cell, context))
            whole = since(begin)
            first = first or peak()
            for total, part in zip(totals, (embedding, whole), strict=True):
                total[0] += part[0]
                total[1] += part[1]
            print(
                f"{cell.method:<20} bare {embedding[0]:7.2f} s ({embedding[1]:6.2f}), "
                f"whole {whole[0]:7.2f} s ({whole[1]:6.2f}), "
                f"ratio {whole[0] / embedding[0]:.3f} ({whole[1] / embedding[1]:.3f})",
                flush=True,
            )
        print(f"ratio of all times: {totals[1][0] / totals[0][0]:.3f}")
        print(f"ratio of all processor times: {totals[1][1] / totals[0][1]:.3f}")
        print(f"peak memory after the first corruption {first:.0f} MB, at the end {peak():.0f} MB")


if __name__ == "__main__":
    main()
