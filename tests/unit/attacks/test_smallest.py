"""Minimum-perturbation attacks: the schedules, the orderings, the geometry they rest on."""

from __future__ import annotations

from dataclasses import replace
from itertools import pairwise

import numpy as np
import pytest
import torch
from attack_games import tiny_game, tiny_probe
from scipy.optimize import linprog

from onnxfr.attacks import Attack, AttackResult, make_attack
from onnxfr.attacks._search import SmallestBudget
from onnxfr.attacks.white_box import aa_fr
from onnxfr.attacks.white_box._boundary import onto_boundary
from onnxfr.attacks.white_box.apgd import checkpoints
from onnxfr.attacks.white_box.bim import BIM
from onnxfr.attacks.white_box.fgsm import FGSM
from onnxfr.errors import SpecError
from onnxfr.models.wrapper import OnnxModel
from onnxfr.oracle import Oracle
from onnxfr.threat import Threat
from onnxfr.types import Goal, Norm

ROWS = 6


def minima(
    model: OnnxModel, how: Attack, norm: Norm, goal: Goal = Goal.DODGE, rows: int = ROWS
) -> AttackResult:
    probe, threat = tiny_probe(rows), Threat(norm=norm)
    return how(tiny_game(model, probe, threat, goal), probe, threat, seed=0)


@pytest.mark.parametrize("goal", list(Goal))
def test_medians_are_ordered_as_in_every_model_of_robfr(tiny: OnnxModel, goal: Goal) -> None:
    chain = {"l2": ("fmn", "smallest:bim", "smallest:fgsm"), "linf": ("fmn", "smallest:bim")}
    for norm, names in chain.items():
        costs = [minima(tiny, make_attack(n), norm, goal).cost for n in names]  # type: ignore[arg-type]
        medians = [float(np.median(cost)) for cost in costs]
        assert np.isfinite(costs[0]).all()
        assert all(a <= b * 1.02 for a, b in pairwise(medians)), medians


def test_cheap_minima_match_cw(tiny: OnnxModel) -> None:
    cw = minima(tiny, make_attack("cw", {"weight": 10.0, "bisections": 2}), "l2", rows=3)
    for name in ("fmn", "ddn", "fab", "brendel_bethge"):
        cheap = minima(tiny, make_attack(name), "l2", rows=3)
        assert np.median(cheap.cost) <= np.median(cw.cost) * 1.05, name
        assert cheap.gradients.mean() < cw.gradients.mean() / 2


def test_our_schedule_finds_robfrs_minima_with_a_third_of_the_gradients(tiny: OnnxModel) -> None:
    for norm in ("linf", "l2"):
        theirs = minima(tiny, SmallestBudget(BIM(), schedule="robfr"), norm)  # type: ignore[arg-type]
        ours = minima(tiny, SmallestBudget(BIM()), norm)  # type: ignore[arg-type]
        assert ours.won.all() and theirs.won.all()
        np.testing.assert_allclose(np.median(ours.cost), np.median(theirs.cost), rtol=0.02)
        assert ours.gradients.mean() <= theirs.gradients.mean() / 3


@pytest.mark.parametrize("name", ["square(steps=200)", "sign_hunter(steps=200)"])
def test_a_score_attack_that_ends_at_its_first_win_is_searched_to_the_end(
    tiny: OnnxModel, name: str
) -> None:
    theirs = minima(tiny, make_attack(f"smallest(schedule=robfr):{name}"), "linf")
    ours = minima(tiny, make_attack(f"smallest:{name}"), "linf")
    assert ours.won.all() and (ours.cost <= 1.25 * theirs.cost).all()
    assert ours.queries.mean() < theirs.queries.mean()


def test_robfrs_schedule_is_the_published_one(tiny: OnnxModel) -> None:
    bim = minima(tiny, SmallestBudget(BIM(), schedule="robfr"), "linf")
    runs = bim.gradients / 20
    assert set(runs.tolist()) <= {float(k) for k in range(11, 17)} and (bim.queries == runs).all()
    fgsm = minima(tiny, SmallestBudget(FGSM(), schedule="robfr"), "linf")
    assert set(fgsm.gradients.tolist()) <= {32, 37}
    finest = 16 / 255 / 32 / 32
    steps = fgsm.cost[fgsm.won] / finest
    np.testing.assert_allclose(steps, np.round(steps), atol=0.05)


@pytest.mark.parametrize("name", ["fgsm", "bim(steps=5)", "mim(steps=5)", "vmi(steps=2)"])
@pytest.mark.parametrize("norm", ["linf", "l2"])
def test_the_gradient_every_budget_starts_from_is_computed_once(
    tiny: OnnxModel, name: str, norm: Norm
) -> None:
    """The searches end where they would if it were computed anew, as for randomised models."""
    probe, threat = tiny_probe(ROWS), Threat(norm=norm)
    attack = make_attack(f"smallest:{name}")
    once, anew = (
        attack(tiny_game(tiny, probe, threat, Goal.DODGE, samples=n), probe, threat, seed=0)
        for n in (1, 2)
    )
    np.testing.assert_allclose(once.cost, anew.cost, rtol=1e-6)
    assert (once.gradients < anew.gradients).all()
    if name == "fgsm":
        assert (once.gradients == 1).all()


def test_a_budget_on_top_is_respected(tiny: OnnxModel) -> None:
    free = minima(tiny, SmallestBudget(BIM()), "linf")
    limit = float(np.median(free.cost))
    probe, threat = tiny_probe(ROWS), Threat(eps=limit)
    capped = SmallestBudget(BIM())(tiny_game(tiny, probe, threat, Goal.DODGE), probe, threat)
    assert (capped.won == (free.cost <= limit * 1.001)).sum() >= ROWS - 1
    assert (capped.distance <= limit + 1e-6).all()


def test_deepfool_on_a_margin_stops_just_beyond_the_boundary(tiny: OnnxModel) -> None:
    result = minima(tiny, make_attack("deepfool"), "l2")
    assert result.won.all() and result.margin.max() < 0.05
    assert result.gradients.max() <= 10


def test_apgd_checkpoints_are_the_published_ones() -> None:
    assert checkpoints(100) == [22, 41, 57, 70, 80, 87, 93, 99]
    assert checkpoints(1) == []


def test_apgd_margin_stops_where_cosine_climbs_on(tiny: OnnxModel) -> None:
    probe, threat = tiny_probe(ROWS), Threat(eps=0.05)
    cosine, margin = (
        make_attack("apgd", {"loss": loss})(
            tiny_game(tiny, probe, threat, Goal.DODGE), probe, threat, seed=0
        )
        for loss in ("cosine", "margin")
    )
    assert (cosine.won == margin.won).all()
    assert cosine.margin.mean() > margin.margin.mean()
    assert margin.gradients[margin.won].max() < cosine.gradients[cosine.won].min()


@pytest.mark.parametrize("eps", [0.01, 0.02, 0.03])
def test_aa_fr_wins_every_pair_that_a_stage_wins_alone(tiny: OnnxModel, eps: float) -> None:
    probe, threat = tiny_probe(ROWS), Threat(eps=eps)
    results = {
        name: make_attack(name)(
            tiny_game(tiny, probe, threat, Goal.IMPERSONATE), probe, threat, seed=0
        )
        for name in (
            "aa_fr",
            "apgd",
            "apgd(loss=margin,random_start=false)",
            "fab",
            "square",
            "bim",
        )
    }
    whole = results.pop("aa_fr")
    for name, alone in results.items():
        assert not (alone.won & ~whole.won).any(), name
    # The first stage draws as APGD does on its own: its wins come after as many gradients.
    first = {entry.row: entry.gradients for entry in reversed(results["apgd"].trace)}
    found = {entry.row: entry.gradients for entry in reversed(whole.trace)}
    assert {row: found[row] for row in first} == first


@pytest.mark.parametrize("norm", ["l2", "linf"])
def test_projection_onto_a_boundary_inside_the_range_is_the_nearest(norm: Norm) -> None:
    random = np.random.default_rng(1)
    shape = (8, 3, 2, 2)
    point, slope = random.random(shape), random.standard_normal(shape)
    anchor = random.random(shape)
    margin = -random.random(8) * 0.8
    threat = Threat(norm=norm)
    found = onto_boundary(*(torch.as_tensor(v) for v in (point, anchor, margin, slope)), threat)
    rest = margin + (slope * (found.numpy() - anchor)).sum((1, 2, 3))
    np.testing.assert_allclose(rest, 0, atol=1e-6)
    assert found.min() >= 0 and found.max() <= 1
    if norm == "linf":
        for k in range(8):
            w, z = slope[k].ravel(), point[k].ravel()
            level = w @ anchor[k].ravel() - margin[k]
            rows = np.block([[np.eye(12), -np.ones((12, 1))], [-np.eye(12), -np.ones((12, 1))]])
            best = linprog(
                [0] * 12 + [1],
                A_ub=rows,
                b_ub=np.concatenate([z, -z]),
                A_eq=[[*w, 0]],
                b_eq=[level],
                bounds=[(0, 1)] * 12 + [(0, None)],
            )
            assert np.abs(found[k].numpy().ravel() - z).max() == pytest.approx(best.fun, abs=1e-5)
    else:
        for _ in range(200):
            other = np.clip(found.numpy() + random.standard_normal(shape) * 0.05, 0, 1)
            gap = margin + (slope * (other - anchor)).sum((1, 2, 3))
            beyond = np.sign(gap) == np.sign(-margin - (slope * (point - anchor)).sum((1, 2, 3)))
            size = ((other - point) ** 2).sum((1, 2, 3))
            least = ((found.numpy() - point) ** 2).sum((1, 2, 3))
            assert (size[beyond] >= least[beyond] - 1e-9).all()


def test_brackets_set_parameters_of_the_search_and_of_its_attack() -> None:
    search = make_attack("smallest(schedule=robfr,rounds=3):bim(steps=7,stop_on_win=true)")
    assert isinstance(search, SmallestBudget)
    assert (search.schedule, search.rounds) == ("robfr", 3)
    inner = search.attack
    assert isinstance(inner, BIM) and (inner.steps, inner.stop_on_win) == (7, True)
    assert make_attack("dim+tim(steps=50)").parameters()["steps"] == 50
    for wrong in ("bim(steps)", "bim(steps=1", "bim(speed=2)", "bim(steps=)"):
        with pytest.raises(SpecError):
            make_attack(wrong)


def test_a_win_with_one_budget_is_none_with_a_smaller_one(
    tiny: OnnxModel, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Attacks that ask who has won would leave all smaller budgets untried."""
    monkeypatch.setattr(aa_fr, "STAGES", aa_fr.STAGES[:2])
    bim, worst = (
        minima(tiny, make_attack(f"smallest(schedule=robfr):{name}"), "linf", rows=2)
        for name in ("bim", "aa_fr")
    )
    assert (worst.cost <= bim.cost * 1.02).all()


def test_rows_restart_at_every_budget_until_they_win(tiny: OnnxModel) -> None:
    once, often = (
        minima(tiny, make_attack(f"smallest(schedule=robfr):pgd(steps=3,restarts={n})"), "linf")
        for n in (1, 4)
    )
    assert np.median(often.cost) <= np.median(once.cost) * 1.02
    # More than one budget was tried again, but none that won at once.
    assert (often.gradients > once.gradients).all()
    assert np.median(often.gradients - once.gradients) > 3 * 3
    assert (often.gradients < 4 * once.gradients).all()


def test_brendel_bethge_finds_starts_far_away(tiny: OnnxModel) -> None:
    probe, threat = tiny_probe(4), Threat(norm="linf")
    oracle = Oracle(tiny, probe, threat, goal=Goal.DODGE, threshold=-0.58, device="cpu")
    assert make_attack("brendel_bethge(steps=5)")(oracle, probe, threat).won.all()


@pytest.mark.parametrize("norm", ["l2", "linf"])
def test_a_reference_that_is_the_same_picture_misleads_no_first_step(
    tiny: OnnxModel, norm: Norm
) -> None:
    probe, threat = tiny_probe(3), Threat(norm=norm)
    probe = replace(probe, references=probe.images.copy())

    def cost(name: str) -> float:
        oracle = Oracle(tiny, probe, threat, goal=Goal.DODGE, threshold=0.99, device="cpu")
        return float(np.median(make_attack(name)(oracle, probe, threat).cost))

    closest = cost("brendel_bethge")
    assert closest < 16 / 255 and cost("fmn") < 1.1 * closest and cost("deepfool") < 3 * closest
