"""Curves over questions, and what the report says of them, from records alone."""

from __future__ import annotations

import json
import re
from dataclasses import replace
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from onnxfr.evaluators.query import _thinned
from onnxfr.evaluators.query_results import QUOTED, asked_of, results_of
from onnxfr.evaluators.report.question_curves import (
    QuestionCurve,
    distance_text,
    questions_text,
    success_chart,
)
from onnxfr.evaluators.report.section import SECTIONS, View
from onnxfr.evaluators.report.svg import SERIES
from onnxfr.evaluators.report.wording import interval_text, value_text
from onnxfr.metrics.attack_success import median_cost
from onnxfr.metrics.intervals import Estimate


def _row(pair: str, trace: list[list[float]], **more: Any) -> dict[str, Any]:
    return {
        "model": "m",
        "data": "d",
        "method": "boundary",
        "goal": "dodge",
        "norm": "l2",
        "eps": None,
        "pair": pair,
        "seeks": "smallest",
        "max_queries": 1000,
        "outcome": "played",
        "won": bool(trace),
        "won_clean": False,
        "queries": 1000,
        "threshold": 0.3,
        "threshold_origin": "d@oracle",
        "protocol": "ours",
        "trace": json.dumps(trace),
        "quantise": False,
        "jpeg": None,
        "distance": trace[-1][1] if trace else 0.0,
        "linf": 0.02,
        "l2": 2.0,
        "l2n": 0.01,
        "psnr": 40.0,
        "ssim": 0.9,
        **more,
    }


def test_curves_are_read_from_the_traces() -> None:
    rows = [
        _row("a", [[10, 0.5], [300, 0.01]]),
        _row("b", [[90, 0.2], [150, 0.02], [900, 0.004]]),
        _row("c", []),
        _row("d", [], won_clean=True),
    ]
    (asked,) = asked_of(pa.Table.from_pylist(rows))
    assert asked.distance_at(100).tolist() == [0.5, 0.2, np.inf]
    assert asked.queries_to(0.01).tolist() == [300, 900, np.inf]
    assert asked.quoted == (100, 200, 500, 1000)
    results = results_of(pa.Table.from_pylist(rows), {"l2": [0.01]})
    found = {(r.metric, r.condition): r for r in results}
    rates = [found[("asr", f"eps=2.55/255, queries={q}")].value for q in asked.quoted]
    assert rates == pytest.approx([0, 0, 1 / 3, 2 / 3])
    assert found[("median_queries", "eps=2.55/255")].value == 900
    # Distances are told in grey levels, as by every other evaluator.
    assert found[("median_distance", "queries=100")].value == 127.5
    assert found[("median_distance", "queries=1000")].value == pytest.approx(2.55)
    assert found[("clean_wrong_pairs", "")].value == 1 and found[("clean_wrong_pairs", "")].n == 4
    others = [r for r in results if not r.metric.endswith(("_median", "_pairs"))]
    assert others and all(r.n == 3 for r in others)


def test_wins_are_told_with_how_visible_they_are() -> None:
    rows = [
        _row("a", [[10, 0.5]], linf=0.2, l2=4.0, l2n=0.04, psnr=28.0, ssim=0.8),
        _row("b", [[10, 0.1]], linf=0.1, l2=2.0, l2n=0.02, psnr=None, ssim=1.0),
        _row("c", [], linf=1.0, l2=50.0, l2n=0.5, psnr=6.0, ssim=0.1),
    ]
    budget = {"method": "square", "eps": 0.1, "seeks": "any"}
    rows.append(_row("a", [[10, 0.1]], **budget))
    table = pa.Table.from_pylist(rows)
    found = {(r.method, r.metric): r for r in results_of(table, {"l2": [0.1]})}
    medians = {"linf": 0.15 * 255, "l2": 3.0 * 255, "l2n": 0.03 * 255, "ssim": 0.9}
    for name, value in medians.items():
        result = found["boundary", f"{name}_median"]
        assert (result.value, result.n, result.condition) == (pytest.approx(value), 2, "")
    assert found["boundary", "psnr_median"].value is None
    assert found["square", "l2_median"].condition == "eps=25.5/255"


def test_wins_that_the_judge_took_back_are_no_success() -> None:
    rows = [
        _row("a", [[10, 0.5], [300, 0.01]]),
        _row("b", [[5, 0.001]], won=False),
        _row("c", [], won=True, distance=0.02, queries=400),
    ]
    (asked,) = asked_of(pa.Table.from_pylist(rows))
    assert asked.distance_at(1000).tolist() == [0.01, np.inf, 0.02]
    assert asked.queries_to(0.02).tolist() == [300, np.inf, 400]


def test_no_win_is_told_nearer_than_the_picture_that_the_judge_granted() -> None:
    # A randomised model grants the luckiest of its wins only after they were carried outwards.
    (asked,) = asked_of(
        pa.Table.from_pylist([_row("a", [[10, 0.5], [300, 0.01], [400, 0.009]], distance=0.012)])
    )
    assert asked.distance_at(1000).tolist() == [0.012]
    assert asked.queries_to(0.012).tolist() == [300]
    assert asked.queries_to(0.01).tolist() == [np.inf]


def test_a_lucky_answer_of_a_randomised_model_is_no_win_before_the_attack_believed_it() -> None:
    budget = {"method": "square", "eps": 0.02, "seeks": "any", "randomised": True}
    row = _row("a", [[53, 0.02]], queries=388, distance=0.019, **budget)
    (asked,) = asked_of(pa.Table.from_pylist([row]))
    assert asked.queries_to(0.02).tolist() == [388]


def test_budgets_of_one_attack_have_results_of_their_own() -> None:
    square = {"method": "square", "seeks": "any"}
    rows = [
        _row("a", [[q, eps]], queries=q, eps=eps, **square) for q, eps in ((90, 0.01), (30, 0.02))
    ]
    results = results_of(pa.Table.from_pylist(rows), {"l2": []})
    assert len({(r.metric, r.condition, r.goal) for r in results}) == len(results)
    means = {r.condition: r.value for r in results if r.metric == "mean_queries"}
    assert means == {"eps=2.55/255": 90, "eps=5.1/255": 30}


def test_pairs_lost_without_an_attack_are_told() -> None:
    lost = [_row(name, [], won=True, won_clean=True) for name in "bcd"]
    table = pa.Table.from_pylist([_row("a", [[20, 0.01]], clean_picture=None), *lost])
    view = View(table, tuple(results_of(table, {"l2": [0.01]})), {})
    (verdict,) = SECTIONS.get("query")().verdicts(view)
    for told in (verdict.sentence, str(SECTIONS.get("query")().body(view))):
        assert "3 of 4 pairs, which are wrong without an attack" in told
    view = View(table := pa.Table.from_pylist(lost), tuple(results_of(table, {"l2": [0.01]})), {})
    (verdict,) = SECTIONS.get("query")().verdicts(view)
    assert verdict.level == "caution" and "All 3 pairs of d" in verdict.sentence
    assert "could be played" not in str(SECTIONS.get("query")().body(view))


def test_a_median_beyond_the_questions_asked_is_not_called_never() -> None:
    rows = [_row(name, []) for name in "abcdef"]
    results = results_of(pa.Table.from_pylist(rows), {"l2": [0.01]})
    (median,) = (r for r in results if r.metric == "median_queries")
    assert value_text(median) == "more than were asked"
    assert "never" not in interval_text(replace(median, low=5.0, high=None))


def test_a_thinned_trace_never_looks_better_than_the_whole() -> None:
    whole = [(q, 1 / q) for q in range(1, 5000)]
    thin = _thinned(whole)
    assert len(thin) <= 400 and thin[-1] == whole[-1] and thin[0] == whole[0]
    for queries in (7, 100, 1234):
        best = min(d for q, d in thin if q <= queries)
        assert 1 / queries <= best <= 1.1 / queries


def test_a_thinned_trace_is_exact_where_results_are_quoted() -> None:
    whole = [(q, 1 / q) for q in range(30, 20_001, 3)]
    thin = _thinned(whole)
    assert len(thin) <= 400
    for queries in QUOTED:
        before = [[d for q, d in trace if q <= queries] for trace in (thin, whole)]
        assert min(before[0]) == min(before[1])


def test_what_nobody_reached_is_said_as_such() -> None:
    never, known = median_cost([np.inf] * 12), median_cost([10.0, 20, 30, 40, 50, 60, 70])
    late = median_cost([900.0] * 3 + [np.inf] * 9)
    assert questions_text(never, 1000) == ">1,000"
    assert questions_text(late, 1000) == ">1,000 (≥900)"
    assert questions_text(known, 1000) == "40 (10 – 70)"
    assert questions_text(median_cost([5.0, 7.0]), 1000) == "6"
    assert distance_text(never) == "no win for half of the pairs"
    assert distance_text(known) == "40.00 (10.00 – 70.00)"
    assert distance_text(median_cost([5.0, 7.0])) == "6.00"


def test_an_attack_keeps_its_colour_and_labels_stay_inside() -> None:
    estimate = Estimate(0.5, 0.2, 0.8, 10, "wilson")
    points = [(10, estimate), (10_000, estimate)]
    curves = [QuestionCurve("nes", 2, points), QuestionCurve("square", 0, points)]
    drawn = str(success_chart("Won", curves))
    assert drawn.index(SERIES[2]) < drawn.index(SERIES[0])
    last = re.search(r'<text x="([0-9.]+)"[^>]*>10,000<', drawn)
    assert last is not None and float(last[1]) + 3.4 * len("10,000") <= 440


def test_many_attacks_are_told_apart_and_leave_the_frame_its_height() -> None:
    estimate = Estimate(0.5, 0.2, 0.8, 10, "wilson")
    points = [(10, estimate), (10_000, estimate)]

    def drawn(attacks: int) -> tuple[set[tuple[str, str]], float]:
        curves = [QuestionCurve(f"attack{k}", k, points) for k in range(attacks)]
        chart = str(success_chart("Won", curves))
        lines = re.findall(r'stroke="(#\w+)" stroke-width="2"( stroke-dasharray="[^"]*")?', chart)
        left = re.findall(r'<line x1="56.0" y1="([0-9.]+)" x2="56.0" y2="([0-9.]+)"', chart)[-1]
        return set(lines), float(left[0]) - float(left[1])

    few, many = drawn(6), drawn(30)
    assert len(few[0]) == 6 and len(many[0]) == 30
    assert many[1] == few[1]


@pytest.mark.parametrize("eps", [8 / 255, 1 / 16, 0.0123])
def test_a_budget_of_many_digits_has_its_chart_and_its_exact_place(eps: float) -> None:
    close = [[10, 0.5], [40, eps]]
    rows = [
        _row("a", [[20, eps]], method="square", eps=eps, seeks="any", norm="linf"),
        _row("a", close, norm="linf"),
    ]
    table = pa.Table.from_pylist([row | {"clean_picture": None} for row in rows])
    results = results_of(table, {"linf": [eps, 0.2], "l2": []})
    told = {"evaluators": [{"name": "query", "params": {"linf": [eps, 0.2], "l2": []}}]}
    for shown, manifest in ((rows, {}), (rows[1:], told)):
        part = table.slice(2 - len(shown))
        body = str(SECTIONS.get("query")().body(View(part, tuple(results), manifest)))
        assert body.count("<svg") == 3
        # One pair, won after 20 and after 40 questions: all rates from 100 on are full.
        rates = re.findall(r"(\d+) % \(", body)
        assert rates and set(rates) == {"100"}


@pytest.mark.parametrize(
    ("files", "told"),
    [
        ({}, "The verifier took unrounded pictures"),
        ({"quantise": True}, "The verifier took 8-bit files"),
        ({"quantise": False, "jpeg": 85}, "JPEG file of quality 85"),
    ],
)
def test_the_report_says_what_pictures_were_answered(files: dict[str, Any], told: str) -> None:
    table = pa.Table.from_pylist([_row("a", [[20, 0.01]], clean_picture=None, **files)])
    view = View(table, tuple(results_of(table, {"l2": [0.01]})), {})
    assert told in str(SECTIONS.get("query")().body(view))


def test_a_chart_nobody_plays_in_is_left_out() -> None:
    row = _row("a", [[20, 0.01]], method="square", eps=0.01, seeks="any", clean_picture=None)
    table = pa.Table.from_pylist([row, row | {"eps": 0.02, "model": "n"}])
    view = View(table, tuple(results_of(table, {"l2": []})), {})
    assert str(SECTIONS.get("query")().body(view)).count("<svg") == 2


def test_pairs_that_could_not_be_played_are_told() -> None:
    lost = {"outcome": "unplayable", "reason": "b.jpg: no face", "won": None}
    rows = [_row("a", [[20, 0.01]]), _row("b", [], **lost)]
    table = pa.Table.from_pylist([{"reason": None, **row} for row in rows])
    results = results_of(table, {"l2": [0.01]})
    (found,) = (result for result in results if result.metric == "unplayable_pairs")
    assert (found.value, found.model, found.data) == (1, "m", "d")
    told = SECTIONS.get("query")().verdicts(View(table, tuple(results), {}))
    assert "1 pairs of d could not be attacked with m" in told[-1].sentence
    assert "b.jpg: no face" in told[-1].sentence
