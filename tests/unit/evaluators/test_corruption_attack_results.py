"""Attacks and corruptions together: rates of hand-made records, and the page of a small run."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from toy_faces import make_run

from onnxfr.evaluators.base import Result
from onnxfr.evaluators.corruption_attack_records import PICTURES
from onnxfr.evaluators.corruption_attack_results import results_of
from onnxfr.evaluators.report.section import SECTIONS, View
from onnxfr.evaluators.report.write import read_content, write_report
from onnxfr.runs.store import RunStore

RUN: dict[str, Any] = {
    "attacks": ["bim(steps=4)"],
    "attacks_on_corrupted": ["smallest:fgsm", "pgd(steps=2)"],
    "linf": ["6/255"],
    "corruptions": ["shot_noise", "jpeg"],
    "severities": [2, 5],
    "chains": ["resize:0.5 > jpeg:30"],
    "pairs": 6,
}


def _row(pair: int, clean: bool, attacked: bool, corrupted: bool, both: bool) -> dict[str, Any]:
    constants = {
        "model": "m",
        "data": "d",
        "method": "bim",
        "goal": "dodge",
        "norm": "linf",
        "eps": 8 / 255,
        "order": "attack_first",
        "corruption": "jpeg",
        "severity": 3,
        "outcome": "played",
        "protocol": "ours",
        "threshold": 0.2,
        "threshold_origin": "d@fmr=1e-3",
        "distance": 8 / 255,
    }
    won = {
        "won_clean": clean,
        "won_attacked": attacked,
        "won_corrupted": corrupted,
        "won_both": both,
    }
    return constants | {"pair": f"{pair}"} | won


def test_rates_are_of_the_pairs_right_when_nothing_is_done() -> None:
    rows = [
        _row(0, True, True, True, True),
        _row(1, False, True, False, True),
        _row(2, False, True, False, False),
        _row(3, False, True, True, True),
        _row(4, False, False, False, False),
    ]
    found = {r.metric: r for r in results_of(pa.Table.from_pylist(rows))}
    told = {name: (result.value, result.n) for name, result in found.items()}
    assert told == {
        "asr_8bit": (0.75, 4),
        "asr_corrupted": (0.5, 4),
        "asr_corruption_alone": (0.25, 4),
        "asr_beyond_corruption": (pytest.approx(1 / 3), 3),
        "asr_survival": (pytest.approx(2 / 3), 3),
    }
    assert found["asr_8bit"].condition == "eps=8/255"
    assert found["asr_survival"].condition == "eps=8/255,jpeg@3"
    assert found["asr_survival"].threshold_origin == "d@fmr=1e-3"


def test_a_pair_that_only_the_corruption_puts_right_is_nobodys_success() -> None:
    rows = [
        _row(0, True, True, False, True),
        _row(1, False, True, False, True),
        _row(2, False, True, False, False),
        _row(3, False, True, True, True),
    ]
    table = pa.Table.from_pylist([row | {"order": "corruption_first"} for row in rows])
    (found,) = results_of(table)
    assert (found.metric, found.value, found.n) == ("asr_on_corrupted", 0.5, 2)


def test_ease_compares_each_pair_with_its_clean_picture() -> None:
    def rows(corruption: str, changes: list[tuple[bool, bool, float]]) -> list[dict[str, Any]]:
        return [
            _row(k, False, False, corrupted, both)
            | {"eps": None, "order": "corruption_first", "corruption": corruption}
            | {"distance": grey / 255}
            for k, (corrupted, both, grey) in enumerate(changes)
        ]

    clean = rows("clean", [(False, True, 4.0), (False, True, 2.0), (False, False, 9.0)])
    jpeg = rows("jpeg", [(False, True, 2.0), (True, True, 0.0), (False, True, 1.0)])
    schema = pa.Table.from_pylist(clean[:1]).schema.set(
        list(clean[0]).index("eps"), pa.field("eps", pa.float64())
    )
    results = results_of(pa.Table.from_pylist(clean + jpeg, schema=schema))

    def value(metric: str, condition: str) -> Result:
        (result,) = [r for r in results if (r.metric, r.condition) == (metric, condition)]
        return result

    assert value("median_on_corrupted", "clean").value == pytest.approx(4.0)
    assert value("median_on_corrupted", "jpeg@3").value == pytest.approx(1.0)
    ease = value("ease_ratio", "jpeg@3")
    # Pair 2 was never broken when clean: there is nothing to compare it with.
    assert (ease.value, ease.n) == (pytest.approx(0.25), 2)


def test_a_model_that_is_wrong_on_every_pair_still_has_a_page() -> None:
    table = pa.Table.from_pylist([_row(k, True, True, True, True) for k in range(3)])
    for name in PICTURES:
        table = table.append_column(name, pa.nulls(3, pa.binary()))
    section = SECTIONS.get("corruption_attack")()
    view = View(table, tuple(results_of(table)), {})
    assert "0 pairs right before" in section.body(view)
    assert section.verdicts(view) == [] and section.headlines(view) == []


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory, toy_model: Path, toy_faces: Path) -> Path:
    folder = tmp_path_factory.mktemp("together")
    return make_run(
        folder / "run",
        toy_model,
        f"folder:{toy_faces}",
        folder / "cache",
        evaluators=[{"name": "corruption_attack", "params": RUN}],
    )


def test_the_page_shows_both_orders_with_maps_and_faces(run: Path) -> None:
    page = write_report(RunStore.open(run), run / "report").page.read_text(encoding="utf-8")
    assert "Attacks and corruptions together" in page
    # For each goal what is left, and what the corruption does alone.
    assert page.count('<svg class="chart"') == 2 * 2
    assert page.count("On corrupted pictures:") == 2 * 2
    # Three corruptions a goal: five faces where the attack comes first, four where it does not.
    assert page.count("data:image/jpeg;base64") == 2 * 3 * (5 + 4)
    assert "Wins that survive" in page and "Corrupted over clean" in page


def test_verdicts_name_attack_corruption_and_the_corruption_alone(run: Path) -> None:
    sentences = [verdict.sentence for verdict in read_content(RunStore.open(run)).verdicts()]
    assert len(sentences) == 2
    for sentence in sentences:
        assert "bim(steps=4), linf 6/255" in sentence
        assert "the corruption alone" in sentence and "@fmr" in sentence
