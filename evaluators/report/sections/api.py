"""The report's part on verifiers as seen over an API."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from typing import Any

from markupsafe import Markup

from onnxfr.evaluators.api_results import points_of
from onnxfr.evaluators.base import Result
from onnxfr.evaluators.report.rendering import render
from onnxfr.evaluators.report.section import SECTIONS, Headline, Section, Verdict, View
from onnxfr.evaluators.report.svg import DASHES, SERIES, Chart, linear_axis, log_axis, top_margin
from onnxfr.evaluators.report.wording import count, percent, span, value_text

_MANY_REJECTED = 0.05

Runs = dict[tuple[str, str], list[Result]]


@SECTIONS.register("api")
class ApiSection(Section):
    """Rejections, accuracies, and what decision attacks reach with how many questions."""

    title = "Seen over an API: verdicts, rejections, decision attacks"
    order = 60

    def verdicts(self, view: View) -> list[Verdict]:
        """Say what a client and an attacker of the service get."""
        return [verdict for where in _runs(view).items() for verdict in _verdicts(*where)]

    def headlines(self, view: View) -> list[Headline]:
        """Return the three rates, and each attack's success with all its questions."""
        return [row for where in _runs(view).items() for row in _headlines(*where)]

    def body(self, view: View) -> Markup:
        """Return rates, attack tables and curves."""
        blocks = [_block(*where) for where in _runs(view).items()]
        return render("api.html", blocks=blocks)


def _runs(view: View) -> Runs:
    found: Runs = {}
    for result in view.results:
        found.setdefault((result.model, result.data), []).append(result)
    return found


def _find(results: Sequence[Result], metric: str) -> Result | None:
    return next((r for r in results if r.metric == metric and not r.method), None)


def _attacks(results: Sequence[Result]) -> Iterator[tuple[str, str, list[Result]]]:
    """Yield (attack, goal, its results)."""
    names = dict.fromkeys((r.method, r.goal) for r in results if r.method)
    for method, goal in names:
        yield method, goal, [r for r in results if (r.method, r.goal) == (method, goal)]


def _verdicts(where: tuple[str, str], results: list[Result]) -> list[Verdict]:
    model, data = where
    found = []
    rates = [_find(results, metric) for metric in ("rr", "asa", "aa")]
    rr, asa, aa = rates
    if rr is not None and asa is not None and aa is not None:
        sentence = (
            f"Over its API {model} rejects {percent(rr.value)} of {count(rr.n)} pairs of {data} "
            f"({span(rr.low, rr.high)}), decides {percent(asa.value)} of the others correctly, and "
            f"{percent(aa.value)} of all ({span(aa.low, aa.high)})."
        )
        many = rr.value is not None and rr.value > _MANY_REJECTED
        found.append(Verdict("caution" if many else "info", sentence, model))
    for method, goal, part in _attacks(results):
        last = points_of(part, "asr")[-1:]
        for questions, result in last:
            sentence = (
                f"Asking only yes or no, {method} ({_goal(goal)}) succeeds against {model} on "
                f"{percent(result.value)} of {count(result.n)} pairs of {data} "
                f"({span(result.low, result.high)}) within {count(questions)} questions a pair."
            )
            beaten = result.low is not None and result.low > 0
            found.append(Verdict("caution" if beaten else "info", sentence, model))
    changed = _find(results, "changed_mind")
    if changed is not None and changed.value:
        sentence = (
            f"{model} answered {percent(changed.value)} of {count(changed.n)} questions "
            "differently when asked again: its answers are noisy or it was changed during the "
            "run. The first answer to each question counts here."
        )
        found.append(Verdict("problem", sentence, model))
    return found


def _headlines(where: tuple[str, str], results: list[Result]) -> list[Headline]:
    model, data = where
    rows = []
    for metric, words, note in (
        ("rr", "Rejected over the API", "no verdict was given"),
        ("asa", "Accuracy of answered pairs", ""),
        ("aa", "Accuracy of all pairs", "rejected pairs count as wrong"),
        ("invalid", "Answers that make no sense", "counted as rejected"),
    ):
        result = _find(results, metric)
        if result is not None:
            shown, seen = span(result.low, result.high), f"{count(result.n)} pairs"
            rows.append(Headline(model, data, words, value_text(result), shown, seen, note))
    for method, goal, part in _attacks(results):
        for questions, result in points_of(part, "asr")[-1:]:
            words = f"{method} succeeds ({_goal(goal)}, yes/no only)"
            shown, seen = span(result.low, result.high), f"{count(result.n)} pairs"
            eps = float(result.condition.partition("eps=")[2])
            note = f"{count(questions)} questions a pair, within {255 * eps:.1f} grey levels RMS"
            rows.append(Headline(model, data, words, value_text(result), shown, seen, note))
    return rows


def _block(where: tuple[str, str], results: list[Result]) -> dict[str, Any]:
    model, data = where
    clean = [r for r in results if not r.method and r.metric not in ("pairs", "calls")]
    attacks = [
        {
            "name": f"{method}, {_goal(goal)}",
            "calls": _count_of(part, "calls"),
            "pairs": _count_of(part, "attacked_pairs"),
            "refused": _share_of(part, "refused_queries"),
            "points": _points(part),
        }
        for method, goal, part in _attacks(results)
    ]
    first = results[0]
    threshold = "" if first.threshold is None else f"{first.threshold:.3f}, "
    return {
        "name": model,
        "data": data,
        "threshold": f"{threshold}{first.threshold_origin}",
        "calls": _count_of([r for r in results if not r.method], "calls"),
        "rates": [
            {
                "measure": _RATES.get(r.metric, r.metric),
                "value": value_text(r),
                "interval": span(r.low, r.high),
                "n": count(r.n),
            }
            for r in clean
        ],
        "attacks": attacks,
        "charts": _charts(results) if attacks else [],
    }


_RATES = {
    "rr": "Rejected (RR)",
    "asa": "Accuracy of answered pairs (ASA)",
    "aa": "Accuracy of all pairs (AA)",
    "invalid": "Answers that make no sense",
    "fnmr": "Genuine pairs refused, of those judged (FNMR)",
    "fmr": "Impostor pairs accepted, of those judged (FMR)",
    "changed_mind": "Answered differently when asked again",
}


def _points(part: Sequence[Result]) -> list[dict[str, str]]:
    medians = dict(points_of(part, "median_distance"))
    return [
        {
            "questions": count(questions),
            "asr": f"{percent(result.value)} ({span(result.low, result.high)})",
            "median": _distance(medians[questions]),
        }
        for questions, result in points_of(part, "asr")
    ]


def _distance(result: Result) -> str:
    if result.value is None:
        return "no start for half of the pairs"
    return f"{result.value:.1f}"


def _charts(results: Sequence[Result]) -> list[Markup]:
    parts = [
        (f"{method}, {_goal(goal)}", points_of(part, "asr"), points_of(part, "median_distance"))
        for method, goal, part in _attacks(results)
    ]
    parts = [part for part in parts if len(part[1]) > 1]
    if not parts:
        return []
    first, last = parts[0][1][0][0], parts[0][1][-1][0]
    success = Chart(
        title="Success by questions",
        description="Share of pairs won within the distance limit after so many questions.",
        x=log_axis("questions a pair", first, last),
        y=linear_axis("pairs won, %", 0.0, 100.0),
        top=top_margin(len(parts)),
    )
    values = [r.value for _, _, far in parts for _, r in far if r.value is not None]
    farthest = max(values, default=10.0) * 1.1
    distance = Chart(
        title="Median distance by questions",
        description="Root mean square change of the closest win, pairs without one as infinite.",
        x=log_axis("questions a pair", first, last),
        y=linear_axis("distance, grey levels", 0.0, farthest),
        top=top_margin(len(parts)),
    )
    for number, (name, near, far) in enumerate(parts):
        colour, dash = SERIES[number % len(SERIES)], DASHES[number % len(DASHES)]
        low, line, high = (
            [(math.log10(q), 100 * (getattr(r, end) or 0.0)) for q, r in near]
            for end in ("low", "value", "high")
        )
        success.band(low, high, colour)
        success.line(line, colour, dash, name)
        known = [(math.log10(q), r.value) for q, r in far if r.value is not None]
        distance.line(known, colour, dash, name)
    return [success.render(), distance.render()]


def _goal(goal: str) -> str:
    return "dodging" if goal == "dodge" else "impersonation"


def _count_of(results: Sequence[Result], metric: str) -> str:
    return next((count(r.value or 0) for r in results if r.metric == metric), "0")


def _share_of(results: Sequence[Result], metric: str) -> str:
    return next((percent(r.value) for r in results if r.metric == metric), "–")
