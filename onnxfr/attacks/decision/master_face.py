"""Master faces: a few pictures that are taken for as many enrolled people as possible.

A dictionary attack on a gallery (Nguyen et al. 2020, 2022): an evolution strategy in a space of
faces maximises the share of people a picture matches; the next picture is then sought for those not
yet matched. The space is that of the principal components of the attacker's own faces instead of a
StyleGAN's, and the strategy adapts one variance per component. Answers of a gallery that tells
decisions are counted; one that tells scores is climbed by soft counts. This is a function on a
``Gallery`` and no ``Attack``: it has one victim, the gallery, and no pairs.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from onnxfr.attacks._settings import check_counts
from onnxfr.attacks._walks import Picture
from onnxfr.errors import AccessDenied, DataError
from onnxfr.gallery import Gallery
from onnxfr.rng import stream
from onnxfr.types import Access, Images

_SOFTNESS = 0.05
_LEARNING = 0.3
_SMALLEST_SPREAD = 0.05


@dataclass(frozen=True)
class MasterFaces:
    """What was found.

    ``matched`` says which person each face is taken for, ``(faces, people)``; ``natural`` is the
    share matched by the best of the attacker's unchanged faces, which the search has to beat.
    """

    pictures: Images
    matched: NDArray[np.bool_]
    natural: float
    queries: int

    @property
    def coverage(self) -> NDArray[np.float64]:
        """The share of people matched by the first face, the first two, and so on."""
        return np.asarray(np.logical_or.accumulate(self.matched, axis=0).mean(axis=1))


def search_master_faces(
    gallery: Gallery,
    pool: Images,
    *,
    faces: int = 1,
    queries: int = 1000,
    population: int = 32,
    components: int = 64,
    seed: int = 0,
) -> MasterFaces:
    """Find pictures that match as many of the gallery as possible.

    Args:
        gallery: who is enrolled; ``queries`` is cut to what it still allows.
        pool: the attacker's faces, none of them enrolled; each is asked about once, as far as the
            questions go.
        faces: how many pictures to look for.
        queries: questions per face sought, the pool's included for the first.
        population: candidates per generation.
        components: dimension of the face space.
        seed: of the search.
    """
    counts = {"faces": faces, "queries": queries, "population": population}
    check_counts("search_master_faces", **counts, components=components)
    if len(pool) < 2:
        raise DataError(f"a space of faces needs at least two of them, got {len(pool)}")
    if not gallery.left:
        raise AccessDenied("no question is left: this gallery's max_queries is used up")
    before = gallery.queries
    space = _FaceSpace(pool, min(components, len(pool) - 1))
    known = pool[: min(queries, gallery.left)]
    values, soft = _ask(gallery, known)
    natural = float(values.mean(axis=1).max())
    found: list[Picture] = []
    matched: list[NDArray[np.bool_]] = []
    for number in range(faces):
        open_people = ~np.logical_or.reduce([np.zeros(len(gallery), np.bool_), *matched])
        if not open_people.any():
            break
        best = int(np.argmax(soft[:, open_people].sum(axis=1)))
        search = _Strategy(space, known[best], values[best], soft[best], open_people)
        spent = len(known) if number == 0 else 0
        random = stream(seed, "master face", number)
        for _ in range(max(0, queries - spent) // population):
            if gallery.left < population:
                break
            search.generation(gallery, random, population)
        found.append(search.picture)
        matched.append(search.matched)
    return MasterFaces(np.stack(found), np.stack(matched), natural, gallery.queries - before)


def _ask(gallery: Gallery, pictures: Images) -> tuple[NDArray[np.bool_], NDArray[np.float64]]:
    """Return who matches, and the same as numbers that can be climbed."""
    if gallery.access < Access.SCORE:
        won = gallery.match(pictures)
        return won, won.astype(np.float64)
    margins = np.nan_to_num(gallery.margins(pictures).astype(np.float64), nan=-2.0)
    return margins > 0, 1 / (1 + np.exp(-margins / _SOFTNESS))


class _FaceSpace:
    """Faces as a mean and orthogonal changes, one standard deviation each."""

    def __init__(self, pool: Images, components: int) -> None:
        self.mean = pool.mean(axis=0)
        flat = (pool - self.mean).reshape(len(pool), -1)
        _, sizes, directions = np.linalg.svd(flat, full_matrices=False)
        self.scale = np.maximum(sizes[:components], 1e-6) / np.sqrt(len(pool) - 1)
        self.directions = directions[:components]

    def code(self, picture: Picture) -> NDArray[np.float64]:
        """Return a picture's place in units of the standard deviations."""
        return np.asarray(self.directions @ (picture - self.mean).ravel() / self.scale, np.float64)

    def pictures(self, codes: NDArray[np.float64]) -> Images:
        """Return the pictures at some places."""
        changes = (codes * self.scale).astype(np.float32) @ self.directions
        faces = np.clip(self.mean + changes.reshape(-1, *self.mean.shape), 0, 1)
        return np.asarray(faces, dtype=np.float32)


class _Strategy:
    """A (mu/mu, lambda) strategy with one variance per component; it keeps its best picture."""

    def __init__(
        self,
        space: _FaceSpace,
        picture: Picture,
        matched: NDArray[np.bool_],
        soft: NDArray[np.float64],
        people: NDArray[np.bool_],
    ) -> None:
        self.space, self.people = space, people
        self.centre = space.code(picture)
        self.spread = np.full(len(self.centre), 0.5)
        self.picture, self.matched = picture, matched
        self.value = _value(matched[None], soft[None], people)[0]

    def generation(self, gallery: Gallery, random: np.random.Generator, population: int) -> None:
        """Draw candidates, keep the best, move towards the better half."""
        draws = random.standard_normal((population, len(self.centre)))
        codes = self.centre + self.spread * draws
        pictures = self.space.pictures(codes)
        matched, soft = _ask(gallery, pictures)
        values = _value(matched, soft, self.people)
        order = np.argsort(-values, kind="stable")
        if values[order[0]] > self.value:
            first = order[0]
            self.value, self.picture, self.matched = values[first], pictures[first], matched[first]
        elite = order[: max(1, population // 4)]
        weights = np.log(len(elite) + 0.5) - np.log(np.arange(1, len(elite) + 1))
        weights /= weights.sum()
        self.centre = self.centre + weights @ (codes[elite] - self.centre)
        variance = weights @ np.square(draws[elite])
        self.spread *= np.sqrt(1 + _LEARNING * (variance - 1))
        self.spread = np.clip(self.spread, _SMALLEST_SPREAD, 1.0)


def _value(
    matched: NDArray[np.bool_], soft: NDArray[np.float64], people: NDArray[np.bool_]
) -> NDArray[np.float64]:
    """Return how many open people each picture matches, near misses breaking ties."""
    count = matched[:, people].sum(axis=1)
    return np.asarray(count + soft[:, people].mean(axis=1), np.float64)
