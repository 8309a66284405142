"""Attacks and corruptions together as the page shows them: heat maps and strips of faces."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from markupsafe import Markup

from onnxfr.corruptions import CORRUPTIONS
from onnxfr.evaluators.corruption_attack_records import PICTURES
from onnxfr.evaluators.corruption_attack_results import Combined
from onnxfr.evaluators.report.corruption_numbers import title_of
from onnxfr.evaluators.report.example_pairs import data_uri, short_name
from onnxfr.evaluators.report.heat_map import HeatMap, Square
from onnxfr.evaluators.treatment import CLEAN, is_chain

_CAPTIONS = ("clean", "attacked", "corrupted", "both", "reference")
_ONCE = "chain"
"""The column of chains, which have no severities."""


def words(member: Combined, between: str = " ") -> str:
    """Return a condition as people read it."""
    name = title_of(member.corruption)
    own = member.corruption == CLEAN or is_chain(member.corruption)
    return name if own else f"{name}{between}{member.severity}"


def heat_map(game: Sequence[Combined], metric: str, title: str) -> Markup:
    """Return a rate of every corruption and severity; empty where no pair was right."""
    severities = {each.severity for each in game if each.corruption in CORRUPTIONS}
    columns = [*map(str, sorted(severities))]
    if any(is_chain(each.corruption) for each in game):
        columns.append(_ONCE)
    squares = {}
    for each in game:
        found = each.rates()[metric]
        column = _ONCE if is_chain(each.corruption) else str(each.severity)
        if found.n:
            squares[title_of(each.corruption), column] = Square(found.value, found.low, found.high)
    return HeatMap(
        title,
        "Share of pairs decided wrongly, rows the corruption, columns its severity.",
        list(dict.fromkeys(title_of(each.corruption) for each in game)),
        columns,
        squares,
        row_word="corruption",
        column_word="severity",
    ).render()


def gravest(game: Sequence[Combined]) -> list[Combined]:
    """Return each corruption at its highest severity."""
    return list({each.corruption: each for each in sorted(game, key=_severity)}.values())


def _severity(member: Combined) -> int:
    return member.severity


def strips(member: Combined) -> list[dict[str, Any]]:
    """Return the faces of the pairs that keep them, and what became of each."""
    rows = member.rows.filter(member.rows["clean_picture"].is_valid()).to_pylist()
    return [
        {
            "title": words(member),
            "outcome": _outcome(row),
            "pair": f"{short_name(row['left'])} · {short_name(row['right'])}",
            "faces": [
                (data_uri(row[column]), caption)
                for column, caption in zip(PICTURES, _CAPTIONS, strict=True)
                if row[column] is not None
            ],
        }
        for row in rows
    ]


def _outcome(row: dict[str, Any]) -> str:
    if row["won_clean"]:
        return "wrong without attack or corruption"
    words = [
        name
        for column, name in (
            ("won_attacked", "the attack alone"),
            ("won_corrupted", "the corruption alone"),
            ("won_both", "both together"),
        )
        if row[column]
    ]
    return f"wrong after {', '.join(words)}" if words else "right throughout"
