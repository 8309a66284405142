"""What every attack that asks does before a verifier that is not what the papers assume.

It tightens or loosens in mid-run, changes its mind, answers NaN, cannot be beaten, or holds few
pictures at a time. Whatever happens, an attack ends, keeps to its cap and to the pixels, and claims
only what the verifier grants the final picture.
"""

from __future__ import annotations

import sys
import zlib
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
import torch
from numpy.typing import NDArray

sys.path.insert(0, str(Path(__file__).parents[1] / "unit" / "attacks"))

from attack_games import small, tiny_model, tiny_probe, tiny_threshold

from onnxfr.attacks import ATTACKS, Attack, AttackResult
from onnxfr.errors import NonFiniteAnswer
from onnxfr.models.comparer import Comparer
from onnxfr.models.wrapper import FRModel, OnnxModel
from onnxfr.oracle import Oracle
from onnxfr.probe import round8
from onnxfr.threat import Threat
from onnxfr.types import Access, Embeddings, Goal, Images, Norm

CAP, ROWS, EPS = 100, 3, 0.06
TURN = 40
"""After how many questions a verifier becomes another."""
ASKING = [name for name, kind in ATTACKS.items() if kind.access < Access.GRADIENT]
CASES = [(name, goal) for name in ASKING for goal in Goal]

Margins = NDArray[np.float32]
Mood = Callable[[Margins, int], Margins]
"""``(how far the pictures are from an attacker's win, questions so far) -> what is said``."""


def harder(wins: Margins, asked: int) -> Margins:
    return wins - np.float32(0.15 if asked > TURN else 0.0)


def impossible(wins: Margins, asked: int) -> Margins:
    return wins - np.float32(5.0 if asked > TURN else 0.0)


def easier(wins: Margins, asked: int) -> Margins:
    return wins + np.float32(0.03 if asked > TURN else 0.0)


def trivial(wins: Margins, asked: int) -> Margins:
    return wins + np.float32(5.0 if asked > TURN else 0.0)


def falls_silent(wins: Margins, asked: int) -> Margins:
    return wins * np.float32(np.nan if asked > TURN else 1.0)


MOODS: tuple[Mood, ...] = (harder, impossible, easier, trivial, falls_silent)


class Unsteady(Comparer):
    """The tiny network behind a threshold of its own and a mood; remembers what it said."""

    access = Access.SCORE

    def __init__(self, inner: FRModel, threshold: float, goal: Goal, mood: Mood) -> None:
        self.inner, self.card, self.mood = inner, inner.card, mood
        self.threshold, self.sign = threshold, np.float32(-1 if goal is Goal.DODGE else 1)
        self.asked = 0
        self.said: dict[bytes, list[float]] = {}

    def compare(self, images: Images, references: Images) -> Margins:
        self.asked += len(images)
        wins = self.sign * (self.inner.similarity(images, references) - self.threshold)
        told = self.mood(wins, self.asked)
        for image, margin in zip(images, told, strict=True):
            self.said.setdefault(image.tobytes(), []).append(float(margin))
        return self.sign * told


@pytest.fixture(scope="session")
def model(tmp_path_factory: pytest.TempPathFactory) -> OnnxModel:
    return tiny_model(tmp_path_factory.getbasetemp())


@pytest.fixture(autouse=True)
def one_thread() -> None:
    torch.set_num_threads(1)


def rules(attack: Attack, norm: Norm) -> Threat:
    return Threat(norm=norm, eps=EPS if attack.seeks == "any" else None, max_queries=CAP)


def play(
    model: OnnxModel, name: str, goal: Goal, norm: Norm, mood: Mood
) -> tuple[Unsteady, AttackResult]:
    """Attack the verifier and check what holds whatever its mood."""
    probe, attack = tiny_probe(ROWS), ATTACKS.get(name)()
    threat = rules(attack, norm)
    verifier = Unsteady(model, tiny_threshold(model, probe, goal), goal, mood)
    oracle = Oracle(verifier, probe, threat, goal=goal, device="cpu")
    result = attack(oracle, probe, threat, seed=1)
    assert (result.queries <= CAP).all()
    assert np.isfinite(result.images).all() and np.isfinite(result.distance).all()
    assert result.images.min() >= 0 and result.images.max() <= 1
    assert threat.eps is None or (result.distance <= EPS + 1e-6).all()
    # The judge looks last; a verifier that takes files sees nothing but the rounded picture.
    looks = [verifier.said[round8(image).tobytes()][-1] for image in result.images]
    granted = np.array(looks) > 0
    assert (result.won == granted & ~result.won_clean).all()
    assert (result.won_8bit == result.won).all()
    return verifier, result


def norms_of(name: str) -> tuple[Norm, ...]:
    return ATTACKS.get(name)().norms


@pytest.mark.parametrize("mood", MOODS)
@pytest.mark.parametrize(("name", "goal"), CASES)
def test_a_verifier_that_becomes_another_in_mid_run(
    model: OnnxModel, name: str, goal: Goal, mood: Mood
) -> None:
    for norm in norms_of(name):
        _, result = play(model, name, goal, norm, mood)
        # An attack that was over before keeps what it had won.
        if result.queries.sum() > TURN and mood in (impossible, falls_silent):
            assert not result.won.any()


@pytest.mark.parametrize(("name", "goal"), CASES)
def test_a_verifier_that_changes_its_mind(model: OnnxModel, name: str, goal: Goal) -> None:
    for norm in norms_of(name):
        dice = np.random.default_rng(3)

        def noisy(wins: Margins, asked: int, dice: np.random.Generator = dice) -> Margins:
            return wins * np.where(dice.random(len(wins)) < 0.2, -1, 1).astype(np.float32)

        play(model, name, goal, norm, noisy)


@pytest.mark.parametrize(("name", "goal"), CASES)
def test_no_start_and_no_verdict_are_lost_games_within_the_cap(
    model: OnnxModel, name: str, goal: Goal
) -> None:
    for norm in norms_of(name):
        for hopeless in (-5.0, np.nan):
            _, result = play(
                model, name, goal, norm, lambda wins, asked, far=hopeless: wins + np.float32(far)
            )
            assert not result.won.any() and not result.won_clean.any() and not result.trace
            assert (result.queries >= 1).all()


class Patchy(FRModel):
    """Has no finite answer for every third picture it has not been told to know."""

    differentiable = True

    def __init__(self, inner: OnnxModel, known: Images) -> None:
        self.inner, self.card = inner, inner.card
        self.known = {each.tobytes() for each in known}
        self.refused, self.largest = 0, 0

    def bad(self, images: Images) -> NDArray[np.bool_]:
        return np.array(
            [
                each.tobytes() not in self.known and zlib.crc32(each.tobytes()) % 3 == 0
                for each in images
            ]
        )

    def embed(self, images: Images) -> Embeddings:
        self.largest = max(self.largest, len(images))
        if self.bad(images).any():
            self.refused += len(images) == 1
            raise NonFiniteAnswer("NaN in some rows")
        return self.inner.embed(images)

    def embed_grad(self, images: torch.Tensor) -> torch.Tensor:
        self.largest = max(self.largest, len(images))
        bad = torch.as_tensor(self.bad(images.detach().cpu().numpy()))
        self.refused += int(bad.sum())
        return self.inner.embed_grad(images) * torch.where(bad, torch.nan, 1.0)[:, None]


# dfanet changes features inside a plain ONNX model, which a wrapper is not.
@pytest.mark.parametrize("name", [name for name in ATTACKS.names() if name != "dfanet"])
def test_nan_for_some_pictures_and_room_for_few_at_a_time(model: OnnxModel, name: str) -> None:
    probe, attack, goal = tiny_probe(5), small(name), Goal.IMPERSONATE
    assert probe.references is not None
    threat = rules(attack, attack.norms[0])
    patchy = Patchy(model, np.concatenate([probe.images, probe.references]))
    threshold = tiny_threshold(model, probe, goal)
    oracle = Oracle(patchy, probe, threat, goal=goal, threshold=threshold, batch_size=2)
    result = attack(oracle, probe, threat, seed=1)
    assert np.isfinite(result.images).all() and (result.queries <= CAP).all()
    assert patchy.refused and patchy.largest <= 2
    assert attack.access == Access.GRADIENT or oracle.refusals.any()
    assert not (result.won & patchy.bad(result.images)).any()
    sure = result.won & ~patchy.bad(result.images)
    judge = Oracle(model, probe, threat, goal=goal, threshold=threshold)
    assert (judge.verify(result.images)[sure] > 0).all()
