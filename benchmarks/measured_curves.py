r"""Draws the curves of docs/results/ from what the other scripts measured; computes nothing.

    python benchmarks/measured_curves.py query measured/decision_peers_MODEL.jsonl OUT.svg
    python benchmarks/measured_curves.py budget measured/robfr_medians/MODEL.json OUT.svg

``query``: the median change after so many questions, each attack beside its peers and ours beside
one another; a panel shows the pairs that everybody in it has played. ``budget``: the share of pairs
broken within a budget, every attack on the pairs it was run on. Bands are 95 % intervals.
"""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from functools import reduce
from pathlib import Path

import numpy as np
import pyarrow as pa
from _measured_medians import GOALS, ROWS, Found, Measured
from decision_peers import MARKS, Line, by_pair, reached, read_lines

from onnxfr.evaluators.outcomes import GREY, Attacked
from onnxfr.evaluators.report.attack_charts import budget_curves
from onnxfr.evaluators.report.question_curves import QuestionCurve, distance_chart
from onnxfr.metrics.attack_success import median_cost
from onnxfr.runs.files import write_atomically
from onnxfr.types import Goal

Player = tuple[str, str]
PANELS: dict[str, tuple[Player, ...]] = {
    "HopSkipJump": tuple((who, "hopskipjump") for who in ("onnxfr", "foolbox", "art")),
    "Boundary": tuple((who, "boundary") for who in ("onnxfr", "foolbox", "art")),
    "GeoDA": tuple((who, "geoda") for who in ("onnxfr", "art")),
    "Sign-OPT": tuple((who, "sign_opt") for who in ("onnxfr", "art")),
    "Ours": tuple(
        ("onnxfr", name)
        for name in ("boundary", "hopskipjump", "evolutionary", "tangent", "surfree", "cgba")
    ),
}
GOAL_NAMES = {Goal.DODGE: "dodging", Goal.IMPERSONATE: "impersonating"}
WIDTH, HEIGHT = 440, 310


def query_panel(lines: list[Line], title: str, players: Sequence[Player], goal: Goal) -> str | None:
    """Return one panel, or None where fewer than two of its attacks were played."""
    played = {player: by_pair(lines, goal, *player) for player in players}
    played = {player: pairs for player, pairs in played.items() if pairs}
    if len(played) < 2:
        return None
    shared = sorted(reduce(set.intersection, (set(pairs) for pairs in played.values())))
    curves = []
    for style, player in enumerate(players):
        if player not in played or not shared:
            continue
        games = {pair: played[player][pair] for pair in shared}
        asked = min(max(map(int, game["reached"])) for game in games.values())
        points = [(m, median_cost(reached(games, m))) for m in MARKS if m <= asked]
        name = player[1] if title == "Ours" else {"onnxfr": "ours"}.get(player[0], player[0])
        curves.append(QuestionCurve(name, style, points))
    heading = f"{title}, {GOAL_NAMES[goal]}, {len(shared)} pairs"
    return distance_chart(heading, curves, "l2") if curves else None


def query_panels(path: Path) -> list[str]:
    """Return all panels of a file, the goals side by side."""
    lines = read_lines(path)
    panels = (
        query_panel(lines, title, players, goal)
        for title, players in PANELS.items()
        for goal in Goal
    )
    return [panel for panel in panels if panel]


def attacked(measured: Measured, found: Found) -> Attacked:
    """Return the pairs an attack was run on, the way a run's records tell them."""
    cost = found.cost[found.played]
    rows = {"won": cost < np.inf, "won_clean": cost == 0, "distance": cost / GREY}
    return Attacked(
        *(measured.model, measured.data, found.name, found.goal, found.norm, None), pa.table(rows)
    )


def budget_panels(path: Path) -> list[str]:
    """Return success over budget, the goals side by side."""
    measured = Measured.read(path)
    panels = []
    for norm in ("l2", "linf"):
        names = dict.fromkeys(name for other, name in ROWS if other == norm)
        for goal in GOALS:
            found = [measured.find(norm, name, goal)[:1] for name in names]
            groups = [attacked(measured, entry) for each in found for entry in each]
            if groups:
                panels.append(budget_curves(groups))
    return panels


def sheet(panels: Sequence[str]) -> str:
    """Return one picture of all panels, two beside each other."""
    # A panel is markup, whose own replace would escape what it is given.
    rows = (len(panels) + 1) // 2
    placed = [
        str(panel).replace(
            "<svg ",
            f'<svg x="{k % 2 * WIDTH}" y="{k // 2 * HEIGHT}" width="{WIDTH}" height="{HEIGHT}" ',
            1,
        )
        for k, panel in enumerate(panels)
    ]
    size = f'width="{2 * WIDTH}" height="{rows * HEIGHT}"'
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" {size} font-family="sans-serif">'
        f'<rect {size} fill="#fff"/>' + "".join(placed) + "</svg>\n"
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("kind", choices=("query", "budget"))
    parser.add_argument("measured", type=Path)
    parser.add_argument("out", type=Path)
    options = parser.parse_args()
    panels = (query_panels if options.kind == "query" else budget_panels)(options.measured)
    if not panels:
        raise SystemExit(f"{options.measured} holds nothing to compare yet")
    write_atomically(options.out, sheet(panels).encode())


if __name__ == "__main__":
    main()
