"""Verifiers that answer less, refuse, store JPEG or answer NaN, and what the books say of them."""

from __future__ import annotations

import sys
from pathlib import Path

import numpy as np
import pytest
import torch

sys.path.insert(0, str(Path(__file__).parent / "attacks"))

from attack_games import tiny_game, tiny_model, tiny_probe

from onnxfr.errors import AccessDenied, SpecError
from onnxfr.models.comparer import UNASKED, CallsSpent, Comparer
from onnxfr.models.wrapper import FRModel, OnnxModel
from onnxfr.oracle import LOST, BudgetExhausted, Oracle
from onnxfr.probe import as_jpeg, round8
from onnxfr.threat import Threat
from onnxfr.types import Embeddings, Goal, Images


@pytest.fixture(scope="module")
def tiny(tmp_path_factory: pytest.TempPathFactory) -> OnnxModel:
    return tiny_model(tmp_path_factory.getbasetemp())


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
