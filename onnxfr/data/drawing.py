"""Draws verification pairs from a list of identities: balanced, reproducible, order-independent.

Genuine pairs are dealt one per person and round, so that somebody with a thousand pictures does not
decide the result. Impostor pairs are drawn from the list of all where that can be made; else two
people are drawn, then a picture of each. All follows from names and the seed, never from the order
in which a file system lists files.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import combinations

import numpy as np

from onnxfr.rng import stream

_ENUMERABLE = 200_000

NamePair = tuple[str, str]


def draw_genuine(people: Mapping[str, Sequence[str]], limit: int, seed: int) -> list[NamePair]:
    """Return at most ``limit`` pairs of two pictures of one person."""
    ranked: list[tuple[int, float, NamePair]] = []
    for person in sorted(people):
        pictures = sorted(people[person])
        total = len(pictures) * (len(pictures) - 1) // 2
        rng = stream(seed, "genuine", person)
        chosen = rng.choice(max(total, 1), size=min(total, limit), replace=False)
        for place, number in enumerate(chosen.tolist()):
            ranked.append((place, rng.random(), _unrank(number, pictures)))
    ranked.sort()
    return [pair for _, _, pair in ranked[:limit]]


def draw_impostor(people: Mapping[str, Sequence[str]], limit: int, seed: int) -> list[NamePair]:
    """Return at most ``limit`` distinct pairs of pictures of two people."""
    names = sorted(name for name in people if people[name])
    pictures = {name: sorted(people[name]) for name in names}
    rng = stream(seed, "impostor")
    sizes = np.array([len(pictures[name]) for name in names], dtype=np.int64)
    total = int((sizes.sum() ** 2 - (sizes**2).sum()) // 2)
    if total <= max(_ENUMERABLE, 4 * limit):
        pairs = [
            (left, right)
            for one, two in combinations(names, 2)
            for left in pictures[one]
            for right in pictures[two]
        ]
        chosen = rng.choice(len(pairs), size=min(limit, len(pairs)), replace=False)
        return [pairs[int(i)] for i in chosen]
    drawn: dict[NamePair, None] = {}
    while len(drawn) < limit:
        one, two = sorted(rng.choice(len(names), size=2, replace=False).tolist())
        left = pictures[names[one]][int(rng.integers(sizes[one]))]
        right = pictures[names[two]][int(rng.integers(sizes[two]))]
        drawn[left, right] = None
    return list(drawn)


def _unrank(number: int, pictures: list[str]) -> NamePair:
    """Return the pair that ``number`` counts to in the order (0,1), (0,2), (1,2), (0,3)..."""
    upper = int((1 + np.sqrt(1 + 8 * number)) // 2)
    while upper * (upper - 1) // 2 > number:
        upper -= 1
    return pictures[number - upper * (upper - 1) // 2], pictures[upper]
