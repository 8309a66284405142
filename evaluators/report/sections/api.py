"""The report's part on verifiers as seen over an API."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from typing import Any

from markupsafe import Markup

from onnxfr.evaluators.api_results import points_of
from onnxfr.evaluators.base import Result
from onnxfr.evaluators.report.attack_charts import GOALS
from onnxfr.evaluators.report.question_curves import (
    AIMS,
    QuestionCurve,
    distance_chart,
    distance_text,
    limit_text,
    success_chart,
)
from onnxfr.evaluators.report.rendering import render
from onnxfr.evaluators.report.section import SECTIONS, Headline, Section, Verdict, View
from onnxfr.evaluators.report.wording import count, measure_name, percent, span, value_text
from onnxfr.metrics.intervals import Estimate

_MANY_REJECTED = 0.05
_NEARLY_ALL = 0.95

Runs = dict[tuple[str, str], list[Result]]


@SECTIONS.register("api")
class ApiSection(Section):
    """Rejections, accuracies, and what decision attacks reach with how many questions."""

    title = "Seen over an API"
    order = 60

    def verdicts(self, view: View) -> list[Verdict]:
        """Say what a client and an attacker of the service get."""
        return [verdict for where in _runs(view).items() for verdict in _verdicts(*where)]

    def headlines(self, view: View) -> list[Headline]:
        """Return the three rates, and each attack's success with all its questions."""
        return [row for where in _runs(view).items() for row in _headlines(*where)]

    def body(self, view: View) -> Markup:
        """Return rates, attack tables and curves."""
        blocks = [_block(*where) | _files(view, where[0]) for where in _runs(view).items()]
        return render("api.html", blocks=blocks)


def _runs(view: View) -> Runs:
    found: Runs = {}
    for result in view.results:
        found.setdefault((result.model, result.data), []).append(result)
    return found


def _files(view: View, run: tuple[str, str]) -> dict[str, str]:
    """Return what became of the pictures of a run; records of version 5 do not say."""
    if "files" not in view.records.column_names:
        return {"files": "8 bits a channel"}
    columns = (view.records[name].to_pylist() for name in ("model", "data", "files"))
    told = dict.fromkeys(files for *where, files in zip(*columns, strict=True) if (*where,) == run)
    return {"files": "; ".join(told)}


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
    wanting = _wanting(results)
    if wanting:
        sentence = (
            f"The calls to {model} ran out on {data}: {wanting}. Rates are of what was asked; run "
            "the same command again with more calls (--max-calls) to ask the rest."
        )
        found.append(Verdict("caution", sentence, model))
    for method, goal, part in _attacks(results):
        last = zip(points_of(part, "asr"), points_of(part, "median_distance"), strict=True)
        for (questions, result), (_, median) in list(last)[-1:]:
            sentence = (
                f"Asking only yes or no, {_times(part, questions)} a pair, an attacker who wants "
                f"{AIMS[goal]} succeeds by {method} against {model} on {percent(result.value)} of "
                f"{count(result.n)} pairs of {data} ({span(result.low, result.high)}) within "
                f"{_limit(result)}. {_closest(median)}"
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


def _wanting(results: Sequence[Result]) -> str:
    """Say what could not be asked for want of calls, of all that was planned."""
    parts = []
    for metric, words in (("unasked_pairs", "not asked"), ("unrepeated_pairs", "not asked again")):
        found = _find(results, metric)
        if found is not None:
            parts.append(f"{count(found.n)} pairs were {words}")
    for method, goal, part in _attacks(results):
        said = _short(part)
        if said:
            parts.append(f"{GOALS[goal].lower()} by {method}: {said}")
    return "; ".join(parts)


def _short(part: Sequence[Result]) -> str:
    """Say how many games of an attack were cut short or never begun."""
    words = (("cut_short_pairs", "cut short"), ("unasked_pairs", "never begun"))
    found = [(next((r.n for r in part if r.metric == metric), 0), text) for metric, text in words]
    return ", ".join(f"{count(n)} pairs {text}" for n, text in found if n)


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
            words = f"{GOALS[goal]} by yes-or-no questions, {method}"
            shown, seen = span(result.low, result.high), f"{count(result.n)} pairs"
            short = f"; {_short(part)}" if _short(part) else ""
            note = f"{count(questions)} questions a pair, within {_limit(result)}{short}"
            rows.append(Headline(model, data, words, value_text(result), shown, seen, note))
    asked = [r for r in results if r.metric == "calls"]
    if asked:
        total, calls = sum(r.n for r in asked), sum(r.value or 0.0 for r in asked)
        note = "clean and attacks" + ("" if calls == total else f"; {count(calls)} calls")
        rows.append(Headline(model, data, "Questions asked", count(total), "–", "–", note))
    return rows


def _block(where: tuple[str, str], results: list[Result]) -> dict[str, Any]:
    model, data = where
    clean = [r for r in results if not r.method and r.metric not in ("pairs", "calls")]
    attacks = [
        {
            "name": f"{GOALS[goal]} by {method}",
            "limit": next((_limit(r) for _, r in points_of(part, "asr")), ""),
            "questions": _questions(part),
            "pairs": _count_of(part, "attacked_pairs"),
            "lost": _count_of(part, "clean_wrong_pairs"),
            "refused": _share_of(part, "refused_queries"),
            "short": _short(part),
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
        "questions": _questions([r for r in results if not r.method]),
        "rates": [
            {
                "measure": _RATES.get(r.metric) or measure_name(r),
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
    "fnmr": "Genuine pairs refused, of those judged (FNMR)",
    "fmr": "Impostor pairs accepted, of those judged (FMR)",
}
"""What is called otherwise here than where no service is asked."""


def _points(part: Sequence[Result]) -> list[dict[str, str]]:
    medians = dict(points_of(part, "median_distance"))
    return [
        {
            "questions": count(questions),
            "asr": f"{percent(result.value)} ({span(result.low, result.high)})",
            "pairs": count(result.n),
            "median": distance_text(_estimate(medians[questions])),
        }
        for questions, result in points_of(part, "asr")
    ]


def _estimate(result: Result) -> Estimate:
    """Return a result's numbers; what could not be told was beyond every distance."""
    value, high = (math.inf if each is None else each for each in (result.value, result.high))
    return Estimate(value, result.low or 0.0, high, result.n, "stored")


def _limit(result: Result) -> str:
    eps = result.condition.partition("eps=")[2].partition("/255")[0]
    return limit_text(float(eps) / 255, result.norm)


def _times(part: Sequence[Result], cap: int) -> str:
    """Say how often was asked: attacks may end early, and pairs cut short are not among these."""
    if _short(part):
        return f"{count(cap)} times"
    asked = next(r.n for r in part if r.metric == "calls")
    mean = asked / next(r.n for r in part if r.metric == "asr")
    if mean > _NEARLY_ALL * cap:
        return f"{count(cap)} times"
    return f"{count(mean)} times on average (at most {count(cap)})"


def _closest(median: Result) -> str:
    if median.value is None:
        return "Half of the pairs or more were never won."
    return f"The closest win is {distance_text(_estimate(median))} grey levels away in the median."


def _charts(results: Sequence[Result]) -> list[Markup]:
    """Return success and closeness for each goal; an attack keeps its colour."""
    names = list(dict.fromkeys(r.method for r in results if r.method))
    charts = []
    for goal in dict.fromkeys(r.goal for r in results if r.method):
        parts = [
            (names.index(method), method, part)
            for method, its_goal, part in _attacks(results)
            if its_goal == goal and len(points_of(part, "asr")) > 1
        ]
        if not parts:
            continue
        near, far = (
            [
                QuestionCurve(
                    method, style, [(q, _estimate(r)) for q, r in points_of(part, metric)]
                )
                for style, method, part in parts
            ]
            for metric in ("asr", "median_distance")
        )
        first = parts[0][2][-1]
        charts.append(success_chart(f"{GOALS[goal]}: success by questions", near))
        charts.append(distance_chart(f"{GOALS[goal]}: how close", far, first.norm))
    return charts


def _questions(results: Sequence[Result]) -> str:
    """Say how many questions were asked, and by how many calls where that is more."""
    found = next((r for r in results if r.metric == "calls"), None)
    if found is None:
        return "0 questions"
    calls = "" if found.value == found.n else f" ({count(found.value or 0.0)} calls)"
    return f"{count(found.n)} questions{calls}"


def _count_of(results: Sequence[Result], metric: str) -> str:
    return next((count(r.value or 0) for r in results if r.metric == metric), "0")


def _share_of(results: Sequence[Result], metric: str) -> str:
    return next((percent(r.value) for r in results if r.metric == metric), "–")
