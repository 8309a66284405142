"""A seeded draw of 1,000 pairs of LFW under all twenty corruptions, with a real model.

OODFace's choices: both pictures corrupted, the best threshold of each condition. Levels 1 and 5
suffice: they decide whether level 5 is harder, and their mean orders corruptions as five levels do.
Each half takes every second corruption in the paper's order of difficulty, so that two workers can
share the work and either half spans the whole range. docs/results/corruption.md has all pairs and
levels.
"""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from scipy import stats

from onnxfr.evaluators.planning import RunCell, plan_run, worker_context
from onnxfr.models.admission import admit
from onnxfr.runs.records import join
from onnxfr.runs.spec import make_spec

PAPER = Path(__file__).parents[1] / "golden" / "oodface_paper.json"
PRINTED: dict[str, float] = json.loads(PAPER.read_text(encoding="utf-8"))["mean_of_models"]
MILD = 98.0
"""The paper's accuracies leave a gap between 95.1 and 98.3."""

Accuracy = dict[tuple[str, int], float]

pytestmark = pytest.mark.slow


def half_of(number: int) -> list[str]:
    return list(PRINTED)[number::2]


def measured(shared_data: Path, folder: Path, corruptions: list[str]) -> Accuracy:
    vendor = shared_data / "models" / "onnx" / "edgeface_xxs_dequant.onnx"
    admit(vendor, folder / "edgeface_xxs", preprocess="rgb,0-255")
    params = {
        "apply_to": "both",
        "thresholds": ["oracle"],
        "corruptions": corruptions,
        "severities": [1, 5],
        "examples": 0,
    }
    spec = make_spec(
        {
            "models": [str(folder / "edgeface_xxs")],
            "data": [f"lfw:{shared_data / 'lfw_112'}"],
            "max_pairs": 1000,
            "evaluators": [{"name": "corruption", "params": params}],
        },
        folder,
    )
    cache = folder / "cache"
    plan = plan_run(spec, worker_context(cache))
    records = join([RunCell(cache)(cell, lambda done, total: None) for cell in plan.cells])
    found: Accuracy = {}
    for result in plan.evaluators[0].summarise(records):
        if result.metric == "accuracy" and result.value is not None:
            assert result.n == 1000
            level = 0 if result.method == "clean" else int(result.condition[-1])
            found[result.method, level] = 100 * result.value
    return found


@pytest.mark.parametrize("number", [0, 1])
def test_levels_and_order_of_difficulty_are_those_of_the_paper(
    shared_data: Path, tmp_path: Path, number: int
) -> None:
    names = half_of(number)
    found = measured(shared_data, tmp_path, names)
    assert found["clean", 0] > 97.5
    # The paper: in all of 380 cells. No slack is needed on this draw.
    easier = [name for name in names if found[name, 5] > found[name, 1]]
    assert easier == []
    means = {name: (found[name, 1] + found[name, 5]) / 2 for name in names}
    mild = [name for name in names if PRINTED[name] > MILD]
    severe = [name for name in names if PRINTED[name] < MILD]
    assert min(means[name] for name in mild) > max(means[name] for name in severe) + 3
    assert min(means[name] for name in mild) > found["clean", 0] - 3
    # 0.66 and 0.70 here: this network fears fog, occlusion and motion more, noise less than the
    # paper's. Our mean of several networks is what correlates at 0.85 (docs/results/corruption.md).
    printed = [PRINTED[name] for name in names]
    assert stats.spearmanr(list(means.values()), printed).statistic > 0.6
