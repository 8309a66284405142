"""Collects the images and pairs of one data set, leaving out what is no good and saying so."""

from __future__ import annotations

import os
import posixpath
from contextlib import suppress
from dataclasses import replace
from pathlib import Path, PureWindowsPath

import numpy as np
from numpy.typing import NDArray

from onnxfr.data.images import header_size
from onnxfr.data.pairs import ImageSource, PairSet, Problem
from onnxfr.errors import DataError

_SHOWN = 5
_SAMPLED = 8
_TEMPLATE_SIZES = {(112, 112), (112, 96)}


def inside(base: str, relative: str) -> str | None:
    """Join and normalise two relative names; None if the result leaves the data set's folder."""
    joined = posixpath.normpath(posixpath.join(base, relative.replace("\\", "/")))
    if joined.startswith(("../", "/")) or joined in ("..", ".") or "\0" in joined:
        return None
    return None if PureWindowsPath(joined).drive else joined


class PairBuilder:
    """Adds images and pairs in protocol order; ``build`` gives the PairSet."""

    def __init__(self, name: str, *, strict: bool = False, aligned: bool | None = None) -> None:
        self.name, self.strict, self.aligned = name, strict, aligned
        self.unaligned_size: tuple[int, int] | None = None
        self.problems: list[Problem] = []
        self._images: dict[str, ImageSource] = {}
        self._pairs: dict[tuple[str, str], tuple[str, str, bool, int | None, str | None]] = {}
        self._contradicted: set[tuple[str, str]] = set()
        self._listings: dict[str, frozenset[str]] = {}

    def problem(self, name: str, reason: str) -> None:
        """Record something left out."""
        self.problems.append(Problem(name, reason))

    def image(self, source: ImageSource) -> str:
        """Make an image known and return its id; what is said of it first stays said."""
        known = self._images.get(source.id)
        if known is not None:
            self._note_contradictions(known, source)
        if known is None:
            self._images[source.id] = source
        elif known.identity is None or known.landmarks is None:
            self._images[source.id] = replace(
                known,
                identity=known.identity or source.identity,
                landmarks=source.landmarks if known.landmarks is None else known.landmarks,
            )
        return source.id

    def _note_contradictions(self, known: ImageSource, source: ImageSource) -> None:
        if known.identity and source.identity and known.identity != source.identity:
            told = f"{known.identity!r} and {source.identity!r}"
            self.problem(known.id, f"called {told}; the first is kept")
        points = known.landmarks, source.landmarks
        if points[0] is not None and points[1] is not None and (points[0] != points[1]).any():
            self.problem(known.id, "has other landmarks in a later line; the first are kept")

    def has_file(self, path: Path | str) -> bool:
        """Tell whether a file exists, listing each folder once rather than asking per file.

        Only a regular file is one: reading a pipe that carries a picture's name would never end.
        """
        folder, name = os.path.split(path)
        if folder not in self._listings:
            try:
                with os.scandir(folder) as entries:
                    self._listings[folder] = frozenset(e.name for e in entries if e.is_file())
            except OSError:
                self._listings[folder] = frozenset()
        return name in self._listings[folder]

    def pair(
        self,
        left: str,
        right: str,
        same: bool,
        *,
        fold: int | None = None,
        group: str | None = None,
    ) -> None:
        """Add one pair of image ids unless it is one image twice or was there before."""
        name = f"{left}|{right}"
        if left == right:
            return self.problem(name, "a pair of one image with itself")
        key = (min(left, right), max(left, right))
        earlier = self._pairs.get(key)
        if earlier is None:
            self._pairs[key] = (left, right, same, fold, group)
        elif earlier[2] == same:
            self.problem(name, "listed more than once; the first is kept")
        else:
            self._contradicted.add(key)
            self.problem(name, "listed both as one person and as two; left out")
        return None

    def build(self) -> PairSet:
        """Return the finished set; raises when nothing is left, or on problems if strict."""
        rows = [row for key, row in self._pairs.items() if key not in self._contradicted]
        folds, groups = [row[3] for row in rows], [row[4] for row in rows]
        for name, values in (("fold", folds), ("group", groups)):
            lacking = values.count(None)
            if 0 < lacking < len(values):
                told = f"{lacking} of {len(values)} pairs have none, so it is ignored"
                self.problem(f"column {name}", told)
        if self.problems and self.strict:
            raise DataError(f"{self.name}: {self._story()}; run without strict to leave them out")
        if not rows:
            raise DataError(f"{self.name}: no usable pair is left. {self._story()}")
        used = list(dict.fromkeys(name for row in rows for name in row[:2]))
        place = {name: number for number, name in enumerate(used)}
        images = tuple(self._images[name] for name in used)
        return PairSet(
            name=self.name,
            images=images,
            left=np.array([place[row[0]] for row in rows], dtype=np.intp),
            right=np.array([place[row[1]] for row in rows], dtype=np.intp),
            same=np.array([row[2] for row in rows], dtype=np.bool_),
            fold=_whole(folds),
            group=None if None in groups else tuple(str(group) for group in groups),
            problems=tuple(self.problems),
            aligned=self._judge(images) if self.aligned is None else self.aligned,
        )

    def _judge(self, images: tuple[ImageSource, ...]) -> bool | None:
        """Tell aligned crops from whole heads by their size, where that can be told."""
        sizes = _sizes(images)
        if sizes and sizes <= _TEMPLATE_SIZES:
            return True
        return False if sizes == {self.unaligned_size} else None

    def _story(self) -> str:
        if not self.problems:
            return "the protocol lists none"
        shown = "; ".join(str(problem) for problem in self.problems[:_SHOWN])
        more = len(self.problems) - _SHOWN
        tail = f"; and {more} more" if more > 0 else ""
        return f"{len(self.problems)} problem(s): {shown}{tail}"


def _whole(folds: list[int | None]) -> NDArray[np.int64] | None:
    numbers = [fold for fold in folds if fold is not None]
    return np.array(numbers, dtype=np.int64) if len(numbers) == len(folds) else None


def _sizes(images: tuple[ImageSource, ...]) -> set[tuple[int, int]]:
    """Return the sizes of a sample of the pictures; unreadable ones are a matter for later.

    Pictures come pair by pair: an even step would only ever meet one side.
    """
    sizes = set()
    for source in images[:: max(1, len(images) // _SAMPLED) | 1][:_SAMPLED]:
        with suppress(DataError):
            sizes.add(header_size(source.read(), source.id))
    return sizes
