from __future__ import annotations

import math
from typing import Any

import pytest

from onnxfr.errors import MetricError, SpecError
from onnxfr.evaluators.base import Result
from onnxfr.evaluators.report.expression import judge, parse
from onnxfr.evaluators.report.wording import interval_text, value_text


def _result(metric: str, value: float | None, **fields: Any) -> Result:
    return Result(evaluator="e", model="m", metric=metric, value=value, **fields)


RESULTS = [
    _result("accuracy", 0.991, protocol="kfold10"),
    _result("accuracy", 0.999, protocol="oracle"),
    _result("accuracy", 0.90, protocol="fmr", condition="fmr=1e-3"),
    _result("tar", 0.98, condition="fmr=1e-3", protocol="fmr"),
    _result("tar", None, condition="fmr=1e-4"),
    _result("asr", 0.6, method="mim", condition='{"eps":"4/255"}'),
    _result("asr", 0.2, method="fgsm", condition="eps=4/255"),
    _result("asr", 0.9, method="mim", condition="eps=8/255"),
    _result("asr_all", 0.7, method="pgd(steps=9, restarts=3)", goal="dodge", condition="eps=8/255"),
    _result("only_oracle", 0.5, protocol="oracle"),
    _result("median_distance", 1.7, method="mim"),
]
SCOPES = {"a": [], "b": RESULTS, "delta": [_result("accuracy", -0.004, protocol="kfold10")]}


@pytest.mark.parametrize(
    ("text", "holds"),
    [
        ("accuracy < 0.99", False),
        ("accuracy < 99.2%", True),
        ("b.accuracy<=0.991", True),
        ("accuracy@1e-3 < 0.95", True),
        ("accuracy@fmr=1e-3 >= 0.95", False),
        ("accuracy[protocol=oracle] > 0.998", True),
        ("accuracy > 0.998", False),
        ("only_oracle == 0.5", True),
        ("tar@0.001 < 0.99", True),
        ("asr@4/255 > 0.5", True),
        ("asr[method=fgsm]@4/255 > 0.5", False),
        ("asr[method=mim, norm=]@8/255 > 0.5", True),
        ("asr_all[method=pgd(steps=9, restarts=3)]@8/255 > 0.8", False),
        ("asr_all[method=pgd(steps=9, restarts=3),goal=dodge]@8/255 > 0.5", True),
        ("delta.accuracy < -0.005", False),
        ("delta.accuracy < -4e-3/2", True),
        ("accuracy < 0.5 or asr@4/255 > 0.5", True),
        ("accuracy < 0.5 and asr@4/255 > 0.5", False),
        ("accuracy > 0.5 and asr@4/255 > 0.5 or tar@1e-3 > 2", True),
        ("accuracy != 0.991", False),
        ("median_distance < 2/255", True),
        ("median_distance < 1.5/255", False),
        ("median_distance < 2", True),
    ],
)
def test_expressions(text: str, holds: bool) -> None:
    assert judge(text, SCOPES).holds is holds


def test_the_answer_names_the_results_it_rests_on() -> None:
    outcome = judge("asr@4/255 > 0.5", SCOPES)
    assert [(m.result.method, m.holds) for m in outcome.matches] == [("mim", True), ("fgsm", False)]


@pytest.mark.parametrize(
    "text",
    [
        "",
        "accuracy",
        "accuracy <",
        "accuracy < x",
        "accuracy < 1/0",
        "accuracy < 0.9 xor eer > 1",
        "accuracy < 0.9 and",
        "accuracy[colour=red] < 1",
        "__import__('os').system('true')",
        "accuracy < 0.9; import os",
        "accuracy < 1.2.3",
        "c.accuracy < 1",
    ],
)
def test_what_is_no_expression_is_refused_by_name(text: str) -> None:
    with pytest.raises(SpecError):
        parse(text)


def test_an_unknown_metric_suggests_the_nearest() -> None:
    with pytest.raises(SpecError, match="did you mean accuracy"):
        judge("acuracy < 0.9", SCOPES)


def test_an_unknown_metric_suggests_those_it_is_short_for() -> None:
    known = [_result(name, 0.5) for name in ("asa", "asr_all", "far", "tar")]
    with pytest.raises(SpecError, match=r"did you mean asr_all\?"):
        judge("asr > 0.5", {"a": [], "b": known, "delta": []})


@pytest.mark.parametrize(
    ("text", "hint"),
    [
        ("asr[model=n]@4/255 > 0.5", "its model is m$"),
        ("asr[model=m,method=bim]@4/255 > 0.5", "its method is fgsm or mim$"),
        ("asr[method=fgsm]@8/255 > 0.5", "it was measured at eps=4/255$"),
        ("median_distance@4/255 > 0.5", "leave out the @$"),
    ],
)
def test_a_test_that_fits_nothing_names_what_would(text: str, hint: str) -> None:
    with pytest.raises(SpecError, match=hint):
        judge(text, SCOPES)


def test_a_condition_nobody_measured_is_an_error() -> None:
    with pytest.raises(SpecError, match="4/255"):
        judge("asr@2/255 > 0.5", SCOPES)


def test_a_budget_and_a_number_of_questions_name_one_cell_of_a_curve() -> None:
    asked = [
        _result("asr", value, condition=f"eps={eps}/255, queries={queries}")
        for eps, queries, value in ((4, 200, 0.1), (8, 200, 0.3), (4, 1000, 0.5), (8, 1000, 0.9))
    ]
    for at in ("eps=8/255,queries=200", "queries=200,8/255", "8/255,200"):
        outcome = judge(f"asr@{at} > 0", {**SCOPES, "b": asked})
        assert [match.value for match in outcome.matches] == [0.3]
    with pytest.raises(SpecError, match="queries=1000"):
        judge("asr@8/255,queries=500 > 0", {**SCOPES, "b": asked})


def test_a_median_that_nobody_reached_is_told_from_one_that_nobody_measured() -> None:
    never = _result("median_distance", None, low=12.0, n=9)
    assert (value_text(never), interval_text(never)) == ("never", "12 – never")
    never = _result("median_queries", None, low=12.0, n=9)
    assert (value_text(never), interval_text(never)) == ("more than were asked", "12 – more")
    reached = _result("median_distance", 3.5, low=1.0, n=9)
    assert (value_text(reached), interval_text(reached)) == ("3.5", "1 – never")
    unknown = _result("tar", None, n=9)
    assert (value_text(unknown), interval_text(unknown)) == ("not measurable", "–")
    with pytest.raises(MetricError, match="the median is infinite"):
        judge("delta.median_queries < 100", {**SCOPES, "delta": [never]})


@pytest.mark.parametrize(("text", "holds"), [("< 100", False), ("> 100", True), (">= 1e9", True)])
def test_a_median_that_nobody_reached_is_above_every_number(text: str, holds: bool) -> None:
    never = _result("median_distance", None, low=12.0, n=9)
    outcome = judge(f"median_distance {text}", {**SCOPES, "b": [never]})
    assert outcome.holds is holds and outcome.matches[0].value == math.inf


def test_a_gate_that_cannot_see_does_not_wave_through() -> None:
    with pytest.raises(MetricError, match="could not resolve"):
        judge("tar@1e-4 < 0.9", SCOPES)
