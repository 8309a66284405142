"""Yes-or-no attacks: starts, geometry, plans, and verifiers that misbehave."""

from __future__ import annotations

import dataclasses
from collections import Counter

import numpy as np
import pytest
import torch
from attack_games import tiny_game, tiny_probe, tiny_threshold
from decision_games import SHAPE, answered, flat_game

from onnxfr.attacks import ATTACKS, make_attack
from onnxfr.attacks._walks import Walk
from onnxfr.attacks.decision._base import (
    DecisionAttack,
    Game,
    candidates,
    find_start,
)
from onnxfr.attacks.decision.low_query import LowQuery
from onnxfr.errors import AttackError
from onnxfr.models.wrapper import FRModel, OnnxModel
from onnxfr.oracle import Oracle
from onnxfr.probe import round8
from onnxfr.rng import RowRng
from onnxfr.threat import Threat
from onnxfr.types import Access, Embeddings, Goal, Images, Norm

NAMES = [name for name, kind in ATTACKS.items() if issubclass(kind, DecisionAttack)]


def norm_of(name: str) -> Norm:
    return ATTACKS.get(name)().norms[0]


class Moody(FRModel):
    """Answers as its model does for so many pictures, then NaN; or with noise all the time."""

    def __init__(self, inner: FRModel, sane: int, noise: float = 0.0) -> None:
        self.inner, self.sane, self.noise, self.card = inner, sane, noise, inner.card
        self._random = np.random.default_rng(3)

    @property
    def differentiable(self) -> bool:
        return False

    def embed(self, images: Images) -> Embeddings:
        found = self.inner.embed(images)
        self.sane -= len(images)
        if self.noise:
            found = found + self.noise * self._random.standard_normal(found.shape)
        if self.sane < 0:
            found = found * np.float32("nan")
        return found.astype(np.float32)

    def embed_grad(self, images: torch.Tensor) -> torch.Tensor:
        raise NotImplementedError


def test_starts_are_tried_in_their_order() -> None:
    pool = np.stack([np.full(SHAPE, value, np.float32) for value in (0.9, 0.6, 0.0)])
    start, reference = np.full(SHAPE, 0.51, np.float32), np.full(SHAPE, 0.2, np.float32)
    game = flat_game(start=start, reference=reference, pool=pool)
    asked: list[float] = []

    def rule(picture: np.ndarray) -> bool:
        asked.append(round(float(picture.mean()), 2))
        return len(asked) == 6

    found, count = answered(find_start(game), rule)
    assert asked[:5] == [0.51, 0.2, 0.6, 0.9, 0.0] and count == 6
    assert isinstance(found, np.ndarray) and found.std() > 0.2


def test_a_reference_of_another_size_is_a_start_too() -> None:
    reference = np.full((3, 2 * SHAPE[1], SHAPE[2]), 0.2, np.float32)
    first = next(candidates(flat_game(reference=reference)))
    assert first.shape == SHAPE and first.max() == np.float32(0.2)


def test_faces_of_the_pairs_own_people_and_the_clean_picture_are_never_asked_about() -> None:
    pool = np.stack([np.full(SHAPE, value, np.float32) for value in (0.9, 0.6, 0.5, 0.0)])
    game = flat_game(pool=pool, strangers=np.array([True, False, True, True]))
    tried = [float(face.mean()) for face in candidates(game) if face.std() < 0.01]
    assert tried == pytest.approx([0.9, 0.0])
    album = np.stack(list(LowQuery(queries=30).album(game)))
    assert len(album) == 30 and (np.abs(album - game.clean).max(axis=(1, 2, 3)) > 0).all()


def test_every_row_of_a_probe_has_its_own_strangers(tiny: OnnxModel) -> None:
    offered = []

    class Curious(DecisionAttack):
        def walk(self, game: Game) -> Walk[None]:
            offered.append(list(candidates(game))[1:-8])  # between the reference and the noise
            yield game.clean[None]

    probe = tiny_probe(3)
    assert probe.pool is not None
    strangers = ~np.eye(3, len(probe.pool), dtype=np.bool_)
    probe = dataclasses.replace(probe, strangers=strangers)
    threshold = tiny_threshold(tiny, probe, Goal.IMPERSONATE)
    threat = Threat(norm="l2", max_queries=5)
    oracle = Oracle(
        tiny, probe, threat, goal=Goal.IMPERSONATE, threshold=threshold, access=Access.DECISION
    )
    Curious().run(oracle, probe, threat, RowRng(0, probe.ids))
    for row, faces in enumerate(offered):
        assert len(faces) == len(probe.pool) - 1
        assert not any((face == probe.pool[row]).all() for face in faces)


@pytest.mark.parametrize("name", NAMES)
def test_a_pair_without_a_start_is_not_won_and_pays(tiny: OnnxModel, name: str) -> None:
    probe = tiny_probe(2)
    threat = Threat(norm=norm_of(name), max_queries=500)
    oracle = Oracle(tiny, probe, threat, goal=Goal.IMPERSONATE, threshold=1.5, device="cpu")
    result = make_attack(name)(oracle, probe, threat)
    assert not result.won.any() and np.isinf(result.cost).all()
    assert (result.queries > 0).all() and (result.queries <= 100).all()
    assert (result.images == probe.images).all()


@pytest.mark.parametrize("name", NAMES)
def test_verifiers_that_answer_nan_or_change_their_mind_cost_wins_only(
    tiny: OnnxModel, name: str
) -> None:
    probe = tiny_probe(2)
    threat = Threat(norm=norm_of(name), max_queries=120)
    threshold = tiny_threshold(tiny, probe, Goal.IMPERSONATE)
    for sane, noise in ((0, 0.0), (190, 0.0), (10**6, 0.02)):
        model = Moody(tiny, sane, noise)
        goal = Goal.IMPERSONATE
        oracle = Oracle(model, probe, threat, goal=goal, threshold=threshold, device="cpu")
        result = make_attack(name)(oracle, probe, threat)
        assert np.isfinite(result.images).all() and (result.queries <= 120).all()
        answered_won = np.isfinite(oracle.best_distance)
        assert not (result.won & ~answered_won).any()
        if not noise:
            assert not result.won.any(), "the judge's answers were NaN"
            assert answered_won.all() if sane else not answered_won.any()


@pytest.mark.parametrize("name", NAMES)
def test_works_on_a_verifier_that_takes_files(tiny: OnnxModel, name: str) -> None:
    probe = tiny_probe(3)
    threat = Threat(norm=norm_of(name), max_queries=250)
    oracle = tiny_game(tiny, probe, threat, Goal.IMPERSONATE, quantise=True)
    result = make_attack(name)(oracle, probe, threat)
    assert result.won.all() and result.won_8bit.all()
    assert (round8(result.images) == result.images).all()
    assert probe.references is not None
    assert (result.distance < 0.8 * threat.distance(probe.images, probe.references)).all()


@pytest.mark.parametrize("name", NAMES)
def test_keeps_to_no_region(tiny: OnnxModel, name: str) -> None:
    probe, region = tiny_probe(1), np.ones((1, 16, 16), np.float32)
    threat = Threat(norm=norm_of(name), region=region)
    with pytest.raises(AttackError, match="region"):
        make_attack(name)(tiny_game(tiny, probe, threat, Goal.DODGE), probe, threat)


def test_a_transfer_example_saves_questions(tiny: OnnxModel, tmp_path_factory: object) -> None:
    probe, threat = tiny_probe(4), Threat(norm="l2", max_queries=60)
    goal = Goal.IMPERSONATE
    white = make_attack("fmn", {"steps": 20})
    free = Threat(norm="l2")
    example = white(tiny_game(tiny, probe, free, goal), probe, free)
    assert example.won.all()
    primed = dataclasses.replace(probe, starts=example.images)
    attack = make_attack("hopskipjump")
    cold = attack(tiny_game(tiny, probe, threat, goal), probe, threat)
    warm = attack(tiny_game(tiny, primed, threat, goal), primed, threat)
    assert (warm.distance < cold.distance).all()
    assert (warm.distance <= example.distance + 1e-6).all()


@pytest.mark.parametrize(("name", "most"), [("rays", 0.12), ("sign_flip", 0.05)])
def test_a_verifier_of_files_is_seldom_shown_one_twice(name: str, most: float) -> None:
    """Each is charged: finer than a grey level there is nothing to learn from another one."""
    random = np.random.default_rng(3)
    clean = round8(random.random((3, 28, 28), dtype=np.float32))
    weight = random.standard_normal(clean.shape).astype(np.float32)
    signs = np.where(random.random(clean.shape) < 0.7, 1, -1) * np.sign(weight)
    start = round8(np.clip(clean + np.float32(0.1) * signs, 0, 1).astype(np.float32))
    bar, seen = float(np.vdot(weight, clean) + 0.015 * np.abs(weight).sum()), Counter[bytes]()

    def rule(picture: Images) -> bool:
        file = round8(picture)
        seen[file.tobytes()] += 1
        return bool(np.vdot(weight, file) > bar)

    play = Game(clean, "linf", np.random.default_rng(0), start=start, grain=1 / 255)
    answered(make_attack(name, {"steps": 250}).play(play), rule)  # type: ignore[attr-defined]
    asked = sum(seen.values())
    assert asked > 200 and 1 - len(seen) / asked < most
