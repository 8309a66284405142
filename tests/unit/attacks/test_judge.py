"""What counts as won: files within the budget, random wins that hold, caps that lose no work."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import ClassVar, Literal

import numpy as np
import pytest
import torch
from attack_games import Coarse, Randomised, tiny_game, tiny_probe, tiny_threshold

from onnxfr.attacks import Attack, AttackResult, make_attack
from onnxfr.evaluators.attacked import Rules, fight
from onnxfr.metrics.thresholds import Threshold
from onnxfr.models.wrapper import OnnxModel
from onnxfr.oracle import Oracle
from onnxfr.probe import Probe, round8
from onnxfr.rng import RowRng
from onnxfr.threat import Threat
from onnxfr.types import Goal, Images, Norm

LEVEL = 1 / 255


def file_probe(rows: int = 6) -> Probe:
    """Return games whose pictures are files: whole grey levels."""
    probe = tiny_probe(rows)
    return Probe(round8(probe.images), probe.ids, references=probe.references)


@pytest.mark.parametrize("levels", [0.6, 1.5, 2.5, 4.0])
@pytest.mark.parametrize("quantise", [False, True])
@pytest.mark.parametrize("norm", ["linf", "l2"])
def test_a_file_that_counts_keeps_the_budget(
    tiny: OnnxModel, levels: float, quantise: bool, norm: Norm
) -> None:
    probe, threat = file_probe(), Threat(norm=norm, eps=levels * LEVEL)
    threshold = tiny_threshold(tiny, probe, Goal.DODGE)
    settings = {"goal": Goal.DODGE, "threshold": threshold, "quantise": quantise}
    oracle = Oracle(tiny, probe, threat, **settings)  # type: ignore[arg-type]
    result = make_attack("bim")(oracle, probe, threat)
    files = threat.as_file(probe.images, result.images)
    whole = np.floor(levels) if norm == "linf" else levels
    assert (threat.distance(probe.images, files) <= whole * LEVEL + 1e-6).all()
    assert ((oracle.verify(files) > 0) == result.won_8bit).all()
    if quantise:
        np.testing.assert_array_equal(files, result.images)
        assert {entry.row for entry in result.trace} >= set(np.flatnonzero(result.won).tolist())


def test_files_need_not_come_from_files(tiny: OnnxModel) -> None:
    """A resized clean picture lies between grey levels; its own rounding is nobody's attack."""
    probe, threat = tiny_probe(6), Threat(norm="linf", eps=8 * LEVEL)
    files = threat.as_file(probe.images, probe.images + np.float32(8 * LEVEL))
    np.testing.assert_allclose(files, round8(np.clip(files, 0, 2)), atol=1e-6)
    assert np.abs(files - round8(probe.images)).max() <= 8 * LEVEL + 1e-6


@pytest.mark.parametrize("name", ["smallest:bim", "fmn"])
def test_lucky_wins_on_a_randomised_model_are_carried_to_where_they_hold(
    tiny: OnnxModel, name: str
) -> None:
    probe = tiny_probe(12)
    dice = Randomised(tiny, 0.01)
    threat = Threat(norm="l2" if name == "fmn" else "linf")
    threshold = Threshold(tiny_threshold(tiny, probe, Goal.DODGE))
    rules = Rules(goal=Goal.DODGE, threat=threat, threshold=threshold, samples=2)
    fought = fight(dice, probe, make_attack(name), rules)
    result, fair = fought.result, ~fought.result.won_clean
    assert fought.randomised and fought.rules.looks > 1
    assert result.won[fair].mean() > 0.8
    plain = fight(tiny, probe, make_attack(name), rules).result
    assert np.median(result.cost[fair]) < 2 * np.median(plain.cost[fair])


@pytest.mark.parametrize("goal", list(Goal))
@pytest.mark.parametrize("name", ["smallest:bim", "fmn", "deepfool", "fab"])
def test_what_gradients_take_for_a_win_is_carried_to_where_the_served_model_agrees(
    tiny: OnnxModel, name: str, goal: Goal
) -> None:
    """A network in 16 bits would else pass for one that the closest attacks do not beat."""
    probe, threat = tiny_probe(12), Threat(norm="linf")
    served = Coarse(tiny)
    plain, coarse = (
        make_attack(name)(tiny_game(model, probe, threat, goal), probe, threat)
        for model in (tiny, served)
    )
    assert plain.won.all() and coarse.won.all()
    assert (coarse.margin > 0).all()
    assert np.median(coarse.cost) < 1.2 * np.median(plain.cost)


@pytest.mark.parametrize("name", ["square", "sign_hunter"])
def test_a_score_attack_on_a_randomised_model_ends_at_a_win_that_holds(
    tiny: OnnxModel, name: str
) -> None:
    """One lucky answer would end it at a picture that the mean of several does not accept."""
    probe, threat = tiny_probe(12), Threat(norm="linf", eps=16 * LEVEL, max_queries=1000)
    threshold = Threshold(tiny_threshold(tiny, probe, Goal.DODGE))
    rules = Rules(goal=Goal.DODGE, threat=threat, threshold=threshold)
    result = fight(Randomised(tiny, 0.005), probe, make_attack(name), rules).result
    ended = ~result.won_clean & (result.queries < 1000)
    assert ended.sum() >= 4 and (result.queries <= 1000).all()
    assert result.won[ended].mean() > 0.7


def test_the_judge_believes_the_mean_of_its_looks(tiny: OnnxModel) -> None:
    """A pair at the threshold wins half of all single looks."""
    probe, threat = tiny_probe(12), Threat()
    once, often = (
        tiny_game(Randomised(tiny, 0.02), probe, threat, Goal.DODGE, looks=looks)
        for looks in (1, 10)
    )
    singly = [once.verify(probe.images) for _ in range(10)]
    assert np.std(singly, axis=0).min() > 0
    np.testing.assert_allclose(often.verify(probe.images), np.mean(singly, axis=0), atol=1e-6)


@pytest.mark.parametrize("name", ["dim(steps=100)", "si(steps=20)"])
def test_a_cap_loses_no_work_done_through_views(tiny: OnnxModel, name: str) -> None:
    probe, threat = tiny_probe(4), Threat(norm="linf", eps=16 * LEVEL, max_queries=60)
    result = make_attack(name)(tiny_game(tiny, probe, threat, Goal.DODGE), probe, threat)
    assert (result.gradients <= 60).all()
    assert (result.distance > 0).all() and result.won.any()


@dataclass(frozen=True)
class Unbounded(Attack):
    """Its author forgot that pixels have a range."""

    name: ClassVar[str] = "unbounded"
    seeks: ClassVar[Literal["any", "smallest"]] = "smallest"

    def run(self, oracle: Oracle, probe: Probe, threat: Threat, rng: RowRng) -> Images:
        x = oracle.tensor(probe.images)
        for _ in range(60):
            margin, slope = oracle.gradient(x)
            x = x + 0.02 * threat.steepest(slope) * (margin <= 0).reshape(-1, 1, 1, 1)
        return x.numpy()


@dataclass(frozen=True)
class InPlace(Attack):
    """Its author took the probe's pictures for his own."""

    name: ClassVar[str] = "in_place"

    def run(self, oracle: Oracle, probe: Probe, threat: Threat, rng: RowRng) -> Images:
        x = probe.images
        for _ in range(5):
            _, slope = oracle.gradient(oracle.tensor(x))
            x += 0.1 * slope.sign().numpy().astype(np.float32)
        return threat.project(probe.images, x)


@pytest.mark.parametrize("norm", ["linf", "l2"])
def test_no_picture_outside_the_pixel_range_wins(tiny: OnnxModel, norm: Norm) -> None:
    probe, threat = tiny_probe(4), Threat(norm=norm)
    probe = replace(probe, images=np.round(probe.images))
    result = Unbounded()(tiny_game(tiny, probe, threat, Goal.DODGE), probe, threat)
    assert result.images.min() >= 0 and result.images.max() <= 1
    assert not result.won.all()


@pytest.mark.parametrize("norm", ["linf", "l2"])
def test_an_attack_that_works_in_place_is_held_to_the_clean_pictures(
    tiny: OnnxModel, norm: Norm
) -> None:
    probe, threat = tiny_probe(4), Threat(norm=norm, eps=8 * LEVEL)
    result = InPlace()(tiny_game(tiny, probe, threat, Goal.DODGE), probe, threat)
    assert result.won.any()
    assert (result.distance <= 8 * LEVEL + 1e-6).all()


@pytest.mark.parametrize("goal", list(Goal))
def test_a_pair_at_its_cap_ends_cw_for_no_other(tiny: OnnxModel, goal: Goal) -> None:
    probe, threat = tiny_probe(6), Threat(norm="l2", max_queries=37)
    attack = make_attack("cw(steps=20)")
    threshold = tiny_threshold(tiny, probe, goal)

    def play(games: Probe) -> AttackResult:
        oracle = Oracle(tiny, games, threat, goal=goal, threshold=threshold, dtype=torch.float64)
        return attack(oracle, games, threat)

    together = play(probe)
    alone = [play(probe.take(np.array([k]))) for k in range(6)]
    assert together.gradients.tolist() == [int(each.gradients[0]) for each in alone]
    np.testing.assert_allclose(together.cost, [each.cost[0] for each in alone], rtol=1e-5)
