"""A float32 reading of a half-precision graph, for the differentiable engine.

Gradients through half precision have a cosine of 0.91 to 0.99 with those in float32; an attack
should not suffer from that, so the torch graph computes in float32 with the same weights.
"""

from __future__ import annotations

import numpy as np
import onnx
from onnx import TensorProto, numpy_helper

from onnxfr.models.vendor import all_graphs, all_tensors

_HALF = (TensorProto.FLOAT16, TensorProto.BFLOAT16)


def upcast_half(model: onnx.ModelProto) -> onnx.ModelProto:
    """Return the model with every half-precision constant, cast and declared type in float32."""
    if not any(tensor.data_type in _HALF for tensor in all_tensors(model)):
        return model
    wide = onnx.ModelProto()
    wide.CopyFrom(model)
    for tensor in all_tensors(wide):
        if tensor.data_type in _HALF:
            values = numpy_helper.to_array(tensor).astype(np.float32)
            tensor.CopyFrom(numpy_helper.from_array(values, tensor.name))
    for graph in all_graphs(wide):
        for node in graph.node:
            for attribute in node.attribute:
                if node.op_type == "Cast" and attribute.name == "to" and attribute.i in _HALF:
                    attribute.i = TensorProto.FLOAT
        if isinstance(graph, onnx.GraphProto):
            for value in (*graph.input, *graph.output, *graph.value_info):
                if value.type.tensor_type.elem_type in _HALF:
                    value.type.tensor_type.elem_type = TensorProto.FLOAT
    return wide
