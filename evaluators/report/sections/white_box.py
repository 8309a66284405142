"""The report's part on attackers who know the network, medians in the layout of RobFR's table."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

from markupsafe import Markup

from onnxfr.budgets import write_eps
from onnxfr.evaluators.outcomes import Attacked, attacked_groups, by_games
from onnxfr.evaluators.report.attack_charts import GOALS, budget_curves, grey, step_curves
from onnxfr.evaluators.report.example_pairs import data_uri, short_name
from onnxfr.evaluators.report.rendering import render
from onnxfr.evaluators.report.section import SECTIONS, Headline, Section, Verdict, View
from onnxfr.evaluators.report.white_box_verdicts import (
    budgets_of,
    doubt,
    headlines_of,
    need,
    unplayable,
    worst_budget,
)
from onnxfr.evaluators.report.wording import count, percent, span
from onnxfr.evaluators.white_box_lights import Lights, lights_of
from onnxfr.metrics.attack_success import median_cost
from onnxfr.metrics.intervals import rate

_ORDER = ("fgsm", "bim", "mim", "cw")
_SIGNS = {"red": "✕", "yellow": "!", "green": "✓"}
"""Worst first, as flags are listed."""
_PICTURES = (
    ("clean_picture", "clean"),
    ("adversarial_picture", "attacked"),
    ("difference_picture", "change"),
    ("reference_picture", "reference"),
)
_LOOKS = (
    ("clean_attention", "where the model looks in the clean picture"),
    ("adversarial_attention", "where it looks in the attacked one"),
)


@SECTIONS.register("white_box")
class WhiteBoxSection(Section):
    """Smallest changes, success at budgets, pictures, and whether to believe them."""

    title = "Attackers who know the network (white box)"
    order = 30

    def verdicts(self, view: View) -> list[Verdict]:
        """Say how little is needed, and what casts doubt on it."""
        groups = attacked_groups(view.records)
        lights = lights_of(view.records, groups)
        found: list[Verdict | None] = []
        for place in _places(groups, lights):
            games = by_games([g for g in groups if (g.model, g.data) == place])
            mine = [each for each in lights if (each.games.model, each.games.data) == place]
            doubts = doubt(mine)
            if doubts or games:
                found.extend([doubts] if doubts else [need(games), worst_budget(games)])
        return [verdict for verdict in [*found, *unplayable(view)] if verdict is not None]

    def headlines(self, view: View) -> list[Headline]:
        """Return the median smallest change and the worst success rates, with the lights."""
        groups = attacked_groups(view.records)
        lights = {each.games: each for each in lights_of(view.records, groups)}
        rows = []
        for members in by_games(groups):
            light = lights.get(members[0].games)
            rows.extend(headlines_of(members, f"checks {light.worst}" if light else ""))
        return rows

    def body(self, view: View) -> Markup:
        """Return lights, curves, tables and picture strips, model by model."""
        groups = attacked_groups(view.records)
        lights = lights_of(view.records, groups)
        blocks = [
            _block(
                place,
                [g for g in groups if (g.model, g.data) == place],
                [each for each in lights if (each.games.model, each.games.data) == place],
            )
            for place in _places(groups, lights)
        ]
        return render("white_box.html", medians=_medians_tables(groups), blocks=blocks)


def _places(groups: Sequence[Attacked], lights: Sequence[Lights]) -> list[tuple[str, str]]:
    """Return models and data sets: the checks run first and may be all there is so far."""
    played = [*(group.games for group in groups), *(each.games for each in lights)]
    return list(dict.fromkeys((games.model, games.data) for games in played))


def _rank(name: str) -> tuple[int, str]:
    return (_ORDER.index(name) if name in _ORDER else len(_ORDER), name)


def _medians_tables(groups: Sequence[Attacked]) -> list[dict[str, Any]]:
    """Return RobFR's Table 2, one table a norm: models by attacks, dodging / impersonation."""
    tables = []
    for norm in ("l2", "linf"):
        seeking = [group for group in groups if group.eps is None and group.norm == norm]
        ranked = sorted({(*_rank(g.plain_name), g.method) for g in seeking})
        methods = [method for *_, method in ranked]
        places = dict.fromkeys((g.model, g.data) for g in seeking)
        rows = [
            _medians_row([g for g in seeking if (g.model, g.data) == place], methods)
            for place in places
        ]
        if rows:
            tables.append({"norm": norm, "heads": methods, "rows": rows})
    return tables


def _medians_row(mine: Sequence[Attacked], methods: Sequence[str]) -> dict[str, Any]:
    cells = []
    for method in methods:
        found = {group.goal: median_cost(group.cost) for group in mine if group.method == method}
        both = [found[goal] for goal in GOALS if goal in found]
        cells.append(
            {
                "label": method,
                "value": " / ".join(
                    grey(found[goal].value) if goal in found else "–" for goal in GOALS
                ),
                "intervals": [f"{grey(e.low)} – {grey(e.high)}" for e in both if e.low < math.inf],
            }
        )
    value, origin = mine[0].threshold
    return {
        "name": f"{mine[0].model} on {mine[0].data}",
        "threshold": f"{value:.3f} ({origin})",
        "pairs": count(max(len(group.won) for group in mine)),
        "cells": cells,
    }


def _block(
    place: tuple[str, str], groups: Sequence[Attacked], lights: Sequence[Lights]
) -> dict[str, Any]:
    charts = []
    for members in by_games(groups):
        seeking = [group for group in members if group.eps is None]
        fixed = [group for group in members if group.eps is not None]
        charts.extend([budget_curves(seeking)] if seeking else [])
        charts.extend([step_curves(fixed)] if fixed else [])
    return {
        "name": place[0],
        "data": place[1],
        "lights": [_light(each) for each in lights],
        "charts": charts,
        "rates": [row for members in by_games(groups) for row in _rate_rows(members)],
        "strips": [strip for group in groups for strip in _strips(group)],
    }


def _light(lights: Lights) -> dict[str, Any]:
    return {
        "title": f"{GOALS[lights.games.goal]}, {lights.games.norm}",
        "worst": lights.worst,
        "sign": _SIGNS[lights.worst],
        "pairs": lights.pairs,
        "flags": [
            {
                "name": flag.name.replace("_", " "),
                "light": flag.light,
                "sign": _SIGNS[flag.light],
                "message": flag.message,
                "page": flag.page,
            }
            for flag in sorted(
                lights.flags, key=lambda f: ("red", "yellow", "green").index(f.light)
            )
        ],
    }


def _rate_rows(members: Sequence[Attacked]) -> list[dict[str, str]]:
    rows = []
    for eps in budgets_of(members):
        for group in [g for g in members if g.eps == eps]:
            after = rate(group.won | group.won_clean)
            fair = rate(group.won[~group.won_clean])
            small = rate((group.column("won_8bit") > 0)[~group.won_clean])
            rows.append(
                {
                    "attack": group.method,
                    "where": f"{GOALS[group.goal].lower()}, {group.norm} {write_eps(eps)}",
                    "all": f"{percent(after.value, 1)} ({span(after.low, after.high, 1)})",
                    "fair": f"{percent(fair.value, 1)} ({span(fair.low, fair.high, 1)})",
                    "small": percent(small.value, 1),
                    "pairs": count(after.n),
                }
            )
    return rows


def _strips(group: Attacked) -> list[dict[str, Any]]:
    """Return the kept pictures of one attack: clean, attacked, amplified change, reference."""
    rows = group.rows.filter(group.rows["clean_picture"].is_valid()).to_pylist()
    budget = "smallest change" if group.eps is None else write_eps(group.eps)
    return [
        {
            "title": f"{group.method}, {GOALS[group.goal].lower()}, {group.norm}, {budget}",
            "pair": f"{short_name(row['left'])} · {short_name(row['right'])}",
            "outcome": _outcome(row),
            "gain": f"{row['difference_gain']:.0f}",
            "pictures": [
                {"uri": data_uri(row[column]), "name": name} for column, name in _PICTURES
            ],
            "looks": [
                {"uri": data_uri(row[column]), "name": name}
                for column, name in _LOOKS
                if row.get(column) is not None
            ],
            "note": row.get("attention_note"),
        }
        for row in rows
    ]


def _outcome(row: dict[str, Any]) -> str:
    if row["won_clean"]:
        return "wrong without an attack"
    if not row["won"]:
        return "not broken"
    kept = "also as an 8-bit file" if row["won_8bit"] else "not as an 8-bit file"
    return f"broken with {grey(255 * row['linf'])} grey levels at most, {kept}"
