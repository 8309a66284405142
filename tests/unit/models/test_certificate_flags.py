"""Networks whose gradients or answers are unsound: the certificate says so instead of failing."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import numpy as np
import onnx
import pytest
import torch
from onnx import TensorProto, helper, numpy_helper

from onnxfr.models import parity
from onnxfr.models.admission import admit
from onnxfr.models.certificate import Certificate, read_certificate, write_certificate
from onnxfr.models.features import embed_hooked
from onnxfr.models.parity import certify
from onnxfr.models.wrapper import OnnxModel, load_model

Make = Callable[..., onnx.ModelProto]


def admitted(net: onnx.ModelProto, folder: Path, preprocess: str = "rgb,0-1") -> OnnxModel:
    (folder / "vendor.onnx").write_bytes(net.SerializeToString())
    admit(folder / "vendor.onnx", folder / "model", preprocess=preprocess)
    return load_model(folder / "model", threads=1)


def followed_by(net: onnx.ModelProto, *nodes: onnx.NodeProto, **constants: object) -> None:
    """Put nodes that lead from ``raw`` to ``feature`` behind a network."""
    net.graph.node[-1].output[0] = "raw"
    net.graph.node.extend(nodes)
    for name, value in constants.items():
        net.graph.initializer.append(numpy_helper.from_array(np.asarray(value), name))


def levels(certificate: Certificate) -> dict[str, str]:
    return {flag.name: flag.level for flag in certificate.flags}


def test_gradients_that_are_nan_are_red(make_vendor_net: Make, tmp_path: Path) -> None:
    net = make_vendor_net()
    followed_by(
        net,
        helper.make_node("Mul", ["raw", "nothing"], ["still"]),
        helper.make_node("Sqrt", ["still"], ["root"]),
        helper.make_node("Add", ["raw", "root"], ["feature"]),
        nothing=np.float32(0),
    )
    followed = admitted(net, tmp_path)
    certificate = certify(followed)
    assert certificate.status == "red" and levels(certificate)["gradient"] == "red"
    assert certificate.gradient["max_rel_err"] is None


def test_bytes_are_flagged_whatever_the_pictures(make_vendor_net: Make, tmp_path: Path) -> None:
    model = admitted(make_vendor_net(elem_type=TensorProto.UINT8), tmp_path, "rgb,0-255")
    size = model.card.input_size
    files = np.random.default_rng(0).integers(0, 256, (8, 3, *size)) / np.float32(255)
    for images in (None, files.astype(np.float32)):
        certificate = certify(model, images)
        assert levels(certificate)["gradient"] == "yellow"
        assert certificate.status == "yellow"


def test_answers_in_16_bits_accuse_no_gradient(
    make_vendor_net: Make, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    model = admitted(make_vendor_net(elem_type=TensorProto.FLOAT16), tmp_path)
    monkeypatch.setattr(parity, "_GRADIENT_ERROR", 0.0)
    flag = next(flag for flag in certify(model).flags if flag.name == "gradient")
    assert flag.level == "yellow" and "NOT" not in flag.sentence
    assert "too coarse" in flag.sentence


def test_a_network_through_whole_numbers_has_no_gradient(
    make_vendor_net: Make, tmp_path: Path
) -> None:
    net = make_vendor_net(elem_type=TensorProto.UINT8)
    net.graph.node.insert(0, helper.make_node("Cast", ["data"], ["whole"], to=TensorProto.INT32))
    net.graph.node[1].input[0] = "whole"
    model = admitted(net, tmp_path, "rgb,0-255")
    assert not model.differentiable
    assert levels(certify(model))["differentiable"] == "yellow"


def test_answers_that_are_nan_for_some_pictures_get_their_red_flag(
    make_vendor_net: Make, tmp_path: Path
) -> None:
    net = make_vendor_net()
    followed_by(
        net,
        helper.make_node("ReduceMax", ["data"], ["top"], axes=[1, 2, 3], keepdims=0),
        helper.make_node("Sub", ["limit", "top"], ["room"]),
        helper.make_node("Sqrt", ["room"], ["root"]),
        helper.make_node("Mul", ["root", "nothing"], ["zero"]),
        helper.make_node("Unsqueeze", ["zero", "one"], ["column"]),
        helper.make_node("Add", ["raw", "column"], ["feature"]),
        limit=np.float32(1.0),
        nothing=np.float32(0),
        one=np.asarray([1], np.int64),
    )
    model = admitted(net, tmp_path, "rgb,0-1")
    images = np.full((4, 3, *model.card.input_size), 0.5, np.float32)
    images[1, 0, 0, 0] = 1.5
    certificate = certify(model, images)
    assert certificate.status == "red" and levels(certificate)["finite"] == "red"
    assert "8 of 32" in next(f.sentence for f in certificate.flags if f.name == "finite")


def test_a_part_in_double_precision_keeps_its_gradient(
    make_vendor_net: Make, tmp_path: Path
) -> None:
    net = make_vendor_net()
    followed_by(
        net,
        helper.make_node("Cast", ["raw"], ["wide"], to=TensorProto.DOUBLE),
        helper.make_node("MatMul", ["wide", "mix"], ["mixed"]),
        helper.make_node("Cast", ["mixed"], ["feature"], to=TensorProto.FLOAT),
        mix=np.random.default_rng(1).normal(size=(64, 64)),
    )
    model = admitted(net, tmp_path)
    assert certify(model).status == "green"
    x = torch.rand(2, 3, *model.card.input_size, dtype=torch.float64, requires_grad=True)
    model.embed_grad(x).sum().backward()
    assert x.grad is not None and bool(torch.isfinite(x.grad).all())


def test_what_the_converter_refuses_is_no_failure(make_vendor_net: Make, tmp_path: Path) -> None:
    net = make_vendor_net()
    values = numpy_helper.from_array(np.asarray([1.0, 2.0], np.float32), "sparse")
    places = numpy_helper.from_array(np.asarray([3, 5], np.int64), "places")
    followed_by(net, helper.make_node("Add", ["raw", "sparse"], ["feature"]))
    net.graph.sparse_initializer.append(helper.make_sparse_tensor(values, places, [64]))
    model = admitted(net, tmp_path)
    assert not model.differentiable
    assert certify(model).status == "yellow"


def test_hooks_see_one_picture_at_a_time_where_the_network_takes_no_more(
    make_vendor_net: Make, tmp_path: Path
) -> None:
    net = make_vendor_net()
    followed_by(
        net,
        helper.make_node("ReduceMax", ["raw"], ["top"], axes=[0], keepdims=1),
        helper.make_node("Sub", ["top", "ones"], ["feature"]),
        ones=np.ones((1, 64), np.float32),
    )
    model = admitted(net, tmp_path)
    assert model.card.batch == "loop"
    x = torch.rand(3, 3, *model.card.input_size)
    seen: list[slice] = []

    def watch(at: int, value: torch.Tensor, which: slice) -> torch.Tensor:
        seen.append(which)
        return value

    torch.testing.assert_close(embed_hooked(model, x, watch), model.embed_grad(x))
    assert set(map(str, seen)) == {str(slice(k, k + 1)) for k in range(3)}


def test_a_certificate_of_another_file_is_none(make_vendor_net: Make, tmp_path: Path) -> None:
    model = admitted(make_vendor_net(), tmp_path)
    write_certificate(certify(model), model.folder)
    assert read_certificate(model.folder, model.card.sha256) is not None
    assert read_certificate(model.folder, "0" * 64) is None


@pytest.mark.parametrize("level", [0.0, 0.5, 1.0])
def test_a_flat_picture_has_a_gradient_where_pictures_are_whitened(
    make_vendor_net: Make, tmp_path: Path, level: float
) -> None:
    model = admitted(make_vendor_net(), tmp_path, "rgb,whiten")
    x = torch.full((1, 3, *model.card.input_size), level, requires_grad=True)
    model.embed_grad(x)[0, 0].backward()
    assert x.grad is not None and bool(torch.isfinite(x.grad).all())
