"""Every card of the zoo keeps the contract; every model that is installed does what it says."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from onnxfr.exporters.architectures import ARCHITECTURES
from onnxfr.metrics.thresholds import Threshold
from onnxfr.model_zoo import ZooCard, zoo_card, zoo_cards
from onnxfr.model_zoo.obtaining import get, installed_card, is_installed
from onnxfr.models.certificate import read_certificate
from onnxfr.models.gradient_check import gradient_error
from onnxfr.models.wrapper import OnnxModel, load_model, model_folder

ROOT = Path(__file__).parents[2]
ONLY_AS_FILES = {
    "dlib_resnet29",
    "mobilefacenet_192",
    "mobilenet_hse",
    "mobilenet_v1",
    "sface_mobilefacenet",
}
"""Networks that exist as weight files of a framework and are never built from a state dict."""

CI_BUDGET = 150e6
CI_MODELS = ("sface", "w600k_mbf")
ORL_ARCHIVE = 4_653_721

every_card = pytest.mark.parametrize("card", zoo_cards().values(), ids=lambda card: card.name)


@every_card
def test_obtainable_means_pinned(card: ZooCard) -> None:
    if not card.obtainable:
        assert card.carrier is None
        assert card.weights
        return
    assert card.carrier is not None
    for carrier in card.carrier.carriers():
        assert len(carrier.sha256) == 64
        assert carrier.size > 0
        assert carrier.version
        assert not carrier.member.startswith(("/", ".."))


@every_card
def test_licence_and_thresholds_can_be_trusted(card: ZooCard) -> None:
    assert card.licence
    assert card.commercial or card.terms
    if card.licence in ("unknown", "not stated"):
        assert not card.commercial, "nobody may sell what nobody licensed"
    origins = [entry.origin for entry in card.thresholds]
    assert len(set(origins)) == len(origins)
    for entry in card.thresholds:
        assert Threshold(entry.value, entry.origin).origin == entry.origin
    for claim in card.reported:
        assert claim.by != "unknown"


@every_card
def test_architecture_is_known_and_fits(card: ZooCard) -> None:
    if card.exporter != "pytorch":
        assert card.architecture in ARCHITECTURES or card.architecture in ONLY_AS_FILES
        return
    architecture = ARCHITECTURES.get(card.architecture)
    assert architecture.input_size == (card.input_height, card.input_width)
    assert architecture.embedding_dim == card.embedding_dim


@every_card
def test_no_card_names_a_host_or_a_path(card: ZooCard) -> None:
    text = (ROOT / "model_zoo" / "cards" / f"{card.name}.toml").read_text(encoding="utf-8")
    assert "://" not in text
    assert '"/' not in text


def test_there_are_enough_real_models_from_enough_frameworks() -> None:
    real = [card for card in zoo_cards().values() if card.obtainable]
    assert len(real) >= 13
    assert len({card.framework for card in real}) >= 7


def test_distance_thresholds_of_the_table_follow_from_the_cosines() -> None:
    printed = {
        "robfr_facenet": 1.159,
        "robfr_sphereface": 1.301,
        "robfr_cosface": 1.507,
        "robfr_arcface": 1.432,
        "robfr_mobileface": 1.578,
        "robfr_mobilenet": 1.683,
        "robfr_mobilenet_v2": 1.547,
        "robfr_shufflenet_v1": 1.619,
        "robfr_shufflenet_v2": 1.552,
        "robfr_resnet50": 1.618,
        "robfr_softmax_ir": 1.315,
        "robfr_sphereface_ir": 1.277,
        "robfr_am_ir": 1.083,
        "robfr_cosface_ir": 1.552,
        "robfr_arcface_ir": 1.445,
    }
    for name, distance in printed.items():
        cosine = zoo_card(name).thresholds[0]
        assert cosine.origin == "lfw@oracle(RobFR)"
        assert 2 - 2 * cosine.value == pytest.approx(distance, abs=6e-4), name


def test_ci_stays_within_its_download_budget() -> None:
    sizes = [carrier.archive_size for name in CI_MODELS if (carrier := zoo_card(name).carrier)]
    assert sum(sizes) + ORL_ARCHIVE <= CI_BUDGET


def test_the_package_finds_every_card_of_the_tree() -> None:
    assert len(zoo_cards()) == len(list((ROOT / "model_zoo" / "cards").glob("*.toml")))


def check_model(model: OnnxModel) -> None:
    """Unit rows, any batch, both engines alike, the gradient that of the scores."""
    import torch

    height, width = model.card.input_size
    rng = np.random.default_rng(3)
    coarse = torch.from_numpy(rng.random((5, 3, 9, 9), dtype=np.float32))
    shape = (height, width)
    smooth = torch.nn.functional.interpolate(coarse, size=shape, mode="bicubic").clamp(0, 1)
    images = smooth.numpy()
    together = model.embed(images)
    assert together.shape == (5, model.card.embedding_dim)
    assert np.allclose(np.linalg.norm(together, axis=1), 1, atol=1e-4)
    alone = np.concatenate([model.embed(images[k : k + 1]) for k in range(len(images))])
    loose = model.card.precision != "fp32"
    assert np.abs(alone - together).max() < (2e-2 if loose else 1e-4)
    with torch.no_grad():
        rows = model.embed_grad(smooth).numpy()
    assert np.abs(rows - together).max() < (2e-2 if loose else 1e-4)
    if not loose:
        error = gradient_error(model, images[:2])
        assert error is not None and error < 3e-2


@every_card
def test_an_installed_model_does_what_its_card_says(card: ZooCard) -> None:
    if not is_installed(card):
        pytest.skip(f"{card.name} is not in the cache: onnxfr zoo get {card.name}")
    made = installed_card(card)
    assert made is not None, "the model in the cache belongs to another version of the card"
    assert made.thresholds == card.thresholds
    assert read_certificate(model_folder(card.name), made.sha256) is not None
    check_model(load_model(card.name, threads=1))


@pytest.mark.network
@pytest.mark.slow
def test_the_default_model_can_really_be_had() -> None:
    """Into the user's own cache, so that it is downloaded once and not once per test run."""
    made = get("sface")
    assert made.source.sha256 == "0ba9fbfa01b5270c96627c4ef784da859931e02f04419c829e83484087c34e79"
    assert made.licence == "Apache-2.0"
    assert get("sface") == made
    check_model(load_model("sface", threads=1))
