"""The oracle's books and answers."""

from __future__ import annotations

import dataclasses
import sys
from pathlib import Path

import numpy as np
import pytest
import torch

sys.path.insert(0, str(Path(__file__).parent / "attacks"))

from attack_games import tiny_game, tiny_model, tiny_probe, tiny_threshold

from onnxfr.errors import AccessDenied, DataError, SpecError
from onnxfr.models.wrapper import FRModel, OnnxModel
from onnxfr.oracle import LOST, SLACK, BudgetExhausted, Oracle
from onnxfr.probe import round8
from onnxfr.threat import Threat
from onnxfr.types import Access, Embeddings, Goal, Images


@pytest.fixture(scope="module")
def tiny(tmp_path_factory: pytest.TempPathFactory) -> OnnxModel:
    return tiny_model(tmp_path_factory.getbasetemp())


@pytest.mark.parametrize("goal", list(Goal))
def test_margin_is_positive_exactly_when_the_verifier_errs(tiny: OnnxModel, goal: Goal) -> None:
    probe = tiny_probe(6)
    assert probe.references is not None
    similarity = tiny.similarity(probe.images, probe.references)
    threshold = float(np.median(similarity))
    oracle = Oracle(tiny, probe, Threat(), goal=goal, threshold=threshold, device="cpu")
    accepted = similarity > threshold
    wished = ~accepted if goal is Goal.DODGE else accepted
    margin = oracle.score(probe.images)
    assert ((margin > 0) == wished).all()
    assert (oracle.decide(probe.images) == wished).all()
    sign = -1 if goal is Goal.DODGE else 1
    np.testing.assert_allclose(margin, sign * (similarity - threshold), atol=1e-6)


def test_gradient_is_that_of_the_score_and_its_margin_is_a_little_lower(tiny: OnnxModel) -> None:
    probe = tiny_probe(3)
    oracle = tiny_game(tiny, probe, Threat(), Goal.IMPERSONATE)
    x = oracle.tensor(probe.images)
    margin, slope = oracle.gradient(x)
    np.testing.assert_allclose(margin, oracle.score(probe.images) - SLACK, atol=3e-6)
    direction = slope / slope.flatten(1).norm(dim=1).reshape(-1, 1, 1, 1)
    h = 1e-3
    up, down = oracle.gradient(x + h * direction)[0], oracle.gradient(x - h * direction)[0]
    np.testing.assert_allclose((up - down) / (2 * h), slope.flatten(1).norm(dim=1), rtol=1e-2)


def test_every_picture_asked_is_charged_to_its_row(tiny: OnnxModel) -> None:
    probe = tiny_probe(3)
    oracle = tiny_game(tiny, probe, Threat(), Goal.DODGE)
    rows = np.array([0, 0, 2, 0])
    oracle.score(probe.images[rows], rows)
    oracle.decide(probe.images)
    oracle.gradient(oracle.tensor(probe.images[:1]), np.array([1]))
    assert oracle.queries.tolist() == [4, 1, 2]
    assert oracle.gradients.tolist() == [0, 1, 0]


def test_rows_over_the_cap_answer_lost_uncharged_and_the_end_is_signalled(
    tiny: OnnxModel,
) -> None:
    probe = tiny_probe(2)
    oracle = tiny_game(tiny, probe, Threat(max_queries=3), Goal.DODGE)
    rows = np.array([0, 0, 0, 0, 1])
    margins = oracle.score(probe.images[rows], rows)
    assert margins[3] == LOST and (margins[[0, 1, 2, 4]] > LOST).all()
    assert oracle.queries.tolist() == [3, 1]
    assert oracle.decide(probe.images).tolist() == [False, False]
    assert oracle.queries.tolist() == [3, 2]
    with pytest.raises(BudgetExhausted):
        oracle.decide(probe.images[:1], np.array([0]))
    assert oracle.queries.tolist() == [3, 2]


def test_the_closest_win_within_the_threat_is_kept(tiny: OnnxModel) -> None:
    probe = tiny_probe(2)
    assert probe.references is not None
    for eps, kept in ((None, True), (0.01, False)):
        oracle = tiny_game(tiny, probe, Threat(eps=eps), Goal.IMPERSONATE)
        assert oracle.decide(probe.references).all()
        assert np.isfinite(oracle.best_distance).all() == kept
    closer = (0.05 * probe.images + 0.95 * probe.references).astype(np.float32)
    oracle = tiny_game(tiny, probe, Threat(), Goal.IMPERSONATE)
    oracle.decide(closer)
    oracle.decide(probe.references)
    assert (oracle.best == closer).all()
    trace = oracle.trace
    assert [(t.row, t.queries) for t in trace] == [(0, 1), (1, 1)]
    np.testing.assert_allclose([t.distance for t in trace], oracle.best_distance)


def test_a_part_shares_the_books(tiny: OnnxModel) -> None:
    probe = tiny_probe(4)
    assert probe.references is not None
    whole = tiny_game(tiny, probe, Threat(), Goal.IMPERSONATE)
    part = whole.part(np.array([3, 1])).part(np.array([1]))
    assert len(part) == 1
    assert part.decide(probe.references[[1]]).all()
    assert whole.queries.tolist() == [0, 1, 0, 0]
    assert np.isfinite(whole.best_distance).tolist() == [False, True, False, False]
    assert part.trace[0].row == 0 and whole.trace[0].row == 1
    silent = whole.part(np.array([0]), recording=False)
    silent.decide(probe.references[[0]])
    assert np.isinf(whole.best_distance[0]) and whole.queries[0] == 1


def test_nobody_gets_more_than_the_access(tiny: OnnxModel) -> None:
    probe = tiny_probe(2)
    oracle = tiny_game(tiny, probe, Threat(), Goal.DODGE, access=Access.DECISION)
    oracle.decide(probe.images)
    with pytest.raises(AccessDenied, match="SCORE"):
        oracle.score(probe.images)
    with pytest.raises(AccessDenied, match="GRADIENT"):
        oracle.gradient(oracle.tensor(probe.images))
    assert oracle.part(np.array([0]), access=Access.GRADIENT).access == Access.DECISION


def test_quantising_oracles_see_and_keep_8_bit_pictures(tiny: OnnxModel) -> None:
    probe = tiny_probe(3)
    assert probe.references is not None
    plain = tiny_game(tiny, probe, Threat(), Goal.IMPERSONATE)
    coarse = tiny_game(tiny, probe, Threat(), Goal.IMPERSONATE, quantise=True)
    asked = (0.03 * probe.images + 0.97 * probe.references).astype(np.float32)
    np.testing.assert_array_equal(coarse.score(asked), plain.score(round8(asked)))
    assert (coarse.best == round8(asked)).all()
    _, slope = coarse.gradient(coarse.tensor(asked))
    assert (slope != 0).any()


def test_the_same_game_in_another_space(tiny: OnnxModel) -> None:
    probe = tiny_probe(3)
    oracle = tiny_game(tiny, probe, Threat(), Goal.DODGE)
    clean = oracle.tensor(probe.images)

    def brighter(amount: torch.Tensor, rows: np.ndarray) -> torch.Tensor:
        return (clean[torch.as_tensor(rows)] + amount.to(clean).reshape(-1, 1, 1, 1)).clamp(0, 1)

    inner = oracle.through(brighter)
    amount = torch.tensor([0.0, 0.1, 0.2], dtype=torch.float64)
    expected = oracle.score(brighter(amount, np.arange(3)))
    np.testing.assert_allclose(inner.score(amount), expected, atol=1e-6)
    _, slope = inner.gradient(amount)
    assert slope.shape == (3,)
    assert oracle.queries.tolist() == [2, 2, 2] and oracle.gradients.tolist() == [1, 1, 1]


def test_memory_is_bounded_by_the_batch_size(tiny: OnnxModel) -> None:
    class Counting(FRModel):
        def __init__(self) -> None:
            self.card, self.largest = tiny.card, 0

        @property
        def differentiable(self) -> bool:
            return True

        def embed(self, images: Images) -> Embeddings:
            self.largest = max(self.largest, len(images))
            return tiny.embed(images)

        def embed_grad(self, images: torch.Tensor) -> torch.Tensor:
            self.largest = max(self.largest, len(images))
            return tiny.embed_grad(images)

    model, probe = Counting(), tiny_probe(11)
    oracle = Oracle(
        model, probe, Threat(), goal=Goal.DODGE, threshold=0.0, batch_size=4, device="cpu"
    )
    whole = Oracle(tiny, probe, Threat(), goal=Goal.DODGE, threshold=0.0, device="cpu")
    np.testing.assert_allclose(oracle.score(probe.images), whole.score(probe.images), atol=1e-6)
    a, b = (o.gradient(o.tensor(probe.images))[1] for o in (oracle, whole))
    np.testing.assert_allclose(a, b, atol=1e-6)
    assert model.largest == 4


def test_references_may_be_templates(tiny: OnnxModel) -> None:
    probe = tiny_probe(3)
    assert probe.references is not None
    threshold = tiny_threshold(tiny, probe, Goal.DODGE)
    stored = dataclasses.replace(
        probe, references=None, reference_embeddings=tiny.embed(probe.references)
    )
    a, b = (
        Oracle(tiny, p, Threat(), goal=Goal.DODGE, threshold=threshold).score(p.images)
        for p in (probe, stored)
    )
    np.testing.assert_allclose(a, b, atol=1e-6)


def test_gradients_that_are_not_finite_are_counted_and_harmless(tiny: OnnxModel) -> None:
    probe = tiny_probe(2)
    oracle = tiny_game(tiny, probe, Threat(), Goal.DODGE)

    def broken(x: torch.Tensor, rows: np.ndarray) -> torch.Tensor:
        return x * torch.where(torch.as_tensor(rows) == 0, float("nan"), 1.0).reshape(-1, 1, 1, 1)

    _, slope = oracle.gradient(oracle.tensor(probe.images), view=broken)
    assert torch.isfinite(slope).all()
    assert oracle.bad_gradients.tolist() == [1, 0]


def test_what_cannot_be_asked_is_refused(tiny: OnnxModel) -> None:
    probe = tiny_probe(2)
    oracle = tiny_game(tiny, probe, Threat(), Goal.DODGE)
    with pytest.raises(DataError, match="as many"):
        oracle.decide(probe.images[:1])
    with pytest.raises(SpecError, match="threshold"):
        Oracle(tiny, probe, Threat(), goal=Goal.DODGE)
