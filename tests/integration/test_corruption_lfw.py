"""Corrupted LFW with a real model: a small seeded part of what docs/results.md reports."""

from __future__ import annotations

from pathlib import Path

import pytest

from onnxfr.evaluators.base import Result
from onnxfr.evaluators.corruption_results import ALL_SEVERITIES
from onnxfr.evaluators.planning import RunCell, plan_run, worker_context
from onnxfr.models.admission import admit
from onnxfr.runs.records import join
from onnxfr.runs.spec import make_spec

SEVERE = ("salt_pepper", "shot_noise", "contrast", "defocus_blur", "motion_blur")
MILD = ("jpeg", "color_shift")
"""The two ends of the paper's order: under 94 % and over 98 % in the mean of its 19 models."""

Answers = dict[tuple[str, str, str], Result]


@pytest.fixture(scope="module")
def answers(shared_data: Path, tmp_path_factory: pytest.TempPathFactory) -> Answers:
    folder = tmp_path_factory.mktemp("corruption")
    vendor = shared_data / "models" / "onnx" / "edgeface_xxs_dequant.onnx"
    admit(vendor, folder / "edgeface_xxs", preprocess="rgb,0-255")
    spec = make_spec(
        {
            "models": [str(folder / "edgeface_xxs")],
            "data": [f"lfw:{shared_data / 'lfw_112'}"],
            "suite": "oodface",
            "max_pairs": 80,
            "evaluators": [
                {
                    "name": "corruption",
                    "params": {
                        "apply_to": "both",
                        "thresholds": ["oracle", "frozen"],
                        "corruptions": [*SEVERE, *MILD],
                        "severities": [1, 5],
                    },
                }
            ],
        },
        folder,
    )
    cache = folder / "cache"
    plan = plan_run(spec, worker_context(cache))
    cells = [cell for cell in plan.cells if cell.evaluator == "corruption"]
    records = join([RunCell(cache)(cell, lambda done, total: None) for cell in cells])
    results = plan.evaluators[-1].summarise(records)
    return {(r.metric, r.method, r.condition): r for r in results if r.protocol == "oracle"}


def test_level_five_is_no_easier_than_level_one(answers: Answers) -> None:
    for name in (*SEVERE, *MILD):
        first, last = (answers["accuracy", name, f"severity={s}"].value or 0.0 for s in (1, 5))
        # One pair of 80: the mildest corruptions hardly change a decision.
        assert last <= first + 0.0126, name


def test_what_the_paper_finds_severe_is_harder_than_what_it_finds_mild(answers: Answers) -> None:
    means = {name: answers["acc_cor", name, ALL_SEVERITIES].value for name in (*SEVERE, *MILD)}
    assert max(means[name] or 1.0 for name in SEVERE) < min(means[name] or 0.0 for name in MILD)


def test_severe_noise_leaves_little_and_mild_changes_leave_nearly_all(answers: Answers) -> None:
    clean = answers["accuracy", "clean", "clean"].value or 0.0
    assert clean > 0.96
    assert (answers["accuracy", "salt_pepper", "severity=5"].value or 1.0) < 0.85
    assert (answers["acc_cor", "color_shift", ALL_SEVERITIES].value or 0.0) > clean - 0.03
