"""Real vendor models, admitted with nothing but data: right preprocessing, green certificate."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from onnxfr.cli.faces import labelled_pairs
from onnxfr.models.admission import Admission, admit
from onnxfr.models.parity import certify
from onnxfr.models.preprocessing_probe import LabelledPairs
from onnxfr.models.wrapper import load_model

EXPECTED = {
    "mobilefacenet_y1_from_mxnet": ("rgb", "0-255"),
    "mobilefacenet_foamliu": ("rgb", "imagenet"),
    "edgeface_xxs_dequant": ("rgb", "0-255"),
    "mobilefacenet_xiaoccer_112x96": ("rgb", "0-255"),
}


@pytest.fixture(scope="module")
def pairs(shared_data: Path) -> LabelledPairs:
    return labelled_pairs(f"lfw:{shared_data / 'lfw_112'}", most=800)


@pytest.mark.parametrize("name", EXPECTED)
def test_real_model_is_admitted_at_the_first_try(
    name: str, shared_data: Path, pairs: LabelledPairs, tmp_path: Path
) -> None:
    admitted = admit(
        shared_data / "models" / "onnx" / f"{name}.onnx", tmp_path / "model", pairs=pairs
    )
    found = admitted.card.preprocessing
    assert (found.color, found.public_scaling) == EXPECTED[name]
    assert admitted.probe is not None and not admitted.probe.ambiguous
    assert admitted.card.batch == "dynamic"
    _assert_green(admitted, pairs)


def _assert_green(admitted: Admission, pairs: LabelledPairs) -> None:
    certificate = certify(load_model(admitted.folder), pairs.images[:32])
    assert certificate.status == "green", certificate.flags
    assert certificate.parity["max_abs"] is not None and certificate.parity["max_abs"] <= 1e-4
    assert certificate.gradient["max_rel_err"] < 1e-2
    assert certificate.batch["max_abs"] <= 1e-5


def test_grey_faces_cannot_tell_the_colour_order(shared_data: Path, pairs: LabelledPairs) -> None:
    grey = pairs.images.mean(axis=1, keepdims=True).repeat(3, axis=1)
    assert LabelledPairs(grey, pairs.left, pairs.right, pairs.same).is_grey()
    assert not pairs.is_grey()


def test_shuffled_labels_are_refused(
    shared_data: Path, pairs: LabelledPairs, tmp_path: Path
) -> None:
    from onnxfr.errors import AmbiguousPreprocessing

    wrong = LabelledPairs(
        pairs.images, pairs.left[:64], np.roll(pairs.right[:64], 7), pairs.same[:64]
    )
    with pytest.raises(AmbiguousPreprocessing, match="AUC"):
        admit(
            shared_data / "models" / "onnx" / "mobilefacenet_y1_from_mxnet.onnx",
            tmp_path / "model",
            pairs=wrong,
        )
    assert not (tmp_path / "model").exists()
