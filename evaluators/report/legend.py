"""Where the names of a chart's lines go: above its frame, two in a row where both fit."""

from __future__ import annotations

from collections.abc import Sequence

ROW = 16
LONGEST = 55
"""Letters of a label that fit into a row of its own."""
_TOP, _ROOM = 34, 420.0
USUAL_MARGIN = _TOP + 2 * ROW
"""Room above the frame for three rows; a chart grows by what more of them need."""


def shortened(name: str, room: int) -> str:
    """Return a name in so many letters at most, cut in the middle.

    Names of one chart are often alike up to their ends: ``smallest(schedule=robfr):bim``.
    """
    if len(name) <= room:
        return name
    tail = room // 2
    return f"{name[: room - 1 - tail]}…{name[-tail:]}"


def top_margin(labels: Sequence[str]) -> int:
    """Return the room a chart needs above its frame for a legend of these labels."""
    return _TOP + ROW * max(0, len(rows_of(labels)) - 1)


def rows_of(labels: Sequence[str]) -> list[list[int]]:
    """Return the places of labels in rows: two in each where both fit, in their order."""
    rows: list[list[int]] = []
    for place, label in enumerate(labels):
        last = rows[-1] if rows else []
        room = _ROOM - width_of(label)
        if len(last) == 1 and width_of(labels[last[0]]) <= room:
            last.append(place)
        else:
            rows.append([place])
    return rows


def width_of(label: str) -> float:
    """Return about how wide a label and its swatch are."""
    return 7.0 * len(label) + 30
