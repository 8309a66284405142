"""What the score attacks share: one pair's game, and the watch that ends it at the first win.

An attack is written as a walk (see ``_walks``) that yields pictures and is sent their margins, as
if its pair were alone. The watch around it remembers the best picture seen, so that a walk cut off
by its cap still has something to show, and ends the walk when a picture within the budget wins.
"""

from __future__ import annotations

import math
from abc import abstractmethod
from dataclasses import dataclass
from functools import cached_property
from typing import ClassVar, Literal

import numpy as np
import torch

from onnxfr.attacks._walks import Answers, Picture, Walk, drive, questions_left
from onnxfr.attacks.base import Attack
from onnxfr.oracle import LOST, Oracle
from onnxfr.probe import Probe, round8
from onnxfr.rng import RowRng
from onnxfr.threat import Threat
from onnxfr.types import Access, Images


@dataclass(frozen=True)
class ScoreGame:
    """What the attacker of one pair holds.

    Args:
        clean: the picture that may be changed.
        rules: norm, budget and region of this pair alone.
        random: the pair's own stream.
        judged: the rules that what the verifier sees has to keep; None: the same.
        grain: the least change of a pixel that the verifier can see; 0 if it takes floats.
        questions: how many may be asked in all.
        looks: how many answers about one picture their mean takes to be believed; above 1 where the
            verifier rolls dice.
    """

    clean: Picture
    rules: Threat
    random: np.random.Generator
    judged: Threat | None = None
    grain: float = 0.0
    questions: int = np.iinfo(np.int64).max
    looks: int = 1

    @property
    def eps(self) -> float:
        """The budget in pixel units; for l2 the root mean square change."""
        return _budget(self.rules)

    @property
    def radius(self) -> float:
        """The Euclidean length of a change that uses up an l2 budget."""
        return self.eps * float(np.sqrt(self.clean.size))

    @cached_property
    def box(self) -> tuple[Picture, Picture]:
        """The least and the largest value of each pixel, ``eps`` away at most.

        Before a verifier of files, whole grey levels away: all pixels at 2.6 would round up to 3.
        """
        most = self.eps
        if self.grain:
            most = math.floor(_budget(self.judged or self.rules) / self.grain + 1e-4) * self.grain
        reach = np.full_like(self.clean, most)
        if self.rules.region is not None:
            reach *= np.broadcast_to(self.rules.region, (1, *self.clean.shape))[0]
        return np.maximum(self.clean - reach, 0), np.minimum(self.clean + reach, 1)

    def project(self, picture: Picture) -> Picture:
        """Return the nearest picture that the rules allow.

        The rules' own projection, in fewer passes over one picture: it is asked about each.
        """
        if self.rules.norm == "linf":
            return np.clip(picture, *self.box)
        change = picture - self.clean
        if self.rules.region is not None:
            change *= np.broadcast_to(self.rules.region, (1, *change.shape))[0]
        size = math.sqrt(float(np.vdot(change, change)))
        change *= np.float32(min(self.radius / max(size, 1e-20), 1.0))
        change += self.clean
        return np.clip(change, 0, 1, out=change)

    def steepest(self, slope: Picture) -> Picture:
        """Return the direction of steepest ascent, of size 1 in the norm."""
        along: Picture = self.rules.steepest(torch.from_numpy(slope[None])).numpy()[0]
        return along

    def allows(self, picture: Picture) -> bool:
        """Tell whether a picture would count; before a verifier of files its file does."""
        rules, pair = self.judged or self.rules, (self.clean[None], picture[None])
        if self.grain:
            pair = round8(pair[0]), round8(pair[1])
        return bool(rules.allows(*pair)[0])


@dataclass(frozen=True)
class ScoreAttack(Attack):
    """Base of the attacks on verifiers that answer a number; subclasses write ``walk``."""

    access: ClassVar[Access] = Access.SCORE
    seeks: ClassVar[Literal["any", "smallest"]] = "any"

    @abstractmethod
    def walk(self, game: ScoreGame) -> Walk[None]:
        """Climb the margin of one pair; ended from outside at the first win or at the cap."""

    def run(self, oracle: Oracle, probe: Probe, threat: Threat, rng: RowRng) -> Images:
        """Play all pairs at once; return wins, or the pictures that came nearest to one."""
        shown = probe.images.copy()
        left, judged = questions_left(oracle, threat), oracle.rules

        def walk_of(row: int) -> Walk[Picture | None]:
            game = ScoreGame(
                clean=probe.images[row],
                rules=threat.take(np.array([row])),
                random=rng.streams[row],
                judged=judged.take(np.array([row])),
                grain=1 / 255 if oracle.quantise else 0.0,
                questions=int(left[row]),
                looks=oracle.looks,
            )
            return _watch(self.walk(game), game, shown[row])

        drive(oracle, oracle.score, threat, walk_of)
        return shown


def _budget(rules: Threat) -> float:
    assert rules.eps is not None
    return float(np.asarray(rules.eps).reshape(-1)[0])


def _watch(walk: Walk[None], game: ScoreGame, shown: Picture) -> Walk[Picture | None]:
    """Pass questions and answers on, copy the best picture to ``shown``, end at the first win."""
    best = -np.inf
    try:
        pictures = next(walk)
        while True:
            # A verifier that answers no number has said nothing good about the picture.
            answers = yield pictures
            margins = np.where(answers > LOST, answers, np.float32(LOST))
            for k in np.argsort(-margins, kind="stable"):
                if margins[k] <= best:
                    break
                if game.allows(pictures[k]):
                    best, shown[:] = float(margins[k]), pictures[k]
                    break
            if best > 0 and game.looks > 1:
                # Of many pictures the first to win is a lucky one: it is asked about again.
                again = yield np.repeat(shown[None], game.looks - 1, axis=0)
                every = np.append(again, margins[k])
                best = float(every.mean()) if (every > LOST).all() else LOST
                margins[k] = best
            if best > 0:
                return None
            pictures = walk.send(_comparable(margins))
    except StopIteration:
        return None
    finally:
        walk.close()


def _comparable(margins: Answers) -> Answers:
    """Return margins in which a picture without a verdict is as bad as the worst asked with it.

    Estimates take differences: one to ``LOST`` would drown all the others.
    """
    given = margins > LOST
    return np.where(given, margins, margins[given].min()) if given.any() else margins
