"""Quantised graphs on processors whose byte products saturate.

onnxruntime multiplies uint8 by int8 with an instruction that adds two products in 16 bits. On x86
without VNNI the sum saturates and embeddings change visibly (cosine 0.94 instead of 0.987 to the
float network was seen). ``session.x64quantprecision`` makes onnxruntime take a path that cannot.
"""

from __future__ import annotations

import numpy as np
import onnx
from onnx import TensorProto, numpy_helper

from onnxfr.models.structure import constants_of

_EXACT_OPERATORS = frozenset({"QuantizeLinear", "DequantizeLinear", "DynamicQuantizeLinear"})
_INTEGER_OPERATORS = frozenset(
    {"QLinearConv", "QLinearMatMul", "ConvInteger", "MatMulInteger", "QGemm", "QAttention"}
)
# 2 * 255 * 64 still fits into the 16-bit sum; "reduce_range" quantisers keep weights inside this.
_SAFE_WEIGHT = 64


def is_quantised(model: onnx.ModelProto) -> bool:
    """Whether the graph quantises anything, as QDQ pairs or as integer operators."""
    return any(
        node.op_type in _EXACT_OPERATORS
        or node.op_type in _INTEGER_OPERATORS
        or node.op_type.startswith(("QLinear", "DynamicQuantize"))
        for node in model.graph.node
    )


def may_saturate(model: onnx.ModelProto) -> bool:
    """Whether some int8 weight is large enough to overflow a 16-bit sum of two byte products."""
    if not is_quantised(model):
        return False
    return any(
        tensor.data_type == TensorProto.INT8
        and len(tensor.dims) >= 2
        and bool((np.abs(numpy_helper.to_array(tensor).astype(np.int16)) > _SAFE_WEIGHT).any())
        for tensor in constants_of(model.graph).values()
    )
