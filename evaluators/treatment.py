"""What is done to pictures before a model sees them: a corruption's severities, or one chain."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache, cached_property, partial
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from onnxfr.corruptions import CORRUPTIONS, apply_chain, corrupt, oodface_names, parse_chain
from onnxfr.corruptions.base import from_frames, to_frames
from onnxfr.data.images import SUFFIXES, decode
from onnxfr.errors import SpecError
from onnxfr.paths import expanded
from onnxfr.runs.cells import Json
from onnxfr.types import Images

OODFACE, EXTENDED, ALL = "oodface", "extended", "all"
"""Words that stand for a group of corruptions."""

CLEAN = "clean"
"""The method of the cell in which nothing is done."""


@dataclass(frozen=True)
class Treatment:
    """One method at some severities; a chain has one severity, and nothing at all is severity 0."""

    method: str
    severities: tuple[int, ...] = (0,)
    preset: str = "oodface-code"
    seed: int = 0
    frost: str = ""

    @cached_property
    def needs_landmarks(self) -> bool:
        """Whether the method, or a step of it, sits on the face's landmarks."""
        if self.method == CLEAN:
            return False
        chain = is_chain(self.method)
        names = parse_chain(self.method).corruptions if chain else [self.method]
        return any(CORRUPTIONS.get(name).category == "appearance" for name in names)

    def apply(
        self,
        images: NDArray[np.uint8],
        severity: int,
        ids: Sequence[str],
        landmarks: NDArray[np.floating] | None = None,
    ) -> NDArray[np.uint8]:
        """Return a batch of pictures at one severity."""
        if self.method == CLEAN:
            return images
        act = (
            partial(apply_chain, images, self.method)
            if is_chain(self.method)
            else partial(corrupt, images, self.method, severity)
        )
        return act(
            ids=ids,
            seed=self.seed,
            preset=self.preset,
            landmarks=landmarks,
            frost_photographs=read_photographs(self.frost) if self.frost else None,
        )


@dataclass(frozen=True)
class Channel:
    """A treatment at one severity, as something pictures are sent through."""

    treatment: Treatment
    severity: int

    def __call__(
        self, images: Images, ids: Sequence[str], landmarks: NDArray[np.floating] | None
    ) -> Images:
        """Return float pictures ``(N, 3, H, W)`` as they come out, rounded to 8 bits before."""
        treated = self.treatment.apply(to_frames(images), self.severity, ids, landmarks)
        return from_frames(treated)


def is_chain(method: str) -> bool:
    """Tell a chain from the name of a corruption."""
    return ":" in method or "@" in method


def chosen_corruptions(asked: Sequence[str]) -> tuple[str, ...]:
    """Return the names behind a list of names and group words, each once; unknown ones raise."""
    groups = {
        OODFACE: oodface_names(),
        EXTENDED: [name for name, entry in CORRUPTIONS.items() if entry.extended],
        ALL: CORRUPTIONS.names(),
    }
    names = [name for word in asked for name in groups.get(word, [word])]
    return tuple(dict.fromkeys(CORRUPTIONS.get(name).name for name in names))


def canonical_chains(asked: Sequence[str]) -> tuple[str, ...]:
    """Return chains in their canonical spelling, each once; what is no chain raises."""
    return tuple(dict.fromkeys(str(parse_chain(text)) for text in asked))


def settings_of(preset: str, frost: str) -> Json:
    """Return what, besides name, severity and seed, decides the pixels; part of a cell's key."""
    return {"preset": preset, "frost": frost, "frost_content": _content(frost) if frost else ""}


@cache
def read_photographs(folder: str) -> tuple[NDArray[np.uint8], ...]:
    """Return the pictures in a folder that frost is taken from, sorted by name."""
    return tuple(decode(path.read_bytes(), path.name) for path in _pictures(folder))


def _content(folder: str) -> str:
    digest = hashlib.sha256()
    for path in _pictures(folder):
        digest.update(path.read_bytes())
    return digest.hexdigest()


def _pictures(folder: str) -> list[Path]:
    place = expanded(folder)
    found = sorted(place.iterdir()) if place.is_dir() else []
    pictures = [path for path in found if path.suffix.lower() in SUFFIXES]
    if not pictures:
        raise SpecError(
            f"frost_photographs: expected a folder with pictures ({', '.join(SUFFIXES)}), "
            f"found none in {folder!r}"
        )
    return pictures
