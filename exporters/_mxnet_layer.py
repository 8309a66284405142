"""One node of an MXNet graph, whose settings are written as text."""

from __future__ import annotations

import ast
from collections.abc import Mapping
from dataclasses import dataclass

from onnxfr.errors import UnreadableModel, UnsupportedModel


@dataclass(frozen=True)
class Layer:
    """One node: its operator, name and settings as text."""

    op: str
    name: str
    settings: Mapping[str, str]

    def flag(self, key: str, default: bool) -> bool:
        """Return a boolean setting."""
        return self.settings.get(key, str(default)).lower() in ("true", "1")

    def number(self, key: str, default: float) -> float:
        """Return a numeric setting."""
        return float(self.settings.get(key, default))

    def integers(self, key: str, default: tuple[int, ...]) -> tuple[int, ...]:
        """Return a tuple setting such as ``(3, 3)``; empty means the default."""
        text = self.settings.get(key, "")
        if len(text) > 200:
            raise UnreadableModel(f"{self.name!r} has a {key} of {len(text)} characters")
        value = ast.literal_eval(text) if text else ()
        found = (value,) if isinstance(value, int) else tuple(value)
        return tuple(int(v) for v in found) or default

    def pair(self, key: str, default: int) -> tuple[int, int]:
        """Return a setting of two numbers."""
        found = self.integers(key, (default, default))
        if len(found) != 2:
            raise UnsupportedModel(f"{self.op} {self.name!r} is not two-dimensional: {key} {found}")
        return found[0], found[1]

    def word(self, key: str, *known: str) -> str:
        """Return a setting that must be one of the known words, the first by default."""
        found = self.settings.get(key, known[0])
        if found not in known:
            raise UnsupportedModel(
                f"{self.op} {self.name!r} has {key} {found!r}, known here are {', '.join(known)}; "
                "save the network with one of these"
            )
        return found
