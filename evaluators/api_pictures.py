"""The pictures of pairs as a service receives them: whole, at the size the data set has them."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from onnxfr.data.images import load_pixels, to_images
from onnxfr.data.pairs import PairSet
from onnxfr.errors import DataError
from onnxfr.evaluators.games import people_of
from onnxfr.probe import framed
from onnxfr.rng import RowRng
from onnxfr.types import Images

MOST_PIXELS = 32_000_000
"""Pixels of whole pictures held at a time, 12 bytes each; a few copies of them are made."""
_MOST_PAIRS = 64
_POOL = 16
_TRIED = 20 * _POOL
_NONE = np.zeros((0, 0, 0), dtype=np.float32)


@dataclass(frozen=True, eq=False)
class Asked:
    """One pair to ask about; ``reason`` says why it cannot be."""

    pair: str
    same: bool
    left_identity: str | None
    right_identity: str | None
    people: tuple[int, int] = (-1, -1)
    """Who is on the two pictures, as ``people_of`` numbers them."""
    probe: Images = field(default_factory=lambda: _NONE)
    reference: Images = field(default_factory=lambda: _NONE)
    reason: str = ""

    def record(self) -> dict[str, Any]:
        """Return what every record says about its pair."""
        return {
            "pair": self.pair,
            "same": self.same,
            "left_identity": self.left_identity,
            "right_identity": self.right_identity,
            "reason": self.reason or None,
        }


def read_pairs(pairs: PairSet, rows: Sequence[int]) -> Iterator[Asked]:
    """Read both pictures of some pairs, one pair after the other."""
    ids, people = pairs.pair_ids(), people_of(pairs)
    for row in rows:
        sides = int(pairs.left[row]), int(pairs.right[row])
        sources = pairs.images[sides[0]], pairs.images[sides[1]]
        both = int(people[sides[0]]), int(people[sides[1]])
        names = ids[row], bool(pairs.same[row]), sources[0].identity, sources[1].identity, both
        try:
            pictures = [to_images([load_pixels(source)])[0] for source in sources]
        except DataError as error:
            yield Asked(*names, reason=str(error))
        else:
            yield Asked(*names, *pictures)


def read_portions(pairs: PairSet, rows: Sequence[int]) -> Iterator[list[Asked]]:
    """Read pairs as many at a time as fit into memory, however large their pictures are."""
    portion: list[Asked] = []
    pixels = 0
    for each in read_pairs(pairs, rows):
        size = (each.probe.size + each.reference.size) // 3
        if portion and (len(portion) == _MOST_PAIRS or pixels + size > MOST_PIXELS):
            yield portion
            portion, pixels = [], 0
        portion.append(each)
        pixels += size
    if portion:
        yield portion


def by_size(asked: Sequence[Asked]) -> list[list[Asked]]:
    """Return readable pairs in groups whose pictures can be stacked."""
    groups: dict[tuple[tuple[int, ...], tuple[int, ...]], list[Asked]] = {}
    for each in asked:
        if not each.reason:
            groups.setdefault((each.probe.shape, each.reference.shape), []).append(each)
    return list(groups.values())


def stack(group: Sequence[Asked]) -> tuple[Images, Images]:
    """Return the probes and the references of pairs of one size."""
    return np.stack([each.probe for each in group]), np.stack([each.reference for each in group])


def pool_of(
    pairs: PairSet, shape: tuple[int, ...], seed: int
) -> tuple[Images | None, NDArray[np.int32]]:
    """Return whole pictures of different people, whatever pairs share a cell, and whose they are.

    All are of one shape, fitted into its frame where theirs is another, and large ones are fewer.
    There are two more than wanted, since nobody is offered the two people of a pair.
    """
    people = people_of(pairs)
    wanted = 2 + max(1, min(_POOL, MOST_PIXELS // (shape[1] * shape[2]) - 2))
    luck = RowRng(seed, [image.id for image in pairs.images], "pool").uniform(0.0, 1.0, (1,))
    found: dict[int, Images] = {}
    for index in np.argsort(luck[:, 0], kind="stable")[:_TRIED]:
        source = pairs.images[index]
        person = int(people[index])
        if person in found or len(found) == wanted:
            continue
        try:
            picture = to_images([load_pixels(source)])[0]
        except DataError:
            continue
        found[person] = framed(picture, shape[1:])
    owners = np.array(list(found), dtype=np.int32)
    return (np.stack(list(found.values())) if found else None), owners
