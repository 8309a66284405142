"""Where in a TOML text a value stands; the standard parser forgets it.

A light scan: table headers, keys at the start of a line, brackets and strings that span lines. The
text is known to be valid TOML, so nothing is checked here, and a place inside an inline value is
given as the line of its key.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence

_HEADER = re.compile(r"^\s*(\[{1,2})([^\[\]]+)\]{1,2}\s*(?:#.*)?$")
_KEY = re.compile(r"""^\s*((?:[A-Za-z0-9_-]+|"[^"]*"|'[^']*')(?:\s*\.\s*[^\s=.]+)*)\s*=""")
_PART = re.compile(r""""([^"]*)"|'([^']*)'|([A-Za-z0-9_-]+)""")
_TOKEN = re.compile(
    r'''"""(?:[^\\]|\\.)*?"""|\'\'\'.*?\'\'\'|"(?:[^"\\\n]|\\.)*"|'[^'\n]*'|#[^\n]*|[\[\]{}]|\n''',
    re.DOTALL,
)


def line_of(text: str, place: Sequence[str | int]) -> int | None:
    """Return the line (from 1) of the value at ``place``, or of the nearest thing around it."""
    lines: dict[tuple[str | int, ...], int] = {}
    for found_place, number in _places(text):
        # A header or a dotted key also tells where the tables around it begin.
        for length in range(1, len(found_place) + 1):
            lines.setdefault(found_place[:length], number)
    for length in range(len(place), 0, -1):
        found = lines.get(tuple(place[:length]))
        if found is not None:
            return found
    return None


def _places(text: str) -> Iterator[tuple[tuple[str | int, ...], int]]:
    table: tuple[str | int, ...] = ()
    counts: dict[tuple[str | int, ...], int] = {}
    open_lines = _continued(text)
    for number, line in enumerate(text.splitlines(), 1):
        if number in open_lines:
            continue
        header = _HEADER.match(line)
        if header:
            table = _inside(_parts(header[2]), counts)
            if header[1] == "[[":
                counts[table] = counts.get(table, -1) + 1
                table = (*table, counts[table])
            yield table, number
            continue
        key = _KEY.match(line)
        if key:
            yield (*table, *_parts(key[1])), number


def _inside(
    path: tuple[str, ...], counts: dict[tuple[str | int, ...], int]
) -> tuple[str | int, ...]:
    """Put the current index behind every array of tables that the path passes through."""
    result: tuple[str | int, ...] = ()
    for part in path[:-1]:
        result = (*result, part)
        if result in counts:
            result = (*result, counts[result])
    return (*result, *path[-1:])


def _parts(name: str) -> tuple[str, ...]:
    return tuple(a or b or c for a, b, c in _PART.findall(name))


def _continued(text: str) -> set[int]:
    """Return the lines that begin inside a bracket or a multi-line string."""
    inside: set[int] = set()
    depth, line = 0, 1
    starts_line = True
    header = False
    position = 0
    for token in _TOKEN.finditer(text):
        between = text[position : token.start()]
        starts_line = starts_line and not between.strip()
        position = token.end()
        found = token[0]
        if found == "\n":
            line, starts_line, header = line + 1, True, False
            if depth:
                inside.add(line)
            continue
        if found in "[{" and (starts_line or header) and not depth:
            header = True
        elif found in "[{":
            depth += 1
        elif found in "]}" and depth:
            depth -= 1
        starts_line = False
        for _ in range(found.count("\n")):
            line += 1
            inside.add(line)
    return inside
