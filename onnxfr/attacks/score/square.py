"""Square: random search with squares that use up the whole budget (Andriushchenko et al. 2020).

AutoAttack's share of 0.8 at the beginning. Its schedule runs over the questions that are really
allowed instead of 5,000, so that every cap is used up and ends with small squares. A square that
would leave the picture as it is costs no question, as in the authors' own code.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import ClassVar

import numpy as np
from numpy.typing import NDArray

from onnxfr.attacks._settings import Share
from onnxfr.attacks._walks import Picture, Walk
from onnxfr.attacks.base import register
from onnxfr.attacks.decision._base import length
from onnxfr.attacks.score._base import ScoreAttack, ScoreGame

_ENDS = (10, 50, 200, 500, 1000, 2000, 4000, 6000, 8000)
"""Steps of 10,000 after which the area of the squares is halved."""
_TILES = 5
_REDRAWN = 8
_TINY = 1e-10


@register("square")
@dataclass(frozen=True)
class Square(ScoreAttack):
    """One square a question, kept when the margin grows.

    Args:
        steps: most questions; also the length of the schedule unless the cap is shorter.
        share: part of the picture that the first squares cover.
    """

    steps: int = 20_000
    share: Share = 0.8

    paper: ClassVar[str] = "Andriushchenko et al., ECCV 2020 (arXiv:1912.00049)"

    def walk(self, game: ScoreGame) -> Walk[None]:
        """Start with stripes (linf) or a grid of bumps (l2), then change one square at a time."""
        steps = max(min(self.steps, game.questions), 1)
        linf = game.rules.norm == "linf"
        x = _stripes(game) if linf else game.project(game.clean + _grid(game))
        propose: Callable[[ScoreGame, Picture, int], Picture] = _repaint if linf else _move_mass
        best = float((yield x[None])[0])
        for step in range(1, steps):
            side = _side(self.share, step, steps, game.clean.shape[1:])
            tried = propose(game, x, side)
            margin = float((yield tried[None])[0])
            if margin > best:
                best, x = margin, tried


def _side(share: float, step: int, steps: int, shape: tuple[int, ...]) -> int:
    """Return the side of the squares at a step."""
    at = step * 10_000 / steps
    area = share / 2 ** sum(at > end for end in _ENDS)
    side = round(float(np.sqrt(area * shape[0] * shape[1])))
    return int(min(max(side, 1), min(shape) - 1))


def _stripes(game: ScoreGame) -> Picture:
    colours, _, width = game.clean.shape
    low, high = game.box
    return np.where(game.random.integers(0, 2, (colours, 1, width)), high, low)


def _repaint(game: ScoreGame, x: Picture, side: int) -> Picture:
    """Give one square a new sign in each colour; one that would look as before is drawn again."""
    low, high = game.box
    painted = x.copy()
    for _ in range(_REDRAWN):
        top, left = _corner(game, side)
        here = (slice(None), slice(top, top + side), slice(left, left + side))
        signs = game.random.integers(0, 2, (len(x), 1, 1))
        painted[here] = np.where(signs, high[here], low[here])
        if not np.array_equal(painted[here], x[here]):
            break
    return painted


def _grid(game: ScoreGame) -> Picture:
    """Return bumps of random sign on a grid, scaled to the whole budget."""
    change = np.zeros_like(game.clean)
    _, height, width = change.shape
    side = max(min(height, width) // _TILES, 1)
    for top in range(0, height - side + 1, side):
        for left in range(0, width - side + 1, side):
            signs = game.random.integers(0, 2, (len(change), 1, 1)) * 2 - 1
            change[:, top : top + side, left : left + side] += _bump(game, side) * signs
    return change * np.float32(game.radius / max(length(change), _TINY))


def _move_mass(game: ScoreGame, x: Picture, side: int) -> Picture:
    """Move the change of one square, and what the budget has left, into another square."""
    side, change = max(side, 3), x - game.clean
    moved = change.copy()
    (top, left), (from_top, from_left) = _corner(game, side), _corner(game, side)
    here = np.zeros(change.shape[1:], dtype=np.bool_)
    both = here.copy()
    here[top : top + side, left : left + side] = True
    both |= here
    both[from_top : from_top + side, from_left : from_left + side] = True
    unused = max(game.radius**2 - float(np.square(change).sum()), 0.0) / len(change)
    bump = _bump(game, side)
    for colour in range(len(change)):
        old = change[colour, top : top + side, left : left + side]
        sign = game.random.integers(0, 2) * 2 - 1
        mixed = sign * bump / length(bump) + old / max(length(old), _TINY)
        reach = np.sqrt(float(np.square(change[colour][both]).sum()) + unused)
        moved[colour][both] = 0
        scaled = mixed * (reach / max(length(mixed), _TINY))
        moved[colour, top : top + side, left : left + side] = scaled
    return game.project(game.clean + moved)


def _corner(game: ScoreGame, side: int) -> tuple[int, int]:
    _, height, width = game.clean.shape
    top = int(game.random.integers(0, max(height - side, 0) + 1))
    return top, int(game.random.integers(0, max(width - side, 0) + 1))


def _bump(game: ScoreGame, side: int) -> NDArray[np.float32]:
    """Return two neighbouring pyramids of opposite sign, lying or standing."""
    half = side // 2
    found = np.zeros((side, side), dtype=np.float32)
    found[:half] = _pyramid(half, side)
    found[half:] = -_pyramid(side - half, side)
    return found.T if game.random.integers(0, 2) else found


def _pyramid(height: int, width: int) -> NDArray[np.float32]:
    """Return rectangles stacked with weights 1 / k^2 towards the middle."""
    found = np.zeros((height, width), dtype=np.float32)
    rings = max(height, width) // 2 + 1
    middle = (height - 1) / 2, (width - 1) / 2
    rows = np.abs(np.arange(height) - middle[0])[:, None]
    columns = np.abs(np.arange(width) - middle[1])[None]
    for ring in range(rings):
        inside = (rows <= height / 2 - ring * height / (2 * rings)) & (
            columns <= width / 2 - ring * width / (2 * rings)
        )
        found += inside / np.float32((rings - ring) ** 2)
    return found
