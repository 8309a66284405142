"""Median smallest changes beside RobFR's Table 2, through the white-box evaluator; resumable.

Run: python benchmarks/robfr_medians.py RUNS --data lfw:PATH --model y1 --model w600k_mbf
         [--pairs 100] [--cw-pairs 40] [--cw "cw(bisections=9)"] [--minutes 30] [--table]

Each model gets a run directory below RUNS. Draws are nested and cut into fixed blocks: asking for
more pairs later only computes the new ones, and an interrupted run goes on where it stopped.
``--table`` only prints what is there. Thresholds are RobFR's (best accuracy on the clean pairs).
"""

from __future__ import annotations

import argparse
import time
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet

from onnxfr.evaluators.outcomes import Attacked, attacked_groups
from onnxfr.evaluators.planning import RunCell, manifest_of, plan_run, worker_context
from onnxfr.metrics.attack_success import median_cost, robfr_score
from onnxfr.paths import cache_dir
from onnxfr.runs.spec import make_spec
from onnxfr.runs.store import RunStore

CHEAP = ("smallest:bim", "fmn", "smallest:fgsm", "smallest:mim", "ddn")
COLUMNS = (
    ("l2", "fgsm"),
    ("l2", "bim"),
    ("l2", "mim"),
    ("l2", "cw"),
    ("l2", "fmn"),
    ("l2", "ddn"),
    ("linf", "fgsm"),
    ("linf", "bim"),
    ("linf", "mim"),
    ("linf", "fmn"),
)
BLOCK = 10


def spec_of(model: str, data: str, attacks: tuple[str, ...], pairs: int) -> Any:
    params = {"attacks": attacks, "pairs": pairs, "threshold": "oracle", "checks": 0, "examples": 0}
    content = {
        "models": [model],
        "data": [data],
        "evaluators": [{"name": "white_box", "params": params}],
        "rows_per_cell": BLOCK,
        "protocol": "robfr",
    }
    return make_spec(content, Path.cwd())


def work(folder: Path, model: str, options: argparse.Namespace, until: float) -> None:
    """Compute missing cells, blocks of all attacks in turn, until the time is up."""
    cache = cache_dir() / "embeddings"
    context, run = worker_context(cache), RunCell(cache)
    plans = [plan_run(spec_of(model, options.data, CHEAP, options.pairs), context)]
    if options.cw_pairs:
        plans.append(
            plan_run(spec_of(model, options.data, (options.cw,), options.cw_pairs), context)
        )
    cells = sorted(
        dict.fromkeys(cell for plan in plans for cell in plan.cells), key=lambda c: -c.priority
    )
    store = RunStore(folder)
    with store.working():
        store.write_manifest(manifest_of(plans[0], context), cells)
        for cell in cells:
            if time.time() > until:
                return
            if not store.has(cell):
                begin = time.time()
                store.write(cell, run(cell, lambda done, total: None))
                print(f"{time.time() - begin:6.1f} s  {cell.label}", flush=True)


def stored(folder: Path) -> list[Attacked]:
    """Return every attack of the shards in a run directory, whichever plan they came from."""
    paths = sorted(folder.rglob("*.parquet"), key=lambda path: -path.stat().st_mtime_ns)
    tables = [pa.parquet.read_table(path).replace_schema_metadata(None) for path in paths]
    if not tables:
        return []
    joined = pa.concat_tables(tables, promote_options="permissive")
    keys = zip(
        *(joined[name].to_pylist() for name in ("method", "goal", "norm", "pair")), strict=True
    )
    seen: dict[tuple[str, ...], int] = {}
    for place, key in enumerate(keys):
        seen.setdefault(key, place)  # the newest counts where versions of the code differ
    return attacked_groups(joined.take(pa.array(list(seen.values()))))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("runs", type=Path)
    parser.add_argument("--data", required=True)
    parser.add_argument("--model", action="append", required=True)
    parser.add_argument("--pairs", type=int, default=100)
    parser.add_argument("--cw-pairs", type=int, default=40)
    parser.add_argument("--cw", default="cw(bisections=9)")
    parser.add_argument("--minutes", type=float, default=1e6)
    parser.add_argument("--table", action="store_true")
    options = parser.parse_args()
    until = time.time() + 60 * options.minutes
    for model in options.model:
        folder = options.runs / Path(model).name
        if not options.table:
            work(folder, model, options, until)
    for model in options.model:
        tell(options.runs / Path(model).name)


def tell(folder: Path) -> None:
    groups = stored(folder)
    if not groups:
        return
    threshold, origin = groups[0].threshold
    print(f"\n{folder.name}, threshold {threshold:.4f} ({origin}); dodging / impersonation")
    print("| norm | attack | median | 95 % interval | RobFR's script | gradients | pairs |")
    print("|---|---|---|---|---|---|---|")
    wanted = [
        (norm, method)
        for norm, attack in COLUMNS
        for method in sorted({g.method for g in groups if (g.norm, g.plain_name) == (norm, attack)})
    ]
    for norm, method in wanted:
        both = [
            group
            for goal in ("dodge", "impersonate")
            for group in groups
            if (group.norm, group.method, group.goal) == (norm, method, goal)
        ]
        medians = [median_cost(group.cost) for group in both]
        scripts = [robfr_score(group.cost, group.won | group.won_clean).median for group in both]
        cells = (
            " / ".join(f"{m.value:.3f}" for m in medians),
            " / ".join(f"{m.low:.2f}–{m.high:.2f}" for m in medians),
            " / ".join(f"{s:.2f}" for s in scripts),
            " / ".join(f"{np.mean(g.column('gradients')):.0f}" for g in both),
            " / ".join(str(len(g.won)) for g in both),
        )
        print(f"| {norm} | {method} | " + " | ".join(cells) + " |")


if __name__ == "__main__":
    main()
