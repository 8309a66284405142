"""Pictures to crops: detect, choose the largest central face, move it onto the template.

A picture without a usable face is an outcome, not an error: it travels on as a ``Rejection``, so
that metrics can count it as a failure to acquire instead of forgetting it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from enum import StrEnum
from typing import ClassVar, Literal

import cv2
import numpy as np

from onnxfr.alignment.detector import Detector, Face, main_face
from onnxfr.alignment.geometry import (
    Matrix,
    Points,
    similarity_transform,
    transform_points,
    warp,
    well_spread,
)
from onnxfr.alignment.pool import ordered_map
from onnxfr.alignment.templates import TEMPLATES, Size, Template, check_size
from onnxfr.types import Pixels

MIN_FACE = 20
"""Shorter box side, in pixels of the given picture, below which a face is not worth a crop."""


class Outcome(StrEnum):
    """What became of one picture."""

    ALIGNED = "aligned"
    NO_FACE = "no_face"
    TINY_FACE = "tiny_face"
    UNREADABLE = "unreadable"


@dataclass(frozen=True, eq=False)
class AlignedFace:
    """A crop, how it was cut, and what else was in the picture."""

    pixels: Pixels
    matrix: Matrix
    face: Face | None
    faces: int
    outcome: ClassVar[Literal[Outcome.ALIGNED]] = Outcome.ALIGNED
    rejected: ClassVar[Literal[False]] = False

    @property
    def several(self) -> bool:
        """Whether the picture shows more than the chosen face."""
        return self.faces > 1

    @property
    def landmarks(self) -> Points | None:
        """The five points in the crop's frame; None where nothing was detected on purpose."""
        return None if self.face is None else transform_points(self.matrix, self.face.landmarks)


@dataclass(frozen=True, eq=False)
class Rejection:
    """A picture that gave no crop, and why."""

    outcome: Literal[Outcome.NO_FACE, Outcome.TINY_FACE, Outcome.UNREADABLE]
    reason: str
    face: Face | None = None
    faces: int = 0
    rejected: ClassVar[Literal[True]] = True


Alignment = AlignedFace | Rejection


class Aligner:
    """Cuts crops of one template and size; usable from many threads at once."""

    def __init__(
        self,
        template: Template | str = "arcface",
        size: Size | None = None,
        *,
        detector: Detector | None = None,
        min_face: float = MIN_FACE,
    ) -> None:
        self.template = TEMPLATES.get(template) if isinstance(template, str) else template
        self.size = check_size(size or self.template.size)
        self.min_face = min_face
        needed = self.template.rule is not None
        self.target = self.template.points(self.size) if needed else None
        self.detector = (detector or Detector()) if needed else None

    def align(self, pixels: Pixels) -> Alignment:
        """Return the crop of the main face of one RGB picture, or why there is none."""
        if self.detector is None or self.target is None:
            return self._whole(pixels)
        faces = self.detector.detect(pixels)
        if not faces:
            return Rejection(Outcome.NO_FACE, "no face found")
        face = main_face(faces, pixels.shape[:2])
        if face.side < self.min_face:
            return Rejection(
                Outcome.TINY_FACE,
                f"the face is {face.side:.0f} pixels wide, {self.min_face:g} are needed",
                face,
                len(faces),
            )
        if not well_spread(face.landmarks):
            reason = "the landmarks of the face found all coincide"
            return Rejection(Outcome.NO_FACE, reason, face, len(faces))
        face = self.detector.refine(pixels, face)
        matrix = similarity_transform(face.landmarks, self.target)
        return AlignedFace(warp(pixels, matrix, self.size), matrix, face, len(faces))

    def _whole(self, pixels: Pixels) -> AlignedFace:
        height, width = self.size
        across, down = width / pixels.shape[1], height / pixels.shape[0]
        resized = cv2.resize(pixels, (width, height), interpolation=cv2.INTER_LINEAR)
        matrix = np.array([[across, 0, across / 2 - 0.5], [0, down, down / 2 - 0.5]])
        return AlignedFace(np.asarray(resized, dtype=np.uint8), matrix, None, 0)


def align_images(
    pictures: Iterable[Pixels],
    aligner: Aligner,
    *,
    workers: int | None = None,
    progress: Callable[[Alignment], None] | None = None,
) -> Iterator[Alignment]:
    """Align pictures in order, in parallel, holding only a few at a time.

    ``progress`` is called with each result, in order, in the caller's thread.
    """
    for result in ordered_map(aligner.align, pictures, workers):
        if progress is not None:
            progress(result)
        yield result
