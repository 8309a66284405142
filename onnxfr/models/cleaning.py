"""Bringing a vendor's graph to a shape the rest can rely on, without touching its function."""

from __future__ import annotations

import heapq
from collections.abc import Collection
from functools import cache
from typing import Any

import numpy as np
import onnx
from onnx import AttributeProto, TensorProto, helper, version_converter

from onnxfr.errors import EngineError, UnreadableModel, UnsupportedModel
from onnxfr.models.card import Repair
from onnxfr.models.functions import write_out_functions
from onnxfr.models.inference_mode import leave_training
from onnxfr.models.sessions import open_session
from onnxfr.models.structure import graph_inputs
from onnxfr.models.vendor import all_graphs, all_tensors, inner_graphs, opset_of

OLDEST_OPSET = 7
_QUANTISED = (
    "QLinear",
    "QuantizeLinear",
    "DequantizeLinear",
    "ConvInteger",
    "MatMulInteger",
    "QGemm",
)


def clean(vendor: onnx.ModelProto) -> tuple[onnx.ModelProto, tuple[Repair, ...]]:
    """Return a copy with lies and leftovers removed, and the list of what was removed."""
    model = onnx.ModelProto()
    model.CopyFrom(write_out_functions(vendor))
    repairs: list[Repair] = []
    if vendor.functions:
        detail = f"{len(vendor.functions)} functions of the file were written out where called"
        repairs.append(Repair(name="functions", detail=detail))
    if _put_in_order(model.graph):
        detail = "nodes stood before those whose results they read, and were put behind them"
        repairs.append(Repair(name="order", detail=detail, max_abs=0.0))
    _lift_opset(model, repairs)
    _lower_opset(model, repairs)
    graph = model.graph
    inputs = graph_inputs(graph)
    if len(inputs) != len(graph.input):
        detail = f"{len(graph.input) - len(inputs)} initializers were also listed as inputs"
        repairs.append(Repair(name="initializers-as-inputs", detail=detail, max_abs=0.0))
        del graph.input[:]
        graph.input.extend(inputs)
    repairs.extend(leave_training(graph))
    model.ir_version = max(int(model.ir_version), 4)
    model.ir_version = min(int(model.ir_version), _newest_ir())
    # Declared shapes of intermediate and output values are hearsay; the graph itself decides.
    del graph.value_info[:]
    for value in graph.output:
        value.type.tensor_type.ClearField("shape")
    del model.training_info[:]
    graph.name = graph.name or "graph"  # onnxruntime does without, onnx's checker does not
    return model, tuple(repairs)


def _put_in_order(graph: onnx.GraphProto) -> bool:
    """Sort nodes behind those whose results they read, in place; return whether any moved.

    onnxruntime takes them in any order (but not inside branches), and tools that cast a file append
    nodes at its end. What is in order already stays as it stands.
    """
    maker: dict[str, int] = {}
    for k, node in enumerate(graph.node):
        for name in filter(None, node.output):
            if maker.setdefault(name, k) != k:
                raise UnreadableModel(f"two nodes compute {name!r}: the file is damaged")
    awaited = [{maker[n] for n in _names_read(node) if n in maker} for node in graph.node]
    readers: dict[int, list[int]] = {}
    for k, makers in enumerate(awaited):
        for each in makers:
            readers.setdefault(each, []).append(k)
    ready = [k for k, makers in enumerate(awaited) if not makers]
    order: list[int] = []
    while ready:
        order.append(heapq.heappop(ready))
        for k in readers.get(order[-1], []):
            awaited[k].discard(order[-1])
            if not awaited[k]:
                heapq.heappush(ready, k)
    if len(order) < len(graph.node):
        stuck = next(node for k, node in enumerate(graph.node) if awaited[k])
        raise UnreadableModel(
            f"node {stuck.name!r} ({stuck.op_type}) waits for its own result: the file is damaged"
        )
    if order == sorted(order):
        return False
    nodes = [graph.node[k] for k in order]
    del graph.node[:]
    graph.node.extend(nodes)
    return True


def _newest_ir() -> int:
    # onnxruntime trails the onnx package; both read files of IR 10 and what we need fits in it.
    return min(int(onnx.IR_VERSION), 10)


def _lift_opset(model: onnx.ModelProto, repairs: list[Repair]) -> None:
    opset = opset_of(model)
    if opset >= OLDEST_OPSET:
        return
    try:
        lifted = version_converter.convert_version(model, OLDEST_OPSET + 2)
    except Exception as error:
        reason = " ".join(str(error).split())[:200]
        raise UnsupportedModel(
            f"the model is written in opset {opset}; expected {OLDEST_OPSET} or newer, and it "
            f"could not be lifted ({reason}): re-export it with a newer exporter"
        ) from None
    model.CopyFrom(lifted)
    detail = f"opset {opset} lifted to {OLDEST_OPSET + 2}"
    repairs.append(Repair(name="opset", detail=detail))


def _lower_opset(model: onnx.ModelProto, repairs: list[Repair]) -> None:
    """Restamp a file newer than onnxruntime where no operator it uses has changed since."""
    opset, newest = opset_of(model), onnx.defs.onnx_opset_version()
    if opset > newest:
        raise UnsupportedModel(
            f"the model is written in opset {opset}, the newest known is {newest}: update onnx "
            "and onnxruntime, or export with an older opset"
        )
    if _engine_reads(opset):
        return
    needed = max(
        (
            onnx.defs.get_schema(node.op_type, opset, "").since_version
            for graph in all_graphs(model)
            for node in graph.node
            if node.domain in ("", "ai.onnx") and onnx.defs.has(node.op_type, opset, "")
        ),
        default=opset,
    )
    older = next((v for v in range(opset, needed - 1, -1) if _engine_reads(v)), None)
    if older is None:
        raise UnsupportedModel(
            f"the model is written in opset {opset} and uses operators this onnxruntime does not "
            "know yet: update onnxruntime or export with an older opset"
        )
    for entry in model.opset_import:
        if entry.domain in ("", "ai.onnx"):
            entry.version = older
    detail = f"opset {opset} restamped as {older}: none of its operators changed in between"
    repairs.append(Repair(name="opset", detail=detail, max_abs=0.0))


def keep_needed(model: onnx.ModelProto, outputs: Collection[str]) -> tuple[Repair, ...]:
    """Drop what the given outputs do not need: other outputs, nodes, weights and inputs.

    A head that nobody asks would otherwise cost its weights on disk, the gradient where it has no
    differentiable form, and the whole model where it wants an input of its own (a label).
    """
    graph, needed = model.graph, set(outputs)
    for k in reversed(range(len(graph.node))):
        node = graph.node[k]
        if needed.isdisjoint(node.output):
            del graph.node[k]
        else:
            needed.update(_names_read(node))
            needed.discard("")
    unread = [value.name for value in graph_inputs(graph) if value.name not in needed]
    _drop(graph.output, {value.name for value in graph.output}.difference(outputs))
    _drop(graph.initializer, {tensor.name for tensor in graph.initializer} - needed)
    _drop(graph.input, unread)
    if not unread:
        return ()
    detail = f"the answer does not need the input {', '.join(unread)}; it was dropped"
    return (Repair(name="inputs", detail=detail, max_abs=0.0),)


def _names_read(node: onnx.NodeProto) -> set[str]:
    """Return what a node reads of the graph it stands in, inside its branches too."""
    read, made = set(node.input), set[str]()
    if any(attribute.type == AttributeProto.GRAPH for attribute in node.attribute):
        for graph in inner_graphs(onnx.GraphProto(node=[node])):
            read.update(value.name for value in graph.output)
            made.update(entry.name for entry in (*graph.input, *graph.initializer))
            for inner in graph.node:
                read.update(inner.input)
                made.update(inner.output)
    return read - made


def _drop(entries: Any, names: Collection[str]) -> None:
    for k in reversed(range(len(entries))):
        if entries[k].name in names:
            del entries[k]


@cache
def _engine_reads(opset: int) -> bool:
    value = helper.make_tensor_value_info
    graph = helper.make_graph(
        [helper.make_node("Identity", ["x"], ["y"])],
        "probe",
        [value("x", TensorProto.FLOAT, [1])],
        [value("y", TensorProto.FLOAT, [1])],
    )
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", opset)])
    model.ir_version = _newest_ir()
    try:
        open_session(model, threads=1)
    except EngineError:
        return False
    return True


def precision_of(model: onnx.ModelProto) -> str:
    """Return fp32, fp16, int8 or mixed, by what the weights and operators are."""
    operators = {node.op_type for graph in all_graphs(model) for node in graph.node}
    quantised = any(
        op.startswith(_QUANTISED) or op in ("DynamicQuantizeLinear", "QGemm") for op in operators
    )
    kinds = {t.data_type for t in all_tensors(model) if np.prod(t.dims, dtype=np.int64) > 8}
    half = TensorProto.FLOAT16 in kinds or TensorProto.BFLOAT16 in kinds
    if quantised:
        return "mixed" if half else "int8"
    return "fp16" if half else "fp32"
