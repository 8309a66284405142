"""The dice of a randomised model, held still: every call rolls what the first one rolled.

A model may keep generators of its own, however deep, or use the global ones of Python, NumPy and
torch. All that can be reached from an object are found; those hidden in compiled code are not, so
whoever holds dice looks whether the answers still change.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import ModuleType
from typing import Any

import numpy as np
import torch

_MOST_VISITED = 20_000
"""Objects looked at; models are small trees, and whatever is larger holds data and no dice."""

Restore = Callable[[], None]


@contextmanager
def held(thing: object) -> Iterator[Restore]:
    """Give a function that puts all dice back to where they are now; it is called at the end, too.

    Args:
        thing: from where generators are looked for, say an oracle.
    """
    saved = [_saved(dice) for dice in _dice_of(thing)] + _saved_globals()

    def restore() -> None:
        for put_back in saved:
            put_back()

    try:
        yield restore
    finally:
        restore()


def _dice_of(thing: object) -> list[Any]:
    """Return the generators among the attributes of an object, theirs, and so on."""
    found, waiting, seen = [], [thing], set[int]()
    while waiting and len(seen) < _MOST_VISITED:
        at = waiting.pop()
        if id(at) in seen or isinstance(at, type | ModuleType):
            continue
        seen.add(id(at))
        kinds = (np.random.Generator, np.random.RandomState, torch.Generator, random.Random)
        if isinstance(at, kinds):
            found.append(at)
        elif isinstance(at, dict):
            waiting.extend(at.values())
        elif isinstance(at, list | tuple | set):
            waiting.extend(at)
        elif hasattr(at, "__dict__"):
            waiting.extend(vars(at).values())
    return found


def _saved(dice: Any) -> Restore:
    """Return a function that puts one generator back to where it is now."""
    if isinstance(dice, np.random.Generator):
        bits = dice.bit_generator
        state = bits.state
        return lambda: setattr(bits, "state", state)
    if isinstance(dice, random.Random):
        pure = dice.getstate()
        return lambda: dice.setstate(pure)
    other = dice.get_state()
    return lambda: dice.set_state(other)


def _saved_globals() -> list[Restore]:
    pure, numbers = random.getstate(), np.random.get_state()  # noqa: NPY002
    tensors = torch.get_rng_state()
    return [
        lambda: random.setstate(pure),
        lambda: np.random.set_state(numbers),  # noqa: NPY002
        lambda: torch.set_rng_state(tensors),
    ]
