"""A float32 reading of a graph written in another float type.

The differentiable engine reads half precision so: gradients through it have a cosine of 0.91 to
0.99 with those in float32, and an attack should not suffer from that. Admission reads float64 and
bfloat16 so where onnxruntime has no kernels for them.
"""

from __future__ import annotations

from collections.abc import Collection

import numpy as np
import onnx
from onnx import TensorProto, numpy_helper

from onnxfr.models.vendor import all_graphs, all_tensors

_HALF = (TensorProto.FLOAT16, TensorProto.BFLOAT16)
_TYPE_ATTRIBUTES = ("to", "dtype", "stash_type")
_LARGEST = float(np.finfo(np.float32).max)


def upcast_half(model: onnx.ModelProto) -> onnx.ModelProto:
    """Return the model with every half-precision constant, cast and declared type in float32."""
    return in_float32(model, _HALF)


def in_float32(model: onnx.ModelProto, kinds: Collection[int]) -> onnx.ModelProto:
    """Return a copy with every constant, cast and declared type of these kinds in float32.

    The model itself is returned where none of its constants is of these kinds.
    """
    if not any(tensor.data_type in kinds for tensor in all_tensors(model)):
        return model
    wide = onnx.ModelProto()
    wide.CopyFrom(model)
    for tensor in all_tensors(wide):
        if tensor.data_type in kinds:
            values = numpy_helper.to_array(tensor).astype(np.float64)
            # What is finite stays finite: a large number often stands in for infinity.
            kept = np.where(np.isfinite(values), np.clip(values, -_LARGEST, _LARGEST), values)
            tensor.CopyFrom(numpy_helper.from_array(kept.astype(np.float32), tensor.name))
    for graph in all_graphs(wide):
        for node in graph.node:
            for attribute in node.attribute:
                if attribute.name in _TYPE_ATTRIBUTES and attribute.i in kinds:
                    attribute.i = TensorProto.FLOAT
        if isinstance(graph, onnx.GraphProto):
            for value in (*graph.input, *graph.output, *graph.value_info):
                if value.type.tensor_type.elem_type in kinds:
                    value.type.tensor_type.elem_type = TensorProto.FLOAT
    return wide
