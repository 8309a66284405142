"""The report's part on attacks and corruptions together: what survives the way to the verifier."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from markupsafe import Markup

from onnxfr.budgets import write_eps
from onnxfr.evaluators.corruption_attack_records import AIMED, CORRUPTION_FIRST
from onnxfr.evaluators.corruption_attack_results import (
    Combined,
    alone,
    combined,
    ease,
    on_corrupted,
)
from onnxfr.evaluators.report.attack_charts import GOALS, grey
from onnxfr.evaluators.report.corruption_attack_pictures import gravest, heat_map, strips, words
from onnxfr.evaluators.report.rendering import render
from onnxfr.evaluators.report.section import SECTIONS, Headline, Section, Verdict, View
from onnxfr.evaluators.report.wording import count, percent, span
from onnxfr.evaluators.treatment import CLEAN
from onnxfr.metrics.attack_success import median_cost
from onnxfr.metrics.intervals import Estimate

Game = list[Combined]
"""One attack, goal and budget under all its conditions."""


@SECTIONS.register("corruption_attack")
class CorruptionAttackSection(Section):
    """Attacks sent through corruptions, and attacks on corrupted pictures."""

    title = "Attacks and corruptions together"
    order = 35

    def verdicts(self, view: View) -> list[Verdict]:
        """Say for each model and goal what is left of the strongest attack on its way."""
        return [_verdict(_strongest(games)) for games in _sent_by_goal(view)]

    def headlines(self, view: View) -> list[Headline]:
        """Return the condition under which the strongest attack is left with least."""
        rows = []
        for games in _sent_by_goal(view):
            game = _strongest(games)
            least = min(game, key=_survival)
            left = least.rates()["asr_corrupted"]
            rows.append(
                Headline(
                    game[0].model,
                    game[0].data,
                    f"Attacks won after corruption, {GOALS[game[0].goal].lower()}, least",
                    percent(left.value, 1),
                    span(left.low, left.high, 1),
                    f"{count(left.n)} pairs",
                    f"{_attack_of(game[0])}, {words(least, ' severity ')}",
                )
            )
        return rows

    def body(self, view: View) -> Markup:
        """Return heat maps, every number and example strips, game by game."""
        games = _games(view)
        shown = [_strongest(rivals)[0].game for rivals in _sent_by_goal(view)]
        sent = [
            _sent_block(game, illustrated=game[0].game in shown)
            for game in games
            if game[0].order != CORRUPTION_FIRST
        ]
        found = [game for game in games if game[0].order == CORRUPTION_FIRST]
        return render(
            "corruption_attack.html",
            sent=sent,
            smallest=[_smallest_block(game) for game in found if game[0].eps is None],
            fixed=[_fixed_block(game) for game in found if game[0].eps is not None],
        )


def _games(view: View) -> list[Game]:
    games: dict[tuple[object, ...], Game] = {}
    for each in combined(view.records):
        games.setdefault(each.game, []).append(each)
    return list(games.values())


def _sent_by_goal(view: View) -> list[list[Game]]:
    """Return the games in which the attack comes first, by model, data, goal and knowledge."""
    found: dict[tuple[str, str, str, str], list[Game]] = {}
    for game in _games(view):
        first = game[0]
        if first.order != CORRUPTION_FIRST and first.right.any():
            found.setdefault((first.model, first.data, first.goal, first.order), []).append(game)
    return list(found.values())


def _strongest(games: Sequence[Game]) -> Game:
    """Return the game with the most wins after corruption, over all conditions."""
    return max(games, key=lambda game: sum(e.rates()["asr_corrupted"].value for e in game))


def _survival(member: Combined) -> float:
    return member.rates()["asr_corrupted"].value


def _verdict(game: Game) -> Verdict:
    first = game[0]
    before = alone(first)
    least, most = min(game, key=_survival), max(game, key=_survival)
    told = [
        f"{percent(rates['asr_corrupted'].value, 1)} after {words(each, ' severity ')} "
        f"({span(rates['asr_corrupted'].low, rates['asr_corrupted'].high, 1)}; the corruption "
        f"alone {percent(rates['asr_corruption_alone'].value, 1)})"
        for each in dict.fromkeys((most, least))
        for rates in [each.rates()]
    ]
    unsent = "" if first.order == AIMED else f"{percent(before.value, 1)}; "
    sentence = (
        f"{GOALS[first.goal]}: of the {count(before.n)} pairs that {first.model} decides "
        f"correctly, {_attack_of(first)} breaks {unsent}{', '.join(told)}. "
        f"Threshold {_threshold(first)}."
    )
    kept = any(each.rates()["asr_beyond_corruption"].low > 0.5 for each in game)
    return Verdict("caution" if kept else "info", sentence, first.model)


def _attack_of(member: Combined) -> str:
    budget = "smallest change" if member.eps is None else write_eps(member.eps)
    known = " aimed through the corruption" if member.order == AIMED else ""
    return f"{member.method}, {member.norm} {budget}{known}"


def _threshold(member: Combined) -> str:
    first = member.rows.slice(0, 1).to_pylist()[0]
    return f"{first['threshold']:.3f} from {first['threshold_origin'] or 'the specification'}"


def _told(estimate: Estimate) -> str:
    if not estimate.n:
        return "–"
    return f"{percent(estimate.value, 1)} ({span(estimate.low, estimate.high, 1)})"


def _head(game: Game) -> dict[str, Any]:
    first = game[0]
    return {
        "title": f"{first.model} on {first.data}: {GOALS[first.goal].lower()}, {_attack_of(first)}",
        "threshold": _threshold(first),
        "pairs": count(int(first.right.sum())),
    }


def _sent_block(game: Game, *, illustrated: bool) -> dict[str, Any]:
    rows = []
    for each in game:
        rates = each.rates()
        rows.append(
            {
                "name": words(each),
                "both": _told(rates["asr_corrupted"]),
                "alone": _told(rates["asr_corruption_alone"]),
                "beyond": _told(rates["asr_beyond_corruption"]),
                "survival": "–" if each.order == AIMED else _told(rates["asr_survival"]),
            }
        )
    maps = [
        heat_map(game, "asr_corrupted", "Wrong after attack and corruption"),
        heat_map(game, "asr_corruption_alone", "Wrong after the corruption alone"),
    ]
    faces = [strip for each in gravest(game) for strip in strips(each)] if illustrated else []
    before = "" if game[0].order == AIMED else _told(alone(game[0]))
    return _head(game) | {"before": before, "maps": maps, "rows": rows, "strips": faces}


def _smallest_block(game: Game) -> dict[str, Any]:
    clean = next((each for each in game if each.corruption == CLEAN), None)
    rows = []
    for each in game:
        median = median_cost(each.cost)
        ratio = ease(each, clean) if clean is not None and each is not clean else None
        rows.append(
            {
                "name": "none" if each is clean else words(each),
                "median": grey(median.value),
                "interval": f"{grey(median.low)} – {grey(median.high)}",
                "ratio": "–" if ratio is None or not ratio.n else f"{ratio.value:.2f}",
                "ratio_interval": ""
                if ratio is None or not ratio.n
                else f"{ratio.low:.2f} – {ratio.high:.2f}",
                "pairs": count(median.n),
            }
        )
    faces = [strip for each in gravest(game)[1:] for strip in strips(each)]
    return _head(game) | {"rows": rows, "strips": faces}


def _fixed_block(game: Game) -> dict[str, Any]:
    rows = [
        {
            "name": "none" if each.corruption == CLEAN else words(each),
            "success": _told(on_corrupted(each)),
            "pairs": count(on_corrupted(each).n),
        }
        for each in game
    ]
    return _head(game) | {"rows": rows}
