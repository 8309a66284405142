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
from onnxfr.models.comparer import UNASKED, CallsSpent, Comparer
from onnxfr.models.wrapper import FRModel, OnnxModel
from onnxfr.oracle import LOST, SLACK, BudgetExhausted, Oracle
from onnxfr.probe import as_jpeg, round8
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


class Counter(Comparer):
    """Compares by the tiny model; refuses dark pictures and stops after some calls."""

    def __init__(self, inner: OnnxModel, threshold: float, calls: int = 1000) -> None:
        self.inner, self.threshold, self.calls, self.card = inner, threshold, calls, inner.card

    def compare(self, images: Images, references: Images) -> np.ndarray:
        if not self.calls:
            raise CallsSpent
        served = min(self.calls, len(images))
        self.calls -= served
        found = self.inner.similarity(images, references) - self.threshold
        found[images.mean((1, 2, 3)) < 0.05] = np.nan
        told = np.sign(found)
        told[served:] = UNASKED
        return told


@pytest.mark.parametrize("goal", list(Goal))
def test_a_comparer_answers_as_the_model_does_but_with_less(tiny: OnnxModel, goal: Goal) -> None:
    probe = tiny_probe(6)
    assert probe.references is not None
    threshold = float(np.median(tiny.similarity(probe.images, probe.references)))
    plain = Oracle(tiny, probe, Threat(), goal=goal, threshold=threshold, quantise=True)
    asked = Oracle(Counter(tiny, threshold), probe, Threat(), goal=goal)
    assert (asked.decide(probe.images) == plain.decide(probe.images)).all()
    some = np.array([4, 1])
    part = asked.part(some)
    assert (part.verify(probe.images[some]) > 0).tolist() == (
        plain.part(some).verify(probe.images[some]) > 0
    ).tolist()
    assert asked.quantise and not asked.differentiable
    with pytest.raises(AccessDenied, match="SCORE"):
        asked.score(probe.images)
    with pytest.raises(AccessDenied, match="decisions only"):
        Counter(tiny, threshold).embed(probe.images)


@pytest.mark.parametrize("goal", list(Goal))
def test_no_verdict_is_charged_counted_and_never_a_win(tiny: OnnxModel, goal: Goal) -> None:
    probe = tiny_probe(3)
    oracle = Oracle(Counter(tiny, 0.0), probe, Threat(), goal=goal)
    dark = np.zeros_like(probe.images)
    assert not oracle.decide(dark).any()
    assert not (oracle.verify(dark) > 0).any()
    assert oracle.queries.tolist() == [1, 1, 1] and oracle.refusals.tolist() == [1, 1, 1]
    assert np.isinf(oracle.best_distance).all()


def test_calls_that_are_spent_end_the_attack_and_judge_as_lost(tiny: OnnxModel) -> None:
    probe = tiny_probe(3)
    oracle = Oracle(Counter(tiny, -1.0, calls=4), probe, Threat(), goal=Goal.IMPERSONATE)
    assert oracle.decide(probe.images).all()
    assert oracle.decide(probe.images).tolist() == [True, False, False]
    with pytest.raises(BudgetExhausted):
        oracle.decide(probe.images)
    assert (oracle.verify(probe.images) == LOST).all()


@pytest.mark.parametrize("goal", list(Goal))
def test_a_question_without_a_call_is_no_question(tiny: OnnxModel, goal: Goal) -> None:
    probe = tiny_probe(3)
    threshold = -1.0 if goal is Goal.IMPERSONATE else 1.0
    oracle = Oracle(Counter(tiny, threshold, calls=4), probe, Threat(), goal=goal, batch_size=2)
    assert oracle.decide(probe.images).all()
    assert oracle.decide(probe.images).tolist() == [True, False, False]
    assert oracle.queries.tolist() == [2, 1, 1]
    with pytest.raises(BudgetExhausted):
        oracle.decide(probe.images)
    assert oracle.queries.tolist() == [2, 1, 1] and not oracle.refusals.any()
    # Some of the judge's pictures may still be answered; the others are lost, whatever the goal.
    some = Oracle(Counter(tiny, threshold, calls=2), probe, Threat(), goal=goal)
    assert (some.verify(probe.images) > 0).tolist() == [True, True, False]


def test_a_model_that_answers_nan_never_makes_a_win(tiny: OnnxModel) -> None:
    class Broken(FRModel):
        card = tiny.card
        differentiable = False

        def embed(self, images: Images) -> Embeddings:
            return tiny.embed(images) * np.float32("nan")

        def embed_grad(self, images: torch.Tensor) -> torch.Tensor:
            raise NotImplementedError

    probe = tiny_probe(2)
    for goal in Goal:
        oracle = Oracle(Broken(), probe, Threat(), goal=goal, threshold=0.0)
        assert (oracle.score(probe.images) == LOST).all()
        assert oracle.refusals.tolist() == [1, 1]


def test_a_service_that_stores_jpeg_sees_what_a_jpeg_reader_sees(tiny: OnnxModel) -> None:
    probe = tiny_probe(3)
    for quality in (30, 95):
        seen = as_jpeg(probe.images, quality)
        oracle = tiny_game(tiny, probe, Threat(norm="l2"), Goal.DODGE, jpeg=quality)
        plain = tiny_game(tiny, probe, Threat(norm="l2"), Goal.DODGE)
        np.testing.assert_allclose(oracle.score(probe.images), plain.score(seen), atol=1e-6)
        assert (oracle.verify(probe.images) == oracle.score(probe.images)).all()
    coarse, fine = (np.square(as_jpeg(probe.images, q) - probe.images).mean() for q in (30, 95))
    assert coarse > fine


def test_a_win_before_jpeg_is_kept_as_it_was_sent(tiny: OnnxModel) -> None:
    probe = tiny_probe(2)
    oracle = tiny_game(tiny, probe, Threat(norm="l2"), Goal.DODGE, jpeg=90)
    assert probe.pool is not None
    sent = np.repeat(probe.pool[:1], 2, axis=0)
    won = oracle.decide(sent)
    assert won.any()
    assert (oracle.best[won] == round8(sent)[won]).all()
    assert (oracle.verify(oracle.best)[won] > 0).all()
    _, slope = oracle.gradient(oracle.tensor(sent))
    assert slope.abs().sum() > 0


def test_a_jpeg_quality_is_checked(tiny: OnnxModel) -> None:
    with pytest.raises(SpecError, match="quality"):
        tiny_game(tiny, tiny_probe(1), Threat(), Goal.DODGE, jpeg=0)


@pytest.mark.parametrize("batch", [1, 3, 64])
def test_the_trace_names_the_question_that_won_whatever_the_batch(
    tiny: OnnxModel, batch: int
) -> None:
    probe = tiny_probe(2)
    assert probe.references is not None
    threat = Threat(norm="l2")
    shares = np.array([0.2, 1.0, 0.1, 0.999, 0.998], np.float32)[:, None, None, None]
    ways, rows = probe.references - probe.images, np.repeat([0, 1], 5)
    asked = np.concatenate([probe.images[k] + shares * ways[k] for k in range(2)])
    similarity = tiny.similarity(asked, probe.references[rows]).reshape(2, 5)
    threshold = float(similarity[:, 0].max() + similarity[:, 4].min()) / 2
    goal = Goal.IMPERSONATE
    oracle = Oracle(tiny, probe, threat, goal=goal, threshold=threshold, batch_size=batch)
    oracle.decide(asked, rows)
    for row in range(2):
        mine = [entry for entry in oracle.trace if entry.row == row]
        assert [entry.queries for entry in mine] == [2, 4, 5]
        exact = threat.distance(probe.images, probe.references)[row]
        found = [entry.distance for entry in mine]
        np.testing.assert_allclose(found, exact * np.array([1, 0.999, 0.998]), rtol=1e-5)


def test_a_win_a_hair_closer_is_recorded(tiny: OnnxModel) -> None:
    """The quick look before the exact distance must not overlook an improvement."""
    probe = tiny_probe(1)
    assert probe.references is not None
    for norm in ("l2", "linf"):
        oracle = tiny_game(tiny, probe, Threat(norm=norm), Goal.IMPERSONATE)  # type: ignore[arg-type]
        way = probe.references - probe.images
        for share in (1.0, 0.99999, 0.99998):
            oracle.decide(probe.images + np.float32(share) * way)
        assert len(oracle.trace) == 3
