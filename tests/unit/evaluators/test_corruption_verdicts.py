"""Sentences and bars of hand-made corruption records."""

from __future__ import annotations

import re
from dataclasses import replace

import numpy as np
import pyarrow as pa
import pytest
from test_corruption_results import CLEAN, N, rows, wrong

from onnxfr.evaluators.corruption_results import results_of
from onnxfr.evaluators.report.corruption_charts import category_bars
from onnxfr.evaluators.report.corruption_numbers import headline_sheets
from onnxfr.evaluators.report.section import SECTIONS, View


def _view(**errors: tuple[int, int]) -> View:
    """Return models by how many pairs each gets wrong under fog and under jpeg."""
    records = []
    for model, (fog, jpeg) in errors.items():
        records += rows("clean", 0, CLEAN, model=model)
        records += rows("fog", 1, wrong(fog), model=model)
        records += rows("jpeg", 1, wrong(jpeg), model=model)
    table = pa.Table.from_pylist(records)
    return View(table, tuple(results_of(table, ("frozen",))), {})


@pytest.mark.parametrize(
    ("errors", "told"),
    [
        ((3, 0), "n is as good as m (to a tenth of a point) on the same pairs"),
        ((1, 0), "n is 2.5 points better than m on the same pairs"),
        ((5, 0), "n is 2.5 points worse than m on the same pairs"),
    ],
)
def test_no_difference_is_neither_better_nor_worse(errors: tuple[int, int], told: str) -> None:
    verdicts = SECTIONS.get("corruption")().verdicts(_view(m=(3, 0), n=errors))
    (sentence,) = [v.sentence for v in verdicts if "same pairs" in v.sentence]
    assert told in sentence


@pytest.mark.parametrize(
    ("strangers", "genuine", "level", "told"),
    [
        (20, 20, "info", "a coin toss is right on 50 %."),
        (30, 10, "caution", "to refuse everybody is right on 75.0 %."),
        (10, 30, "caution", "to accept everybody is right on 75.0 %."),
    ],
)
def test_pairs_of_one_kind_make_guessing_easier(
    strangers: int, genuine: int, level: str, told: str
) -> None:
    view, counts = _view(m=(8, 0)), {"fmr": strangers, "fnmr": genuine}
    results = tuple(replace(r, n=counts.get(r.metric, r.n)) for r in view.results)
    verdicts = SECTIONS.get("corruption")().verdicts(replace(view, results=results))
    (found,) = [v for v in verdicts if "Hardest" in v.sentence]
    assert found.level == level and found.sentence.endswith(told)


@pytest.mark.parametrize("spared", [0, 1, 2, N])
def test_pairs_that_cannot_be_corrupted_are_told_and_never_end_the_report(spared: int) -> None:
    records = rows("clean", 0, CLEAN) + rows("fog", 1, CLEAN) + rows("jpeg", 1, CLEAN)
    for row in records[N + spared : 2 * N]:
        row |= {"outcome": "unreadable", "score": None}
    table = pa.Table.from_pylist(records)
    view = View(table, tuple(results_of(table, ("frozen",))), {})
    assert {r.n for r in view.results if r.metric == "accuracy"} == (
        {spared} if spared > 1 else set()
    )
    told = [v.sentence for v in SECTIONS.get("corruption")().verdicts(view)]
    left = [sentence for sentence in told if "left out" in sentence]
    assert [sentence.startswith(f"{N - spared} of {N} pairs of d ") for sentence in left] == (
        [True] if spared < N else []
    )


@pytest.mark.parametrize("rejected", [0, 5])
def test_refused_pairs_are_told_without_those_that_have_no_face(rejected: int) -> None:
    faceless = np.arange(N) < rejected
    records = rows("clean", 0, CLEAN, watched=True)
    records += rows("fog", 1, wrong(8), rejected=faceless, watched=True)
    table = pa.Table.from_pylist(records)
    view = View(table, tuple(results_of(table, ("frozen",))), {})
    verdicts = SECTIONS.get("corruption")().verdicts(view)
    (found,) = [v.sentence for v in verdicts if v.sentence.startswith("Convenience")]
    assert ("without those in which no face is found" in found) is (rejected > 0)


def test_a_loss_that_is_not_known_has_no_bar() -> None:
    view = _view(m=(4, 2), n=(6, 1))
    blind = tuple(
        replace(r, value=None, low=None, high=None)
        if (r.model, r.metric, r.condition) == ("n", "rce", "category=data_processing")
        else r
        for r in view.results
    )
    bars = [
        re.findall("<polygon", category_bars(headline_sheets(replace(view, results=results))))
        for results in (view.results, blind)
    ]
    assert [len(each) for each in bars] == [4, 3]
    gone = tuple(r for r in blind if (r.model, r.metric) != ("n", "rce"))
    shown = category_bars(headline_sheets(replace(view, results=gone)))
    assert shown.count("<polygon") == 2 and "m: Lighting" in shown and "n:" not in shown
    nothing = tuple(r for r in blind if r.metric != "rce")
    assert not category_bars(headline_sheets(replace(view, results=nothing)))
