"""Score attacks on margins whose best answer is known."""

from __future__ import annotations

import hashlib
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from attack_games import tiny_game, tiny_model, tiny_probe
from numpy.typing import NDArray

from onnxfr.attacks import make_attack
from onnxfr.attacks._walks import CHUNK, Walk
from onnxfr.attacks.score._base import ScoreGame, _watch
from onnxfr.attacks.score.nes import NES
from onnxfr.attacks.score.sign_hunter import SignHunter
from onnxfr.attacks.score.simba import SimBA
from onnxfr.attacks.score.square import Square, _side
from onnxfr.models.wrapper import OnnxModel
from onnxfr.oracle import LOST
from onnxfr.probe import round8
from onnxfr.threat import Threat
from onnxfr.types import Goal

SHAPE = (3, 8, 8)
EPS = 0.05
NAMES = ("bandits", "n_attack", "nes", "sign_hunter", "simba", "spsa", "square", "zoo")


@pytest.fixture(scope="session")
def tiny(tmp_path_factory: pytest.TempPathFactory) -> OnnxModel:
    return tiny_model(tmp_path_factory.getbasetemp())


def game(norm: str = "linf", **settings: object) -> ScoreGame:
    clean = np.full(SHAPE, 0.5, dtype=np.float32)
    rules = Threat(norm=norm, eps=EPS)  # type: ignore[arg-type]
    return ScoreGame(clean, rules, np.random.default_rng(0), **settings)  # type: ignore[arg-type]


def climb(
    walk: Walk[None], margin: Callable[[NDArray[np.float32]], NDArray[np.float64]], questions: int
) -> NDArray[np.float32]:
    """Answer a walk's questions and return the best picture it asked about."""
    best, found = -np.inf, np.zeros(SHAPE, np.float32)
    pictures = next(walk)
    while questions > 0:
        answers = margin(pictures)
        questions -= len(pictures)
        if answers.max() > best:
            best, found = float(answers.max()), pictures[int(answers.argmax())].copy()
        try:
            pictures = walk.send(answers)
        except StopIteration:
            break
    return found


@pytest.mark.parametrize("name", NAMES)
def test_no_attack_gives_up_while_there_are_quoted_numbers_of_questions_left(name: str) -> None:
    asked, hopeless = 0, linear(np.ones(SHAPE, np.float32))

    def margin(pictures: NDArray[np.float32]) -> NDArray[np.float64]:
        nonlocal asked
        asked += len(pictures)
        return hopeless(pictures) - 10.0

    climb(make_attack(name).walk(game(questions=20_000)), margin, 20_000)  # type: ignore[attr-defined]
    assert asked >= 20_000


def linear(slope: NDArray[np.float32]) -> Callable[[NDArray[np.float32]], NDArray[np.float64]]:
    return lambda pictures: np.tensordot(pictures.astype(np.float64) - 0.5, slope, 3) - 100


def test_sign_hunter_finds_every_sign_of_a_linear_margin() -> None:
    slope = np.random.default_rng(1).standard_normal(SHAPE).astype(np.float32)
    found = climb(SignHunter().walk(game()), linear(slope), 4 * slope.size)
    assert np.sign(found - 0.5).tolist() == np.sign(slope).tolist()


@pytest.mark.parametrize("norm", ["linf", "l2"])
@pytest.mark.parametrize("name", NAMES)
def test_climbs_a_linear_margin_most_of_the_way(name: str, norm: str) -> None:
    slope = np.zeros(SHAPE, dtype=np.float32)
    slope[:, 2:6, 2:6] = 1
    play = game(norm)
    attack = make_attack(name, {"share": 1.0} if name == "simba" else {})
    found = climb(attack.walk(play), linear(slope), 1500)  # type: ignore[attr-defined]
    assert play.allows(play.project(found))
    reached = float(np.vdot(play.project(found) - play.clean, slope))
    most = EPS * slope.sum() if norm == "linf" else play.radius * np.sqrt(slope.sum())
    assert reached >= 0.5 * most


@pytest.mark.parametrize("name", NAMES)
def test_pictures_without_a_verdict_cost_little_of_the_way(name: str) -> None:
    slope = np.random.default_rng(2).standard_normal(SHAPE).astype(np.float32) / 1000
    rising = linear(slope)

    def choosy(pictures: NDArray[np.float32]) -> NDArray[np.float64]:
        refused = [hashlib.sha256(each.tobytes()).digest()[0] < 8 for each in pictures]
        return np.where(refused, LOST, rising(pictures) + 99)

    def way(margin: Callable[[NDArray[np.float32]], NDArray[np.float64]]) -> float:
        world = game()
        walk = _watch(make_attack(name).walk(world), world, world.clean.copy())  # type: ignore[attr-defined]
        return float(np.vdot(climb(walk, margin, 3000) - 0.5, slope))

    assert way(choosy) > 0.75 * way(lambda pictures: rising(pictures) + 99)


def test_estimates_point_along_the_slope_and_average_noise_out() -> None:
    slope = np.random.default_rng(2).standard_normal(SHAPE).astype(np.float32)
    cosines = []
    for samples in (40, 4000):
        walk = NES(samples=samples)._estimate(game(), np.full(SHAPE, 0.5, np.float32))
        answers, estimate = next(walk), None
        while estimate is None:
            try:
                answers = walk.send(linear(slope)(answers))
            except StopIteration as end:
                estimate = end.value
        cosines.append(np.vdot(estimate, slope) / np.linalg.norm(estimate) / np.linalg.norm(slope))
    assert cosines[0] > 0.15 and cosines[1] > 0.9


def test_probes_of_a_quantising_verifier_are_visible() -> None:
    asked = next(NES().walk(game(grain=1 / 255)))
    assert (round8(asked) != round8(np.full(SHAPE, 0.5, np.float32))).mean() > 0.5
    finer = next(NES().walk(game()))
    assert np.abs(finer - 0.5).mean() < 2e-3


@pytest.mark.parametrize("basis", ["dct", "pixel"])
def test_steps_before_a_quantising_verifier_survive_rounding_on_large_pictures(basis: str) -> None:
    """Spread over 224 x 224 pixels, the usual wave is less than half a grey level high."""
    clean = np.full((3, 224, 224), 128 / 255, np.float32)
    rules = Threat(norm="l2", eps=EPS)
    play = ScoreGame(clean, rules, np.random.default_rng(0), grain=1 / 255)
    walk = SimBA(basis=basis).walk(play)  # type: ignore[arg-type]
    next(walk)
    for _ in range(6):
        tried = walk.send(np.zeros(1, np.float32))
        assert (round8(tried) != round8(clean)).any()


@pytest.mark.parametrize("norm", ["linf", "l2"])
@pytest.mark.parametrize("masked", [False, True])
def test_a_picture_is_projected_as_the_rules_do(norm: str, masked: bool) -> None:
    random = np.random.default_rng(3)
    clean = random.random(SHAPE, dtype=np.float32)
    region = np.zeros((1, 1, 8, 8), np.float32) if masked else None
    if region is not None:
        region[..., 2:5, :] = 1
    rules = Threat(norm=norm, eps=EPS, region=region)  # type: ignore[arg-type]
    for size in (0.01, 0.1, 1.0):
        far = clean + np.float32(size) * random.standard_normal(SHAPE).astype(np.float32)
        near = ScoreGame(clean, rules, random).project(far)
        np.testing.assert_allclose(near, rules.project(clean[None], far[None])[0], atol=1e-6)


def test_a_square_asks_about_something_new() -> None:
    walk = Square(share=0.02).walk(game())
    old = next(walk)[0].copy()
    for _ in range(40):
        tried = walk.send(np.array([-1.0]))[0]
        assert (tried != old).any()
        np.testing.assert_allclose(np.abs(tried - 0.5), EPS, atol=1e-6)


def test_squares_shrink_over_the_questions_that_are_allowed() -> None:
    sides = [_side(0.8, step, 5000, (112, 112)) for step in (1, 50, 500, 4999)]
    assert sides == sorted(sides, reverse=True) and sides[0] == 100 and sides[-1] <= 5
    assert _side(0.8, 99, 100, (112, 112)) == _side(0.8, 4950, 5000, (112, 112))
    questions = sum(1 for _ in _asked(Square().walk(game(questions=30))))
    assert questions == 30


def _asked(walk: Walk[None]) -> list[NDArray[np.float32]]:
    asked = [next(walk)]
    while True:
        try:
            asked.append(walk.send(np.full(len(asked[-1]), -1.0)))
        except StopIteration:
            return asked


@pytest.mark.parametrize("name", NAMES)
def test_stops_asking_at_the_first_win(tiny: OnnxModel, name: str) -> None:
    probe, threat = tiny_probe(3), Threat(norm="linf", eps=0.2, max_queries=600)
    oracle = tiny_game(tiny, probe, threat, Goal.DODGE)
    result = make_attack(name)(oracle, probe, threat, seed=1)
    assert result.won.any()
    first = {entry.row: entry.queries for entry in reversed(result.trace)}
    for row in np.flatnonzero(result.won):
        assert result.queries[row] - first[int(row)] < CHUNK


def test_a_verifier_without_a_number_to_say_is_not_beaten(tiny: OnnxModel) -> None:
    probe, threat = tiny_probe(2), Threat(norm="linf", eps=0.05, max_queries=50)
    oracle = tiny_game(tiny, probe, threat, Goal.DODGE)
    honest = oracle._margins

    def mute(images: NDArray[np.float32], rows: NDArray[np.intp]) -> NDArray[np.float32]:
        margins = honest(images, rows)
        return np.where(rows == 0, np.float32(np.nan), margins)

    oracle._margins = mute  # type: ignore[method-assign]
    result = make_attack("square")(oracle, probe, threat, seed=1)
    assert not result.won[0] and np.isfinite(result.images).all()


def test_aa_fr_ends_with_square(tiny: OnnxModel) -> None:
    probe, threat = tiny_probe(2), Threat(norm="linf", eps=1e-4, max_queries=300)
    result = make_attack("aa_fr")(tiny_game(tiny, probe, threat, Goal.DODGE), probe, threat)
    assert (result.queries > 0).all() and not result.won.any()


def test_there_are_tests_for_every_score_attack() -> None:
    folder = Path(__file__).parents[3] / "onnxfr" / "attacks" / "score"
    assert sorted(p.stem for p in folder.glob("[a-z]*.py")) == sorted(NAMES)
