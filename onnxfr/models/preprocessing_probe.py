"""Which preprocessing does this network expect? Ask labelled faces, not file names.

A network fed with the wrong colours or range still tells people apart, only worse, and AUC
saturates long before the difference shows. So candidates are compared by d' (the distance of the
genuine from the impostor scores in pooled deviations) on the same pairs, with a paired bootstrap;
clear losers are dropped early and pairs are added until the winner is significant or the pairs end.
Candidates whose embeddings agree are one answer. None of the five benchmarks has this; InsightFace
guesses from node names.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from onnxfr.models.preprocessing import GRID, Preprocessing
from onnxfr.models.structure import ImageInput, StaticHints
from onnxfr.rng import stream
from onnxfr.types import Images

Embed = Callable[[Images, Preprocessing], NDArray[np.float32]]

FIRST_PAIRS = 32
CONFIDENCE = 0.99
_DROP = 0.999
"""Stricter than the final confidence because every added batch of pairs is another look."""

_SAME_ANSWER = 0.995
_RESAMPLES = 1000


@dataclass(frozen=True)
class LabelledPairs:
    """Real faces with pair labels; pairs are used in the order given, so give them shuffled."""

    images: Images
    left: NDArray[np.intp]
    right: NDArray[np.intp]
    same: NDArray[np.bool_]

    def is_grey(self) -> bool:
        """Tell whether the pictures carry no colour, so that channel order cannot be told."""
        sample = self.images[:32]
        return bool(np.abs(sample[:, 0] - sample[:, 2]).mean() < 2 / 255)


@dataclass(frozen=True)
class Candidate:
    """One row of the probe's table."""

    preprocessing: Preprocessing
    d_prime: float
    auc: float
    pairs: int
    beaten_with: float


@dataclass(frozen=True)
class ProbeResult:
    """The decision, the confidence that the runner-up is worse, and the whole table."""

    winner: Preprocessing | None
    confidence: float
    table: tuple[Candidate, ...]
    equivalent: tuple[Preprocessing, ...]
    reasons: tuple[str, ...]
    pairs: int

    @property
    def ambiguous(self) -> bool:
        """Whether no candidate may be called the answer."""
        return self.winner is None

    @property
    def runner_up(self) -> Candidate | None:
        """The best candidate that is a different answer."""
        same = {self.table[0].preprocessing, *self.equivalent} if self.table else set()
        return next((c for c in self.table if c.preprocessing not in same), None)


@dataclass
class _Race:
    """Scores of the candidates still in the running, on a growing prefix of the pairs."""

    pairs: LabelledPairs
    embed: Embed
    embeddings: dict[Preprocessing, NDArray[np.float32]] = field(default_factory=dict)

    def scores(self, candidate: Preprocessing, count: int) -> NDArray[np.float32]:
        used = np.unique(np.concatenate([self.pairs.left[:count], self.pairs.right[:count]]))
        known = self.embeddings.get(candidate)
        if known is None:
            first = self.embed(self.pairs.images[used[:1]], candidate)
            known = np.full((len(self.pairs.images), first.shape[1]), np.nan, np.float32)
            self.embeddings[candidate] = known
        missing = used[np.isnan(known[used, 0])]
        if len(missing):
            known[missing] = self.embed(self.pairs.images[missing], candidate)
        left, right = known[self.pairs.left[:count]], known[self.pairs.right[:count]]
        scores: NDArray[np.float32] = np.einsum("nd,nd->n", left, right)
        return scores

    def agree(self, one: Preprocessing, other: Preprocessing) -> bool:
        a, b = self.embeddings[one], self.embeddings[other]
        both = ~(np.isnan(a[:, 0]) | np.isnan(b[:, 0]))
        return bool(np.einsum("nd,nd->n", a[both], b[both]).mean() > _SAME_ANSWER)


def probe_preprocessing(
    pairs: LabelledPairs, embed: Embed, image: ImageInput, hints: StaticHints
) -> ProbeResult:
    """Find the preprocessing under which the network tells these people apart best."""
    grey = pairs.is_grey() and image.channels == 3
    running = [
        Preprocessing(color=color, scaling=scaling, layout=image.layout)
        for color in (image.colors[:1] if grey else image.colors)
        for scaling in image.scalings
    ]
    race = _Race(pairs, embed)
    finished: dict[Preprocessing, Candidate] = {}
    aliases: dict[Preprocessing, list[Preprocessing]] = {}
    count = min(FIRST_PAIRS, len(pairs.same))
    while True:
        table, confidence, group = _round(race, running, count)
        finished.update({c.preprocessing: c for c in table})
        best = table[0].preprocessing
        # One of several candidates with the same embeddings stands for all of them from here on.
        aliases.setdefault(best, []).extend(c for c in group if c != best)
        running = [
            c.preprocessing
            for c in table
            if c.beaten_with < _DROP and (c.preprocessing == best or c.preprocessing not in group)
        ]
        if len(running) == 1 or count == len(pairs.same):
            break
        count = min(2 * count, len(pairs.same))
    ordered = sorted(finished.values(), key=lambda c: (-c.pairs, -c.d_prime))
    return _decide(ordered, [best, *aliases[best]], confidence, hints, grey, count)


def _round(
    race: _Race, running: list[Preprocessing], count: int
) -> tuple[list[Candidate], float, list[Preprocessing]]:
    same = race.pairs.same[:count]
    scores = {c: race.scores(c, count) for c in running}
    best = max(running, key=lambda c: d_prime(scores[c], same))
    group = [c for c in running if c == best or race.agree(c, best)]
    draws = _resampled_pairs(same)
    reference = np.asarray([d_prime(scores[best][d], same[d]) for d in draws])
    table = []
    confidence = 1.0
    for candidate in running:
        beaten = 0.0
        if candidate not in group:
            own = np.asarray([d_prime(scores[candidate][d], same[d]) for d in draws])
            beaten = float((reference > own).mean())
            confidence = min(confidence, beaten)
        table.append(
            Candidate(
                preprocessing=candidate,
                d_prime=d_prime(scores[candidate], same),
                auc=auc(scores[candidate], same),
                pairs=count,
                beaten_with=beaten,
            )
        )
    return sorted(table, key=lambda c: -c.d_prime), confidence, group


def _resampled_pairs(same: NDArray[np.bool_]) -> list[NDArray[np.intp]]:
    rng = stream(0, "preprocessing probe", len(same))
    genuine, impostor = np.flatnonzero(same), np.flatnonzero(~same)
    return [
        np.concatenate([rng.choice(genuine, len(genuine)), rng.choice(impostor, len(impostor))])
        for _ in range(_RESAMPLES)
    ]


def _decide(
    table: list[Candidate],
    group: list[Preprocessing],
    confidence: float,
    hints: StaticHints,
    grey: bool,
    pairs: int,
) -> ProbeResult:
    winner: Preprocessing | None = min(group, key=lambda c: GRID.index(c.scaling))
    reasons = list(hints.reasons)
    if confidence < CONFIDENCE:
        close = [c.preprocessing for c in table if c.beaten_with < CONFIDENCE and c.pairs == pairs]
        winner = _settle([*close, *group], hints, reasons)
        if winner is None:
            reasons.append(f"the winner is ahead with a confidence of only {confidence:.3f}")
    if grey and hints.color is None:
        winner = None
        reasons.append("the pictures are grey, so the colour order cannot be told from them")
    elif grey and winner is not None and hints.color in ("rgb", "bgr"):
        winner = winner.model_copy(update={"color": hints.color})
    if table and table[0].auc < 0.75:
        winner = None
        reasons.append(
            f"no candidate separates these people (best AUC {table[0].auc:.3f}): "
            "are the faces aligned and the labels right?"
        )
    equivalent = tuple(c for c in group if c != table[0].preprocessing)
    return ProbeResult(winner, confidence, tuple(table), equivalent, tuple(reasons), pairs)


def _settle(
    contenders: list[Preprocessing], hints: StaticHints, reasons: list[str]
) -> Preprocessing | None:
    """Break a tie the pairs left, first by the file's own constants, then by economy.

    Whitening adapts to every picture, so a network trained on a fixed range loses next to nothing
    under it, while one trained on whitened pictures loses clearly under any fixed range: where the
    two tie, the fixed range is the answer.
    """
    hinted = [c for c in contenders if c.public_scaling == hints.pixel_range]
    fixed = [c for c in contenders if c.scaling != "whiten"]
    for left, reason in (
        (hinted, "the pairs alone could not decide; the file's own constants did"),
        (fixed, "whitening does no better than a fixed range, so the fixed range is the answer"),
    ):
        if len({(c.color, c.public_scaling) for c in left}) == 1:
            reasons.append(reason)
            return min(left, key=lambda c: GRID.index(c.scaling))
    return None


def d_prime(scores: NDArray[np.float32], same: NDArray[np.bool_]) -> float:
    """Distance of the class means in units of the pooled deviation."""
    genuine, impostor = scores[same], scores[~same]
    if len(genuine) < 2 or len(impostor) < 2 or not np.isfinite(scores).all():
        return 0.0
    spread = np.sqrt((genuine.var() + impostor.var()) / 2)
    return float((genuine.mean() - impostor.mean()) / max(float(spread), 1e-9))


def auc(scores: NDArray[np.float32], same: NDArray[np.bool_]) -> float:
    """Area under the ROC curve by ranks, ties shared."""
    order = np.argsort(np.concatenate([scores[~same], scores[same]]), kind="stable")
    values = np.concatenate([scores[~same], scores[same]])[order]
    ranks = np.empty(len(values))
    _, start, counts = np.unique(values, return_index=True, return_counts=True)
    shared = start + (counts + 1) / 2
    ranks[order] = np.repeat(shared, counts)
    positives, negatives = int(same.sum()), int((~same).sum())
    if not positives or not negatives:
        return float("nan")
    above = ranks[negatives:].sum() - positives * (positives + 1) / 2
    return float(above / (positives * negatives))
