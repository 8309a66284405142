"""From two encoded pictures to a verdict, as a verification service gives it.

Decode, find the face, align, embed, compare; every picture that cannot be judged is refused with a
code instead of an answer. The same object answers behind HTTP and inside evaluators.
"""

from __future__ import annotations

import hashlib
import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np

from onnxfr.alignment.aligner import Aligner, Outcome, Rejection
from onnxfr.data.images import MAX_PIXELS, decode, header_size, to_images
from onnxfr.errors import DataError, PictureTooLarge, SpecError
from onnxfr.models.answers import embed_each
from onnxfr.models.geometry import fit_array
from onnxfr.models.wrapper import FRModel
from onnxfr.types import Embeddings, Images, Pixels

Reason = Literal["unreadable", "too_large", "too_small", "no_face", "tiny_face", "no_score"]

MIN_SIDE = 32
MAX_CROP = 1_000_000
"""Most pixels of an aligned crop: crops wait for the model in memory, whole pictures do not."""


class Refusal(Exception):
    """A picture that cannot be judged: an outcome with a code, no failure."""

    def __init__(self, code: Reason, picture: str, message: str) -> None:
        super().__init__(message)
        self.code, self.picture = code, picture


@dataclass(frozen=True)
class ScoreScale:
    """How similarity is told: cosines -1 to 1 onto a range, rounded, as vendors do."""

    low: float = 0.0
    high: float = 100.0
    decimals: int = 2

    def __post_init__(self) -> None:
        if not (math.isfinite(self.low) and math.isfinite(self.high) and self.low < self.high):
            raise SpecError(f"a score range goes from low to high; got {self.low} to {self.high}")
        if not 0 <= self.decimals <= 9:
            raise SpecError(f"scores have 0 to 9 decimals; got {self.decimals}")

    def tell(self, cosine: float) -> float:
        """Return the score of a cosine."""
        share = (min(max(cosine, -1.0), 1.0) + 1) / 2
        return round(self.low + (self.high - self.low) * share, self.decimals)


@dataclass(frozen=True)
class Verdict:
    """The answer to one comparison; ``score`` and ``threshold`` only where scores are told."""

    match: bool
    score: float | None = None
    threshold: float | None = None


class Verifier:
    """A model with a threshold, a detector in front of it and a way of telling scores.

    Args:
        model: the network.
        threshold: the cosine above which two faces are the same person's.
        aligner: finds and cuts faces; None takes pictures as aligned crops.
        scale: how scores are told; None tells decisions only.
        max_pixels: the largest picture decoded; never more than ``MAX_PIXELS``.
    """

    def __init__(
        self,
        model: FRModel,
        threshold: float,
        *,
        aligner: Aligner | None = None,
        scale: ScoreScale | None = None,
        max_pixels: int = 16_000_000,
    ) -> None:
        if not -1 <= threshold <= 1:
            raise SpecError(f"a threshold is a cosine from -1 to 1; got {threshold}")
        self.model, self.threshold = model, float(threshold)
        self.aligner, self.scale, self.max_pixels = aligner, scale, max_pixels

    @property
    def version(self) -> str:
        """Changes whenever the same pictures might be answered differently."""
        facts = (
            self.model.card.sha256,
            self.threshold,
            self.scale,
            self.max_pixels,
            None if self.aligner is None else _cutting(self.aligner),
        )
        return hashlib.sha256(repr(facts).encode()).hexdigest()[:12]

    def crop(self, blob: bytes, picture: str) -> Pixels:
        """Return the face of one encoded picture; raise ``Refusal`` where there is none."""
        limit = min(self.max_pixels, MAX_PIXELS if self.aligner else MAX_CROP)
        try:
            height, width = header_size(blob, picture)
        except PictureTooLarge:
            raise Refusal(
                "too_large", picture, f"{picture} has more than {limit} pixels, which are the limit"
            ) from None
        except DataError:
            raise Refusal("unreadable", picture, f"{picture} is no readable picture") from None
        if height * width > limit:
            raise Refusal(
                "too_large",
                picture,
                f"{picture} has {width}x{height} pixels; {limit} in all are the limit",
            )
        if min(height, width) < MIN_SIDE:
            raise Refusal(
                "too_small", picture, f"{picture} is {width}x{height}; {MIN_SIDE} is the least side"
            )
        try:
            return self.cut(decode(blob, picture), picture)
        except DataError:
            raise Refusal("unreadable", picture, f"{picture} cannot be decoded") from None

    def cut(self, pixels: Pixels, picture: str) -> Pixels:
        """Return the face of decoded pixels; raise ``Refusal`` where there is none."""
        if self.aligner is None:
            return pixels
        found = self.aligner.align(pixels)
        if isinstance(found, Rejection):
            code: Reason = "tiny_face" if found.outcome is Outcome.TINY_FACE else "no_face"
            raise Refusal(code, picture, f"{picture}: {found.reason}")
        return found.pixels

    def embed(self, crops: Sequence[Pixels]) -> Embeddings:
        """Embed crops in one batch; rows the model has no finite answer for are NaN."""
        return embed_each(self.model, self.stack(crops))

    def stack(self, crops: Sequence[Pixels]) -> Images:
        """Return crops as one batch of the model's input size."""
        size = self.model.card.input_size
        if all(crop.shape[:2] == size for crop in crops):
            return to_images(crops)
        return np.concatenate([fit_array(to_images([crop]), size) for crop in crops])

    def judge(self, similarity: float) -> Verdict:
        """Return the verdict on a cosine; raise ``Refusal`` where it is not a number."""
        if not math.isfinite(similarity):
            raise Refusal("no_score", "both", "the model has no finite answer for these pictures")
        match = similarity > self.threshold
        if self.scale is None:
            return Verdict(match)
        return Verdict(match, self.scale.tell(similarity), self.scale.tell(self.threshold))


def _cutting(aligner: Aligner) -> tuple[object, ...]:
    """Return what decides which crop a picture gives, or none."""
    target, detector = aligner.target, aligner.detector
    return (
        aligner.size,
        aligner.min_face,
        # A template is its points, whatever its name.
        None if target is None else target.tolist(),
        None if detector is None else (detector.sha256, detector.min_score),
    )
