"""The report's part on attacks by queries: what so many questions buy."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np
from markupsafe import Markup

from onnxfr.evaluators.attacked import PICTURES
from onnxfr.evaluators.base import Result
from onnxfr.evaluators.query_results import Asked, asked_of
from onnxfr.evaluators.report.example_pairs import data_uri
from onnxfr.evaluators.report.rendering import render
from onnxfr.evaluators.report.section import SECTIONS, Headline, Section, Verdict, View
from onnxfr.evaluators.report.svg import (
    DASHES,
    SERIES,
    Axis,
    Chart,
    linear_axis,
    log_axis,
    top_margin,
)
from onnxfr.evaluators.report.transfer_pictures import CAPTIONS
from onnxfr.evaluators.report.wording import count, percent, span
from onnxfr.metrics.attack_success import median_cost, success_curve
from onnxfr.threat import write_eps

_GOALS = {"dodge": "not be recognised", "impersonate": "be taken for somebody else"}
_EASY = 0.5


@SECTIONS.register("query")
class QuerySection(Section):
    """Success and closeness against questions, per attack."""

    title = "Attacks by queries"
    order = 40

    def verdicts(self, view: View) -> list[Verdict]:
        """Say for each model and goal what the strongest attack reaches."""
        found = []
        for model, goal in _pairs_of(view):
            best = max(_final(view, model, goal), key=lambda r: r.value or 0.0, default=None)
            if best is None:
                continue
            sentence = (
                f"With {_cap(best)} questions a pair, an attacker who wants to {_GOALS[goal]} "
                f"succeeds against {model} in {percent(best.value)} of {count(best.n)} pairs "
                f"({span(best.low, best.high)}; {best.method}, {best.norm} {_eps(best)}), "
                f"threshold {best.threshold:.3f} from {best.threshold_origin}."
            )
            easy = (best.value or 0.0) >= _EASY
            found.append(Verdict("problem" if easy else "caution", sentence, model))
        return found

    def headlines(self, view: View) -> list[Headline]:
        """Return the strongest attack of each model and goal."""
        rows = []
        for model, goal in _pairs_of(view):
            best = max(_final(view, model, goal), key=lambda r: r.value or 0.0, default=None)
            if best is not None:
                rows.append(
                    Headline(
                        model,
                        best.data,
                        f"Query attacks won, {goal}",
                        percent(best.value),
                        span(best.low, best.high),
                        f"{count(best.n)} pairs",
                        f"{best.method}, {best.norm} {_eps(best)}, {_cap(best)} questions",
                    )
                )
        return rows

    def body(self, view: View) -> Markup:
        """Return curves, the table of medians and pictures, per model and goal."""
        blocks = []
        groups: dict[tuple[str, str, str, str], list[Asked]] = {}
        for asked in asked_of(view.records):
            groups.setdefault((asked.model, asked.data, asked.goal, asked.norm), []).append(asked)
        for (model, data, goal, norm), members in groups.items():
            targets = _targets(view, members)
            charts = [_success_chart(members, eps) for eps in targets]
            closer = [asked for asked in members if asked.seeks == "smallest"]
            if closer:
                charts.append(_closeness_chart(closer))
            blocks.append(
                {
                    "name": f"{model} on {data}: {goal}, {norm}",
                    "aim": _GOALS[goal],
                    "threshold": f"{members[0].threshold:.3f}",
                    "origin": members[0].threshold_origin,
                    "charts": charts,
                    "quoted": members[0].quoted,
                    "rows": [
                        _row(asked, eps) for asked in members for eps in _eps_of(asked, targets)
                    ],
                    "strips": [strip for asked in members for strip in _strips(asked)],
                }
            )
        return render("query.html", blocks=blocks)


def _pairs_of(view: View) -> list[tuple[str, str]]:
    return list(dict.fromkeys((r.model, r.goal) for r in view.results))


def _final(view: View, model: str, goal: str) -> list[Result]:
    """Return the success rates at the largest number of questions, one per attack and budget."""
    last: dict[tuple[str, str, str, str], Result] = {}
    for result in view.results:
        if (result.model, result.goal, result.metric) == (model, goal, "asr"):
            # Results come with growing numbers of questions.
            last[(result.data, result.method, result.norm, _eps(result))] = result
    return list(last.values())


def _eps(result: Result) -> str:
    return result.condition.split(",")[0].removeprefix("eps=")


def _cap(result: Result) -> str:
    return count(float(result.condition.rsplit("queries=", 1)[1]))


def _targets(view: View, members: Sequence[Asked]) -> list[float]:
    """Return the budgets and distances that this model's results are quoted at."""
    wanted = {write_eps(asked.eps) for asked in members if asked.eps is not None}
    norm = members[0].norm
    wanted |= {_eps(r) for r in view.results if r.metric == "asr" and r.norm == norm}
    return sorted(float(text.removesuffix("/255")) / 255 for text in wanted)


def _eps_of(asked: Asked, targets: Sequence[float]) -> Sequence[float]:
    return targets if asked.eps is None else (asked.eps,)


def _questions(members: Sequence[Asked]) -> tuple[list[int], Axis]:
    cap = max(asked.cap for asked in members)
    places = np.unique(np.geomspace(min(10, cap), cap, 60).astype(int)).tolist()
    return places, log_axis("questions asked about a pair", places[0], max(cap, places[0] + 1))


def _success_chart(members: Sequence[Asked], eps: float) -> Markup:
    playing = [each for each in members if each.eps is None or math.isclose(each.eps, eps)]
    places, axis = _questions(playing)
    chart = Chart(
        title=f"Won within {write_eps(eps)}",
        description="Share of pairs won against the number of questions, with 95 % bands.",
        x=axis,
        y=linear_axis("pairs won, %", 0.0, 100.0),
        top=top_margin(len(playing)),
    )
    across = [math.log10(place) for place in places]
    for number, asked in enumerate(playing):
        curve = success_curve(asked.queries_to(eps), places)
        lines = [
            [(x, 100 * float(v)) for x, v in zip(across, values, strict=True)]
            for values in (curve.asr, curve.low, curve.high)
        ]
        colour = SERIES[number % len(SERIES)]
        chart.band(lines[1], lines[2], colour)
        chart.line(lines[0], colour, DASHES[number % len(DASHES)], asked.method)
    return chart.render()


def _closeness_chart(members: Sequence[Asked]) -> Markup:
    places, axis = _questions(members)
    curves = []
    for asked in members:
        found = [median_cost(asked.distance_at(place)) for place in places]
        curves.append([(math.log10(q), 255 * e.value) for q, e in zip(places, found, strict=True)])
    seen = [y for curve in curves for _, y in curve if math.isfinite(y)]
    chart = Chart(
        title="How close after so many questions",
        description="Median distance of the closest win, in grey levels.",
        x=axis,
        y=linear_axis("median distance, grey levels", 0.0, max(seen, default=1.0) * 1.05),
        top=top_margin(len(members)),
    )
    for number, (asked, curve) in enumerate(zip(members, curves, strict=True)):
        finite = [point for point in curve if math.isfinite(point[1])]
        style = SERIES[number % len(SERIES)], DASHES[number % len(DASHES)]
        chart.line(finite, *style, asked.method)
    return chart.render()


def _row(asked: Asked, eps: float) -> dict[str, Any]:
    cost = asked.queries_to(eps)
    curve = success_curve(cost, asked.quoted)
    median = median_cost(cost)
    return {
        "method": asked.method,
        "eps": write_eps(eps),
        "asr": [
            f"{percent(float(v), 0)} ({span(float(lo), float(hi), 0)})"
            for v, lo, hi in zip(curve.asr, curve.low, curve.high, strict=True)
        ],
        "median": count(median.value) if math.isfinite(median.value) else "not half of them",
        "distances": [
            f"{255 * value:.2f}" if math.isfinite(value) else "–"
            for value in (median_cost(asked.distance_at(q)).value for q in asked.quoted)
        ]
        if asked.seeks == "smallest"
        else [],
        "pairs": count(len(asked.won)),
    }


def _strips(asked: Asked) -> list[dict[str, Any]]:
    return [
        {
            "caption": f"{asked.method}: {'won' if row['won'] else 'not won'} after "
            f"{count(row['queries'])} questions, distance {255 * row['distance']:.2f} grey levels",
            "faces": [
                (data_uri(row[name]), caption)
                for name, caption in zip(PICTURES, CAPTIONS, strict=True)
            ],
        }
        for row in asked.rows
        if row["clean_picture"] is not None
    ]
