"""Attacks before a verifier of 8-bit files come nearly as far as before one that takes floats."""

from __future__ import annotations

from collections import Counter

import numpy as np
import pytest
from attack_games import tiny_model, tiny_probe
from numpy.typing import NDArray

from onnxfr.attacks import _search, make_attack
from onnxfr.attacks._walks import Picture, Walk
from onnxfr.attacks.decision._base import Game
from onnxfr.attacks.decision._directions import Cosine
from onnxfr.attacks.score._base import ScoreGame
from onnxfr.models.wrapper import OnnxModel
from onnxfr.oracle import Oracle
from onnxfr.probe import round8
from onnxfr.threat import Threat
from onnxfr.types import Goal, Norm

SHAPE = (3, 32, 32)
GREY = 1 / 255


@pytest.fixture(scope="session")
def tiny(tmp_path_factory: pytest.TempPathFactory) -> OnnxModel:
    return tiny_model(tmp_path_factory.getbasetemp())


class Flat:
    """A verifier with a flat boundary three grey levels from a smooth picture, and a far start."""

    def __init__(self, seed: int) -> None:
        random, size = np.random.default_rng(seed), int(np.prod(SHAPE))
        smooth = Cosine(SHAPE, 0.3).draw(random, 1, length=0.15 * size**0.5)[0]
        self.clean = round8(np.clip(0.5 + smooth, 0.05, 0.95).astype(np.float32))
        rough = random.standard_normal(SHAPE).astype(np.float32)
        normal = 0.8 * Cosine(SHAPE, 0.4).draw(random, 1)[0] + 0.6 * rough / np.linalg.norm(rough)
        self.normal = normal / np.linalg.norm(normal)
        self.far = 3 * GREY * size**0.5
        self.start = self.clean
        while not self.wins(self.start):
            face = 0.5 + Cosine(SHAPE, 0.3).draw(random, 1, length=0.25 * size**0.5)[0]
            self.start = np.clip(face, 0, 1).astype(np.float32)

    def along(self, picture: Picture) -> float:
        return float(np.vdot(picture.astype(np.float64) - self.clean, self.normal))

    def wins(self, picture: Picture) -> bool:
        return self.along(picture) > self.far

    def closest(self, name: str, norm: Norm, grain: float, questions: int) -> float:
        """Return the closest win in grey levels, and count what was shown."""
        game = Game(
            self.clean,
            norm,
            np.random.default_rng(1),
            start=self.start,
            grain=grain,
            questions=questions,
        )
        walk, best = make_attack(name).play(game), np.inf  # type: ignore[attr-defined]
        self.shown: Counter[bytes] = Counter()
        answers = None
        while questions > 0:
            try:
                pictures = next(walk) if answers is None else walk.send(answers)
            except StopIteration:
                break
            questions -= len(pictures)
            seen = round8(pictures) if grain else pictures
            self.shown.update(picture.tobytes() for picture in seen)
            answers = np.array([self.wins(picture) for picture in seen])
            for change in np.abs(seen[answers] - self.clean):
                size = change.max() if norm == "linf" else np.sqrt(np.mean(np.square(change)))
                best = min(best, float(size))
        return best / GREY


@pytest.mark.parametrize(
    ("name", "norm", "factor"),
    [
        ("boundary", "l2", 1.4),
        ("surfree", "l2", 1.12),
        ("rays", "linf", 1.3),
        ("sign_flip", "linf", 1.3),
        ("hopskipjump", "linf", 1.2),
        ("geoda", "linf", 1.2),
    ],
)
def test_files_cost_a_walk_little_of_the_way(name: str, norm: Norm, factor: float) -> None:
    """What won by a lucky rounding is no place to go on from; whole levels are no steps."""
    for seed in (0, 1):
        world = Flat(seed)
        floats = world.closest(name, norm, 0.0, 3000)
        slack = 1.0 if norm == "linf" else 0.0
        assert world.closest(name, norm, GREY, 3000) <= factor * floats + slack


def test_sign_flip_asks_about_no_box_twice() -> None:
    world = Flat(0)
    world.closest("sign_flip", "linf", 0.0, 3000)
    assert sum(world.shown.values()) - len(world.shown) < 30


@pytest.mark.parametrize("norm", ["linf", "l2"])
def test_bandits_probes_of_files_differ_from_one_another(norm: Norm) -> None:
    """The prior grows, and what is added to it on both sides must not shrink below a level."""
    world = Flat(0)
    rules = Threat(norm=norm, eps=4 * GREY).in_levels()
    game = ScoreGame(world.clean, rules, np.random.default_rng(1), grain=GREY)
    walk: Walk[None] = make_attack("bandits").walk(game)  # type: ignore[attr-defined]
    pictures, differ = next(walk), []
    for _ in range(600):
        seen = round8(pictures)
        if len(seen) == 2:
            differ.append(float(np.mean(seen[0] != seen[1])))
        answers = np.array([np.tanh(world.along(picture) / world.far) for picture in seen])
        pictures = walk.send(answers.astype(np.float32))
    assert min(differ) > 1 / 3


@pytest.mark.parametrize("name", ["sign_hunter", "square"])
@pytest.mark.parametrize("levels", [1.6, 2.6])
def test_a_score_attack_ends_only_when_the_file_wins_within_the_budget(
    tiny: OnnxModel, name: str, levels: float
) -> None:
    probe = tiny_probe(16)
    for goal in Goal:
        found = tiny.similarity(probe.images, probe.references)  # type: ignore[arg-type]
        threshold = float(found.min() - 0.01 if goal is Goal.DODGE else found.max() + 0.01)
        threat = Threat(norm="l2", eps=levels * GREY, max_queries=400)
        oracle = Oracle(
            tiny, probe, threat, goal=goal, threshold=threshold, quantise=True, device="cpu"
        )
        result = make_attack(name)(oracle, probe, threat)
        assert not ((result.queries < 400) & ~result.won).any()
        assert result.won.any()


def test_no_whole_grey_level_is_searched_twice(
    tiny: OnnxModel, monkeypatch: pytest.MonkeyPatch
) -> None:
    tried: list[tuple[int, int]] = []
    attempt = _search._Search.attempt

    def noted(
        self: _search._Search, eps: NDArray[np.float64], rows: NDArray[np.intp]
    ) -> NDArray[np.float64]:
        assert np.allclose(255 * eps, np.round(255 * eps))
        tried.extend(zip(rows.tolist(), np.round(255 * eps).astype(int).tolist(), strict=True))
        return attempt(self, eps, rows)

    monkeypatch.setattr(_search._Search, "attempt", noted)
    probe, threat = tiny_probe(6), Threat(norm="linf")
    found = tiny.similarity(probe.images, probe.references)  # type: ignore[arg-type]
    oracle = Oracle(
        tiny,
        probe,
        threat,
        goal=Goal.IMPERSONATE,
        threshold=float(found.max() + 0.02),
        quantise=True,
        device="cpu",
    )
    for attack in ("smallest:square(steps=150)", "smallest:bim"):
        tried.clear()
        result = make_attack(attack)(oracle, probe, threat)
        assert result.won_8bit.all() and len(tried) == len(set(tried))
