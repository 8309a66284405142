"""The report's part on attacks by queries: what so many questions buy."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from markupsafe import Markup

from onnxfr.budgets import write_eps
from onnxfr.evaluators.attacked import PICTURES
from onnxfr.evaluators.base import Result
from onnxfr.evaluators.outcomes import GREY
from onnxfr.evaluators.query_results import Asked, asked_of
from onnxfr.evaluators.report.attack_charts import GOALS, NORMS
from onnxfr.evaluators.report.example_pairs import data_uri
from onnxfr.evaluators.report.question_curves import (
    AIMS,
    QuestionCurve,
    distance_chart,
    distance_text,
    limit_text,
    questions_text,
    success_chart,
)
from onnxfr.evaluators.report.rendering import render
from onnxfr.evaluators.report.section import SECTIONS, Headline, Section, Verdict, View
from onnxfr.evaluators.report.transfer_pictures import CAPTIONS
from onnxfr.evaluators.report.white_box_verdicts import unplayable
from onnxfr.evaluators.report.wording import count, percent, span
from onnxfr.metrics.attack_success import median_cost, success_curve
from onnxfr.metrics.intervals import Estimate


@SECTIONS.register("query")
class QuerySection(Section):
    """Success and closeness against questions, per attack."""

    title = "Attacks by queries"
    order = 40

    def verdicts(self, view: View) -> list[Verdict]:
        """Say for each model, data set and goal what the strongest attack reaches."""
        found = []
        strongest = _strongest(view)
        several = len({best.data for best in strongest}) > 1
        for best in strongest:
            where = f" of {best.data}" if several else ""
            sentence = (
                f"With {_cap(best)} questions a pair, an attacker who wants {AIMS[best.goal]} "
                f"succeeds against {best.model} in {percent(best.value)} of {count(best.n)} "
                f"pairs{where} ({span(best.low, best.high)}) by {best.method}, within "
                f"{_limit(best)}; threshold {best.threshold:.3f} from {best.threshold_origin}."
            )
            if told := _left_out(view, best.model, best.data, best.goal):
                sentence += f" {told}"
            found.append(Verdict("caution" if best.value else "info", sentence, best.model))
        return [*found, *_all_lost(view), *unplayable(view)]

    def headlines(self, view: View) -> list[Headline]:
        """Return the strongest attack of each model, data set and goal."""
        return [
            Headline(
                best.model,
                best.data,
                f"{GOALS[best.goal]} by asking",
                percent(best.value),
                span(best.low, best.high),
                f"{count(best.n)} pairs",
                f"{best.method}, {_cap(best)} questions, within {_limit(best)}",
            )
            for best in _strongest(view)
        ]

    def body(self, view: View) -> Markup:
        """Return curves, the table of medians and pictures, per model and goal."""
        blocks = []
        groups: dict[tuple[str, str, str, str], list[Asked]] = {}
        for asked in asked_of(view.records):
            groups.setdefault((asked.model, asked.data, asked.goal, asked.norm), []).append(asked)
        for (model, data, goal, norm), members in groups.items():
            targets = _targets(view, members)
            blocks.append(
                {
                    "name": f"{model} on {data}: {GOALS[goal].lower()}, {NORMS[norm]}",
                    "aim": AIMS[goal],
                    "threshold": f"{members[0].threshold:.3f}",
                    "origin": members[0].threshold_origin,
                    "files": _files(members[0].rows[0]),
                    "lost": _left_out(view, model, data, goal),
                    "charts": _charts(members, targets),
                    "quoted": members[0].quoted,
                    "rows": [
                        _row(asked, eps) for asked in members for eps in _eps_of(asked, targets)
                    ],
                    "closer": [_closer_row(each) for each in members if each.seeks == "smallest"],
                    "strips": [strip for asked in members for strip in _strips(asked)],
                }
            )
        return render("query.html", blocks=blocks)


def _all_lost(view: View) -> list[Verdict]:
    """Say where there was nothing to attack."""
    return [
        Verdict(
            "caution",
            f"All {count(result.n)} pairs of {result.data} on which an attacker wants "
            f"{AIMS[result.goal]} are wrong with {result.model} without an attack: "
            "there was nothing to attack. See the threshold and the clean error rates.",
            result.model,
        )
        for result in view.results
        if result.metric == "clean_wrong_pairs" and result.n and result.value == result.n
    ]


def _left_out(view: View, model: str, data: str, goal: str) -> str:
    """Say how many pairs were wrong without an attack: rates are of the others."""
    for result in view.results:
        place = (result.model, result.data, result.goal)
        if result.metric == "clean_wrong_pairs" and place == (model, data, goal):
            lost, all_of_them = count(result.value or 0), count(result.n)
            if result.value:
                return (
                    f"Left out: {lost} of {all_of_them} pairs, which are wrong without an attack."
                )
    return ""


def _files(row: Mapping[str, Any]) -> str:
    """Say what the verifier made of a picture before it looked."""
    if row["jpeg"] is not None:
        return (
            f"stored every picture that was asked about as a JPEG file of quality {row['jpeg']} "
            "first; references are as they were enrolled"
        )
    if row["quantise"]:
        return "took 8-bit files, so that every picture asked about was rounded"
    return "took unrounded pictures; one that takes 8-bit files may answer otherwise"


def _strongest(view: View) -> list[Result]:
    """Return the best success rate of each model, data set and goal, all questions asked."""
    final: dict[tuple[str, str, str], dict[tuple[str, str, str], Result]] = {}
    for result in view.results:
        if result.metric == "asr":
            game = final.setdefault((result.model, result.data, result.goal), {})
            # Results come with growing numbers of questions.
            game[(result.method, result.norm, _eps(result))] = result
    return [max(attacks.values(), key=_strength) for attacks in final.values()]


def _strength(result: Result) -> tuple[float, float]:
    """Order by success, then by how little was allowed."""
    return result.value or 0.0, -_number(_eps(result))


def _eps(result: Result) -> str:
    return result.condition.split(",")[0].removeprefix("eps=")


def _limit(result: Result) -> str:
    return limit_text(_number(_eps(result)), result.norm)


def _number(eps: str) -> float:
    return float(eps.removesuffix("/255")) / 255


def _cap(result: Result) -> str:
    return count(float(result.condition.rsplit("queries=", 1)[1]))


def _targets(view: View, members: Sequence[Asked]) -> list[float]:
    """Return the budgets and distances that this model's results are quoted at.

    Results write them with four digits; what the run was told is exact, where it can be found.
    """
    norm = members[0].norm
    told = [
        float(eps)
        for entry in view.manifest.get("evaluators", ())
        if entry["name"] == "query"
        for eps in entry["params"].get(norm, ())
    ]
    fixed = [asked.eps for asked in members if asked.eps is not None]
    exact = {write_eps(eps): eps for eps in (*told, *fixed)}
    wanted = {write_eps(eps) for eps in fixed}
    wanted |= {_eps(r) for r in view.results if r.metric == "asr" and r.norm == norm}
    return sorted(exact.get(text, _number(text)) for text in wanted)


def _eps_of(asked: Asked, targets: Sequence[float]) -> Sequence[float]:
    return targets if asked.eps is None else (asked.eps,)


def _places(members: Sequence[Asked]) -> list[int]:
    cap = max(asked.cap for asked in members)
    return [int(q) for q in np.unique(np.geomspace(min(10, cap), cap, 60).astype(int))]


def _charts(members: Sequence[Asked], targets: Sequence[float]) -> list[Markup]:
    """Return success at each distance, and closeness where attacks go on after their first win."""
    places, norm = _places(members), members[0].norm
    charts = []
    for eps in targets:
        playing = [
            QuestionCurve(asked.method, style, _won(asked, eps, places))
            for style, asked in _styled(members)
            if asked.eps is None or write_eps(asked.eps) == write_eps(eps)
        ]
        if playing:
            charts.append(success_chart(f"Won within {limit_text(eps, norm)}", playing))
    closer = [
        QuestionCurve(asked.method, style, _closest(asked, places))
        for style, asked in _styled(members)
        if asked.seeks == "smallest"
    ]
    if closer:
        charts.append(distance_chart("How close after so many questions", closer, norm))
    return charts


def _styled(members: Sequence[Asked]) -> list[tuple[int, Asked]]:
    """Return each attack with a colour that it keeps from chart to chart."""
    names = list(dict.fromkeys(asked.method for asked in members))
    return [(names.index(asked.method), asked) for asked in members]


def _won(asked: Asked, eps: float, places: Sequence[int]) -> list[tuple[int, Estimate]]:
    curve = success_curve(asked.queries_to(eps), places)
    rows = zip(curve.asr, curve.low, curve.high, strict=True)
    found = [Estimate(float(v), float(lo), float(hi), curve.n, "wilson") for v, lo, hi in rows]
    return list(zip(places, found, strict=True))


def _closest(asked: Asked, places: Sequence[int]) -> list[tuple[int, Estimate]]:
    return [(q, median_cost(GREY * asked.distance_at(q))) for q in places]


def _row(asked: Asked, eps: float) -> dict[str, Any]:
    return {
        "method": asked.method,
        "eps": write_eps(eps),
        "asr": [
            f"{percent(found.value, 0)} ({span(found.low, found.high, 0)})"
            for _, found in _won(asked, eps, asked.quoted)
        ],
        "median": questions_text(median_cost(asked.queries_to(eps)), asked.cap),
        "pairs": count(len(asked.won)),
    }


def _closer_row(asked: Asked) -> dict[str, Any]:
    found = _closest(asked, asked.quoted)
    return {"method": asked.method, "distances": [distance_text(each) for _, each in found]}


def _strips(asked: Asked) -> list[dict[str, Any]]:
    return [
        {
            "caption": _caption(asked, row),
            "faces": [
                (data_uri(row[name]), caption)
                for name, caption in zip(PICTURES, CAPTIONS, strict=True)
            ],
        }
        for row in asked.rows
        if row["clean_picture"] is not None
    ]


def _caption(asked: Asked, row: dict[str, Any]) -> str:
    away = f"{GREY * row['distance']:.2f} grey levels away after {count(row['queries'])} questions"
    return f"{asked.method}: {'won' if row['won'] else 'not won'}, {away}"
