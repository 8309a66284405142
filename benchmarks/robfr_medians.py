"""Median smallest changes beside RobFR's Table 2, through the white-box evaluator; resumable.

Run: python benchmarks/robfr_medians.py --data lfw:PATH --model y1 --model w600k_mbf
         [--pairs 500] [--cw-pairs 100] [--attack METHOD ...] [--minutes 30]
     python benchmarks/robfr_medians.py                     # only the tables

What was found is kept pair by pair in ``measured/robfr_medians/MODEL.json`` beside this script
(``--folder`` names another place), and the tables are made of these files alone. Draws are nested:
asking for more pairs later, or after an interruption, computes the missing ones only, a block of
every attack and model in turn. An attack whose parameters changed is measured anew. Thresholds are
RobFR's: best accuracy on the clean pairs.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

from _measured_medians import Measured, medians_table, orders_table

from onnxfr.errors import SpecError
from onnxfr.evaluators.games import clean_threshold
from onnxfr.evaluators.planning import Plan, plan_run
from onnxfr.paths import cache_dir
from onnxfr.runs.cells import Cell
from onnxfr.runs.context import Context
from onnxfr.runs.spec import make_spec

FOLDER = Path(__file__).parent / "measured" / "robfr_medians"
CHEAP = ("smallest:fgsm", "smallest:bim", "smallest:mim", "fmn", "ddn")
RULE = "oracle"
BLOCK = 10


def plan_of(
    model: str, data: str, attacks: tuple[str, ...], pairs: int, context: Context, block: int
) -> Plan:
    params = {"attacks": attacks, "pairs": pairs, "threshold": RULE, "checks": 0, "examples": 0}
    content = {
        "models": [model],
        "data": [data],
        "evaluators": [{"name": "white_box", "params": params}],
        "rows_per_cell": block,
        "protocol": "robfr",
    }
    return plan_run(make_spec(content, Path.cwd()), context)


def known(cell: Cell, folder: Path, context: Context) -> Measured:
    """Return what the file of a cell's model holds, after making sure it is the same game."""
    threshold = clean_threshold(context, cell.model, cell.data, RULE)
    new = Measured(
        model=cell.model.name,
        sha256=cell.model.sha256,
        data=cell.data.name,
        fingerprint=cell.data.fingerprint,
        seed=cell.seed,
        threshold=threshold.value,
        threshold_origin=threshold.origin,
    )
    path = folder / f"{new.model}.json"
    if not path.exists():
        return new
    old = Measured.read(path)
    for name in ("sha256", "fingerprint", "seed", "threshold_origin"):
        if getattr(old, name) != getattr(new, name):
            raise SpecError(f"{path} was measured with another {name}; move it away to start anew")
    if abs(old.threshold - new.threshold) > 1e-4:
        raise SpecError(f"{path} was measured at another threshold; move it away to start anew")
    return old


def extend(cell: Cell, plan: Plan, folder: Path, context: Context) -> int:
    """Attack the pairs of a cell that its model's file does not hold; return how many."""
    assert isinstance(cell.rows, tuple), "blocks are lists of pair ids"
    measured = known(cell, folder, context)
    goal = cell.condition["goal"]
    entry = measured.entry(cell.method, cell.condition["norm"], goal, cell.params["attack"])
    draw = measured.pairs[goal]
    place = {name: k for k, name in enumerate(draw)}
    missing = [name for name in cell.rows if place.get(name, len(draw)) >= len(entry.distance)]
    if not missing:
        return 0
    draw.extend(name for name in missing if name not in place)
    if draw[len(entry.distance) : len(entry.distance) + len(missing)] != missing:
        raise SpecError(f"{measured.model}: the draw is not the one its file began with")
    records = plan.evaluators[0].run(replace(cell, rows=tuple(missing)), context)
    found = {record["pair"]: record for record in records}
    for name in missing:
        entry.add(found[name])
    measured.write(folder / f"{measured.model}.json")
    return len(missing)


def work(options: argparse.Namespace) -> None:
    """Compute what is missing until the time is up."""
    until = time.time() + 60 * options.minutes
    context = Context(cache_dir() / "embeddings")
    for plan, cell in cells_of(options, context):
        if time.time() > until:
            return
        begin = time.time()
        if extend(cell, plan, options.folder, context):
            print(f"{time.time() - begin:6.1f} s  {cell.label}", flush=True)


def cells_of(options: argparse.Namespace, context: Context) -> Iterator[tuple[Plan, Cell]]:
    """Yield the cells of all models, the first blocks of all of them first."""
    wanted = [(tuple(options.attack or CHEAP), options.pairs)]
    if options.cw_pairs:
        wanted.append(((options.cw,), options.cw_pairs))
    plans = [
        plan_of(model, options.data, attacks, pairs, context, options.block)
        for model in options.model
        for attacks, pairs in wanted
    ]
    cells = [(plan, cell) for plan in plans for cell in plan.cells]
    yield from sorted(cells, key=lambda entry: -entry[1].priority)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--folder", type=Path, default=FOLDER)
    parser.add_argument("--data")
    parser.add_argument("--model", action="append", default=[])
    parser.add_argument("--attack", action="append", help="instead of the usual cheap ones")
    parser.add_argument("--pairs", type=int, default=100)
    parser.add_argument("--cw", default="cw(bisections=9)")
    parser.add_argument("--cw-pairs", type=int, default=40)
    parser.add_argument("--block", type=int, default=BLOCK)
    parser.add_argument("--minutes", type=float, default=1e6)
    options = parser.parse_args()
    if options.model and not options.data:
        parser.error("--data says which pairs, such as lfw:PATH")
    if options.model:
        work(options)
    for path in sorted(options.folder.glob("*.json")):
        measured = Measured.read(path)
        print("\n".join(("", *medians_table(measured), "", *orders_table(measured))))


if __name__ == "__main__":
    main()
