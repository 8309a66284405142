"""What white-box numbers mean, in sentences and on the first screen."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TypeAlias

import numpy as np
from numpy.typing import NDArray

from onnxfr.evaluators.outcomes import Attacked, envelope
from onnxfr.evaluators.report.attack_charts import GOALS, grey
from onnxfr.evaluators.report.section import Headline, Verdict, View
from onnxfr.evaluators.report.wording import count, percent, span
from onnxfr.evaluators.white_box_lights import Lights
from onnxfr.metrics.attack_success import median_cost
from onnxfr.metrics.intervals import rate
from onnxfr.threat import write_eps

Floats: TypeAlias = NDArray[np.float64]
Flags: TypeAlias = NDArray[np.bool_]

_WISHES = {"dodge": "be refused", "impersonate": "be accepted as somebody else"}


def _least(members: Sequence[Attacked]) -> tuple[list[Attacked], Floats]:
    """Return the attacks that seek the smallest change, and the best of them for each pair."""
    seeking = [group for group in members if group.eps is None]
    if not seeking:
        return [], np.zeros(0)
    return seeking, envelope(seeking)[1].min(axis=0)


def budgets_of(members: Sequence[Attacked]) -> list[float]:
    """Return the fixed budgets that attacks were run at."""
    return sorted({group.eps for group in members if group.eps is not None})


def _broken(members: Sequence[Attacked], eps: float) -> Flags:
    """Return which pairs any attack breaks within a budget."""
    judged = [group.within(eps) for group in members if group.eps in (None, eps)]
    return np.asarray(np.isfinite(envelope(judged)[1]).any(axis=0), dtype=np.bool_)


def doubt(lights: Lights) -> Verdict | None:
    """Say that red flags forbid to take the numbers for robustness."""
    bad = [flag for flag in lights.flags if flag.light == "red"]
    if not bad:
        return None
    model, data, goal, norm = lights.games
    why = "; ".join(flag.message for flag in bad)
    sentence = (
        f"Do not take {model}'s resistance to white-box attacks on {data} ({goal}, {norm}) for "
        f"robustness: {why}. What each flag means: docs/checks.md."
    )
    return Verdict("problem", sentence, model)


def need(members: Sequence[Attacked]) -> Verdict | None:
    """Say how small a change breaks half of the pairs."""
    seeking, least = _least(members)
    if not least.size:
        return None
    first, middle = seeking[0], median_cost(least)
    by = "largest change" if first.norm == "linf" else "root mean square change"
    if not np.isfinite(middle.value):
        sentence = (
            f"No attack tried makes half of {first.data}'s pairs {_WISHES[first.goal]} with "
            f"{first.model} ({first.norm}, {count(least.size)} pairs)."
        )
        return Verdict("info", sentence, first.model)
    seen = ", less than one step of an 8-bit picture" if middle.value < 1 else ""
    sentence = (
        f"Who knows {first.model} makes half of {first.data}'s pairs {_WISHES[first.goal]} with a "
        f"{by} of {grey(middle.value)} grey levels of 255 (95 % interval {grey(middle.low)} to "
        f"{grey(middle.high)}, {count(least.size)} pairs){seen}."
    )
    return Verdict("caution", sentence, first.model)


def worst_budget(members: Sequence[Attacked]) -> Verdict | None:
    """Say how many pairs fall within the largest budget."""
    budgets = budgets_of(members)
    if not budgets:
        return None
    first, eps = members[0], budgets[-1]
    broken = rate(_broken(members, eps))
    sentence = (
        f"Within {write_eps(eps)} ({first.norm}), {percent(broken.value, 1)} of {first.data}'s "
        f"pairs can be made to {_WISHES[first.goal]} with {first.model} "
        f"({span(broken.low, broken.high, 1)}; any of the attacks run)."
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
    seeking, least = _least(members)
    if seeking:
        middle = median_cost(least)
        rows.append(
            Headline(
                first.model,
                first.data,
                f"Smallest change, median ({goal}, {first.norm})",
                f"{grey(middle.value)} grey levels",
                f"{grey(middle.low)} – {grey(middle.high)}",
                f"{count(least.size)} pairs",
                note,
            )
        )
    for eps in budgets_of(members)[-1:]:
        broken = rate(_broken(members, eps))
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
