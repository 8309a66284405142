"""Whether two runs may pass: ``--fail-if`` judged on all that the runs were asked, or not at all.

A run that lost a model, a cell or a metric has fewer numbers that could fail an expression. Such a
run is refused instead of passed.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from onnxfr.errors import MetricError
from onnxfr.evaluators.base import Result
from onnxfr.evaluators.report.comparison import match_models
from onnxfr.evaluators.report.expression import (
    FILTER_HINT,
    Outcome,
    Test,
    fits,
    judge,
    parse,
)
from onnxfr.evaluators.report.page import Content


def judge_runs(text: str, a: Content, b: Content, deltas: Sequence[Result]) -> Outcome:
    """Tell whether an expression holds for two runs; ``deltas`` are their differences, B minus A.

    Differences that could not be measured belong to them, with the value None.
    """
    tests = [test for conjunction in parse(text) for test in conjunction]
    for test in tests:
        _require_whole(test, a, b)
        _require_models(test, a, b)
    outcome = judge(text, {"a": a.results(), "b": b.results(), "delta": deltas})
    for test in tests:
        _require_seen(test, outcome, a, b)
    return outcome


def _require_whole(test: Test, a: Content, b: Content) -> None:
    """Refuse a test on a run of which a part failed or was never made."""
    for name, run in (("A", a), ("B", b)):
        gaps = run.gaps() if test.scope in (name.lower(), "delta") else []
        if gaps:
            told = " ".join(gap.sentence for gap in gaps)
            raise MetricError(f"{test.text!r} cannot be judged: in run {name}, {told}")


def _require_models(test: Test, a: Content, b: Content) -> None:
    """Refuse a test on B where a model that A has is gone."""
    if test.scope == "a":
        return
    matched = match_models(a, b)
    gone = [
        model["name"]
        for model in a.manifest["models"]
        if model["name"] not in matched and _names(test, model["name"])
    ]
    if gone:
        raise MetricError(
            f"{test.text!r} cannot be judged: run B has no {', '.join(gone)}, which run A has; "
            f"{FILTER_HINT}"
        )


def _require_seen(test: Test, outcome: Outcome, a: Content, b: Content) -> None:
    """Refuse a test that one of several models escapes because it has no such number.

    Where neither run has the metric for any model of a data set, it is the data that cannot give
    it. Comparisons with a first model are no metric of that model.
    """
    every = [*a.results(), *b.results()]
    measured = [r for r in every if fits(test, r) and "against=" not in r.condition]
    places = {(r.evaluator, r.data) for r in measured}
    seen = {(m.result.model, m.result.data) for m in outcome.matches if m.test == test}
    asked = _asked(a if test.scope == "a" else b, {})
    if test.scope == "delta":
        before = _asked(a, match_models(a, b))
        asked = [entry for entry in asked if entry in before]
    unseen = [
        f"{model} on {data}"
        for evaluator, model, data in asked
        if (evaluator, data) in places and (model, data) not in seen and _names(test, model)
    ]
    if unseen:
        raise MetricError(
            f"{test.text!r} cannot be judged for {'; '.join(dict.fromkeys(unseen))}: "
            f"{test.metric} could not be measured there; {FILTER_HINT}"
        )


def _asked(run: Content, names: Mapping[str, str]) -> list[tuple[str, str, str]]:
    """Return which evaluators looked at which of the run's models on what; models by new names."""
    models = {model["name"] for model in run.manifest["models"]}
    return list(
        dict.fromkeys(
            (r.evaluator, names.get(r.model, r.model), r.data)
            for r in run.results()
            if r.model in models
        )
    )


def _names(test: Test, model: str) -> bool:
    """Tell whether the test's filters leave this model in."""
    return dict(test.filters).get("model", model) == model
