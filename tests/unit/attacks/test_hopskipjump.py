"""HopSkipJump's steps: never away from the clean picture, never finer than a file shows."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest

from onnxfr.attacks._walks import Picture, Walk
from onnxfr.attacks.decision import hopskipjump
from onnxfr.attacks.decision._base import Game
from onnxfr.attacks.decision._directions import White
from onnxfr.attacks.decision.hopskipjump import HopSkipJump, precision_of
from onnxfr.types import Images

SHAPE = (3, 8, 8)


def play(walk: Walk[None], answer: Callable[[Images], np.ndarray], most: int) -> None:
    asked = next(walk)
    for _ in range(most):
        try:
            asked = walk.send(answer(asked))
        except StopIteration:
            return


@pytest.mark.parametrize("norm", ["l2", "linf"])
def test_no_step_leads_away_from_the_clean_picture(
    monkeypatch: pytest.MonkeyPatch, norm: str
) -> None:
    rng = np.random.default_rng(3)
    clean = rng.random(SHAPE, dtype=np.float32) * 0.2 + 0.4
    normal = rng.standard_normal(SHAPE).astype(np.float32)
    way = np.sign(normal) * (rng.random(SHAPE, dtype=np.float32) - np.float32(0.4))
    start = np.clip(clean + way, 0, 1)
    level = 0.3 * float(np.vdot(start - clean, normal))
    game = Game(clean, norm, np.random.default_rng(0), start=start)  # type: ignore[arg-type]
    distances: list[float] = []
    estimate = hopskipjump.estimate_normal

    def watched(game: Game, source: White, point: Picture, *rest: float) -> Walk[Picture]:
        distances.append(game.distance(point))
        return estimate(game, source, point, *rest)  # type: ignore[arg-type]

    monkeypatch.setattr(hopskipjump, "estimate_normal", watched)

    def answer(asked: Images) -> np.ndarray:
        return np.einsum("nchw,chw->n", asked - clean, normal) > level

    # Normals of so few answers are bad ones, and the first jumps are as long as the distance.
    play(HopSkipJump(steps=40, samples=8).walk(game), answer, 5_000)
    assert len(distances) == 40
    assert (np.diff(distances) <= 1e-6).all()
    assert distances[-1] < 0.8 * distances[0]


def test_before_a_verifier_that_takes_files_bisection_ends_where_probes_see_no_difference() -> None:
    clean = np.full(SHAPE, 0.5, np.float32)
    near, far = clean + np.float32(2 / 255), clean + np.float32(0.4)
    games = [Game(clean, "l2", np.random.default_rng(0), grain=grain) for grain in (0, 1 / 255)]
    floats, files = games
    source = White(SHAPE)
    exact = 0.01 / np.sqrt(192) / 2
    assert precision_of(floats, near, 0.01, source) == pytest.approx(exact)
    assert precision_of(floats, far, 0.01, source) == pytest.approx(exact)
    # A grey level is half of two and a hundredth of a hundred and two.
    assert precision_of(files, near, 0.01, source) == pytest.approx(50 * exact, rel=1e-4)
    assert precision_of(files, far, 0.001, source) == pytest.approx(10 * exact / 10.2, rel=1e-3)
