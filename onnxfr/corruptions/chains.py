"""Chains of processing steps, such as what a messenger does to a photograph.

Grammar: ``step > step > ...`` where a step is ``verb:value`` (``resize:0.5``, ``jpeg:30``,
``webp:20``, ``blur:1.2``, ``noise:0.02``, ``gamma:2.2``) or ``corruption@severity`` (``fog@2``).
``resize`` really changes the size, so that later steps work on fewer pixels; the end of the chain
brings the picture back to where it started. Landmarks move with the pixels.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial

import cv2
import numpy as np
from numpy.typing import NDArray

from onnxfr.corruptions._pixels import each, to_uint8
from onnxfr.corruptions.base import (
    CORRUPTIONS,
    PRESETS,
    SEVERITIES,
    SMALLEST_SIDE,
    Frames,
    Scene,
    check_images,
    check_landmarks,
    check_severity,
    corrupt,
    corruption,
    own,
)
from onnxfr.corruptions.digital import recode
from onnxfr.corruptions.occluders import default_landmarks
from onnxfr.errors import DataError, SpecError
from onnxfr.rng import RowRng

Action = Callable[[Frames, RowRng, float], Frames]


def _resize(frames: Frames, rng: RowRng, scale: float) -> Frames:
    height, width = (max(1, round(side * scale)) for side in frames.shape[1:3])
    return fit(frames, height, width)


def _jpeg(frames: Frames, rng: RowRng, quality: float) -> Frames:
    return each(
        frames, lambda _, frame: recode(frame, ".jpg", cv2.IMWRITE_JPEG_QUALITY, int(quality))
    )


def _webp(frames: Frames, rng: RowRng, quality: float) -> Frames:
    def store(_: int, frame: NDArray[np.uint8]) -> NDArray[np.uint8]:
        return recode(frame, ".webp", cv2.IMWRITE_WEBP_QUALITY, int(quality))

    return each(frames, store)


def _blur(frames: Frames, rng: RowRng, sigma: float) -> Frames:
    return each(frames, lambda _, frame: np.asarray(cv2.GaussianBlur(frame, (0, 0), sigma)))


def _noise(frames: Frames, rng: RowRng, sd: float) -> Frames:
    return to_uint8(rng.normal(frames.shape[1:]) * np.float32(sd * 255) + frames + np.float32(0.5))


def _gamma(frames: Frames, rng: RowRng, exponent: float) -> Frames:
    table = np.rint((np.arange(256) / 255) ** exponent * 255).astype(np.uint8)
    return np.take(table, frames)


@dataclass(frozen=True)
class Verb:
    """What a step does and which values it takes."""

    action: Action
    low: float
    high: float
    meaning: str


VERBS = {
    "resize": Verb(_resize, 0.05, 4, "factor for both sides"),
    "jpeg": Verb(_jpeg, 1, 100, "JPEG quality"),
    "webp": Verb(_webp, 1, 100, "WebP quality"),
    "blur": Verb(_blur, 0.1, 50, "deviation of a Gaussian in pixels"),
    "noise": Verb(_noise, 0, 1, "deviation of Gaussian noise, of 1"),
    "gamma": Verb(_gamma, 0.1, 10, "exponent; above 1 darkens"),
}


@dataclass(frozen=True)
class Step:
    """One parsed step: a verb and its value, or a registered corruption and its severity."""

    name: str
    value: float
    registered: bool = False

    def __str__(self) -> str:
        return f"{self.name}{'@' if self.registered else ':'}{self.value:g}"


@dataclass(frozen=True)
class Chain:
    """A parsed chain; ``str`` gives its canonical spelling."""

    steps: tuple[Step, ...]

    def __str__(self) -> str:
        return " > ".join(map(str, self.steps))

    @property
    def corruptions(self) -> list[str]:
        """The registered corruptions among the steps, in their order."""
        return [step.name for step in self.steps if step.registered]


def parse_chain(text: str) -> Chain:
    """Read a chain or raise one error that names the step and what would be right."""
    return Chain(tuple(_parse_step(part.strip(), text) for part in text.split(">")))


def _parse_step(part: str, text: str) -> Step:
    if "@" in part:
        name, _, level = part.partition("@")
        name, level = name.strip(), level.strip()
        CORRUPTIONS.get(name)
        if level not in map(str, SEVERITIES):
            raise SpecError(f"step {part!r} of {text!r}: a severity is 1, 2, 3, 4 or 5")
        return Step(name, check_severity(int(level)), registered=True)
    name, colon, number = (piece.strip() for piece in part.partition(":"))
    if not colon or name not in VERBS:
        known = ", ".join(f"{verb}:<{rule.meaning}>" for verb, rule in VERBS.items())
        raise SpecError(
            f"step {part!r} of {text!r} is not understood; write {known} or corruption@severity"
        )
    try:
        value = float(number)
    except ValueError:
        value = math.nan
    rule = VERBS[name]
    if not rule.low <= value <= rule.high:
        raise SpecError(
            f"step {part!r} of {text!r}: {name} takes a number from {rule.low:g} to {rule.high:g}"
            f" ({rule.meaning}), got {number!r}"
        )
    return Step(name, value)


def apply_chain(
    images: NDArray[np.uint8],
    chain: Chain | str,
    *,
    ids: Sequence[str],
    seed: int = 0,
    preset: str = PRESETS[0],
    landmarks: NDArray[np.floating] | None = None,
    frost_photographs: Sequence[NDArray[np.uint8]] | None = None,
) -> NDArray[np.uint8]:
    """Return ``images`` after every step, in their first size; the input is left as it is.

    Args:
        images: as for ``corrupt``.
        chain: parsed, or its text.
        ids: one stable id per image; id and position of a step decide its random draws.
        seed: another seed, another realisation of every draw.
        preset: whose strengths the corruptions among the steps have.
        landmarks: ``(N, 5, 2)`` positions in ``images``; where a step changes the size, later
            occluders get them at that size.
        frost_photographs: RGB pictures to use in place of the procedural frost.
    """
    steps = (parse_chain(chain) if isinstance(chain, str) else chain).steps
    frames = check_images(images, ids)
    check_landmarks(landmarks, len(frames))
    height, width = frames.shape[1:3]
    # Once resized, a crop's own size no longer tells which template it was cut for.
    points = default_landmarks(height, width) if landmarks is None else landmarks
    treat = partial(corrupt, seed=seed, preset=preset, frost_photographs=frost_photographs)
    for number, step in enumerate(steps):
        labels = [f"{name}\x1estep {number}" for name in ids]
        if step.registered:
            here = _moved(points, (height, width), frames.shape[1:3])
            frames = _apply_registered(frames, step, treat, labels, here)
        else:
            rng = RowRng(seed, labels, step.name)
            frames = VERBS[step.name].action(frames, rng, step.value)
    return fit(frames, height, width).reshape(images.shape)


def _moved(
    points: NDArray[np.floating], before: tuple[int, ...], after: tuple[int, ...]
) -> NDArray[np.floating]:
    """Return where positions (x, y) in pictures of one size lie once these have another."""
    if before == after:
        return points
    scale = np.array(after[::-1]) / np.array(before[::-1])
    # Whole numbers are the centres of pixels, while a resize scales from the picture's corner.
    return np.asarray((points + 0.5) * scale - 0.5)


def _apply_registered(
    frames: Frames,
    step: Step,
    treat: Callable[..., NDArray[np.uint8]],
    ids: Sequence[str],
    points: NDArray[np.floating],
) -> Frames:
    if min(frames.shape[1:3]) < SMALLEST_SIDE:
        raise DataError(
            f"step {step} needs pictures of at least {SMALLEST_SIDE} pixels a side, but earlier "
            f"steps left {frames.shape[1]}x{frames.shape[2]}; resize less or move the step forward"
        )
    grey = frames.shape[3] == 1
    out = treat(
        frames[..., 0] if grey else frames,
        step.name,
        int(step.value),
        ids=ids,
        landmarks=np.broadcast_to(points, (len(frames), 5, 2)),
    )
    return out.reshape(frames.shape)


def fit(frames: Frames, height: int, width: int) -> Frames:
    """Return frames of another size: averaged when shrinking, cubic when growing."""
    if frames.shape[1:3] == (height, width):
        return frames.copy()
    shrink = height * width < frames.shape[1] * frames.shape[2]
    how = cv2.INTER_AREA if shrink else cv2.INTER_CUBIC
    out = np.empty((len(frames), height, width, frames.shape[3]), dtype=np.uint8)
    for i, frame in enumerate(frames):
        out[i] = cv2.resize(frame, (width, height), interpolation=how).reshape(out.shape[1:])
    return out


@corruption(
    "messenger",
    category="data_processing",
    paper="onnxfr: what a messenger does to a forwarded photograph",
    presets=own(
        (
            "resize:0.8 > jpeg:60 > webp:60",
            "resize:0.65 > jpeg:45 > webp:40",
            "resize:0.5 > jpeg:30 > webp:20",
            "resize:0.4 > jpeg:20 > webp:10",
            "resize:0.3 > jpeg:12 > webp:5",
        )
    ),
    extended=True,
)
def messenger(frames: Frames, scene: Scene, chain: str) -> Frames:
    """Shrink and recompress twice, as forwarding a photograph does."""
    grey = frames.shape[3] == 1
    images = frames[..., 0] if grey else frames
    return apply_chain(images, chain, ids=scene.ids, seed=scene.seed).reshape(frames.shape)
