"""Each view and filter does to a picture what its paper says."""

from __future__ import annotations

import dataclasses

import numpy as np
import pytest
import torch
from attack_games import SIDE, tiny_probe

from onnxfr.attacks._iterative import View
from onnxfr.attacks.white_box._pictures import cuts
from onnxfr.attacks.white_box.admix import Mixed
from onnxfr.attacks.white_box.bsr import Shuffled
from onnxfr.attacks.white_box.cim import RandomCut
from onnxfr.attacks.white_box.dim import RandomResize
from onnxfr.attacks.white_box.lgc import LandmarkCut
from onnxfr.attacks.white_box.si import Darker
from onnxfr.attacks.white_box.sia import PerBlock
from onnxfr.attacks.white_box.ssm import Reweighted
from onnxfr.attacks.white_box.tim import Smooth
from onnxfr.errors import AttackError
from onnxfr.probe import Probe
from onnxfr.rng import RowRng

VIEWS: list[View] = [
    LandmarkCut(4, 21),
    RandomResize(0.7, 1.0),
    RandomCut(40),
    Darker(3),
    Mixed(3, 2, 0.2),
    Shuffled(2, 3, 24.0),
    PerBlock(2, 3),
    Reweighted(2, 0.5, 0.05),
]


def seen(view: View, probe: Probe, size: int = SIDE, seed: int = 0, copy: int = 1) -> torch.Tensor:
    x = torch.as_tensor(probe.images, dtype=torch.float64).requires_grad_()
    result = view.draw((size, size), probe, RowRng(seed, probe.ids), copy)(x)
    result.sum().backward()
    assert x.grad is not None and torch.isfinite(x.grad).all()
    return result.detach()


@pytest.mark.parametrize("view", VIEWS, ids=lambda v: type(v).__name__)
def test_views_keep_the_shape_change_the_picture_and_belong_to_the_row(view: View) -> None:
    probe = tiny_probe(3)
    whole = seen(view, probe)
    assert whole.shape == probe.images.shape
    assert not torch.equal(whole, torch.as_tensor(probe.images, dtype=torch.float64))
    assert torch.equal(whole, seen(view, probe))
    alone = seen(view, probe.take(np.array([2])))
    torch.testing.assert_close(alone[0], whole[2])
    if not isinstance(view, Darker):
        assert not torch.equal(whole, seen(view, probe, seed=1))


def with_size(probe: Probe, side: int, landmarks: np.ndarray) -> Probe:
    ones = np.ones((len(landmarks), 3, side, side), np.float32)
    ids = tuple(str(k) for k in range(len(landmarks)))
    return Probe(ones, ids, references=ones, landmarks=landmarks.astype(np.float32))


def test_lgc_cuts_seven_by_seven_around_landmarks_inside_the_crop() -> None:
    points = np.array([[[30, 40], [60, 50], [50, 80], [90, 20], [-5, 10], [200, 3]]])
    out = seen(LandmarkCut(4, 7), with_size(tiny_probe(1), 112, points), 112)
    black = out[0, 0] == 0
    assert black.sum() == 4 * 49
    for x, y in points[0, :4]:
        assert black[y - 3 : y + 4, x - 3 : x + 4].all()


def test_lgc_leaves_the_jaw_out() -> None:
    points = np.full((1, 68, 2), 20.0)
    points[:, 17:] = 80.0
    out = seen(LandmarkCut(4, 7), with_size(tiny_probe(1), 112, points), 112)
    assert (out[0, 0, 10:30, 10:30] == 1).all() and out[0, 0, 80, 80] == 0


def test_cim_cuts_one_square_of_ten() -> None:
    probe = with_size(tiny_probe(1), 112, np.zeros((30, 1, 2)))
    area = (seen(RandomCut(10), probe, 112)[:, 0] == 0).sum((1, 2))
    assert area.max() == 100 and area.min() >= 25


def test_dim_puts_a_smaller_picture_on_black() -> None:
    probe = with_size(tiny_probe(1), 100, np.zeros((20, 1, 2)))
    out = seen(RandomResize(0.9, 1.0), probe, 100)[:, 0]
    assert set(out.unique().tolist()) <= {0.0, 1.0}
    sides = out.sum((1, 2)).sqrt()
    assert sides.min() >= 89.5 and sides.max() <= 100 and sides.unique().numel() > 5
    assert torch.equal(
        seen(RandomResize(0.9, 0.0), probe, 100), torch.ones(20, 3, 100, 100).double()
    )


def test_si_and_admix_scale_by_powers_of_two() -> None:
    probe = tiny_probe(2)
    clean = torch.as_tensor(probe.images, dtype=torch.float64)
    torch.testing.assert_close(seen(Darker(5), probe, copy=3), clean / 8)
    same = dataclasses.replace(probe, pool=np.full((1, 3, SIDE, SIDE), 0.5, np.float32))
    torch.testing.assert_close(seen(Mixed(4, 2, 0.2), same, copy=3), (clean + 0.1) / 2)


def test_admix_mixes_in_strangers_only() -> None:
    probe = tiny_probe(2)
    faces = np.stack([np.full((3, SIDE, SIDE), value, np.float32) for value in (0.0, 0.5, 1.0)])
    strangers = np.array([[True, False, False], [False, True, True]])
    mixed = dataclasses.replace(probe, pool=faces, strangers=strangers)
    clean = torch.as_tensor(probe.images, dtype=torch.float64)
    rng = RowRng(0, probe.ids)
    added = [
        (Mixed(1, 1, 0.2).draw((SIDE, SIDE), mixed, rng, 0)(clean) - clean)[:, 0, 0, 0].tolist()
        for _ in range(12)
    ]
    assert {round(first, 6) for first, _ in added} == {0.0}
    assert {round(second, 6) for _, second in added} == {0.1, 0.2}
    nobody = dataclasses.replace(mixed, strangers=np.array([[False] * 3, [True] * 3]))
    with pytest.raises(AttackError, match=f"none for {probe.ids[0]}"):
        seen(Mixed(1, 1, 0.2), nobody)


def test_ssm_without_noise_or_spread_is_the_identity() -> None:
    probe = tiny_probe(2)
    clean = torch.as_tensor(probe.images, dtype=torch.float64)
    torch.testing.assert_close(seen(Reweighted(1, 0.0, 0.0), probe), clean, atol=1e-6, rtol=0)


def test_bsr_without_rotation_moves_pixels_only() -> None:
    probe = tiny_probe(2)
    out = seen(Shuffled(1, 3, 0.0), probe)
    clean = torch.as_tensor(probe.images, dtype=torch.float64)
    torch.testing.assert_close(out.flatten(1).sort()[0], clean.flatten(1).sort()[0])


def test_bsr_shuffles_as_often_in_either_direction() -> None:
    rows, columns = torch.meshgrid(torch.arange(6.0), torch.arange(6.0), indexing="ij")
    picture = torch.stack([rows, columns, rows])[None]
    view, moved = Shuffled(1, 3, 0.0), []
    for draw in np.random.default_rng(0).random((800, 4, 3, 3)):
        draw[1:, 2] = 0.1, 0.2, 0.3  # the blocks of each strip stay in order
        change = (view._one(picture, draw) - picture).abs()[0, :2].amax((1, 2))
        moved.append((change > 0.5).tolist())
    # One order of three strips in six is the one they had, and the direction is a coin's.
    np.testing.assert_allclose(np.mean(moved, axis=0), 5 / 12, atol=0.045)


def test_cuts_are_a_partition_with_no_empty_piece() -> None:
    random = np.random.default_rng(0)
    for _ in range(200):
        pieces = cuts(16, 3, random.random(3).astype(np.float32) + np.float32(1e-6))
        assert sum(pieces) == 16 and min(pieces) >= 1 and len(pieces) == 3


def test_tim_is_the_outer_product_of_normal_densities() -> None:
    point = torch.zeros(1, 3, 15, 15, dtype=torch.float64)
    point[:, :, 7, 7] = 1
    spread = Smooth(7)(point)[0, 0]
    density = np.exp(-(np.linspace(-3, 3, 7) ** 2) / 2)
    kernel = np.outer(density, density) / density.sum() ** 2
    np.testing.assert_allclose(spread[4:11, 4:11], kernel, atol=1e-12)
    assert spread.sum() == pytest.approx(1.0)
