"""Functions that a file brings along are written out as onnxruntime understands them."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import numpy as np
import onnx
import onnxruntime
import pytest
import torch
from onnx import AttributeProto, helper

from onnxfr.errors import UnreadableModel, UnsafeFile
from onnxfr.models.admission import admit
from onnxfr.models.functions import write_out_functions
from onnxfr.models.graph import to_torch

Make = Callable[..., onnx.ModelProto]
IMPORTS = [helper.make_opsetid("", 13), helper.make_opsetid("local", 1)]


def call_instead(model: onnx.ModelProto, replaced: str, *functions: onnx.FunctionProto) -> None:
    """Call the first of the functions in place of an operator."""
    node = next(node for node in model.graph.node if node.op_type == replaced)
    node.op_type, node.domain = functions[0].name, "local"
    model.functions.extend(functions)
    model.opset_import.append(IMPORTS[1])


def chain(name: str, *calls: str) -> onnx.FunctionProto:
    """A function of one value that calls others one after the other."""
    domains = ["" if call == "Relu" else "local" for call in calls]
    nodes = [
        helper.make_node(call, [f"v{k}"], [f"v{k + 1}"], domain=domain)
        for k, (call, domain) in enumerate(zip(calls, domains, strict=True))
    ]
    return helper.make_function("local", name, ["v0"], [f"v{len(calls)}"], nodes, IMPORTS)


def test_default_values_of_attributes_are_kept(make_vendor_net: Make) -> None:
    inside = helper.make_node("LeakyRelu", ["a"], ["b"])
    inside.attribute.add(name="alpha", ref_attr_name="slope", type=AttributeProto.FLOAT)
    default = helper.make_attribute("slope", 0.5)
    leaky = helper.make_function(
        "local", "Leaky", ["a"], ["b"], [inside], IMPORTS, attribute_protos=[default]
    )
    model = make_vendor_net()
    call_instead(model, "Relu", leaky)
    images = np.random.default_rng(0).normal(size=(2, 3, 32, 24)).astype(np.float32)
    session = onnxruntime.InferenceSession(model.SerializeToString())
    got = to_torch(model)(torch.from_numpy(images)).numpy()
    np.testing.assert_allclose(got, session.run(None, {"data": images})[0], atol=1e-5)


def test_a_batch_baked_into_a_function_is_freed(make_vendor_net: Make, tmp_path: Path) -> None:
    model = make_vendor_net(batch=1)
    inside = [
        helper.make_node("Constant", [], ["to"], value_ints=[1, 16]),
        helper.make_node("Reshape", ["pooled", "to"], ["flat"]),
    ]
    flat = helper.make_function("local", "Flat", ["pooled"], ["flat"], inside, IMPORTS)
    call_instead(model, "Flatten", flat)
    (tmp_path / "vendor.onnx").write_bytes(model.SerializeToString())
    card = admit(tmp_path / "vendor.onnx", tmp_path / "model", preprocess="rgb,0-1").card
    assert card.batch == "dynamic"
    assert [repair.name for repair in card.repairs] == ["functions", "batch-constants"]


@pytest.mark.parametrize(
    ("functions", "said"),
    [
        (
            [*(chain(f"F{k}", *[f"F{k + 1}"] * 2) for k in range(40)), chain("F40", "Relu")],
            "unfold",
        ),
        ([chain("F", "F", "F")], "themselves"),
    ],
    ids=["doubling", "endless"],
)
def test_few_bytes_never_unfold_into_gigabytes(
    functions: list[onnx.FunctionProto], said: str, make_vendor_net: Make
) -> None:
    model = make_vendor_net()
    call_instead(model, "Relu", *functions)
    with pytest.raises(UnsafeFile, match=said):
        write_out_functions(model)


def test_a_call_that_does_not_fit_is_damage(make_vendor_net: Make) -> None:
    model = make_vendor_net()
    call_instead(model, "Relu", chain("F", "Relu"))
    next(node for node in model.graph.node if node.op_type == "F").input.append("data")
    with pytest.raises(UnreadableModel, match="cannot be written out"):
        write_out_functions(model)
