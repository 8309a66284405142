"""Where probes go: random directions of length 1 in the whole space or in a smooth part of it.

Networks answer to low frequencies most, so attacks that choose their directions there learn more
from each answer. ``dims`` is the dimension of the space the directions fill; it decides how closely
a probe looks along the normal of the boundary.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from functools import lru_cache

import cv2
import numpy as np
from numpy.typing import NDArray

from onnxfr.attacks._walks import Picture
from onnxfr.rng import gaussian
from onnxfr.types import Images

Shape = tuple[int, int, int]

# A share of a small picture's spectrum would leave no direction to choose.
_FEWEST_WAVES = 8


class Directions(ABC):
    """A source of random unit directions of one picture shape."""

    dims: int

    @abstractmethod
    def raw(self, random: np.random.Generator, count: int) -> Images:
        """Draw directions of any length."""

    def draw(self, random: np.random.Generator, count: int, length: float = 1.0) -> Images:
        """Draw ``count`` directions of a length."""
        found = self.raw(random, count)
        for direction in found:
            size = np.sqrt(np.vdot(direction, direction))
            # A scalar of double precision would make the whole pass one of double precision.
            direction *= np.float32(length / max(float(size), 1e-20))
        return found


class White(Directions):
    """Gaussian noise in every pixel."""

    def __init__(self, shape: Shape) -> None:
        self.shape, self.dims = shape, int(np.prod(shape))

    def raw(self, random: np.random.Generator, count: int) -> Images:
        """Draw Gaussian pixels."""
        return gaussian(random, count, self.shape)


class Uniform(White):
    """Uniform noise in every pixel: no value dwarfs the others, as suits a box."""

    def raw(self, random: np.random.Generator, count: int) -> Images:
        """Draw pixels between -1 and 1."""
        found = random.random((count, *self.shape), dtype=np.float32)
        found *= 2
        found -= 1
        return found


class Enlarged(Directions):
    """Gaussian noise of ``side`` x ``side`` pixels, enlarged bilinearly."""

    def __init__(self, shape: Shape, side: int) -> None:
        self.shape, self.side = shape, min(side, *shape[1:])
        self.dims = shape[0] * self.side**2

    def raw(self, random: np.random.Generator, count: int) -> Images:
        """Draw small pictures and enlarge them."""
        small = gaussian(random, count, (self.shape[0], self.side, self.side))
        found = np.empty((count, *self.shape), dtype=np.float32)
        for picture, large in zip(small, found, strict=True):
            enlarge(picture, self.shape, large)
        return found


class Cosine(Directions):
    """Gaussian coefficients of the lowest frequencies of the cosine transform.

    Args:
        shape: of the directions.
        share: how much of each axis of the spectrum is filled, 0 to 1.
        ternary: coefficients are -1, 0 or 1 at random instead (SurFree).

    ``weights`` multiply the coefficients drawn; they may be set from a picture's own ``waves``.
    """

    def __init__(self, shape: Shape, share: float, ternary: bool = False) -> None:
        self.tall, self.wide = (
            min(size, max(_FEWEST_WAVES, round(size * share))) for size in shape[1:]
        )
        self.shape, self.ternary = shape, ternary
        self.weights = np.ones((shape[0], self.tall, self.wide), np.float32)
        self.dims = shape[0] * self.tall * self.wide

    def raw(self, random: np.random.Generator, count: int) -> Images:
        """Draw coefficients and transform them back."""
        shape = (self.shape[0], self.tall, self.wide)
        if self.ternary:
            waves = random.integers(-1, 2, (count, *shape), dtype=np.int8).astype(np.float32)
        else:
            waves = gaussian(random, count, shape)
        rows, columns = self._bases()
        # The first product is one of tall matrices, so the many small ones are as few as can be.
        across = np.matmul((waves * self.weights).reshape(-1, self.wide), columns.T)
        pictures: Images = np.matmul(rows, across.reshape(*waves.shape[:-1], -1))
        return pictures

    def waves(self, picture: Picture) -> NDArray[np.float32]:
        """Return the lowest coefficients of a picture."""
        rows, columns = self._bases()
        return np.asarray(np.matmul(np.matmul(rows.T, picture), columns), dtype=np.float32)

    def _bases(self) -> tuple[NDArray[np.float32], NDArray[np.float32]]:
        return cosine_basis(self.shape[1], self.tall), cosine_basis(self.shape[2], self.wide)


class Spanned(Directions):
    """Gaussian mixtures of given directions, say the principal ones of a surrogate's gradients."""

    def __init__(self, basis: Images) -> None:
        self.basis, self.dims = basis.reshape(len(basis), -1), len(basis)
        self.shape = basis.shape[1:]

    def raw(self, random: np.random.Generator, count: int) -> Images:
        """Mix the basis."""
        weights = gaussian(random, count, (self.dims,))
        return (weights @ self.basis).reshape(count, *self.shape)


def enlarge(small: Picture, shape: Shape, out: Picture | None = None) -> Picture:
    """Return a small picture enlarged bilinearly to a shape; ``out`` takes it if given."""
    found = np.empty(shape, dtype=np.float32) if out is None else out
    for channel, large in zip(small, found, strict=True):
        cv2.resize(channel, shape[:0:-1], dst=large, interpolation=cv2.INTER_LINEAR)
    return found


def mix(left: Picture, share: float, right: Picture, other: float, out: Picture) -> Picture:
    """Put ``share * left + other * right`` into ``out``, which may be one of them, in one pass."""
    cv2.addWeighted(left.reshape(-1), share, right.reshape(-1), other, 0.0, dst=out.reshape(-1))
    return out


def tile(small: Picture, shape: Shape) -> Picture:
    """Return a small picture enlarged to a shape, each of its values one tile."""
    # Columns first: then the larger of both passes copies whole rows.
    for axis in (2, 1):
        places = np.arange(shape[axis]) * small.shape[axis] // shape[axis]
        small = np.take(small, places, axis=axis)
    return small


@lru_cache(maxsize=16)
def cosine_basis(size: int, count: int) -> NDArray[np.float32]:
    """Return the first ``count`` orthonormal cosine waves of a length as columns."""
    places, waves = np.arange(size)[:, None] + 0.5, np.arange(count)
    basis = np.cos(np.pi * places * waves / size) * np.sqrt(2 / size)
    basis[:, 0] /= np.sqrt(2)
    return np.asarray(basis, dtype=np.float32)
