"""Networks in number types that onnxruntime does not compute in, served in float32 with proof.

onnxruntime has no convolution in float64 or bfloat16 on a processor. torch computes in float64, so
the float32 network is held against the vendor's own; bfloat16 weights are exact in float32.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import onnx
import torch
from onnx import TensorProto, helper

from onnxfr.errors import ModelError, UnsupportedModel
from onnxfr.models.batch import sample_pictures
from onnxfr.models.card import Repair
from onnxfr.models.graph import to_torch
from onnxfr.models.sessions import open_session, run_session, unit_rows
from onnxfr.models.structure import ImageInput
from onnxfr.models.upcast import in_float32

_KINDS = (TensorProto.DOUBLE, TensorProto.BFLOAT16)
_TOLERANCE = 1e-4


def narrowed(
    model: onnx.ModelProto, image: ImageInput
) -> tuple[onnx.ModelProto, ImageInput] | None:
    """Return graph and picture input in float32; None if the graph is in no other type."""
    narrow = in_float32(model, _KINDS)
    kind = TensorProto.FLOAT if image.elem_type in _KINDS else image.elem_type
    return None if narrow is model else (narrow, replace(image, elem_type=kind))


def prove_narrow(
    wide: onnx.ModelProto,
    narrow: onnx.ModelProto,
    image: ImageInput,
    size: tuple[int, int],
    output: str,
) -> Repair:
    """Return how far the float32 graph is from the one it was made of; raise if too far.

    Args:
        wide: the vendor's graph, with the wanted output alone.
        narrow: its float32 reading.
        image: the picture input of ``narrow``.
        size: of the pictures.
        output: name of the embedding.
    """
    said = "the network computes in float64 or bfloat16, which onnxruntime cannot run"
    pictures = sample_pictures(image, size)
    try:
        reference = to_torch(_fed_like(wide, image, size))
    except ModelError as refusal:
        raise UnsupportedModel(
            f"{said}, and its float32 reading cannot be held against it ({refusal}): ask the "
            "vendor for a float32 export"
        ) from None
    session = open_session(narrow)
    worst = 0.0
    for k in range(len(pictures)):
        batch = pictures[k : k + 1].repeat(image.batch or 1, axis=0)
        got = unit_rows(run_session(session, batch, output))
        with torch.no_grad():
            expected = unit_rows(reference(torch.from_numpy(batch)).numpy())
        worst = max(worst, float(np.abs(got - expected).max()))
    if not worst <= _TOLERANCE:
        raise UnsupportedModel(
            f"{said}; in float32 its embeddings differ by {worst:.1e}, more than {_TOLERANCE:.0e}: "
            "ask the vendor for a float32 export"
        )
    detail = "computed in float32: onnxruntime has no kernels for the number type it came in"
    return Repair(name="float32", detail=detail, max_abs=worst)


def _fed_like(wide: onnx.ModelProto, image: ImageInput, size: tuple[int, int]) -> onnx.ModelProto:
    """Let the wide graph take the narrow one's pictures, cast inside."""
    fed = onnx.ModelProto()
    fed.CopyFrom(wide)
    (value,) = (value for value in fed.graph.input if value.name == image.name)
    kind, rank = value.type.tensor_type.elem_type, (image.channels, *size)
    shape = [image.batch or "N", *(rank if image.layout == "nchw" else (*rank[1:], rank[0]))]
    name = f"{image.name}/narrow"
    nodes = [helper.make_node("Cast", [name], [image.name], to=kind), *fed.graph.node]
    del fed.graph.node[:]
    fed.graph.node.extend(nodes)
    fed.graph.input.remove(value)
    fed.graph.input.append(helper.make_tensor_value_info(name, image.elem_type, shape))
    return fed
