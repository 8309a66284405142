"""Finds what stands at a path of an answer: ``faces[0].id``, ``text | base64 | json | score``."""

from __future__ import annotations

import base64
import json
import re
import string
from typing import Any

FILTERS = ("base64", "json", "strip")
MISSING = object()
"""What is found where there is nothing."""

_PART = re.compile(r"([^.\[\]]+)|\[(-?\d+)\]")
_AROUND = string.whitespace + "\xa0\"'%"
"""What ``strip`` takes from both ends; from the end also full stops, which begin numbers."""


def check_path(path: str) -> str:
    """Return the path, or raise ``ValueError`` where a stage of it can be none.

    Only parsed JSON has anything to follow a path into. Another stage is a filter, and one that is
    misspelt would find nothing in any answer: each would be paid for.
    """
    before = "json"
    for stage in stages(path):
        nothing = not stage and path.strip()
        if stage not in FILTERS and (nothing or before != "json"):
            raise ValueError(
                f"{stage!r} in {path!r} is no filter; there are {', '.join(FILTERS)}. A path "
                "stands first or after json; parts of a path are joined by dots"
            )
        before = stage
    return path


def stages(path: str) -> list[str]:
    """Return the paths and filters in turn."""
    return [stage.strip() for stage in path.split("|")]


def look(content: Any, path: str) -> Any:
    """Return what stands at a path, or ``MISSING``."""
    for stage in stages(path):
        try:
            content = _take(content, stage)
        except (ValueError, TypeError, RecursionError):
            return MISSING
        if content is MISSING:
            return MISSING
    return content


def found(value: Any) -> bool:
    """Tell whether ``look`` found something."""
    return value is not MISSING and value is not None


def plain(value: Any) -> str:
    """Return a value as text that can be sent and stored: JSON may hold halves of characters."""
    if isinstance(value, bytes):
        value = value.decode("utf-8", "replace")
    text = value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)
    return text.encode("utf-8", "replace").decode()


def _take(content: Any, stage: str) -> Any:
    if stage == "base64":
        return base64.b64decode(content)
    if stage == "json":
        return json.loads(content)
    if stage != "strip":
        return _walk(content, stage)
    if content is None:
        return None
    text = plain(content) if isinstance(content, bytes) else str(content)
    return text.strip().lstrip(_AROUND).rstrip(_AROUND + ".")


def _walk(content: Any, path: str) -> Any:
    for name, index in _PART.findall(path):
        if name and isinstance(content, dict) and name in content:
            content = content[name]
        elif index and isinstance(content, list) and -len(content) <= int(index) < len(content):
            content = content[int(index)]
        else:
            return MISSING
    return content
