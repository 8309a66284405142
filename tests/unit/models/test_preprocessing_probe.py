"""The probe's decisions on networks whose right answer is known by construction."""

from __future__ import annotations

import numpy as np
import pytest
from numpy.typing import NDArray
from onnx import TensorProto
from sklearn.metrics import roc_auc_score

from onnxfr.models.preprocessing import Preprocessing
from onnxfr.models.preprocessing_probe import LabelledPairs, auc, d_prime, probe_preprocessing
from onnxfr.models.structure import ImageInput, StaticHints
from onnxfr.types import Images

IMAGE = ImageInput("x", TensorProto.FLOAT, "nchw", 3, 8, 8, None)


def people(count: int = 240, noise: float = 0.35, grey: bool = False) -> LabelledPairs:
    """Random "faces": a person is a pattern, a picture adds noise, mostly in blue."""
    rng = np.random.default_rng(0)
    blue = np.asarray([0.3, 1.0, 3.0])[:, None, None]
    patterns = rng.random((count, 3, 8, 8)).astype(np.float32)
    first, second = (
        np.clip(patterns + noise * blue * rng.normal(size=patterns.shape), 0, 1).astype(np.float32)
        for _ in range(2)
    )
    images = np.concatenate([first, second])
    if grey:
        images = images.mean(axis=1, keepdims=True).repeat(3, axis=1)
    left = np.arange(count, dtype=np.intp)
    same = np.arange(count) % 2 == 0
    right = count + np.where(same, left, np.roll(left, 3))
    return LabelledPairs(images, left, right.astype(np.intp), same)


class Network:
    """Answers the pattern itself when fed rightly; otherwise a saturated or mixed-up version."""

    def __init__(self, truth: Preprocessing) -> None:
        self.truth = truth
        rng = np.random.default_rng(1)
        self.weights = rng.normal(size=(3, 64, 48)).astype(np.float32)

    def __call__(self, images: Images, candidate: Preprocessing) -> NDArray[np.float32]:
        fed = candidate.apply(images).reshape(len(images), 3, 64)
        right = self.truth.apply(images[:1])
        scale = np.abs(right).mean()
        # Each channel has its own weights and the first counts most, so colour order matters;
        # the squashing is tuned to the right range, so scaling matters.
        squashed = np.tanh((fed - right.mean()) / scale)
        importance = np.asarray([3.0, 1.0, 0.2], np.float32)
        rows = np.einsum("ncp,c,cpd->nd", squashed, importance, self.weights)
        unit: NDArray[np.float32] = rows / np.linalg.norm(rows, axis=1, keepdims=True)
        return unit.astype(np.float32)


def test_grey_pictures_are_ambiguous_about_colour() -> None:
    truth = Preprocessing(color="rgb", scaling="0-255")
    result = probe_preprocessing(
        people(grey=True), Network(truth), IMAGE, StaticHints("0-255", None, ())
    )
    assert result.ambiguous and any("grey" in reason for reason in result.reasons)


def test_grey_pictures_with_a_stated_colour() -> None:
    truth = Preprocessing(color="rgb", scaling="0-255")
    result = probe_preprocessing(
        people(grey=True), Network(truth), IMAGE, StaticHints("0-255", "bgr", ())
    )
    assert result.winner is not None and result.winner.color == "bgr"


def test_noise_for_pictures_is_refused() -> None:
    pairs = people(noise=50.0)
    result = probe_preprocessing(pairs, Network(Preprocessing(scaling="0-1")), IMAGE, StaticHints())
    assert result.ambiguous


def test_byte_inputs_only_try_bytes() -> None:
    byte_input = ImageInput("x", TensorProto.UINT8, "nchw", 3, 8, 8, None)
    result = probe_preprocessing(
        people(), Network(Preprocessing(scaling="0-255")), byte_input, StaticHints()
    )
    assert {row.preprocessing.scaling for row in result.table} == {"0-255"}


def test_equivalent_candidates_are_one_answer() -> None:
    """A network that whitens inside cannot tell affine scalings apart: no ambiguity from that."""

    def embed(images: Images, candidate: Preprocessing) -> NDArray[np.float32]:
        planes = candidate.apply(images).reshape(len(images), 3, -1)
        planes = planes - planes.mean(axis=2, keepdims=True)
        planes = planes / planes.std(axis=2, keepdims=True) * np.float32([[3], [1], [0.2]])
        rows = planes.reshape(len(images), -1)
        unit: NDArray[np.float32] = rows / np.linalg.norm(rows, axis=1, keepdims=True)
        return unit

    result = probe_preprocessing(people(), embed, IMAGE, StaticHints())
    assert result.winner == Preprocessing(color="rgb", scaling="0-255")
    assert {c.scaling for c in result.equivalent} >= {"0-1", "pm1", "pm1-128"}


@pytest.mark.parametrize("seed", range(3))
def test_auc_and_d_prime(seed: int) -> None:
    rng = np.random.default_rng(seed)
    same = rng.random(200) < 0.4
    scores = np.round(rng.normal(size=200) + same, 1).astype(np.float32)
    assert auc(scores, same) == pytest.approx(roc_auc_score(same, scores), abs=1e-9)
    spread = np.sqrt((scores[same].var() + scores[~same].var()) / 2)
    expected = (scores[same].mean() - scores[~same].mean()) / spread
    assert d_prime(scores, same) == pytest.approx(expected, rel=1e-6)
