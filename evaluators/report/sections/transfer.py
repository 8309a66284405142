"""The report's part on transfer: who fools whom, how sure that is, and what it looks like."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from markupsafe import Markup

from onnxfr.evaluators.base import Result
from onnxfr.evaluators.report.heat_map import HeatMap, Square
from onnxfr.evaluators.report.rendering import render
from onnxfr.evaluators.report.section import SECTIONS, Headline, Section, Verdict, View
from onnxfr.evaluators.report.transfer_pictures import attention_maps, strips
from onnxfr.evaluators.report.wording import count, percent, span
from onnxfr.evaluators.surrogates import LEVELS
from onnxfr.evaluators.transfer_records import inside_pairs

GOALS = {"dodge": "Dodging", "impersonate": "Impersonation"}
_DEEDS = {"dodge": "is not recognised", "impersonate": "passes for somebody else"}
_FEW_PAIRS = 100
_HARMLESS = 0.05
_SIGNIFICANT = 0.05


@dataclass(frozen=True)
class _Numbers:
    """The results of one data set and budget; ``inside`` are sources that hold their target."""

    data: str
    budget: str
    results: tuple[Result, ...]
    inside: frozenset[tuple[str, str]]

    def of(self, metric: str, **wanted: str) -> list[Result]:
        return [
            result
            for result in self.results
            if result.metric == metric
            and result.value is not None
            and all(getattr(result, name) == value for name, value in wanted.items())
        ]

    @property
    def goals(self) -> list[str]:
        return list(dict.fromkeys(result.goal for result in self.results))

    @property
    def attacks(self) -> list[str]:
        return list(dict.fromkeys(result.method for result in self.of("asr_all")))

    @property
    def strongest(self) -> str:
        """The attack that transfers best on average; the first where nothing transfers."""
        means = {
            attack: sum(result.value or 0.0 for result in self.of("transfer_mean", method=attack))
            for attack in self.attacks
        }
        return max(means, key=lambda attack: means[attack])

    def across(self, **wanted: str) -> list[Result]:
        """Return success rates of pictures that were made without the target."""
        return [r for r in self.of("asr_all", **wanted) if not self.white_box(r)]

    def white_box(self, result: Result) -> bool:
        """Tell whether a rate is that of pictures made with the target's own gradients."""
        return (result.condition.removeprefix("from "), result.model) in self.inside


@SECTIONS.register("transfer")
class TransferSection(Section):
    """Heat maps, means, knowledge levels, pictures and attention maps."""

    title = "Transfer attacks: pictures made against other models"
    order = 30

    def verdicts(self, view: View) -> list[Verdict]:
        """Say how far a target is fooled by attackers who never saw it, and what attack is best."""
        return [v for numbers in _split(view) for v in (*_targets(numbers), *_attacks(numbers))]

    def headlines(self, view: View) -> list[Headline]:
        """Return the worst source of every target and goal."""
        rows = []
        for numbers in _split(view):
            for worst in _worst_by_target(numbers):
                rows.append(
                    Headline(
                        worst.model,
                        numbers.data,
                        f"{GOALS[worst.goal]} by transfer, {numbers.budget}",
                        percent(worst.value, 1),
                        span(worst.low, worst.high, 1),
                        f"{count(worst.n)} pairs",
                        f"worst of the other models: {worst.method} {worst.condition}",
                    )
                )
        return rows

    def body(self, view: View) -> Markup:
        """Return one block per data set and budget."""
        return render("transfer.html", blocks=[_block(view, numbers) for numbers in _split(view)])


def _split(view: View) -> list[_Numbers]:
    places = dict.fromkeys((result.data, result.norm) for result in view.results)
    inside = inside_pairs(view.records)
    return [
        _Numbers(*at, tuple(r for r in view.results if (r.data, r.norm) == at), inside)
        for at in places
    ]


def _worst_by_target(numbers: _Numbers) -> list[Result]:
    worst: dict[tuple[str, str], Result] = {}
    for result in numbers.across():
        key = (result.model, result.goal)
        if key not in worst or (result.value or 0.0) > (worst[key].value or 0.0):
            worst[key] = result
    return list(worst.values())


def _targets(numbers: _Numbers) -> list[Verdict]:
    found = []
    by_target: dict[str, list[Result]] = {}
    for worst in _worst_by_target(numbers):
        by_target.setdefault(worst.model, []).append(worst)
    for target, goals in by_target.items():
        parts = [
            f"{_DEEDS[worst.goal]} in {percent(worst.value, 1)} of {count(worst.n)} pairs "
            f"({span(worst.low, worst.high, 1)}; {worst.method} "
            f"{worst.condition.replace('from', 'with', 1)})"
            for worst in goals
        ]
        sentence = (
            f"An attacker who never saw {target} {' and '.join(parts)} on {numbers.data} at "
            f"{numbers.budget}: 8-bit pictures, the worst of the attacks and sources tried."
        )
        harmless = all(worst.high is not None and worst.high < _HARMLESS for worst in goals)
        found.append(Verdict("info" if harmless else "caution", sentence, target))
    fewest = min((result.n for result in numbers.of("asr_all")), default=0)
    if 0 < fewest < _FEW_PAIRS:
        sentence = (
            f"The transfer rates on {numbers.data} at {numbers.budget} rest on {count(fewest)} "
            "pairs a goal: read the intervals, not the differences between neighbours."
        )
        found.append(Verdict("caution", sentence))
    return found


def _attacks(numbers: _Numbers) -> list[Verdict]:
    found = []
    for gain in numbers.of("transfer_gain"):
        p = next(iter(numbers.of("transfer_gain_p", method=gain.method, goal=gain.goal)), None)
        if p is None or p.value is None or gain.value is None or p.value > _SIGNIFICANT:
            continue
        if gain.low is None or gain.high is None or gain.low <= 0.0 <= gain.high:
            continue  # the test and the interval must agree before the page calls one better
        first, second = gain.method.split(" - ")
        better, worse = (first, second) if gain.value > 0 else (second, first)
        sentence = (
            f"{GOALS[gain.goal]}, {numbers.budget}: {better} transfers better than {worse} by "
            f"{abs(100 * gain.value):.1f} points over the same {count(gain.n)} pairs "
            f"(p = {p.value:.2g}, Wilcoxon over pairs, Holm)."
        )
        found.append(Verdict("info", sentence))
    return found


def _block(view: View, numbers: _Numbers) -> dict[str, Any]:
    best = numbers.strongest
    others = [attack for attack in numbers.attacks if attack != best]
    return {
        "title": f"{numbers.data}, {numbers.budget}",
        "attack": best,
        "compared": _comparison(numbers),
        "maps": _maps(numbers, best),
        "more": [(attack, _maps(numbers, attack)) for attack in others],
        "levels": _levels(numbers, best),
        "level_words": LEVELS,
        "all": _all_rows(numbers),
        "strips": strips(view.records, numbers.data, numbers.budget, best),
        "attention": attention_maps(view.records, numbers.data, numbers.budget, best),
        "goals": GOALS,
    }


def _comparison(numbers: _Numbers) -> dict[str, Any]:
    rows = []
    for attack in numbers.attacks:
        means = {
            goal: next(iter(numbers.of("transfer_mean", method=attack, goal=goal)), None)
            for goal in numbers.goals
        }
        rows.append(
            {
                "attack": attack,
                "cells": [
                    f"{percent(m.value, 1)} ({span(m.low, m.high, 1)})" if m else "–"
                    for m in means.values()
                ],
            }
        )
    duels = []
    for gain in numbers.of("transfer_gain"):
        p = next(iter(numbers.of("transfer_gain_p", method=gain.method, goal=gain.goal)), None)
        duels.append(
            {
                "what": gain.method.replace(" - ", " − "),
                "goal": GOALS[gain.goal],
                "gain": _points(gain.value),
                "span": f"{_points(gain.low)} to {_points(gain.high)}",
                "p": "–" if p is None or p.value is None else f"{p.value:.2g}",
                "n": count(gain.n),
            }
        )
    return {"goals": [GOALS[goal] for goal in numbers.goals], "rows": rows, "duels": duels}


def _points(value: float | None) -> str:
    return "–" if value is None else f"{100 * value:+.1f}"


def _maps(numbers: _Numbers, attack: str) -> list[Markup]:
    charts = []
    for goal in numbers.goals:
        cells = numbers.of("asr_all", method=attack, goal=goal)
        if not cells:
            continue
        sources = list(dict.fromkeys(cell.condition.removeprefix("from ") for cell in cells))
        targets = list(dict.fromkeys(cell.model for cell in cells))
        means = [
            {r.model: _square(r) for r in numbers.of(metric, method=attack, goal=goal)}
            for metric in ("source_strength", "target_weakness")
        ]
        squares = {
            (cell.condition.removeprefix("from "), cell.model): _square(
                cell, own=numbers.white_box(cell)
            )
            for cell in cells
        }
        charts.append(
            HeatMap(
                f"{GOALS[goal]} with {attack}",
                "Share of pairs lost, rows the source, columns the target; dashed squares are "
                "white-box and not part of the means.",
                sources,
                targets,
                squares,
                row_means=means[0],
                column_means=means[1],
            ).render()
        )
    return charts


def _square(result: Result, *, own: bool = False) -> Square:
    return Square(result.value, result.low, result.high, own)


def _levels(numbers: _Numbers, attack: str) -> list[dict[str, Any]]:
    """Return success by knowledge level; nothing where only full knowledge was tried."""
    found = numbers.of("asr_level", method=attack)
    if {result.condition for result in found} <= {"level=F"}:
        return []
    rows: dict[tuple[str, str], dict[str, Any]] = {}
    for result in found:
        row = rows.setdefault(
            (result.model, result.goal),
            {"target": result.model, "goal": GOALS[result.goal], **dict.fromkeys(LEVELS, "–")},
        )
        level = result.condition.removeprefix("level=")
        row[level] = f"{percent(result.value, 1)} ({span(result.low, result.high, 1)})"
    return list(rows.values())


def _all_rows(numbers: _Numbers) -> list[dict[str, str]]:
    def find(result: Result, metric: str) -> str:
        same = {n: getattr(result, n) for n in ("model", "method", "goal", "condition")}
        other = next(iter(numbers.of(metric, **same)), None)
        return percent(other.value, 1) if other else "–"

    return [
        {
            "attack": f"{result.method}, {GOALS[result.goal].lower()}",
            "source": result.condition.removeprefix("from "),
            "target": result.model,
            "rounded": f"{percent(result.value, 1)} ({span(result.low, result.high, 1)})",
            "float": find(result, "asr_all_float"),
            "correct": find(result, "asr_clean_correct"),
            "unattacked": find(result, "asr_unattacked"),
            "threshold": f"{result.threshold:.3f} ({result.threshold_origin})",
        }
        for result in _sorted(numbers.of("asr_all"))
    ]


def _sorted(results: Sequence[Result]) -> list[Result]:
    return sorted(results, key=lambda r: (r.method, r.goal, r.condition, r.model))
