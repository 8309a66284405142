"""The geometry of yes-or-no attacks: boundaries, directions, normals, and plans of questions."""

from __future__ import annotations

import dataclasses

import numpy as np
import pytest
from attack_games import tiny_game, tiny_model, tiny_probe
from decision_games import SHAPE, answered, flat_game

from onnxfr.attacks import ATTACKS, make_attack
from onnxfr.attacks.decision._base import (
    Game,
    bisect,
    length,
)
from onnxfr.attacks.decision._circle import Circle
from onnxfr.attacks.decision._directions import (
    Cosine,
    Directions,
    Enlarged,
    Spanned,
    Uniform,
    White,
)
from onnxfr.attacks.decision.geoda import planned
from onnxfr.attacks.decision.hopskipjump import estimate_normal
from onnxfr.attacks.decision.low_query import LowQuery
from onnxfr.attacks.decision.qeba import surrogate_basis
from onnxfr.attacks.decision.tangent import tangent_point
from onnxfr.errors import AttackError, DataError, SpecError
from onnxfr.models.wrapper import OnnxModel
from onnxfr.threat import Threat
from onnxfr.types import Goal, Images, Norm


def half_space(game: Game, gap: float = 1.0) -> tuple[object, np.ndarray]:
    """Return the rule of a flat verifier and its normal."""
    normal = np.random.default_rng(1).standard_normal(SHAPE).astype(np.float32)
    normal /= length(normal)
    return (lambda picture: float(np.vdot(picture - game.clean, normal)) > gap), normal


@pytest.mark.parametrize("near", [0.5, 1 / 8, 1 / 64])
def test_bisection_finds_the_boundary_wherever_it_is(near: float) -> None:
    for place in (0.001, 0.2, 0.49, 0.9, 0.999):
        walk = bisect(lambda share: np.full(SHAPE, share, np.float32), 1e-3, near)
        found, count = answered(walk, lambda picture, place=place: picture[0, 0, 0] >= place)
        assert isinstance(found, float)
        assert place * (1 - 1e-6) <= found <= place * 1.002 and count <= 22


def test_bisection_ends_where_everything_wins_or_nothing_does() -> None:
    picture = np.zeros(SHAPE, np.float32)
    for verdict in (True, False):
        _, count = answered(bisect(lambda _: picture, 1e-4), lambda _, v=verdict: v)
        assert count <= 30


@pytest.mark.parametrize(
    "source",
    [
        White(SHAPE),
        Uniform(SHAPE),
        Enlarged(SHAPE, 6),
        Cosine(SHAPE, 0.25),
        Spanned(np.eye(5, 768, dtype="f4").reshape(5, *SHAPE)),
    ],
    ids=["white", "uniform", "enlarged", "cosine", "spanned"],
)
def test_directions_have_length_one_and_fill_their_space(source: Directions) -> None:
    drawn = source.draw(np.random.default_rng(0), source.dims + 20).reshape(source.dims + 20, -1)
    np.testing.assert_allclose(np.linalg.norm(drawn, axis=1), 1, atol=1e-5)
    if source.dims < 200:
        assert np.linalg.matrix_rank(drawn, tol=1e-3) == source.dims


def test_probes_of_hopskipjump_are_uniform_in_linf_and_gaussian_in_l2() -> None:
    def flatness(name: str, norm: Norm) -> float:
        """Return the fourth moment over the squared second: 1.8 for uniform, 3 for Gaussian."""
        source = ATTACKS.get(name)().directions(flat_game(norm))  # type: ignore[attr-defined]
        drawn = source.draw(np.random.default_rng(0), 40).astype(np.float64)
        return float((drawn**4).mean() / (drawn**2).mean() ** 2)

    assert flatness("hopskipjump", "linf") == pytest.approx(1.8, abs=0.05)
    for name in ("hopskipjump", "tangent", "qeba"):
        assert flatness(name, "l2") > 2.5, name


def test_cosine_waves_are_orthonormal_and_read_back() -> None:
    source = Cosine(SHAPE, 0.5)
    picture = source.draw(np.random.default_rng(0), 1)[0]
    assert abs(length(source.waves(picture)) - 1) < 1e-5


@pytest.mark.parametrize("norm", ["l2", "linf"])
def test_the_normal_is_found_from_answers(norm: Norm) -> None:
    game = flat_game(norm)
    rule, normal = half_space(game)
    point = game.clean + np.float32(1.001) * normal
    walk = estimate_normal(game, White(SHAPE), point, 0.05, 2000)
    found, count = answered(walk, rule)
    assert isinstance(found, np.ndarray) and count == 2000
    assert float(np.vdot(found, normal)) > 0.7
    for verdict, sign in ((True, 1), (False, -1)):
        game = flat_game(norm)
        lopsided, _ = answered(
            estimate_normal(game, White(SHAPE), point, 0.05, 50), lambda _, v=verdict: v
        )
        other, _ = answered(
            estimate_normal(flat_game(norm), White(SHAPE), point, 0.05, 50), lambda _: True
        )
        np.testing.assert_allclose(lopsided, sign * np.asarray(other), atol=1e-6)


@pytest.mark.parametrize("ratio", [1.0, 1.5])
def test_the_tangent_point_touches_the_half_ball(ratio: float) -> None:
    random = np.random.default_rng(0)
    way, normal = (random.standard_normal(SHAPE).astype(np.float32) for _ in range(2))
    normal -= 0.3 * way
    normal /= length(normal)
    radius = 0.4 * length(way)
    touch = tangent_point(way, normal, radius, ratio)
    assert touch is not None
    up = float(np.vdot(touch, normal))
    across = length(touch - np.float32(up) * normal)
    assert abs((up / radius) ** 2 + (across * ratio / radius) ** 2 - 1) < 1e-4
    assert up > 0
    # The line to the clean picture leaves the ellipse at a tangent: its gradient is orthogonal.
    slope = touch * ratio**2 + normal * np.float32(up * (1 - ratio**2))
    ray = way - touch
    assert abs(float(np.vdot(slope, ray))) < 1e-3 * length(slope) * length(ray)
    assert tangent_point(way, normal, 2 * length(way) * ratio, ratio) is None


def test_every_point_of_the_circle_is_closer() -> None:
    game = flat_game()
    point = game.clean + np.float32(0.01) * White(SHAPE).draw(game.random, 1)[0]
    circle = Circle(game, point).bulge(White(SHAPE).draw(game.random, 1)[0])
    np.testing.assert_allclose(circle.at(0.0), point, atol=1e-6)
    np.testing.assert_allclose(circle.at_share(0.0), game.clean, atol=1e-6)
    for angle in (0.2, 0.7, 1.3):
        distance = length(circle.at(angle) - game.clean)
        assert abs(distance - 0.01 * np.cos(angle)) < 1e-5


@pytest.mark.parametrize("total", [1, 37, 300, 1000, 20_000])
def test_geoda_plans_within_the_total(total: int) -> None:
    probes = planned(total, 0.6)
    assert min(probes) >= 1 and probes == sorted(probes)
    if total >= 300:
        assert sum(probes) <= total and probes[0] <= 80
        assert sum(probes) > 0.5 * total


def test_qeba_uses_what_a_surrogate_is_sensitive_to(
    tiny: OnnxModel, tmp_path_factory: pytest.TempPathFactory
) -> None:
    probe, threat = tiny_probe(3), Threat(norm="l2", max_queries=200)
    goal = Goal.IMPERSONATE
    attack = make_attack("qeba", {"space": "surrogate"})
    with pytest.raises(AttackError, match="basis"):
        attack(tiny_game(tiny, probe, threat, goal), probe, threat)
    surrogate = tiny_model(tmp_path_factory.getbasetemp(), 0)
    basis = surrogate_basis(tiny_game(surrogate, probe, Threat(norm="l2"), goal), probe, 12)
    flat = basis.reshape(12, -1)
    np.testing.assert_allclose(flat @ flat.T, np.eye(12), atol=1e-4)
    informed = dataclasses.replace(probe, basis=basis)
    narrow = attack(tiny_game(tiny, informed, threat, goal), informed, threat)
    wide = make_attack("hopskipjump")(tiny_game(tiny, probe, threat, goal), probe, threat)
    assert narrow.won.all() and np.median(narrow.distance) < np.median(wide.distance)
    with pytest.raises(SpecError, match="space"):
        make_attack("qeba", {"space": "wavelet"})
    with pytest.raises(DataError, match="basis"):
        dataclasses.replace(probe, basis=basis[:, :, :8])


def test_the_low_query_album_does_not_depend_on_answers(tiny: OnnxModel) -> None:
    probe, threat = tiny_probe(2), Threat(norm="l2")
    game = Game(probe.images[0], "l2", np.random.default_rng(0), pool=probe.pool)
    for count in (1, 5, 37, 100):
        album = np.stack(list(LowQuery(queries=count).album(game)))
        assert len(album) == count and album.min() >= 0 and album.max() <= 1
    walks = [LowQuery().walk(game) for _ in range(2)]
    asked: list[list[Images]] = [[next(walk)] for walk in walks]
    for walk, said, pages in zip(walks, (False, True), asked, strict=True):
        with pytest.raises(StopIteration):
            while True:
                pages.append(walk.send(np.full(len(pages[-1]), said)))
    assert {len(page) for page in asked[0]} == {16, 4} and sum(map(len, asked[0])) == 100
    np.testing.assert_array_equal(*(np.concatenate(pages) for pages in asked))
    oracle = tiny_game(tiny, probe, threat, Goal.IMPERSONATE)
    result = make_attack("low_query")(oracle, probe, threat)
    assert result.won.all() and (result.queries == 100).all()
    assert probe.references is not None
    assert (result.distance < threat.distance(probe.images, probe.references)).all()
