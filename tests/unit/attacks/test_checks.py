"""The failure checks: quiet on an honest model, loud on a shattered and on a randomised one."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import torch
from attack_games import Randomised, Shattered, tiny_game, tiny_probe, tiny_threshold

from onnxfr import checks
from onnxfr.models.wrapper import FRModel, OnnxModel
from onnxfr.oracle import Oracle
from onnxfr.threat import Threat
from onnxfr.types import Goal

ROWS = 8


class Hidden(Randomised):
    """Rolls dice that no generator within reach explains."""

    def embed_grad(self, images: torch.Tensor) -> torch.Tensor:
        dice = np.random.default_rng().standard_normal(tuple(images.shape)) * self.noise
        return self.inner.embed_grad(images + torch.as_tensor(dice, dtype=images.dtype))


def flags_of(model: FRModel, honest: OnnxModel, eps: float = 0.1) -> dict[str, checks.Flag]:
    probe = tiny_probe(ROWS)
    threshold = tiny_threshold(honest, probe, Goal.DODGE, gap=0.05)

    def play(threat: Threat) -> Oracle:
        return Oracle(model, probe, threat, goal=Goal.DODGE, threshold=threshold, device="cpu")

    found = checks.examine(play, probe, norm="linf", eps=eps, steps=10)
    return {flag.name: flag for flag in found}


def test_an_honest_model_raises_no_red_flag(tiny: OnnxModel) -> None:
    flags = flags_of(tiny, tiny)
    assert not [f for f in flags.values() if f.light == "red"], flags
    steady = ("unusable_gradients", "changing_answers", "finite_differences")
    for name in (*steady, "loss_curves", "fixed_dice"):
        assert flags[name].light == "green", flags[name]
    assert flags["loss_curves"].value < 0.05 and "no dice" in flags["fixed_dice"].message


def test_a_shattered_gradient_is_caught(tiny: OnnxModel) -> None:
    flags = flags_of(Shattered(tiny), tiny)
    assert flags["unusable_gradients"].light == "red"
    assert flags["unbounded_budget"].light == "red"
    assert flags["loss_curves"].light == "red" and flags["loss_curves"].value == 1.0
    assert flags["changing_answers"].light == "green"
    assert flags["fixed_dice"].light == "green", "there are no dice to blame"


def test_dice_are_caught(tiny: OnnxModel) -> None:
    flags = flags_of(Randomised(tiny), tiny)
    assert flags["changing_answers"].light == "red"
    assert "samples" in flags["changing_answers"].message
    assert flags["fixed_dice"].light == "green" and "held still" in flags["fixed_dice"].message


def test_dice_that_drown_the_steps_show_in_the_curves(tiny: OnnxModel) -> None:
    assert flags_of(tiny, tiny, eps=0.01)["loss_curves"].light == "green"
    assert flags_of(Randomised(tiny), tiny, eps=0.01)["loss_curves"].light == "red"


def test_masked_gradients_behind_dice_are_caught_once_the_dice_are_held(tiny: OnnxModel) -> None:
    flag = flags_of(Randomised(Shattered(tiny)), tiny)["fixed_dice"]
    assert flag.light == "red" and flag.value == 0.0


def test_dice_out_of_reach_are_said_to_be(tiny: OnnxModel) -> None:
    flag = flags_of(Hidden(tiny), tiny)["fixed_dice"]
    assert flag.light == "yellow" and "out of reach" in flag.message


def test_averaging_gradients_helps_against_dice(tiny: OnnxModel) -> None:
    """The mean of many noisy gradients is closer to the honest one than a single noisy one."""
    probe, threat = tiny_probe(4), Threat()
    honest = tiny_game(tiny, probe, threat, Goal.DODGE)
    x = honest.tensor(probe.images)
    expected = honest.gradient(x)[1]

    def error(samples: int) -> float:
        noisy = tiny_game(Randomised(tiny), probe, threat, Goal.DODGE, samples=samples)
        return float((noisy.gradient(x)[1] - expected).norm())

    assert error(32) < 0.6 * error(1)


@pytest.mark.parametrize(
    ("flag", "light"),
    [
        (checks.unbounded_budget(1.0), "green"),
        (checks.unbounded_budget(0.5), "red"),
        (checks.growing_budget([2, 1, 3], [0.5, 0.2, 0.9]), "green"),
        (checks.growing_budget([1, 2, 3], [0.5, 0.2, 0.9]), "red"),
        (checks.order_of_medians({"cw": 0.7, "bim": 0.75, "mim": 0.8, "fgsm": 1.1}), "green"),
        (checks.order_of_medians({"bim": 1.36, "mim": 1.31, "fgsm": 2.46}), "yellow"),
        (checks.order_of_medians({"bim": 2.0, "fgsm": 1.0}), "red"),
        (checks.order_of_medians({"bim": float("inf"), "fgsm": 1.0}), "red"),
        (checks.order_of_medians({"bim": float("inf"), "fgsm": float("inf")}), "green"),
        (checks.more_effort("more_steps", 0.5, 0.505), "green"),
        (checks.more_effort("more_steps", 0.5, 0.7), "red"),
        (checks.black_box_beats_white_box([True, False], [True, False]), "green"),
        (checks.black_box_beats_white_box([True, False], [True, True]), "red"),
        (checks.single_step_beats_iterative([True, False], [False, True]), "red"),
        (checks.harmful_noise(0.0), "green"),
        (checks.harmful_noise(0.4), "red"),
        (checks.unusable_gradients([0, 0], [20, 20]), "green"),
        (checks.unusable_gradients([20, 0], [20, 20]), "red"),
        (checks.rounding_gap([True, True], [True, True]), "green"),
        (checks.rounding_gap([True, True], [True, False]), "red"),
        (checks.finite_differences([1.0, 2.0], [1.01, 1.99]), "green"),
        (checks.finite_differences([0.0, 0.0], [1.0, 1.0]), "red"),
        (checks.changing_answers(np.zeros((3, 4), dtype=np.float32)), "green"),
        (checks.loss_curves([[-2.0, -2.0], [-1.0, -1.0], [1.0, -0.5]], [True, False]), "green"),
        (checks.loss_curves([[-2.0], [-1.0], [-1.2]], [False]), "yellow"),
        (checks.loss_curves([[-2.0], [-2.0], [-2.0]], [False]), "red"),
        (checks.loss_curves([[-2.0], [-1.0], [-2.0]], [False]), "red"),
        (checks.loss_curves([[-2.0] * 9, [1.0] * 9, [0.9] * 9], [False] * 9), "red"),
        (checks.loss_curves(np.zeros((3, 0)), np.zeros(0)), "green"),
        (checks.fixed_dice("none"), "green"),
        (checks.fixed_dice("loose"), "yellow"),
        (checks.fixed_dice("held", 1.0), "green"),
        (checks.fixed_dice("held", 0.5), "red"),
    ],
)
def test_each_light(flag: checks.Flag, light: str) -> None:
    assert flag.light == light, flag


def test_every_flag_has_its_page(tiny: OnnxModel) -> None:
    page = (Path(__file__).parents[3] / "docs" / "checks.md").read_text(encoding="utf-8")
    names = {*flags_of(tiny, tiny), "order_of_medians", "black_box_beats_white_box"}
    for name in names:
        assert f"## {name.replace('_', ' ')}" in page, name
