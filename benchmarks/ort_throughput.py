"""Throughput of our onnxruntime engine against a bare ``session.run`` loop over the vendor's file.

The bare loop gets its best setting: every thread count up to the cores times every batch size the
file accepts. Ours is what ``load_model`` does by itself on the admitted model, preprocessing and
normalisation included. Both take short turns in one run, urgently where the system allows it, so
that a busy machine changes little and slows both. The ratio is the median over neighbouring turns;
beside it stands that of the fastest turns, and that of processor times (bare on one thread), which
hardly depends on the load.

    python benchmarks/ort_throughput.py [extra.onnx ...] [--rounds 60] [--json results.json]
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import statistics
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import onnx
import onnxruntime as ort

from onnxfr.models.admission import admit
from onnxfr.models.hardware import available_cores, cpu_model, instruction_set
from onnxfr.models.ort import OrtEngine
from onnxfr.models.wrapper import load_model

BATCHES = (1, 4, 8, 16)
FINALISTS = 3
MOBILEFACENETS = ("mobilefacenet", "w600k_mbf", "sface")

Work = Callable[[Any], Any]


class Spent(NamedTuple):
    """Seconds of one run: on the wall clock, and of processor time over all threads."""

    wall: float
    cpu: float


def main() -> None:
    options = _arguments()
    folder = Path(os.environ.get("ONNXFR_DATA", Path(__file__).parents[2] / "shared" / "data"))
    files = sorted((folder / "models" / "onnx").glob("*.onnx")) + options.models
    wanted = [path for path in files if options.only in path.name]
    rows = [measure(path, options.images, options.rounds) for path in wanted]
    print(f"{cpu_model()}, {available_cores()} cores, {instruction_set()}, ort {ort.__version__}\n")
    print("| model | bare, img/s | at | ours, img/s | with | ratio | target | | fastest | cpu |")
    print("|---|---|---|---|---|---|---|---|---|---|")
    for row in rows:
        verdict = "ok" if row["ratio"] >= row["target"] else "MISSED"
        print(
            f"| {row['model']} | {row['bare']:.1f} | {row['bare_setting']} | {row['ours']:.1f} "
            f"| {row['our_setting']} | {row['ratio']:.2f} | {row['target']} | {verdict} "
            f"| {row['fastest_turns_ratio']:.2f} | {row['processor_time_ratio']:.2f} |"
        )
    if options.json:
        options.json.write_text(json.dumps(rows, indent=2), encoding="utf-8")


def measure(path: Path, images: int, rounds: int) -> dict[str, Any]:
    """Compare one file's bare loop at its best with our engine."""
    with tempfile.TemporaryDirectory() as scratch:
        admit(path, Path(scratch) / "model", preprocess="rgb,0-255")
        engine = load_model(Path(scratch) / "model").engine
        pictures = _pictures(engine, images)
        pixels = pictures * 255
        setting = engine.setting
        bare = _bare_works(path, pixels)
        names = _finalists(bare, pixels)
        bare = {name: bare[name] for name in names}
        spent: dict[str, list[Spent]] = {name: [] for name in (*names, "ours")}
        jobs = [*((name, bare[name], pixels) for name in names), ("ours", engine.run, pictures)]
        for turn in range(rounds):
            for name, work, batch in jobs[turn % len(jobs) :] + jobs[: turn % len(jobs)]:
                spent[name].append(_spend(work, batch))
    wall = {name: min(s.wall for s in runs) for name, runs in spent.items()}
    usual = {name: statistics.median(s.wall for s in runs) for name, runs in spent.items()}
    cpu = {name: statistics.median(s.cpu for s in runs) for name, runs in spent.items()}
    best = min(names, key=usual.__getitem__)
    alone = min(cpu[name] for name in names if name.startswith("1 "))
    pairs = zip(spent[best], spent["ours"], strict=True)
    mobilefacenet = any(word in path.stem.lower() for word in MOBILEFACENETS)
    return {
        "model": path.stem,
        "bare": images / usual[best],
        "bare_setting": best,
        "ours": images / usual["ours"],
        "our_setting": f"{setting.lanes} lanes x {setting.threads} threads, chunk {setting.chunk}"
        + (", PRelu split" if setting.split_prelu else ""),
        "ratio": statistics.median(theirs.wall / ours.wall for theirs, ours in pairs),
        "fastest_turns_ratio": min(wall[name] for name in names) / wall["ours"],
        "processor_time_ratio": alone / cpu["ours"],
        "target": 1.3 if mobilefacenet else 0.95,
    }


def _finalists(works: dict[str, Work], pixels: Any) -> list[str]:
    """Return the fastest few, and in any case the fastest on one thread."""
    quick = {}
    for name, work in works.items():
        batch = int(name.split()[-1])
        some = pixels[: max(batch, 16)]
        quick[name] = min(_spend(work, some).wall for _ in range(3)) / len(some)
    ranked = sorted(quick, key=quick.__getitem__)
    alone = next(name for name in ranked if name.startswith("1 "))
    return list(dict.fromkeys([*ranked[:FINALISTS], alone]))


def _pictures(engine: OrtEngine, count: int) -> Any:
    shape = (size or 112 for size in engine.image_shape)
    return np.random.default_rng(0).random((count, *shape), dtype=np.float32)


def _bare_works(path: Path, pixels: Any) -> dict[str, Work]:
    """Return one loop per thread count and per batch size that the file really accepts."""
    works: dict[str, Work] = {}
    stored = {tensor.name for tensor in onnx.load(path).graph.initializer}
    for threads in range(1, available_cores() + 1):
        options = ort.SessionOptions()
        options.intra_op_num_threads = threads
        options.log_severity_level = 4
        session = ort.InferenceSession(path, options, providers=["CPUExecutionProvider"])
        name = next(i.name for i in session.get_inputs() if i.name not in stored)
        for batch in BATCHES:
            try:
                answer = session.run(None, {name: pixels[:batch]})[0]
            except Exception:
                continue
            if len(answer) == batch:
                works[f"{threads} threads, batch {batch}"] = _loop(session, name, batch)
    return works


def _loop(session: Any, name: str, batch: int) -> Work:
    def run(pixels: Any) -> None:
        for start in range(0, len(pixels), batch):
            session.run(None, {name: pixels[start : start + batch]})

    return run


def _spend(work: Work, pixels: Any) -> Spent:
    # The bare session's idle threads go on spinning for a while and would disturb the next.
    time.sleep(0.05)
    with _urgent():
        wall, cpu = time.perf_counter(), time.process_time()
        work(pixels)
        return Spent(time.perf_counter() - wall, time.process_time() - cpu)


@contextlib.contextmanager
def _urgent() -> Iterator[None]:
    """Let other work wait during a turn, where the system allows it: a turn is a few hundredths."""
    _schedule(os.SCHED_RR, 1)
    try:
        yield
    finally:
        _schedule(os.SCHED_OTHER, 0)


def _schedule(policy: int, priority: int) -> None:
    for thread in Path("/proc/self/task").iterdir():
        with contextlib.suppress(OSError):
            os.sched_setscheduler(int(thread.name), policy, os.sched_param(priority))


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("models", nargs="*", type=Path, help="further ONNX files")
    parser.add_argument("--images", type=int, default=16, help="per turn")
    parser.add_argument("--rounds", type=int, default=60)
    parser.add_argument("--only", default="", help="only files whose name holds this")
    parser.add_argument("--json", type=Path, help="also write the rows here")
    return parser.parse_args()


if __name__ == "__main__":
    main()
