"""What every data set becomes: images, and pairs of them said to be one person or two.

``left`` is the probe, the image an attack or a corruption changes; ``right`` is the reference.
Names are relative to the data set, so pair ids, seeds drawn from them and fingerprints agree
between machines.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from onnxfr.errors import DataError

Rows = Sequence[int] | NDArray[np.intp]


@dataclass(frozen=True)
class Problem:
    """A file or pair that was left out, and why."""

    name: str
    reason: str

    def __str__(self) -> str:
        return f"{self.name}: {self.reason}"


@dataclass(frozen=True, eq=False)
class ImageSource:
    """One encoded picture, on disk or in memory, not yet read."""

    id: str
    identity: str | None = None
    path: Path | None = None
    blob: bytes | None = None
    landmarks: NDArray[np.float32] | None = None

    def read(self) -> bytes:
        """Return the encoded bytes."""
        if self.blob is not None:
            return self.blob
        if self.path is None:
            raise DataError(f"{self.id}: neither a file nor bytes are known for this image")
        try:
            return self.path.read_bytes()
        except OSError as error:
            raise DataError(f"{self.id}: cannot be read ({error.strerror or error})") from error


@dataclass(frozen=True, eq=False)
class PairSet:
    """Pairs to verify. ``aligned`` is None where the data set does not tell."""

    name: str
    images: tuple[ImageSource, ...]
    left: NDArray[np.intp]
    right: NDArray[np.intp]
    same: NDArray[np.bool_]
    fold: NDArray[np.int64] | None = None
    group: tuple[str, ...] | None = None
    problems: tuple[Problem, ...] = ()
    aligned: bool | None = None

    def __len__(self) -> int:
        return len(self.same)

    def pair_ids(self) -> list[str]:
        """Return one stable name per pair."""
        ids = [image.id for image in self.images]
        return [f"{ids[a]}|{ids[b]}" for a, b in zip(self.left, self.right, strict=True)]

    def fingerprint(self) -> str:
        """Return a sha256 of protocol and image names; contents are ``image_sha``'s matter."""
        landmarks = [
            None if image.landmarks is None else image.landmarks.astype(float).tolist()
            for image in self.images
        ]
        content = {
            "name": self.name,
            "images": [[image.id, image.identity] for image in self.images],
            "landmarks": landmarks if any(points is not None for points in landmarks) else None,
            "left": self.left.tolist(),
            "right": self.right.tolist(),
            "same": self.same.tolist(),
            "fold": None if self.fold is None else self.fold.tolist(),
            "group": self.group,
            "aligned": self.aligned,
        }
        return hashlib.sha256(json.dumps(content, sort_keys=True).encode()).hexdigest()

    def subset(self, rows: Rows) -> PairSet:
        """Return some pairs, with only the images they need."""
        chosen = np.asarray(rows, dtype=np.intp)
        needed, places = np.unique(
            np.concatenate([self.left[chosen], self.right[chosen]]), return_inverse=True
        )
        return replace(
            self,
            images=tuple(self.images[i] for i in needed),
            left=places[: len(chosen)].astype(np.intp),
            right=places[len(chosen) :].astype(np.intp),
            same=self.same[chosen],
            fold=None if self.fold is None else self.fold[chosen],
            group=None if self.group is None else tuple(self.group[i] for i in chosen),
        )

    def draw(self, pairs: int, seed: int) -> PairSet:
        """Return at most ``pairs`` pairs, half genuine, spread evenly over the folds.

        A pair's rank depends on the seed and its own id only: neither the order of the list nor
        the machine matters, and a smaller draw is part of a larger one. Where one class is too
        small, the other fills up.
        """
        if pairs < 1:
            raise DataError(f"expected at least one pair to draw, got {pairs}")
        if pairs >= len(self):
            return self
        ids = self.pair_ids()
        luck = [hashlib.blake2b(f"{seed}\x1f{name}".encode()).digest() for name in ids]
        folds = np.zeros(len(self), dtype=np.int64) if self.fold is None else self.fold
        strata: dict[tuple[bool, int], list[int]] = {}
        for row in sorted(range(len(self)), key=luck.__getitem__):
            strata.setdefault((bool(self.same[row]), int(folds[row])), []).append(row)
        rank = {row: place for rows in strata.values() for place, row in enumerate(rows)}
        order = sorted(rank, key=lambda row: (rank[row], luck[row]))
        genuine = [row for row in order if self.same[row]]
        impostor = [row for row in order if not self.same[row]]
        wanted = min(len(genuine), max(pairs // 2, pairs - len(impostor)))
        return self.subset(sorted(genuine[:wanted] + impostor[: pairs - wanted]))

    def without(self, bad: Mapping[int, Problem]) -> PairSet:
        """Return the pairs that need none of the images numbered in ``bad``, which are recorded."""
        if not bad:
            return self
        numbers = np.fromiter(bad, dtype=np.intp)
        hit = np.isin(self.left, numbers) | np.isin(self.right, numbers)
        kept = self.subset(np.flatnonzero(~hit))
        return replace(kept, problems=(*self.problems, *(bad[i] for i in sorted(bad))))


def open_pairs(
    spec: str, *, strict: bool = False, seed: int = 0, pairs: int | None = None
) -> PairSet:
    """Open the data set named by ``spec``, such as ``lfw:PATH``, ``folder:PATH`` or ``orl``.

    Args:
        spec: ``KIND:PLACE[,option=value...]``; ``onnxfr data list`` shows the kinds.
        strict: raise on the first list of problems instead of leaving files or pairs out.
        seed: decides which pairs are drawn, where any are.
        pairs: keep a balanced draw of this many pairs.
    """
    from onnxfr.data.loaders import load  # the loaders build PairSets, so they import this module

    opened = load(spec, strict=strict, seed=seed)
    return opened if pairs is None else opened.draw(pairs, seed)
