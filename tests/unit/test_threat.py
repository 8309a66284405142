"""Norms, balls, regions and directions, in NumPy and torch alike."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from onnxfr.budgets import read_eps, write_eps
from onnxfr.errors import SpecError
from onnxfr.threat import Threat
from onnxfr.types import Norm

SHAPE = (3, 3, 4, 5)


def pictures(seed: int) -> np.ndarray:
    return np.random.default_rng(seed).random(SHAPE, dtype=np.float32)


@pytest.mark.parametrize("norm", ["linf", "l2"])
@settings(max_examples=40, deadline=None)
@given(seed=st.integers(0, 1000), eps=st.floats(0.0, 1.0))
def test_projection_lands_in_ball_and_range_and_is_idempotent(
    norm: Norm, seed: int, eps: float
) -> None:
    clean, adv = pictures(seed), pictures(seed + 1) * 3 - 1
    threat = Threat(norm=norm, eps=eps)
    once = threat.project(clean, adv)
    assert once.dtype == np.float32
    assert once.min() >= 0 and once.max() <= 1
    assert (threat.distance(clean, once) <= eps + 1e-6).all()
    np.testing.assert_allclose(threat.project(clean, once), once, atol=1e-6)


def test_distance_is_what_it_says() -> None:
    clean, adv = pictures(0), pictures(1)
    change = (adv - clean).reshape(3, -1)
    linf = Threat(norm="linf").distance(clean, adv)
    l2n = Threat(norm="l2").distance(clean, adv)
    np.testing.assert_allclose(linf, np.abs(change).max(1), rtol=1e-6)
    np.testing.assert_allclose(l2n, np.linalg.norm(change, axis=1) / np.sqrt(60), rtol=1e-6)


@pytest.mark.parametrize("norm", ["linf", "l2"])
def test_steepest_has_size_one_and_no_unit_step_climbs_faster(norm: Norm) -> None:
    gradient = torch.as_tensor(pictures(2) - 0.5)
    threat = Threat(norm=norm)
    best = threat.steepest(gradient)
    np.testing.assert_allclose(threat.distance(torch.zeros_like(best), best), 1.0, rtol=1e-5)
    climb = (best * gradient).flatten(1).sum(1)
    np.testing.assert_allclose(climb, threat.slope(gradient), rtol=1e-6)
    for seed in range(20):
        other = threat.steepest(torch.as_tensor(pictures(seed + 10) - 0.5))
        assert ((other * gradient).flatten(1).sum(1) <= climb + 1e-4).all()


def test_flat_gradients_go_nowhere() -> None:
    for norm in ("linf", "l2"):
        flat = Threat(norm=norm).steepest(torch.zeros(SHAPE))  # type: ignore[arg-type]
        assert torch.equal(flat, torch.zeros(SHAPE))


def test_budgets_per_row_and_taking_rows() -> None:
    clean, adv = np.full(SHAPE, 0.5, np.float32), np.ones(SHAPE, np.float32)
    threat = Threat(eps=np.array([0.1, 0.2, 0.3]))
    moved = threat.distance(clean, threat.project(clean, adv))
    np.testing.assert_allclose(moved, [0.1, 0.2, 0.3], rtol=1e-5)
    some = threat.take(np.array([2, 0]))
    np.testing.assert_allclose(some.eps, [0.3, 0.1])


def test_nothing_moves_outside_the_region() -> None:
    region = np.zeros((1, 4, 5), np.float32)
    region[:, :2] = 1
    clean, adv = pictures(3), pictures(4)
    for norm in ("linf", "l2"):
        threat = Threat(norm=norm, eps=0.3, region=region)  # type: ignore[arg-type]
        moved = threat.project(clean, adv)
        assert (moved[:, :, 2:] == clean[:, :, 2:]).all()
        assert (threat.steepest(torch.as_tensor(adv))[:, :, 2:] == 0).all()


@pytest.mark.parametrize(
    "wrong", [{"norm": "l1"}, {"eps": 8}, {"eps": -0.1}, {"eps": float("nan")}, {"max_queries": 0}]
)
def test_nonsense_is_refused(wrong: dict[str, object]) -> None:
    with pytest.raises(SpecError):
        Threat(**wrong)  # type: ignore[arg-type]


def test_budgets_are_read_as_people_write_them() -> None:
    assert read_eps("8/255") == 8 / 255 == read_eps(8 / 255)
    assert read_eps("0.5") == 0.5
    assert write_eps(read_eps("2.5/255")) == "2.5/255"
    for wrong in ("8", "x/255", "1/0", -0.1):
        with pytest.raises(SpecError, match="8/255"):
            read_eps(wrong)
