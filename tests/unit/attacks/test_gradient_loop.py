"""The one loop against the formulas its presets are named after, and the grammar of sums."""

from __future__ import annotations

import dataclasses
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from attack_games import SIDE, tiny_game, tiny_probe

from onnxfr.attacks import ATTACKS, make_attack
from onnxfr.attacks._iterative import IterativeGradient
from onnxfr.attacks.composition import Composition
from onnxfr.attacks.white_box.bim import BIM
from onnxfr.attacks.white_box.fgsm import FGSM
from onnxfr.attacks.white_box.mim import MIM
from onnxfr.attacks.white_box.ni import NI
from onnxfr.attacks.white_box.pgd import PGD
from onnxfr.errors import SpecError, UnknownName
from onnxfr.models.wrapper import OnnxModel
from onnxfr.oracle import Oracle
from onnxfr.rng import RowRng
from onnxfr.threat import Threat
from onnxfr.types import Goal, Images, Norm

EPS = 0.05


def attack(model: OnnxModel, how: IterativeGradient, norm: Norm = "linf", rows: int = 3) -> Images:
    probe, threat = tiny_probe(rows), Threat(norm=norm, eps=EPS)
    oracle = tiny_game(model, probe, threat, Goal.DODGE)
    return how(oracle, probe, threat, seed=0).images


def test_fgsm_is_one_signed_step(tiny: OnnxModel) -> None:
    probe = tiny_probe(3)
    oracle = tiny_game(tiny, probe, Threat(eps=EPS), Goal.DODGE)
    clean = oracle.tensor(probe.images)
    _, slope = oracle.gradient(clean)
    expected = (clean + EPS * slope.sign()).clamp(0, 1)
    np.testing.assert_allclose(attack(tiny, FGSM()), expected, atol=1e-6)


def test_fgsm_in_l2_uses_the_whole_normalised_budget(tiny: OnnxModel) -> None:
    moved = Threat(norm="l2").distance(tiny_probe(3).images, attack(tiny, FGSM(), "l2"))
    np.testing.assert_allclose(moved, EPS, rtol=1e-4)


def test_a_look_ahead_goes_no_farther_in_a_small_region(
    tiny: OnnxModel, monkeypatch: pytest.MonkeyPatch
) -> None:
    probe, ahead = tiny_probe(3), {}
    small = np.zeros((1, 1, SIDE, SIDE), np.float32)
    small[..., :4, :4] = 1
    look = Oracle.gradient

    def watched(oracle: Oracle, x: torch.Tensor, *rest: Any, **more: Any) -> Any:
        way = (x - torch.from_numpy(probe.images)).abs().flatten(1)
        asked.append(float((way.sum(1) / (way > 0).sum(1).clamp_min(1)).max()))
        return look(oracle, x, *rest, **more)

    monkeypatch.setattr(Oracle, "gradient", watched)
    for name, region in (("all", None), ("small", small)):
        asked: list[float] = []
        threat = Threat(eps=EPS, region=region)
        NI(steps=10)(tiny_game(tiny, probe, threat, Goal.DODGE), probe, threat, seed=0)
        ahead[name] = max(asked)
    assert ahead["small"] < 2 * ahead["all"]


@pytest.mark.parametrize("norm", ["linf", "l2"])
def test_mim_follows_the_paper_with_the_sum_of_magnitudes(tiny: OnnxModel, norm: Norm) -> None:
    """Dividing by the mean instead of the sum must not change a single pixel."""
    probe, threat, steps = tiny_probe(3), Threat(norm=norm, eps=EPS), 5
    oracle = tiny_game(tiny, probe, threat, Goal.DODGE)
    clean = oracle.tensor(probe.images)
    x, velocity = clean.clone(), torch.zeros_like(clean)
    for _ in range(steps):
        _, slope = oracle.gradient(x)
        velocity = velocity + slope / slope.abs().sum((1, 2, 3), keepdim=True)
        x = threat.project(clean, x + 1.5 * EPS / steps * threat.steepest(velocity))
    np.testing.assert_allclose(attack(tiny, MIM(steps=steps), norm), x, atol=1e-6)


def test_more_steps_climb_higher(tiny: OnnxModel) -> None:
    probe, threat = tiny_probe(6), Threat(eps=EPS)
    margins = [
        how(tiny_game(tiny, probe, threat, Goal.DODGE), probe, threat).margin.mean()
        for how in (FGSM(), BIM())
    ]
    assert margins[1] > margins[0]


def test_restarts_are_for_rows_that_have_not_won(tiny: OnnxModel) -> None:
    probe, threat = tiny_probe(4), Threat(eps=0.02)
    oracle = tiny_game(tiny, probe, threat, Goal.IMPERSONATE)
    result = PGD(steps=5, restarts=3)(oracle, probe, threat, seed=0)
    won_at_once = result.gradients == 5
    assert won_at_once.any() and (~result.won).any()
    assert (result.gradients[~result.won] == 15).all()
    assert result.won[won_at_once].all()


@pytest.mark.parametrize("goal", list(Goal))
@pytest.mark.parametrize("norm", ["linf", "l2"])
def test_restarts_lose_no_win_that_nobody_has_looked_at(
    tiny: OnnxModel, norm: Norm, goal: Goal
) -> None:
    """Wins seen through views, and those of the last step, are on no record when a run ends."""
    probe, threat = tiny_probe(6), Threat(norm=norm, eps=0.02)
    once, thrice = (
        make_attack(f"pgd+dim(steps=5,restarts={runs})")(
            tiny_game(tiny, probe, threat, goal), probe, threat, seed=0
        )
        for runs in (1, 3)
    )
    assert once.won.any() and not (once.won & ~thrice.won).any()
    assert (thrice.gradients[once.won] == 5).all()


def test_stopping_on_a_win_saves_gradients_and_loses_no_win(tiny: OnnxModel) -> None:
    probe, threat = tiny_probe(6), Threat(eps=EPS)
    plain, early = (
        BIM(steps=20, stop_on_win=stop)(
            tiny_game(tiny, probe, threat, Goal.DODGE), probe, threat, seed=0
        )
        for stop in (False, True)
    )
    assert (early.won == plain.won).all()
    assert early.gradients.sum() < plain.gradients.sum()


@pytest.mark.parametrize("norm", ["linf", "l2"])
@pytest.mark.parametrize("goal", list(Goal))
def test_stopping_on_a_win_loses_none_that_an_8_bit_file_keeps(
    tiny: OnnxModel, goal: Goal, norm: Norm
) -> None:
    """Just past the threshold a float picture wins and its file does not: too early to leave."""
    probe, saved = tiny_probe(8), 0
    for eps in (0.004, 0.006, 0.01, 0.02):
        threat = Threat(norm=norm, eps=eps)
        plain, early = (
            PGD(steps=12, step_ratio=1.5, stop_on_win=stop)(
                tiny_game(tiny, probe, threat, goal), probe, threat, seed=0
            )
            for stop in (False, True)
        )
        assert (early.won >= plain.won).all()
        assert (early.won_8bit >= plain.won_8bit).all()
        assert ((early.gradients < 12) <= (early.won_8bit | early.won_clean)).all()
        saved += int(plain.gradients.sum() - early.gradients.sum())
    assert saved > 0


def test_stopping_on_a_win_goes_on_when_files_can_no_longer_be_asked_about(
    tiny: OnnxModel,
) -> None:
    """A row that has spent its questions must not end the others' attack, nor its own."""
    probe, threat = tiny_probe(8), Threat(eps=0.02, max_queries=12)
    attack = BIM(steps=12, step_ratio=1.5, stop_on_win=True)
    oracle = tiny_game(tiny, probe, threat, Goal.DODGE)
    for _ in range(12):
        oracle.decide(probe.images)
    attack.run(oracle, probe, threat, RowRng(0, probe.ids, "stop"))
    assert np.isfinite(oracle.best_distance).any()
    assert (oracle.gradients == 12).all()


def test_stopping_on_a_win_asks_no_files_of_points_that_are_none(tiny: OnnxModel) -> None:
    """Where pictures are rounded anyway, or decoded from another space, the win is a win."""
    probe, threat = tiny_probe(6), Threat(eps=EPS)
    attack = BIM(steps=10, stop_on_win=True)
    rounded = tiny_game(tiny, probe, threat, Goal.DODGE, quantise=True)
    decoded = tiny_game(tiny, probe, threat, Goal.DODGE).through(lambda points, _: points.flip(3))
    for oracle in (rounded, decoded):
        attack.run(oracle, probe, threat, RowRng(0, probe.ids, "stop"))
        assert not oracle.queries.any() and (oracle.gradients < 10).any()


def test_momentum_lookahead_and_neighbours_change_the_path(tiny: OnnxModel) -> None:
    pictures = [
        attack(tiny, how)
        for how in (
            BIM(steps=5),
            MIM(steps=5),
            MIM(steps=5, lookahead=True),
            MIM(steps=5, neighbours=3),
            MIM(steps=5, random_start=True),
        )
    ]
    for k, one in enumerate(pictures):
        assert all(np.abs(one - other).max() > 1e-4 for other in pictures[k + 1 :])


def test_a_sum_joins_its_parts() -> None:
    made = make_attack("lgc+dim+tim", {"steps": 7})
    assert isinstance(made, Composition) and made.label == "lgc+dim+tim"
    assert [type(v).__name__ for v in made.views()] == ["LandmarkCut", "RandomResize"]
    assert len(made.filters()) == 1 and made.momentum == 1.0 and made.steps == 7
    full = make_attack("si+ni+dim+tim")
    assert isinstance(full, Composition) and full.lookahead and full.views()[0].copies == 5
    assert isinstance(make_attack("vmi+ni"), Composition)
    assert make_attack("bim+pgd").parameters()["random_start"] is True


def test_a_sum_is_run_like_any_attack(tiny: OnnxModel) -> None:
    probe, threat = tiny_probe(3), Threat(eps=EPS)
    for text, copies in (("lgc+dim+tim", 1), ("si+ni+dim+tim", 5), ("dfanet+cim", 1)):
        oracle = tiny_game(tiny, probe, threat, Goal.DODGE)
        result = make_attack(text, {"steps": 3})(oracle, probe, threat, seed=0)
        assert (result.gradients == 3 * copies).all()
        assert (result.distance <= EPS + 1e-6).all()
        assert result.margin.mean() > oracle.verify(probe.images).mean()


def test_single_part_sum_is_the_part(tiny: OnnxModel) -> None:
    sum_of_one = dataclasses.replace(Composition(parts=("mim",)), steps=4)
    np.testing.assert_array_equal(attack(tiny, sum_of_one), attack(tiny, MIM(steps=4)))


def test_what_makes_no_sense_is_refused() -> None:
    with pytest.raises(SpecError, match="cannot be part"):
        make_attack("cw+dim")
    with pytest.raises(UnknownName, match="fgsm"):
        make_attack("fgms")
    with pytest.raises(SpecError, match="no parameter"):
        make_attack("bim", {"iterations": 3})
    with pytest.raises(SpecError, match="at least 1"):
        make_attack("bim", {"steps": 0})
    with pytest.raises(SpecError, match="by itself"):
        make_attack("smallest:cw")
    with pytest.raises(SpecError, match="odd"):
        make_attack("tim", {"size": 4})


def test_pairs_lost_when_clean_are_flagged_and_left_alone(tiny: OnnxModel) -> None:
    from onnxfr.oracle import Oracle

    probe, threat = tiny_probe(6), Threat(eps=EPS)
    assert probe.references is not None
    similarity = tiny.similarity(probe.images, probe.references)
    oracle = Oracle(
        tiny, probe, threat, goal=Goal.DODGE, threshold=float(np.median(similarity)), device="cpu"
    )
    result = BIM(steps=3)(oracle, probe, threat, seed=0)
    lost = similarity <= np.median(similarity)
    assert (result.won_clean == lost).all()
    assert not result.won[lost].any() and (result.cost[lost] == 0).all()
    assert (result.images[lost] == probe.images[lost]).all()
    assert (result.gradients[lost] == 0).all() and (result.gradients[~lost] == 3).all()
    assert result.images.shape == (6, 3, SIDE, SIDE)


def test_every_attack_is_in_the_documentation() -> None:
    page = (Path(__file__).parents[3] / "docs" / "attacks.md").read_text(encoding="utf-8")
    for name in ATTACKS.names():
        assert f"| `{name}` |" in page, name
