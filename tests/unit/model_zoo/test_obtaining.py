"""From a card to a model in the cache, with a small network as the weights."""

from __future__ import annotations

import os
from pathlib import Path

import numpy as np
import onnx
import pytest
import torch
from onnx import TensorProto, helper

from onnxfr.errors import CardError, DownloadError, LicenceError, ModelError, SpecError, StoreError
from onnxfr.model_zoo import ZooCard, obtaining, zoo_card
from onnxfr.model_zoo.obtaining import (
    check_allowed,
    download,
    get,
    install,
    installed_card,
    is_installed,
    model_place,
)
from onnxfr.models.card import CARD_FILE, CERTIFICATE_FILE, MODEL_FILE, ThresholdEntry, read_card
from onnxfr.models.store import file_digest
from onnxfr.models.wrapper import load_model, model_folder

SIDE, DIM = 16, 64


@pytest.fixture(autouse=True)
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("ONNXFR_CACHE", str(tmp_path / "cache"))
    return tmp_path / "cache"


@pytest.fixture
def weights(tmp_path: Path) -> Path:
    """A vendor's ONNX file: one smooth layer over the whole picture."""
    rng = np.random.default_rng(5)
    matrix = rng.normal(size=(3 * SIDE * SIDE, DIM)).astype(np.float32) / SIDE
    graph = helper.make_graph(
        [
            helper.make_node("Flatten", ["data"], ["flat"]),
            helper.make_node("MatMul", ["flat", "w"], ["product"]),
            helper.make_node("Tanh", ["product"], ["features"]),
        ],
        "tiny",
        [helper.make_tensor_value_info("data", TensorProto.FLOAT, ["N", 3, SIDE, SIDE])],
        [helper.make_tensor_value_info("features", TensorProto.FLOAT, ["N", DIM])],
        [onnx.numpy_helper.from_array(matrix, "w")],
    )
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 13)], ir_version=8)
    path = tmp_path / "tiny.onnx"
    onnx.save_model(model, path)
    return path


def card_for(weights: Path, **changes: object) -> ZooCard:
    fields: dict[str, object] = {
        "name": "tiny",
        "obtainable": True,
        "framework": "test",
        "architecture": "unknown",
        "training_set": "none",
        "loss": "none",
        "input_height": SIDE,
        "input_width": SIDE,
        "embedding_dim": DIM,
        "preprocessing": "rgb,pm1",
        "licence": "Apache-2.0",
        "commercial": True,
        "exporter": "onnx",
        "paper": "none",
        "thresholds": [{"value": 0.3, "origin": "lfw@10fold"}],
        "carrier": {
            "registry": "pypi",
            "package": "onnxfr-has-no-such-package",
            "version": "1.0",
            "archive_size": 1,
            "member": "tiny/tiny.onnx",
            "sha256": file_digest(weights),
            "size": weights.stat().st_size,
        },
    }
    return ZooCard.model_validate(fields | changes)


def test_a_model_given_by_hand_is_admitted_certified_and_answers_to_its_name(weights: Path) -> None:
    card = card_for(weights)
    told: list[str] = []
    made = install(card, download(card, weights), told.append)
    assert told == ["exporting", "certifying"]
    assert is_installed(card)
    assert installed_card(card) == made == load_model("tiny").card
    assert made.licence == "Apache-2.0"
    assert made.source.package == "onnxfr-has-no-such-package 1.0 (pypi)"
    assert made.source.sha256 == file_digest(weights)
    assert made.threshold("lfw@10fold").value == 0.3
    rows = load_model("tiny").embed(np.full((3, 3, SIDE, SIDE), 0.25, np.float32))
    assert np.allclose(np.linalg.norm(rows, axis=1), 1, atol=1e-5)


def test_the_place_is_where_the_wrapper_looks() -> None:
    assert model_place("sface") == model_folder("sface")


def test_facts_that_changed_are_updated_without_making_the_model_again(weights: Path) -> None:
    card = card_for(weights)
    install(card, download(card, weights))
    stamp = (model_place("tiny") / MODEL_FILE).stat().st_mtime_ns
    newer = card.model_copy(
        update={"thresholds": (ThresholdEntry(value=0.4, origin="lfw@10fold"),)}
    )
    found = installed_card(newer)
    assert found is not None
    assert found.threshold().value == 0.4
    assert read_card(model_place("tiny") / CARD_FILE) == found
    assert (model_place("tiny") / MODEL_FILE).stat().st_mtime_ns == stamp


def test_other_preprocessing_damage_or_a_missing_certificate_mean_not_installed(
    weights: Path,
) -> None:
    card = card_for(weights)
    install(card, download(card, weights))
    assert installed_card(card_for(weights, preprocessing="bgr,pm1")) is None
    (model_place("tiny") / CERTIFICATE_FILE).unlink()
    assert installed_card(card) is None
    install(card, download(card, weights))
    assert installed_card(card) is not None
    with (model_place("tiny") / MODEL_FILE).open("ab") as opened:
        opened.write(b"x")
    assert installed_card(card) is None


def test_an_interrupted_install_leaves_nothing_and_can_be_repeated(
    weights: Path, cache: Path
) -> None:
    card = card_for(weights)
    files = download(card, weights)

    def interrupt(step: str) -> None:
        if step == "certifying":
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        install(card, files, interrupt)
    assert not model_place("tiny").exists()
    assert not [p for p in (cache / "incoming").iterdir() if p.suffix != ".lock"]
    install(card, files)
    assert is_installed(card)


def test_a_file_of_another_shape_is_refused(weights: Path) -> None:
    card = card_for(weights, embedding_dim=DIM + 1)
    with pytest.raises(CardError, match="is it the right one"):
        install(card, download(card, weights))
    assert not is_installed(card)


def test_altered_weights_are_refused(weights: Path, tmp_path: Path) -> None:
    card = card_for(weights)
    forged = tmp_path / "forged.onnx"
    forged.write_bytes(weights.read_bytes()[:-1] + b"!")
    with pytest.raises(DownloadError):
        download(card, forged)


def test_a_restrictive_licence_is_named_and_must_be_accepted(weights: Path) -> None:
    card = card_for(weights, commercial=False, licence="NC-1", terms="Research only.")
    with pytest.raises(LicenceError, match=r"NC-1\. Research only\..*--accept-licence"):
        check_allowed(card, accept_licence=False, from_file=None)
    check_allowed(card, accept_licence=True, from_file=None)


def test_a_missing_exporter_is_named(weights: Path) -> None:
    card = card_for(weights, exporter="abacus")
    with pytest.raises(ModelError, match="exporter 'abacus'"):
        check_allowed(card, accept_licence=False, from_file=None)


def test_weights_that_are_not_on_a_registry_are_asked_for() -> None:
    with pytest.raises(ModelError, match="--from-file"):
        get("robfr_mobileface")
    with pytest.raises(SpecError, match="as a file"):
        get("robfr_mobileface", from_file=Path("no such file"))


@pytest.mark.slow
def test_a_checkpoint_the_user_brings_becomes_a_model_with_the_papers_thresholds(
    tmp_path: Path,
) -> None:
    from onnxfr.exporters.architectures import ARCHITECTURES

    torch.manual_seed(1)
    module = ARCHITECTURES.get("mobilefacenet").build().eval()
    checkpoint = tmp_path / "mine.pth"
    torch.save(module.state_dict(), checkpoint)
    made = get("robfr_mobileface", from_file=checkpoint)
    assert made.threshold("lfw@oracle(RobFR)").value == 0.21117
    assert made.preprocessing.color == "bgr"
    assert made.source.file == "mine.pth"
    images = torch.rand(2, 3, 112, 112, generator=torch.Generator().manual_seed(2))
    with torch.no_grad():
        wanted = module((images.flip(1) * 255 - 127.5) / 128)
    wanted = wanted / wanted.norm(dim=1, keepdim=True)
    got = load_model("robfr_mobileface").embed(images.numpy())
    assert np.abs(got - wanted.numpy()).max() < 1e-5


@pytest.mark.skipif(os.geteuid() == 0, reason="root may write anywhere")
def test_a_read_only_cache_is_a_clear_error(weights: Path, cache: Path) -> None:
    card = card_for(weights)
    files = download(card, weights)
    (cache / "incoming").chmod(0o500)
    try:
        with pytest.raises(StoreError, match="ONNXFR_CACHE"):
            install(card, files)
    finally:
        (cache / "incoming").chmod(0o700)


def test_offline_says_what_to_do_by_hand(weights: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PIP_NO_INDEX", "1")
    monkeypatch.setenv("PIP_FIND_LINKS", "")
    with pytest.raises(DownloadError, match=r"--from-file.*tiny\.onnx"):
        download(card_for(weights))


def test_every_carrier_of_the_zoo_is_unknown_to_an_empty_cache() -> None:
    for name in ("sface", "human_faceres_deep"):
        card = zoo_card(name)
        assert not obtaining.downloaded(card)
        assert not is_installed(card)
