"""What a corruption is, the registry of all of them, and the one call that applies them.

A corruption is a pure pixel function plus a table of five parameter rows per preset. Its randomness
comes from one stream per (image id, corruption, severity, seed), so that order, batching, workers
and resuming never change a pixel. Presets share their draws: only the parameters differ.
"""

from __future__ import annotations

import operator
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Literal, SupportsIndex

import numpy as np
from numpy.typing import NDArray

from onnxfr.errors import DataError, SpecError
from onnxfr.registry import Registry
from onnxfr.rng import RowRng
from onnxfr.types import Images

Frames = NDArray[np.uint8]
"""``(N, H, W, C)`` uint8 with C = 1 (grey) or 3 (RGB)."""

Floats = NDArray[np.float32]

Row = tuple[float | str, ...]
"""The parameters of one severity, in the order of the pixel function's signature."""

Levels = Sequence[float | str | Row]
"""Five rows, severity 1 to 5; a row of one parameter may be written as a bare value."""

Category = Literal[
    "lighting_weather", "sensor", "movement", "data_processing", "occlusion", "appearance"
]

PRESETS = ("oodface-code", "oodface-paper", "imagecorruptions")
SEVERITIES = (1, 2, 3, 4, 5)
SMALLEST_SIDE = 64

OODFACE = "Kang et al., OODFace, 2024 (arXiv:2412.02479)"
IMAGENET_C = "Hendrycks and Dietterich, ImageNet-C, ICLR 2019 (arXiv:1903.12261)"

# Working memory follows this, not the caller's batch; it also keeps the float buffers in cache.
_VALUES_AT_ONCE = 1 << 18


@dataclass(frozen=True)
class Scene:
    """What a corruption may know besides the pixels: its random streams, what the caller lent."""

    ids: Sequence[str]
    seed: int
    purpose: str
    landmarks: NDArray[np.floating] | None = None
    frost_photographs: Sequence[NDArray[np.uint8]] | None = None

    @cached_property
    def rng(self) -> RowRng:
        """One generator per image, made only when a corruption draws at all."""
        return RowRng(self.seed, self.ids, self.purpose)

    def part(self, rows: slice) -> Scene:
        """Return the scene of some of the images."""
        landmarks = None if self.landmarks is None else self.landmarks[rows]
        return Scene(self.ids[rows], self.seed, self.purpose, landmarks, self.frost_photographs)


@dataclass(frozen=True)
class Corruption:
    """One registered corruption: its pixel function and its severity tables.

    ``monotone`` says that every severity lies further from the clean picture than the one before;
    some published tables do not grow so, although level 5 is always worse than level 1.
    ``extended`` ones are ours and stay out of OODFace's averages.
    """

    name: str
    category: Category
    paper: str
    presets: Mapping[str, tuple[Row, ...]]
    function: Callable[..., Frames] = field(repr=False)
    monotone: bool = True
    extended: bool = False

    def definition(self, preset: str) -> str:
        """Return the name of the table that ``preset`` resolves to: its own or the first one."""
        return preset if preset in self.presets else next(iter(self.presets))

    def parameters(self, severity: int, preset: str = PRESETS[0]) -> Row:
        """Return the row of one severity."""
        if preset not in PRESETS:
            raise SpecError(f"no preset is called {preset!r}; choose one of {', '.join(PRESETS)}")
        return self.presets[self.definition(preset)][check_severity(severity) - 1]


CORRUPTIONS: Registry[Corruption] = Registry("corruption", "onnxfr.corruptions")


def shared(levels: Levels) -> dict[str, Levels]:
    """Return the tables of a corruption that OODFace takes over from imagecorruptions unchanged."""
    return {"oodface-code": levels, "imagecorruptions": levels}


def own(levels: Levels) -> dict[str, Levels]:
    """Return the table of a corruption that no benchmark defines but us."""
    return {"onnxfr": levels}


def corruption(
    name: str,
    *,
    category: Category,
    presets: Mapping[str, Levels],
    paper: str = IMAGENET_C,
    monotone: bool = True,
    extended: bool = False,
) -> Callable[[Callable[..., Frames]], Callable[..., Frames]]:
    """Register a pixel function ``(frames, scene, *row) -> frames`` under ``name``."""
    tables = {
        preset: tuple(row if isinstance(row, tuple) else (row,) for row in levels)
        for preset, levels in presets.items()
    }
    assert all(len(rows) == len(SEVERITIES) for rows in tables.values())

    def decorate(function: Callable[..., Frames]) -> Callable[..., Frames]:
        entry = Corruption(name, category, paper, tables, function, monotone, extended)
        CORRUPTIONS.register(name)(entry)
        return function

    return decorate


def oodface_names() -> list[str]:
    """Return the twenty corruptions that OODFace's Acc_cor averages."""
    return [name for name, entry in CORRUPTIONS.items() if not entry.extended]


def corrupt(
    images: NDArray[np.uint8],
    name: str,
    severity: int,
    *,
    ids: Sequence[str],
    seed: int = 0,
    preset: str = PRESETS[0],
    landmarks: NDArray[np.floating] | None = None,
    frost_photographs: Sequence[NDArray[np.uint8]] | None = None,
) -> NDArray[np.uint8]:
    """Return ``images`` under one corruption; the input is left as it is.

    Args:
        images: ``(N, H, W, 3)`` RGB or ``(N, H, W)`` grey, uint8, both sides at least 64.
        name: a name of ``CORRUPTIONS``.
        severity: 1 to 5.
        ids: one stable id per image; it decides the random draws.
        seed: another seed, another realisation of every draw.
        preset: ``oodface-code``, ``oodface-paper`` or ``imagecorruptions``.
        landmarks: ``(N, 5, 2)`` pixel positions (eyes, nose, mouth corners) for the occluders;
            without them the images count as aligned to the ArcFace template.
        frost_photographs: RGB pictures to use in place of the procedural frost.
    """
    entry = CORRUPTIONS.get(name)
    row = entry.parameters(severity, preset)
    frames = check_images(images, ids)
    check_landmarks(landmarks, len(frames))
    scene = Scene(ids, seed, f"{name}/{severity}", landmarks, frost_photographs)
    out = np.empty_like(frames)
    step = max(1, _VALUES_AT_ONCE // max(1, frames[:1].size))
    for start in range(0, len(frames), step):
        rows = slice(start, start + step)
        out[rows] = entry.function(frames[rows], scene.part(rows), *row)
    return out.reshape(images.shape)


def corrupt_images(
    images: Images,
    name: str,
    severity: int,
    *,
    ids: Sequence[str],
    seed: int = 0,
    preset: str = PRESETS[0],
) -> Images:
    """Return float pictures ``(N, 3, H, W)`` in [0, 1] under one corruption, rounded to 8 bits.

    The meeting point of corruptions and attacks: corrupt a probe before it is attacked, or what an
    attack returned, to see whether it survives the channel. What a camera or a file would round is
    rounded first.
    """
    treated = corrupt(to_frames(images), name, severity, ids=ids, seed=seed, preset=preset)
    return from_frames(treated)


def to_frames(images: Images) -> Frames:
    """Return float pictures ``(N, 3, H, W)`` as the pixels that files of them would hold."""
    pixels = np.rint(np.clip(images, 0, 1) * np.float32(255)).astype(np.uint8)
    return np.ascontiguousarray(pixels.transpose(0, 2, 3, 1))


def from_frames(frames: Frames) -> Images:
    """Return RGB frames as float pictures ``(N, 3, H, W)`` in [0, 1]."""
    return np.ascontiguousarray(frames.transpose(0, 3, 1, 2), dtype=np.float32) / np.float32(255)


def check_severity(severity: SupportsIndex) -> int:
    """Return the severity as an int in 1..5 or raise."""
    try:
        level = operator.index(severity)
    except TypeError:
        level = 0
    if level not in SEVERITIES or isinstance(severity, bool):
        raise SpecError(f"a severity is one of 1, 2, 3, 4, 5; got {severity!r}")
    return level


def check_images(images: NDArray[np.uint8], ids: Sequence[str]) -> Frames:
    """Return a contiguous ``(N, H, W, C)`` view or copy of a valid batch."""
    if not isinstance(images, np.ndarray) or images.dtype != np.uint8:
        kind = getattr(images, "dtype", type(images).__name__)
        raise DataError(f"corruptions work on uint8 arrays, got {kind}; convert the images first")
    if images.ndim not in (3, 4) or (images.ndim == 4 and images.shape[3] != 3):
        raise DataError(
            f"expected (N, H, W, 3) RGB or (N, H, W) grey images, got shape {images.shape}"
        )
    height, width = images.shape[1:3]
    if min(height, width) < SMALLEST_SIDE:
        raise DataError(
            f"expected sides of at least {SMALLEST_SIDE} pixels, got {height}x{width}"
            " (a single image needs a leading batch axis)"
        )
    if isinstance(ids, str) or len(ids) != len(images):
        raise DataError(f"expected one id per image, got {len(ids)} ids for {len(images)} images")
    return np.ascontiguousarray(images).reshape(
        len(images), height, width, -1 if len(images) else 3
    )


def check_landmarks(landmarks: NDArray[np.floating] | None, count: int) -> None:
    """Raise unless landmarks are absent or five finite points per image."""
    if landmarks is None:
        return
    if landmarks.shape != (count, 5, 2) or not np.isfinite(landmarks).all():
        raise DataError(
            f"expected finite landmarks of shape ({count}, 5, 2), got {landmarks.shape}"
        )
