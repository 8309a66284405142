"""Noise: Gaussian, shot, impulse, speckle (ImageNet-C), salt and pepper (OODFace).

The draws follow the stated distributions exactly; only the way of drawing is ours. Shot noise comes
from one alias table per grey value, which needs one random word a value whatever the rate.
"""

from __future__ import annotations

from functools import lru_cache
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray
from scipy.special import gammaln

from onnxfr.corruptions._pixels import to_uint8, words
from onnxfr.corruptions.base import OODFACE, Frames, Scene, corruption, shared


@corruption(
    "gaussian_noise",
    category="data_processing",
    presets=shared((0.08, 0.12, 0.18, 0.26, 0.38)),
)
def gaussian_noise(frames: Frames, scene: Scene, sd: float) -> Frames:
    """Add N(0, sd) to every value."""
    noise = scene.rng.normal(frames.shape[1:])
    noise *= np.float32(sd * 255)
    noise += frames
    return to_uint8(noise)


@corruption(
    "speckle_noise",
    category="data_processing",
    presets=shared((0.15, 0.2, 0.35, 0.45, 0.6)),
)
def speckle_noise(frames: Frames, scene: Scene, sd: float) -> Frames:
    """Multiply every value by N(1, sd)."""
    noise = scene.rng.normal(frames.shape[1:])
    noise *= np.float32(sd)
    noise += 1
    noise *= frames
    return to_uint8(noise)


@corruption("shot_noise", category="data_processing", presets=shared((60, 25, 12, 5, 3)))
def shot_noise(frames: Frames, scene: Scene, photons: int) -> Frames:
    """Replace every value x by Poisson(x * photons) / photons."""
    table = poisson_table(photons)
    draws = words(scene.rng, frames.shape[1:])
    index = (draws >> np.uint32(32 - table.bits)).astype(np.intp)
    index |= frames.astype(np.intp) << table.bits
    draws <<= np.uint32(table.bits)
    return np.where(draws < table.keep[index], table.first[index], table.second[index])


class AliasTable(NamedTuple):
    """Walker's alias method for 256 distributions at once, flattened to ``value << bits | bin``."""

    bits: int
    keep: NDArray[np.uint32]
    first: NDArray[np.uint8]
    second: NDArray[np.uint8]


@lru_cache(maxsize=16)
def poisson_table(photons: int) -> AliasTable:
    """Return the table that turns one random word into a shot-noise value, per grey value."""
    bits = max(1, int(photons).bit_length())
    bins = 1 << bits
    counts = np.arange(photons)
    rates = np.maximum(np.arange(256) / 255 * photons, 1e-300)[:, None]
    chances = np.zeros((256, bins))
    chances[:, :photons] = np.exp(counts * np.log(rates) - rates - gammaln(counts + 1))
    chances[:, photons] = np.maximum(1 - chances.sum(axis=1), 0)
    keep, partner = _alias(chances * bins)
    values = np.trunc(np.minimum(np.arange(bins) / photons, 1) * 255).astype(np.uint8)
    first = np.broadcast_to(values, (256, bins))
    threshold = np.minimum(np.rint(keep * 2.0**32), 2.0**32 - 1).astype(np.uint32)
    return AliasTable(bits, threshold.ravel(), first.ravel(), values[partner].ravel())


def _alias(load: NDArray[np.float64]) -> tuple[NDArray[np.float64], NDArray[np.intp]]:
    """Level rows of mean-one loads: bin i keeps its share and gives the rest to one partner."""
    load = load.copy()
    rows = np.arange(len(load))
    keep = np.ones_like(load)
    partner = np.broadcast_to(np.arange(load.shape[1]), load.shape).copy()
    open_ = np.ones(load.shape, dtype=bool)
    for _ in range(load.shape[1] - 1):
        low = np.where(open_, load, np.inf).argmin(axis=1)
        high = np.where(open_, load, -np.inf).argmax(axis=1)
        keep[rows, low] = np.minimum(load[rows, low], 1)
        partner[rows, low] = high
        load[rows, high] -= 1 - keep[rows, low]
        open_[rows, low] = False
    return keep, partner


@corruption(
    "impulse_noise",
    category="data_processing",
    presets=shared((0.03, 0.06, 0.09, 0.17, 0.27)),
)
def impulse_noise(frames: Frames, scene: Scene, amount: float) -> Frames:
    """Set every single channel value to 0 or 255 with probability ``amount``."""
    draws = words(scene.rng, frames.shape[1:])
    out = frames.copy()
    np.putmask(out, draws < np.uint32(amount * 2**32), np.uint8(255))
    np.putmask(out, draws < np.uint32(amount * 2**31), np.uint8(0))
    return out


@corruption(
    "salt_pepper",
    category="data_processing",
    paper=OODFACE,
    presets={
        "oodface-code": ((0.06, False), (0.12, False), (0.18, False), (0.24, False), (0.30, False)),
        "oodface-paper": ((1e-4, True), (5e-4, True), (1e-3, True), (2e-3, True), (5e-3, True)),
    },
)
def salt_pepper(frames: Frames, scene: Scene, fraction: float, distinct: bool) -> Frames:
    """Blacken or whiten whole pixels: ``fraction`` of them, or so many draws with replacement."""
    out = frames.copy()
    pixels = out.shape[1] * out.shape[2]
    count = max(1, int(fraction * pixels))
    for flat, stream in zip(out.reshape(len(out), pixels, -1), scene.rng.streams, strict=True):
        if distinct:
            where = stream.choice(pixels, count, replace=False, shuffle=False)
        else:
            where = stream.integers(0, pixels, count)
        flat[where] = stream.integers(0, 2, (count, 1), dtype=np.uint8) * np.uint8(255)
    return out
