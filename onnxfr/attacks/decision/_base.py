"""What the yes-or-no attacks share: one pair's game, its start, the way back to the boundary.

A start is a picture that wins. In this order are tried: the probe's own start (say a transfer
example), the reference (fitted into the frame of the picture, where it has another size), the
pool's faces of other people from the nearest to the farthest, uniform noise. The order serves both
goals: whoever impersonates wins with the reference at once, whoever dodges loses one question on
it. A pair without a start ends there, not won, its questions charged.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import ClassVar, Literal, final

import numpy as np
from numpy.typing import NDArray

from onnxfr.attacks._walks import Picture, Walk, drive, questions_left
from onnxfr.attacks.base import Attack
from onnxfr.errors import AttackError
from onnxfr.oracle import Oracle
from onnxfr.probe import Probe, framed, round8
from onnxfr.rng import RowRng
from onnxfr.threat import Threat
from onnxfr.types import Access, Images, Norm

_POOL_TRIED = 24
_NOISES_TRIED = 8
# Where everything wins, as before a server that changed its mind, bisection would never end.
_HALVINGS = 30


@dataclass(frozen=True)
class Game:
    """What the attacker of one pair holds.

    Args:
        clean: the picture to stay close to.
        norm: in which closeness is measured.
        random: the pair's own stream.
        start: where the probe says to begin.
        reference: the picture to escape from or to be taken for, if it is known.
        pool: faces, the same for all pairs.
        strangers: which of them show neither person of this pair; None: all.
        basis: directions worth asking about, ``(K, 3, H, W)``.
        grain: the least change of a pixel that the verifier can see; 0 if it takes floats.
        questions: how many may be asked in all.
    """

    clean: Picture
    norm: Norm
    random: np.random.Generator
    start: Picture | None = None
    reference: Picture | None = None
    pool: Images | None = None
    strangers: NDArray[np.bool_] | None = None
    basis: Images | None = None
    grain: float = 0.0
    questions: int = np.iinfo(np.int64).max

    def distance(self, picture: Picture) -> float:
        """Return how far a picture is from the clean one: Euclidean, or the largest change."""
        change = picture - self.clean
        return float(np.abs(change).max()) if self.norm == "linf" else length(change)

    def shown(self, picture: Picture) -> Picture:
        """Return what the verifier looks at: the nearest file, where it takes nothing else.

        A random walk that keeps what wins has to go on from here. The picture itself may have won
        by a lucky rounding; beside such a point everything loses.
        """
        return round8(picture) if self.grain else picture

    def towards(self, picture: Picture, share: float) -> Picture:
        """Return the point at a share of the way: on the line, or of the box's radius in linf."""
        if self.norm == "l2":
            way = picture - self.clean
            way *= np.float32(share)
            way += self.clean
            return way
        radius = np.float32(share * self.distance(picture))
        return np.clip(picture, self.clean - radius, self.clean + radius)


@dataclass(frozen=True)
class DecisionAttack(Attack):
    """Base of the attacks on verifiers that answer yes or no; subclasses write ``walk``.

    In linf what a verifier of 8-bit files is asked about is dithered, see ``dithered``.
    """

    access: ClassVar[Access] = Access.DECISION
    norms: ClassVar[tuple[Norm, ...]] = ("l2",)
    seeks: ClassVar[Literal["any", "smallest"]] = "smallest"

    @abstractmethod
    def walk(self, game: Game) -> Walk[None]:
        """Play one pair; the oracle remembers the closest win."""

    @final
    def play(self, game: Game) -> Walk[None]:
        """Return the walk of one pair as the verifier will see it."""
        walk = self.walk(game)
        return dithered(walk, game) if game.grain and game.norm == "linf" else walk

    def check(self, oracle: Oracle, probe: Probe, threat: Threat) -> None:
        """Refuse regions: the way from a start to the clean picture leads through all pixels."""
        super().check(oracle, probe, threat)
        if threat.region is not None:
            raise AttackError(f"{self.label} changes the whole picture and keeps to no region")

    def run(self, oracle: Oracle, probe: Probe, threat: Threat, rng: RowRng) -> Images:
        """Play all pairs at once; return the closest wins."""
        left = questions_left(oracle, threat)

        def walk_of(row: int) -> Walk[Picture | None]:
            return self.play(
                Game(
                    clean=probe.images[row],
                    norm=threat.norm,
                    random=rng.streams[row],
                    start=None if probe.starts is None else probe.starts[row],
                    reference=None if probe.references is None else probe.references[row],
                    pool=probe.pool,
                    strangers=None if probe.strangers is None else probe.strangers[row],
                    basis=probe.basis,
                    grain=1 / 255 if oracle.quantise else 0.0,
                    questions=int(left[row]),
                )
            )

        drive(oracle, oracle.decide, threat, walk_of)
        return oracle.best


def length(vector: Picture) -> float:
    """Return the Euclidean norm of a picture or direction."""
    return float(np.sqrt(np.vdot(vector, vector)))


def unit(vector: Picture) -> Picture:
    """Return a direction of length 1; zero stays zero."""
    return vector / np.float32(max(length(vector), 1e-20))


def dithered(walk: Walk[None], game: Game) -> Walk[None]:
    """Ask a verifier of 8-bit files about dithered pictures instead of rounded ones.

    In a box all pixels move alike, so they round alike, and every radius between two grey levels is
    the same file. Here each pixel rounds up at a threshold of its own, drawn once: at 5.3 levels
    three pixels of ten have moved by six, the others by five. So the radius shrinks in steps that
    can be seen, what a change cost or gained shows long before it fills a level, and a point can be
    brought as near to the boundary as probes around it need it.
    """
    clean = round8(game.clean)
    threshold = game.random.random(clean.shape, dtype=np.float32)
    answers = None
    while True:
        try:
            pictures = next(walk) if answers is None else walk.send(answers)
        except StopIteration:
            return
        levels = np.floor((pictures - clean) / np.float32(game.grain) + threshold)
        answers = yield np.clip(clean + np.float32(game.grain) * levels, 0, 1)


def wins(picture: Picture) -> Walk[bool]:
    """Ask about one picture."""
    answers = yield picture[None]
    return bool(answers[0])


def find_start(game: Game) -> Walk[Picture | None]:
    """Return the first candidate that wins, or None."""
    for candidate in candidates(game):
        if (yield from wins(candidate)):
            return candidate
    return None


def find_boundary(game: Game, precision: float = 1e-3) -> Walk[Picture | None]:
    """Return a winning picture next to the boundary on the way from a start, or None."""
    start = yield from find_start(game)
    if start is None:
        return None
    return (yield from to_boundary(game, start, precision))


def to_boundary(game: Game, winner: Picture, precision: float, near: float = 0.5) -> Walk[Picture]:
    """Bisect between a win and the clean picture; return the closest win.

    The end of the search is where the gap is ``precision`` times the remaining distance. Where the
    boundary is expected within a share ``near`` of the way, it is sought there first.
    """
    share = yield from bisect(lambda share: game.towards(winner, share), precision, near)
    return winner if share == 1 else game.towards(winner, share)


def bisect(
    picture_at: Callable[[float], Picture], precision: float, near: float = 0.5
) -> Walk[float]:
    """Return the least share known to win, given that 1 wins and 0 does not."""
    low, high, step = 0.0, 1.0, near
    for _ in range(_HALVINGS):
        if high - low <= precision * high:
            break
        middle = high - step if low == 0 and high > step else (low + high) / 2
        if (yield from wins(picture_at(middle))):
            high, step = middle, 2 * step
        else:
            low = middle
    return high


def candidates(game: Game) -> Iterator[Picture]:
    """Return pictures that may win, the most promising first."""
    # Of a start that is the clean picture itself the answer is known already.
    if game.start is not None and not np.array_equal(game.start, game.clean):
        yield game.start
    shape = game.clean.shape
    if game.reference is not None:
        yield framed(game.reference, shape[1:])
    if game.pool is not None and game.pool.shape[1:] == shape:
        far = np.square(game.pool - game.clean).sum(axis=(1, 2, 3))
        # So is that of the clean picture under another name.
        worth = far > 0 if game.strangers is None else (far > 0) & game.strangers
        nearest = np.argsort(far, kind="stable")
        for k in nearest[worth[nearest]][:_POOL_TRIED]:
            yield game.pool[k]
    for _ in range(_NOISES_TRIED):
        yield game.random.random(shape, dtype=np.float32)
