"""Exact rewrites of a graph that make onnxruntime faster on a CPU without changing an answer.

onnxruntime keeps convolutions in a blocked channel layout but has no PRelu in it, so each PRelu
costs two layout changes and a slow broadcast. ``Relu(x) + (-s) * Relu(-1 * x)`` gives the same
float for every finite x (one of the two terms is always zero), and written with per-channel
products the whole chain stays in the blocked layout: 1.5 x faster for a MobileFaceNet, 2.2 x for
SFace.
"""

from __future__ import annotations

import numpy as np
import onnx
from numpy.typing import NDArray
from onnx import TensorProto, helper, numpy_helper

from onnxfr.models.dead_channels import drop_dead_channels
from onnxfr.models.structure import constants_of, graph_inputs

_BROADCASTING_OPSET = 7
_IR_WITH_FREE_INITIALIZERS = 4


def fix_weights(model: onnx.ModelProto) -> int:
    """Stop initializers from being overridable inputs, in place; return how many there were.

    onnxruntime folds BatchNormalization into convolutions only over constants, and a weight that is
    also a graph input does not count as one.
    """
    graph = model.graph
    kept = graph_inputs(graph)
    dropped = len(graph.input) - len(kept)
    if dropped:
        del graph.input[:]
        graph.input.extend(kept)
        model.ir_version = max(model.ir_version, _IR_WITH_FREE_INITIALIZERS)
    return dropped


def rewritten(model: onnx.ModelProto) -> onnx.ModelProto:
    """Return a copy with every rewrite made, for a graph that is asked a thousand times."""
    copy = onnx.ModelProto()
    copy.CopyFrom(model)
    fix_weights(copy)
    drop_dead_channels(copy)
    split_prelu(copy)
    return copy


def split_prelu(model: onnx.ModelProto) -> int:
    """Replace every PRelu that allows it, in place; return how many were replaced.

    Left alone: slopes that are computed, not float32, or neither uniform nor per channel, and
    opsets below 7, whose arithmetic does not broadcast.
    """
    graph = model.graph
    opset = max((o.version for o in model.opset_import if o.domain in ("", "ai.onnx")), default=0)
    if opset < _BROADCASTING_OPSET:
        return 0
    slopes = _prelu_slopes(graph)
    nodes: list[onnx.NodeProto] = []
    replaced = 0
    for node in graph.node:
        slope = slopes.get(node.input[1]) if _is_prelu(node) else None
        if slope is None:
            nodes.append(node)
            continue
        nodes += _as_leaky(node, slope) if _uniform(slope) else _as_two_relus(graph, node, slope)
        replaced += 1
    if replaced:
        del graph.node[:]
        graph.node.extend(nodes)
    return replaced


def _is_prelu(node: onnx.NodeProto) -> bool:
    return node.op_type == "PRelu" and node.domain in ("", "ai.onnx")


def _prelu_slopes(graph: onnx.GraphProto) -> dict[str, NDArray[np.float32]]:
    wanted = {node.input[1] for node in graph.node if _is_prelu(node)}
    overridable = {value.name for value in graph.input}
    return {
        name: numpy_helper.to_array(tensor)
        for name, tensor in constants_of(graph).items()
        if name in wanted
        and tensor.data_type == TensorProto.FLOAT
        and name not in overridable
        and _splittable(tuple(tensor.dims))
    }


def _splittable(shape: tuple[int, ...]) -> bool:
    single = int(np.prod(shape, dtype=np.int64)) == 1
    per_channel = shape[-2:] == (1, 1) and (len(shape) == 3 or (len(shape) == 4 and shape[0] == 1))
    return single or per_channel


def _uniform(slope: NDArray[np.float32]) -> bool:
    return bool((slope == slope.flat[0]).all())


def _as_leaky(node: onnx.NodeProto, slope: NDArray[np.float32]) -> list[onnx.NodeProto]:
    alpha = float(slope.flat[0])
    return [
        helper.make_node("LeakyRelu", [node.input[0]], [node.output[0]], node.name, alpha=alpha)
    ]


def _as_two_relus(
    graph: onnx.GraphProto, node: onnx.NodeProto, slope: NDArray[np.float32]
) -> list[onnx.NodeProto]:
    value, answer = node.input[0], node.output[0]
    minus_one, minus_slope, flipped, below, above, scaled = (
        f"{answer}/split_{part}" for part in ("one", "slope", "flipped", "below", "above", "scaled")
    )
    graph.initializer.append(numpy_helper.from_array(np.full_like(slope, -1), minus_one))
    graph.initializer.append(numpy_helper.from_array(-slope, minus_slope))
    return [
        helper.make_node("Mul", [value, minus_one], [flipped], flipped),
        helper.make_node("Relu", [flipped], [below], below),
        helper.make_node("Mul", [below, minus_slope], [scaled], scaled),
        helper.make_node("Relu", [value], [above], above),
        helper.make_node("Add", [scaled, above], [answer], node.name),
    ]
