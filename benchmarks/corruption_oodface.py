"""Holds finished runs of the suite ``oodface`` against what the paper prints (arXiv:2412.02479).

    onnxfr run --model A --model B --data lfw:PATH --suite oodface [--max-pairs 1000] -o RUN
    python benchmarks/corruption_oodface.py [RUN ...]

Every model that ran all twenty corruptions at all five severities goes into measured/oodface.json;
one measured there on fewer pairs is replaced. The tables of docs/results/corruption.md are printed
from that file alone: Acc_cor with the best threshold of each condition, the rank correlation of the
difficulty order with the paper's mean of 19 models, and where level 5 is easier than level 1.
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from scipy import stats

from onnxfr.corruptions import SEVERITIES, oodface_names
from onnxfr.evaluators.base import Result
from onnxfr.evaluators.planning import summarise_run
from onnxfr.runs.store import RunStore

ROOT = Path(__file__).parents[1]
MEASURED = ROOT / "benchmarks" / "measured" / "oodface.json"
PAPER = json.loads((ROOT / "tests" / "golden" / "oodface_paper.json").read_text(encoding="utf-8"))
PRINTED: Mapping[str, float] = PAPER["mean_of_models"]
DEEPEST: Mapping[str, float] = PAPER["mean_of_models_at_level_five"]
"""The eight hardest at level 5."""

Entry = dict[str, Any]
"""One model's measurements; accuracies are in percent."""


def measure(folder: Path) -> list[Entry]:
    """Return the entries of the models in a run that are complete."""
    store = RunStore.open(folder)
    manifest = store.manifest()
    results = [r for r in summarise_run(store) if r.evaluator == "corruption"]
    found = []
    for model in manifest["models"]:
        mine = [r for r in results if r.model == model["name"]]
        if any(r.metric == "acc_cor" and not r.condition for r in mine):
            found.append(_entry(model, mine, manifest))
    return found


def _entry(model: Mapping[str, Any], results: Sequence[Result], manifest: Entry) -> Entry:
    known = {(r.protocol, r.metric, r.method, r.condition): r for r in results}
    (overall,) = [
        r for r in results if (r.protocol, r.metric, r.condition) == ("oracle", "acc_cor", "")
    ]
    accuracy = {
        name: [
            _percent(known["oracle", "accuracy", name, f"severity={s}"].value) for s in SEVERITIES
        ]
        for name in PRINTED
    }
    rules = {
        r.protocol: [_percent(v) for v in (r.value, r.low, r.high)]
        for r in results
        if r.metric == "acc_cor" and not r.condition
    }
    accepted = [r for r in results if r.metric == "fmr" and r.method in PRINTED]
    worst = max(accepted, key=lambda r: r.value or 0.0)
    sessions = [session["provenance"] for session in manifest["sessions"]]
    return {
        "model": model["name"],
        "sha256": model["sha256"],
        "data": manifest["data"][0]["name"],
        "pairs": overall.n,
        "seed": manifest["seed"],
        "clean": _percent(known["oracle", "accuracy", "clean", "clean"].value),
        "acc_cor": rules,
        "spearman": round(correlation(accuracy), 4),
        "easier_at_five": easier_at_five(accuracy),
        "worst_fmr": [worst.method, worst.condition, _percent(worst.value)],
        "accuracy": accuracy,
        "code": manifest["code"],
        "versions": sessions[-1]["packages"] if sessions else {},
    }


def _percent(value: float | None) -> float:
    assert value is not None, "every number of a complete run is measurable"
    return round(100 * value, 4)


def means(accuracy: Mapping[str, Sequence[float]]) -> list[float]:
    """Return the mean of each corruption over its severities, in the paper's order."""
    return [sum(accuracy[name]) / len(accuracy[name]) for name in PRINTED]


def correlation(accuracy: Mapping[str, Sequence[float]]) -> float:
    """Return Spearman's correlation of the difficulty order with the paper's."""
    return float(stats.spearmanr(means(accuracy), list(PRINTED.values())).statistic)


def easier_at_five(accuracy: Mapping[str, Sequence[float]]) -> list[str]:
    """Return the corruptions whose last level is easier than the first, with both."""
    return [
        f"{name} {levels[0]:.2f} < {levels[-1]:.2f}"
        for name, levels in accuracy.items()
        if levels[-1] > levels[0]
    ]


def merge(kept: Iterable[Entry], new: Iterable[Entry]) -> list[Entry]:
    """Return one entry per model: the one on more pairs, the newer one if they are as many."""
    found = {entry["model"]: entry for entry in kept}
    for entry in new:
        if entry["pairs"] >= found.get(entry["model"], entry)["pairs"]:
            found[entry["model"]] = entry
    return [found[name] for name in sorted(found)]


def report(entries: Sequence[Entry]) -> str:
    """Return the tables for the documentation."""
    lines = [
        "| model | pairs | clean | Acc_cor | interval | cross-validated | Spearman | "
        "level 5 easier than 1 | strangers accepted, worst |",
        "|---|---|---|---|---|---|---|---|---|",
    ]
    for entry in entries:
        value, low, high = entry["acc_cor"]["oracle"]
        crossed = next((v[0] for k, v in entry["acc_cor"].items() if k.startswith("kfold")), None)
        method, condition, fmr = entry["worst_fmr"]
        lines.append(
            f"| {entry['model']} | {entry['pairs']:,} | {entry['clean']:.2f} | {value:.2f} | "
            f"{low:.2f} – {high:.2f} | {'–' if crossed is None else f'{crossed:.2f}'} | "
            f"{entry['spearman']:.3f} | {', '.join(entry['easier_at_five']) or 'none'} | "
            f"{fmr:.1f} ({method} {condition.removeprefix('severity=')}) |"
        )
    if len(entries) > 1:
        lines += ["", *_together(entries)]
    return "\n".join(lines)


def _together(entries: Sequence[Entry]) -> list[str]:
    columns = zip(*(means(entry["accuracy"]) for entry in entries), strict=True)
    ours = [sum(column) / len(column) for column in columns]
    deepest = {
        name: sum(entry["accuracy"][name][-1] for entry in entries) / len(entries)
        for name in PRINTED
    }
    together = float(stats.spearmanr(ours, list(PRINTED.values())).statistic)
    ranked = sorted(zip(PRINTED.items(), ours, strict=True), key=lambda row: row[1])
    return [
        f"mean of {len(entries)} models against the paper: Spearman {together:.3f}",
        "",
        "| corruption | ours | paper | level 5, ours | paper |",
        "|---|---|---|---|---|",
        *(
            f"| {name} | {mean:.1f} | {paper:.1f} | {deepest[name]:.1f} | "
            f"{DEEPEST.get(name, '–')} |"
            for (name, paper), mean in ranked
        ),
    ]


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    parser.add_argument("runs", nargs="*", type=Path)
    asked = parser.parse_args()
    assert set(PRINTED) == set(oodface_names())
    kept = json.loads(MEASURED.read_text(encoding="utf-8")) if MEASURED.is_file() else []
    merged = merge(kept, (entry for folder in asked.runs for entry in measure(folder)))
    if merged != kept:
        MEASURED.parent.mkdir(exist_ok=True)
        MEASURED.write_text(json.dumps(merged, indent=1) + "\n", encoding="utf-8")
    print(report(merged))


if __name__ == "__main__":
    main()
