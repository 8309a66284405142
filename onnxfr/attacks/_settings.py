"""Which values the settings of an attack may take, for all attacks in one place.

An attack without steps, copies or faces to try wins nothing, and nothing won reads as a robust
model: such settings are refused when the attack is made. A whole number is at least 1 and any other
number positive and finite, unless the field's type says more (``Share``, ``OrNone``, ...) or 0 is
its default in the class or above it. A field that a subclass declares again keeps its type's range.
"""

from __future__ import annotations

import math
import numbers
from collections.abc import Callable
from dataclasses import dataclass, fields
from functools import lru_cache, wraps
from typing import Annotated, Any, Literal, get_args, get_origin, get_type_hints

from onnxfr.errors import SpecError


@dataclass(frozen=True)
class Range:
    """An interval; ``with_low`` and ``with_high`` say whether its ends belong to it."""

    low: float = 0.0
    high: float = math.inf
    with_low: bool = False
    with_high: bool = True

    def __contains__(self, value: float) -> bool:
        above = value >= self.low if self.with_low else value > self.low
        below = value <= self.high if self.with_high else value < self.high
        return above and below

    def __str__(self) -> str:
        words = [f"{'at least' if self.with_low else 'above'} {self.low:g}"]
        if math.isfinite(self.high):
            words.append(f"{'at most' if self.with_high else 'below'} {self.high:g}")
        return " and ".join(words)


_COUNTED, _POSITIVE = Range(1, with_low=True), Range()

OrNone = Annotated[int, Range(0, with_low=True)]
"""A number of things of which there may be none."""
NotNegative = Annotated[float, Range(with_low=True)]
Share = Annotated[float, Range(high=1.0)]
"""Some of a whole, or all of it."""
Part = Annotated[float, Range(high=1.0, with_high=False)]
"""Some of a whole, neither nothing nor all."""
Chance = Annotated[float, Range(high=1.0, with_low=True)]
"""From never to always."""


def check_settings(thing: Any) -> None:
    """Raise unless every field of an attack has a value that makes sense."""
    kind: Any = type(thing)
    owner = getattr(kind, "name", "") or kind.__name__
    for name, hint, allowed in _rules(kind):
        value = getattr(thing, name)
        if not _fits(value, hint, allowed):
            raise SpecError(f"{owner}: {name} is {_wanted(hint, allowed)}; got {value!r}")


def check_counts(owner: str, **counts: int) -> None:
    """Raise unless all arguments of a function that counts things are at least 1."""
    for name, value in counts.items():
        if not _fits(value, int, _COUNTED):
            raise SpecError(f"{owner}: {name} is {_wanted(int, _COUNTED)}; got {value!r}")


def checked_first(prepare: Callable[[Any], None]) -> Callable[[Any], None]:
    """Return a ``__post_init__`` that checks the settings before it uses them."""

    @wraps(prepare)
    def checked(thing: Any) -> None:
        check_settings(thing)
        prepare(thing)

    return checked


@lru_cache(maxsize=256)
def _rules(kind: type) -> tuple[tuple[str, Any, Range], ...]:
    """Return name, bare type and range of every field of a class."""
    hints = [get_type_hints(base, include_extras=True) for base in kind.__mro__[:-1]]
    found = []
    for field in fields(kind):
        # The nearest declaration that brings a range, lest a new default take the range away.
        told = [hint[field.name] for hint in hints if field.name in hint]
        ranged = next((hint for hint in told if get_origin(hint) is Annotated), told[0])
        if get_origin(ranged) is Annotated:
            found.append((field.name, get_args(ranged)[0], get_args(ranged)[1]))
        else:
            found.append((field.name, ranged, _usual(kind, field.name, ranged)))
    return tuple(found)


def _usual(kind: type, name: str, hint: Any) -> Range:
    """Return the range of a number whose type says nothing about it."""
    usual = _COUNTED if hint is int else _POSITIVE
    off = any(vars(base).get(name) == 0 for base in kind.__mro__)
    return Range(0, with_low=True) if off else usual


def _fits(value: Any, hint: Any, allowed: Range) -> bool:
    if get_origin(hint) is Literal:
        return value in get_args(hint)
    if hint is bool:
        return isinstance(value, bool)
    if hint not in (int, float):
        return True
    kind = numbers.Integral if hint is int else numbers.Real
    # A bool is a whole number to Python and a slip of the pen to everybody else.
    number = isinstance(value, kind) and not isinstance(value, bool)
    return number and (isinstance(value, int) or math.isfinite(value)) and value in allowed


def _wanted(hint: Any, allowed: Range) -> str:
    if get_origin(hint) is Literal:
        return "one of " + ", ".join(map(str, get_args(hint)))
    if hint is bool:
        return "true or false"
    return f"{'a whole number' if hint is int else 'a number'} {allowed}"
