"""A SavedModel's parts: graph and functions, the signature that serves, and its variables."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path

from onnxfr.errors import UnreadableModel, UnsupportedModel
from onnxfr.exporters._tf_bundle import Bundle
from onnxfr.exporters._tf_functions import Inliner
from onnxfr.exporters._tf_graph import source_of, split_reference
from onnxfr.exporters._tf_messages import (
    Graph,
    TensorInfo,
    constants_of,
    message,
    read_entry,
    read_graph,
    read_tensor_info,
    read_texts,
)
from onnxfr.exporters._tf_values import Array, Node
from onnxfr.exporters._wire import fields, top_fields
from onnxfr.exporters.base import Size

_VARIABLES = ("VarHandleOp", "VariableV2", "Variable")
_SERVING = ("serving_default", "predict", "call")


@dataclass(frozen=True)
class SavedModel:
    """One graph without calls, and where its signature begins and ends."""

    nodes: Mapping[str, Node]
    weights: Mapping[str, Array]
    entry: str
    outputs: tuple[str, ...]
    size: Size | None


def is_saved_model(content: bytes) -> bool:
    """Tell a SavedModel from other messages that begin with a number."""
    if top_fields(content) != {1: "number", 2: "bytes"}:
        return False
    body = next(value for number, value in fields(content) if number == 2)
    inside = top_fields(message(body))
    return inside.get(1) == "bytes" and inside.get(2) == "bytes"


def read_saved_model(content: bytes, folder: Path) -> SavedModel:
    """Return the graph that the signature ``serving_default`` runs."""
    graph, signatures = _parts(content)
    name, inputs, outputs = _chosen(signatures)
    inliner = Inliner(graph)
    nodes = inliner.inlined()
    entry, info = _picture(name, inputs)
    weights = constants_of(nodes.values())
    weights.update(_variables(nodes, folder / "variables"))
    nodes = {
        key: replace(node, op="Const", inputs=()) if node.op in _VARIABLES else node
        for key, node in nodes.items()
    }
    shape = info.shape or []
    told = (shape[1], shape[2]) if len(shape) == 4 and min(shape[1:3]) > 0 else None
    answers = tuple(inliner.resolve(output.name) for output in outputs.values())
    return SavedModel(nodes, weights, entry, answers, told)


def _parts(content: bytes) -> tuple[Graph, dict[str, bytes]]:
    graph: Graph | None = None
    signatures: dict[str, bytes] = {}
    for number, value in fields(content):
        if number != 2:
            continue
        for inner, part in fields(message(value)):
            if inner == 2 and graph is None:
                graph = read_graph(message(part))
            elif inner == 5:
                key, signature = read_entry(message(part))
                signatures.setdefault(key, signature)
    if graph is None:
        raise UnreadableModel("the SavedModel holds no graph")
    return graph, signatures


Side = dict[str, TensorInfo]


def _chosen(signatures: Mapping[str, bytes]) -> tuple[str, Side, Side]:
    """Return the serving signature, else the only one there is."""
    found: dict[str, tuple[Side, Side]] = {}
    for name, content in signatures.items():
        sides: tuple[Side, Side] = {}, {}
        for number, value in fields(content):
            if number in (1, 2):
                key, info = read_entry(message(value))
                sides[number - 1][key] = read_tensor_info(info)
        if sides[0] and sides[1]:
            found[name] = sides
    for name in (*_SERVING, *found):
        if name in found and (name in _SERVING or len(found) == 1):
            return name, *found[name]
    names = ", ".join(sorted(found)) or "none"
    raise UnsupportedModel(f"expected a signature called serving_default; there are: {names}")


def _picture(signature: str, inputs: Side) -> tuple[str, TensorInfo]:
    pictures = [i for i in inputs.values() if i.dtype in ("float32", "float16", "uint8")]
    pictures = [i for i in pictures if i.shape is None or len(i.shape) == 4]
    if len(pictures) != 1:
        told = ", ".join(f"{k} ({v.dtype})" for k, v in inputs.items())
        raise UnsupportedModel(f"the signature {signature} does not take one picture, but: {told}")
    return source_of(pictures[0].name), pictures[0]


def _variables(nodes: Mapping[str, Node], folder: Path) -> dict[str, Array]:
    """Return the variables' numbers by the name of their node.

    The graph that restores a checkpoint says which stored name belongs to which variable.
    """
    asked = {name for name, node in nodes.items() if node.op in _VARIABLES}
    if not asked:
        return {}
    bundle = Bundle(folder)
    found: dict[str, Array] = {}
    for node in nodes.values():
        if node.op not in ("AssignVariableOp", "Assign") or len(node.inputs) < 2:
            continue
        target, value = (_origin(nodes, i) for i in node.inputs[:2])
        name, place = split_reference(value)
        restore = nodes.get(name)
        if source_of(target) not in asked or restore is None or restore.op != "RestoreV2":
            continue
        key = _stored_names(nodes, restore)[place]
        found[source_of(target)] = bundle[key]
    return found


def _origin(nodes: Mapping[str, Node], reference: str) -> str:
    for _ in range(len(nodes)):
        node = nodes.get(source_of(reference))
        if node is None or node.op != "Identity" or not node.inputs:
            return reference
        reference = node.inputs[0]
    raise UnreadableModel("the graph that restores the variables is a circle")


def _stored_names(nodes: Mapping[str, Node], restore: Node) -> list[str]:
    node = nodes.get(source_of(_origin(nodes, restore.inputs[1])))
    raw = node.attributes.get("value") if node else None
    if not isinstance(raw, bytes):
        raise UnreadableModel("the graph that restores the variables does not name them")
    return read_texts(raw)
