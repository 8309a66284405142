"""Embeddings of corrupted pictures, corrupted in threads while the model works on earlier ones.

Each picture is decoded once for all severities. Where the data set is aligned here the picture is
corrupted before it is searched for a face, as a camera would have it: a face that is no longer
found is a rejection. A ready-made crop is corrupted as it is; ``watch`` then asks the detector
whether it still sees a face. A face the model has no finite answer for has a row of NaN.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from onnxfr.alignment.aligner import Aligner, Outcome, Rejection
from onnxfr.alignment.detector import Detector
from onnxfr.alignment.pool import ordered_map
from onnxfr.corruptions.base import SMALLEST_SIDE
from onnxfr.corruptions.occluders import default_landmarks
from onnxfr.data.images import load_pixels
from onnxfr.data.pairs import PairSet, Problem
from onnxfr.errors import DataError
from onnxfr.evaluators.crops import align_source
from onnxfr.evaluators.faces import EmbeddedFaces, stack_pictures
from onnxfr.evaluators.treatment import Treatment
from onnxfr.models.answers import embed_each
from onnxfr.models.geometry import fit_array
from onnxfr.models.wrapper import FRModel
from onnxfr.runs.context import Context
from onnxfr.types import Images, Pixels

_BLOCK = 16
"""Pictures of a thread's task; at five severities 80 crops, some 12 MB."""

_PIXELS = 1 << 22
"""Pixels a thread corrupts at once, so that photographs do not need gigabytes: sixteen pictures of
512 x 512. A larger picture is alone."""

_NOT_SEEN = Rejection(Outcome.NO_FACE, "no face found")
_NO_LANDMARKS = Rejection(Outcome.NO_FACE, "no face found to place the occluder on")


@dataclass(frozen=True)
class _Block:
    """Some pictures at one severity: those to embed, and why the others are not."""

    severity: int
    indexes: list[int]
    images: Images
    refused: dict[int, Rejection | Problem]


@dataclass(frozen=True)
class Preparer:
    """Turns pictures into what the model sees; called from many threads."""

    pairs: PairSet
    treatment: Treatment
    size: tuple[int, int]
    aligner: Aligner | None = None
    watch: Detector | None = None
    strict: bool = False

    def blocks(self, indexes: Sequence[int]) -> list[_Block]:
        """Return the blocks of some pictures: one per severity and portion that is held at once."""
        return [
            self._block(pictures, unreadable, severity)
            for pictures, unreadable in self._portions(indexes)
            for severity in self.treatment.severities
        ]

    def _block(
        self, pictures: dict[int, Pixels], unreadable: dict[int, Problem], severity: int
    ) -> _Block:
        seen = self._see(pictures, severity)
        good = {i: face for i, face in seen.items() if isinstance(face, np.ndarray)}
        refused = {i: face for i, face in seen.items() if not isinstance(face, np.ndarray)}
        images = stack_pictures(list(good.values()), self.size)
        if images.shape[2] * images.shape[3] > self.size[0] * self.size[1]:
            # The model would do the same, but many blocks wait for it, each of them as large.
            images = fit_array(images, self.size)
        return _Block(severity, list(good), images, {**unreadable, **refused})

    def show(self, index: int) -> list[Pixels | None]:
        """Return one picture as the model sees it at each severity, None where it is refused."""
        ((pictures, _),) = self._portions([index])
        seen = [self._see(pictures, severity) for severity in self.treatment.severities]
        faces = [each.get(index) for each in seen]
        return [face if isinstance(face, np.ndarray) else None for face in faces]

    def _portions(
        self, indexes: Sequence[int]
    ) -> Iterator[tuple[dict[int, Pixels], dict[int, Problem]]]:
        """Yield pictures that fit into memory together, and the unreadable ones among them."""
        pictures: dict[int, Pixels] = {}
        unreadable: dict[int, Problem] = {}
        held = 0
        for index in indexes:
            found = self._read(index)
            if isinstance(found, Problem):
                unreadable[index] = found
                continue
            size = found.shape[0] * found.shape[1]
            if pictures and held + size > _PIXELS:
                yield pictures, unreadable
                pictures, unreadable, held = {}, {}, 0
            pictures[index] = found
            held += size
        yield pictures, unreadable

    def _read(self, index: int) -> Pixels | Problem:
        source = self.pairs.images[index]
        try:
            pixels = load_pixels(source)
            if min(pixels.shape[:2]) < SMALLEST_SIDE:
                raise DataError(
                    f"{source.id}: {pixels.shape[1]}x{pixels.shape[0]} pixels, but corruptions "
                    f"need {SMALLEST_SIDE} a side"
                )
        except DataError as error:
            if self.strict:
                raise
            return Problem(source.id, str(error).removeprefix(f"{source.id}: "))
        return pixels

    def _see(
        self, pictures: dict[int, Pixels], severity: int
    ) -> dict[int, Pixels | Rejection | Problem]:
        seen: dict[int, Pixels | Rejection | Problem] = {}
        for group in _by_shape(pictures):
            points = {i: self._landmarks(i, pictures[i]) for i in group}
            kept = [i for i in group if points[i] is not None]
            seen.update(dict.fromkeys(set(group) - set(kept), _NO_LANDMARKS))
            if kept:
                lent = [found for found in points.values() if found is not None and found.size]
                treated = self.treatment.apply(
                    np.stack([pictures[i] for i in kept]),
                    severity,
                    [self.pairs.images[i].id for i in kept],
                    np.stack(lent) if lent else None,
                )
                seen.update({i: self._cut(i, face) for i, face in zip(kept, treated, strict=True)})
        return {i: seen[i] for i in pictures}

    def _landmarks(self, index: int, pixels: Pixels) -> NDArray[np.floating] | None:
        """Return where an occluder goes; empty where none is needed, None where no face is seen."""
        if not self.treatment.needs_landmarks:
            return np.zeros(0)
        given = self.pairs.images[index].landmarks
        if given is not None:
            return given
        if self.aligner is None:
            return default_landmarks(*pixels.shape[:2])
        found = self.aligner.align(pixels)
        return None if found.face is None or found.rejected else found.face.landmarks

    def _cut(self, index: int, pixels: Pixels) -> Pixels | Rejection:
        if self.aligner is not None:
            return align_source(self.aligner, self.pairs.images[index], pixels)
        if self.watch is not None and not self.watch.detect(pixels):
            return _NOT_SEEN
        return pixels


@dataclass
class _Gathered:
    """The embeddings of one severity while they come in."""

    embeddings: NDArray[np.float32]
    outcome: list[Outcome]
    reason: list[str] = field(default_factory=list)


def embed_corrupted(
    context: Context, model: FRModel, preparer: Preparer, indexes: Sequence[int]
) -> dict[int, EmbeddedFaces]:
    """Return the embeddings of some pictures of a pair set at every severity.

    Rows of pictures not asked for are zero, those without a finite answer NaN. At most two tasks
    per core wait for the model.
    """
    count, severities = len(preparer.pairs.images), preparer.treatment.severities
    gathered = {
        severity: _Gathered(
            np.zeros((count, model.card.embedding_dim), dtype=np.float32),
            [Outcome.ALIGNED] * count,
            [""] * count,
        )
        for severity in severities
    }
    done, total = 0, len(indexes) * len(severities)
    context.report(done, total)
    for block in _ahead(preparer, indexes):
        into = gathered[block.severity]
        if block.indexes:
            into.embeddings[block.indexes] = embed_each(model, block.images)
        for index, refusal in block.refused.items():
            into.outcome[index] = (
                Outcome.UNREADABLE if isinstance(refusal, Problem) else refusal.outcome
            )
            into.reason[index] = refusal.reason
        done += len(block.indexes) + len(block.refused)
        context.report(done, total)
    return {
        severity: EmbeddedFaces(each.embeddings, tuple(each.outcome), tuple(each.reason))
        for severity, each in gathered.items()
    }


def _ahead(preparer: Preparer, indexes: Sequence[int]) -> Iterator[_Block]:
    parts = (indexes[at : at + _BLOCK] for at in range(0, len(indexes), _BLOCK))
    for blocks in ordered_map(preparer.blocks, parts):
        yield from blocks


def _by_shape(pictures: dict[int, Pixels]) -> list[list[int]]:
    groups: dict[tuple[int, ...], list[int]] = {}
    for index, picture in pictures.items():
        groups.setdefault(picture.shape, []).append(index)
    return list(groups.values())
