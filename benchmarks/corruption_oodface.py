"""Holds a finished run of the suite ``oodface`` against what the paper prints (arXiv:2412.02479).

    onnxfr run --model A --model B --data lfw:PATH --suite oodface [--max-pairs 1000] -o RUN
    python benchmarks/corruption_oodface.py RUN [RUN ...]

For every model that ran all twenty corruptions at all five severities, with the best threshold of
each condition: Acc_cor; the rank correlation of its difficulty order with the paper's mean over 19
models on LFW-C; and the corruptions whose level 5 is easier than level 1 (the paper has none).
"""

from __future__ import annotations

import argparse
from collections.abc import Mapping
from pathlib import Path

from scipy import stats

from onnxfr.corruptions import oodface_names
from onnxfr.evaluators.base import Result
from onnxfr.evaluators.corruption_results import ALL_SEVERITIES
from onnxfr.evaluators.planning import summarise_run
from onnxfr.runs.store import RunStore

PAPER: Mapping[str, float] = {
    "salt_pepper": 72.6,
    "shot_noise": 81.3,
    "gaussian_noise": 83.6,
    "impulse_noise": 85.0,
    "defocus_blur": 86.9,
    "speckle_noise": 87.3,
    "contrast": 89.2,
    "fog": 89.9,
    "facial_distortion": 91.3,
    "frost": 92.3,
    "random_occlusion": 93.2,
    "motion_blur": 93.4,
    "snow": 94.0,
    "spatter": 95.1,
    "pixelate": 98.3,
    "jpeg": 98.6,
    "brightness": 98.7,
    "zoom_blur": 98.7,
    "saturate": 98.8,
    "color_shift": 99.2,
}
"""Accuracy on LFW-C in percent, mean of 19 models and five severities."""

GOAL = 0.85


class Table:
    """One model's accuracies with oracle thresholds."""

    def __init__(self, results: list[Result]) -> None:
        self._known = {(r.metric, r.method, r.condition): r for r in results}

    def value(self, metric: str, method: str, condition: str) -> float:
        """Return an accuracy in percent."""
        return 100 * float(self._known[metric, method, condition].value or 0.0)

    @property
    def overall(self) -> Result | None:
        """Acc_cor, or None where the run is not complete."""
        found = [r for (metric, _, c), r in self._known.items() if metric == "acc_cor" and not c]
        return found[0] if found else None

    def means(self) -> list[float]:
        """Return the mean of each corruption, in the paper's order."""
        return [self.value("acc_cor", name, ALL_SEVERITIES) for name in PAPER]

    def correlation(self) -> float:
        """Return Spearman's correlation of the difficulty order with the paper's."""
        return float(stats.spearmanr(self.means(), list(PAPER.values())).statistic)

    def easier_at_five(self) -> list[str]:
        """Return the corruptions whose level 5 is easier than level 1, with both levels."""
        levels = {
            name: [self.value("accuracy", name, f"severity={s}") for s in (1, 5)] for name in PAPER
        }
        return [f"{n} {a:.1f} < {b:.1f}" for n, (a, b) in levels.items() if b > a]


def tables(folder: Path) -> dict[str, Table]:
    """Return the complete tables of a run by model."""
    found: dict[str, list[Result]] = {}
    for result in summarise_run(RunStore.open(folder)):
        if result.evaluator == "corruption" and result.protocol == "oracle":
            found.setdefault(result.model, []).append(result)
    made = {model: Table(results) for model, results in found.items()}
    return {model: table for model, table in made.items() if table.overall is not None}


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    parser.add_argument("runs", nargs="+", type=Path)
    asked = parser.parse_args()
    assert set(PAPER) == set(oodface_names())
    found = {model: table for folder in asked.runs for model, table in tables(folder).items()}
    print("| model | pairs | clean | Acc_cor | interval | Spearman | level 5 easier than 1 |")
    print("|---|---|---|---|---|---|---|")
    for model, table in found.items():
        mean = table.overall
        assert mean is not None and None not in (mean.value, mean.low, mean.high)
        interval = f"{100 * (mean.low or 0):.2f} – {100 * (mean.high or 0):.2f}"
        clean = table.value("accuracy", "clean", "clean")
        print(
            f"| {model} | {mean.n} | {clean:.2f} | {100 * (mean.value or 0):.2f} | {interval} | "
            f"{table.correlation():.3f} | {', '.join(table.easier_at_five()) or 'none'} |"
        )
    if len(found) > 1:
        rows = zip(*(table.means() for table in found.values()), strict=True)
        means = [sum(row) / len(row) for row in rows]
        together = float(stats.spearmanr(means, list(PAPER.values())).statistic)
        print(f"\nmean of {len(found)} models against the paper: Spearman {together:.3f}")
        print("\n| corruption | ours | paper |\n|---|---|---|")
        for (name, paper), ours in sorted(
            zip(PAPER.items(), means, strict=True), key=lambda r: r[1]
        ):
            print(f"| {name} | {ours:.1f} | {paper:.1f} |")


if __name__ == "__main__":
    main()
