"""What white-box numbers mean, in sentences and on the first screen."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TypeAlias

import numpy as np
from numpy.typing import NDArray

from onnxfr.budgets import write_eps
from onnxfr.evaluators.outcomes import Attacked, envelope
from onnxfr.evaluators.report.attack_charts import GOALS, grey
from onnxfr.evaluators.report.section import Headline, Verdict, View
from onnxfr.evaluators.report.wording import count, percent, span
from onnxfr.evaluators.white_box_lights import Lights
from onnxfr.metrics.attack_success import median_cost
from onnxfr.metrics.intervals import Estimate, rate

Floats: TypeAlias = NDArray[np.float64]

_WISHES = {"dodge": "be refused", "impersonate": "be accepted as somebody else"}


def _least(members: Sequence[Attacked]) -> Floats:
    """Return the smallest change any attack that seeks it found, for each pair all of them played.

    Empty where there is no such attack or, in an unfinished run, no such pair.
    """
    seeking = [group for group in members if group.eps is None]
    return envelope(seeking)[1].min(axis=0) if seeking else np.zeros(0)


def budgets_of(members: Sequence[Attacked]) -> list[float]:
    """Return the fixed budgets that attacks were run at."""
    return sorted({group.eps for group in members if group.eps is not None})


def _broken(members: Sequence[Attacked]) -> list[tuple[float, Estimate]]:
    """Return the largest budget attacks were run at, and the share of pairs any breaks within it.

    Nothing where there is no such budget or, in an unfinished run, no pair that all have played.
    """
    found = []
    for eps in budgets_of(members)[-1:]:
        judged = [group.within(eps) for group in members if group.eps in (None, eps)]
        pairs, costs = envelope(judged)
        if pairs:
            found.append((eps, rate(np.isfinite(costs).any(axis=0))))
    return found


def doubt(lights: Sequence[Lights]) -> Verdict | None:
    """Say that red flags of a model on a data set forbid to take its numbers for robustness."""
    bad = {flag.name: flag.message for each in lights for flag in each.flags if flag.light == "red"}
    if not bad:
        return None
    games = lights[0].games
    where = ", ".join(
        f"{each.games.goal} in {each.games.norm}" for each in lights if each.worst == "red"
    )
    sentence = (
        f"Do not take {games.model}'s resistance to white-box attacks on {games.data} ({where}) "
        f"for robustness: {'; '.join(bad.values())}. docs/checks.md says what each flag means."
    )
    return Verdict("problem", sentence, games.model)


def need(games: Sequence[Sequence[Attacked]]) -> Verdict | None:
    """Say how small a change breaks half of the pairs, for both goals in one norm."""
    parts, first = [], games[0][0]
    norm = "linf" if any(members[0].norm == "linf" for members in games) else "l2"
    for members in games:
        least = _least(members)
        if members[0].norm == norm and least.size:
            middle = median_cost(least)
            between = f"{grey(middle.low)} to {grey(middle.high)}; {count(least.size)} pairs"
            told = (
                f"{grey(middle.value)} grey levels of 255 ({between})"
                if np.isfinite(middle.value)
                else f"more than any attack found ({count(least.size)} pairs)"
            )
            parts.append((middle.value, f"{told} to {_WISHES[members[0].goal]}"))
    if not parts:
        return None
    by = "of any pixel" if norm == "linf" else "of all pixels, root mean square,"
    tiny = all(value < 1 for value, _ in parts)
    seen = " Both are less than one step of an 8-bit picture." if tiny and len(parts) > 1 else ""
    sentence = (
        f"The smallest change {by} that makes half of the pairs of {first.data} give way, for "
        f"somebody who knows {first.model}: {' and '.join(told for _, told in parts)}.{seen}"
    )
    return Verdict("caution", sentence, first.model)


def worst_budget(games: Sequence[Sequence[Attacked]]) -> Verdict | None:
    """Say how many pairs fall within the largest budget that attacks were run at."""
    parts, first = [], games[0][0]
    for members in games:
        for eps, broken in _broken(members):
            parts.append(
                f"{percent(broken.value, 1)} come to {_WISHES[members[0].goal]} within "
                f"{write_eps(eps)} in {members[0].norm} ({span(broken.low, broken.high, 1)})"
            )
    if not parts:
        return None
    sentence = (
        f"Of the pairs of {first.data} that {first.model} was attacked on, by any attack run: "
        f"{'; '.join(parts)}."
    )
    return Verdict("caution", sentence, first.model)


def unplayable(view: View) -> list[Verdict]:
    """Say which pairs could not be attacked, and why."""
    found = []
    for result in view.results:
        if result.metric == "unplayable_pairs":
            rows = view.records.filter(view.records["reason"].is_valid()).to_pylist()
            why = next((r["reason"] for r in rows if r["model"] == result.model), "")
            sentence = (
                f"{count(result.value or 0)} pairs of {result.data} could not be attacked with "
                f"{result.model}; the first reason: {why}."
            )
            found.append(Verdict("caution", sentence, result.model))
    return found


def headlines_of(members: Sequence[Attacked], note: str) -> list[Headline]:
    """Return the rows of one goal and norm for the first screen."""
    first = members[0]
    goal, rows = GOALS[first.goal].lower(), []
    least = _least(members)
    if least.size:
        middle = median_cost(least)
        rows.append(
            Headline(
                first.model,
                first.data,
                f"Smallest change, median ({goal}, {first.norm})",
                f"{grey(middle.value)} grey levels" if np.isfinite(middle.value) else "never",
                f"{grey(middle.low)} – {grey(middle.high)}",
                f"{count(least.size)} pairs",
                note,
            )
        )
    for eps, broken in _broken(members):
        rows.append(
            Headline(
                first.model,
                first.data,
                f"Broken within {write_eps(eps)} ({goal}, {first.norm})",
                percent(broken.value, 1),
                span(broken.low, broken.high, 1),
                f"{count(broken.n)} pairs",
                note,
            )
        )
    return rows
