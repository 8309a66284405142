"""TensorFlow: frozen graphs (``.pb``) and SavedModels, read without TensorFlow.

What a graph asks for besides pictures (``phase_train``, ``keep_prob``) is set to its value at
inference, and the branches that only train fall away. Where pictures come out of a queue, as in
FaceNet's graph, the network starts after the queue.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path

import onnx

from onnxfr.errors import UnreadableModel, UnsupportedModel
from onnxfr.exporters._tf_control import PLACEHOLDERS, Branches, inference_value
from onnxfr.exporters._tf_graph import (
    build_graph,
    by_name,
    loose_ends,
    ordered,
    picture_size,
    source_of,
)
from onnxfr.exporters._tf_messages import constants_of, message, read_graph, read_node
from onnxfr.exporters._tf_saved_model import is_saved_model, read_saved_model
from onnxfr.exporters._tf_values import Array, Node
from onnxfr.exporters._wire import fields, top_fields
from onnxfr.exporters.base import Exported, Size, exporter, fit_size, head_of, read_source

_QUEUES = ("QueueDequeue", "IteratorGetNext")
_STATISTICS = ("FusedBatchNorm", "FusedBatchNormV2", "FusedBatchNormV3")
_EMBEDDING_NAMES = ("embeddings", "embedding")


@dataclass(frozen=True)
class Network:
    """Nodes with their stored numbers, and between which of them the network lies."""

    nodes: Mapping[str, Node]
    weights: Mapping[str, Array]
    entry: str
    outputs: tuple[str, ...]
    notes: tuple[str, ...] = ()


def _recognises(path: Path) -> bool:
    if path.is_dir():
        path /= "saved_model.pb"
    head = head_of(path, 2)
    if head[:1] == b"\x08":
        return is_saved_model(read_source(path))
    if head[:1] != b"\x0a":
        return False
    content = read_source(path)
    kinds = top_fields(content)
    if (
        not {1: "bytes", **kinds}.items()
        <= {1: "bytes", 2: "bytes", 3: "number", 4: "bytes"}.items()
    ):
        return False
    first = next(value for number, value in fields(content) if number == 1)
    node = read_node(message(first))
    return node.op.isidentifier() and (bool(node.attributes) or bool(node.inputs))


@exporter(
    "tensorflow",
    _recognises,
    "a frozen graph (.pb), or a SavedModel's saved_model.pb with its variables beside it",
    "TensorFlow 2.21 with two FaceNets, 8 LFW faces each: unit embeddings within 1.5e-7",
)
def export_tensorflow(
    source: Path, arch: str | None = None, input_size: Size | None = None
) -> Exported:
    """Export a frozen graph or a SavedModel."""
    path = source / "saved_model.pb" if source.is_dir() else source
    content = read_source(path)
    if content[:1] == b"\x08":
        saved = read_saved_model(content, path.parent)
        network = _network(saved.nodes, saved.weights, saved.entry, saved.outputs)
        told = saved.size
    else:
        nodes = by_name(read_graph(content).nodes)
        network = _network(nodes, constants_of(nodes.values()), None, ())
        told = picture_size(network.nodes[network.entry])

    def build(size: Size) -> onnx.ModelProto:
        return build_graph(
            "tensorflow", network.nodes, network.weights, network.entry, network.outputs, size
        )

    model, notes = fit_size(build, input_size, told)
    return Exported(model, "tensorflow", arch, notes=(*notes, *network.notes))


def _network(
    nodes: Mapping[str, Node],
    weights: Mapping[str, Array],
    entry: str | None,
    outputs: tuple[str, ...],
) -> Network:
    baked = {
        node.name: value
        for node in nodes.values()
        if node.op in PLACEHOLDERS and node.name != entry
        for value in [inference_value(node)]
        if value is not None
    }
    known = {**weights, **baked}
    ready = {
        name: replace(node, op="Const", inputs=(), controls=()) if name in baked else node
        for name, node in nodes.items()
    }
    if entry is None:
        entry = _pictures(ready)
    branches = Branches(ready, known)
    wanted = outputs or tuple(_answers(ready, entry))
    alive = branches.settle([source_of(name) for name in wanted], entry)
    wanted = tuple(r for r in map(branches.resolve, wanted) if source_of(r) in alive)
    if not outputs:
        wanted = tuple(r for r in wanted if _lies_behind(alive, r, entry))
    if not wanted:
        raise UnreadableModel(f"nothing is computed from the pictures {entry!r}")
    notes = tuple(f"placeholder {name} fixed to its value at inference" for name in baked)
    return Network(alive, known, entry, wanted, notes)


def _pictures(nodes: Mapping[str, Node]) -> str:
    """Return the node through which pictures enter."""
    named = [n for n in nodes.values() if n.op in PLACEHOLDERS]
    shaped = [n for n in named if len(n.attributes.get("shape") or ()) == 4]
    used = {source_of(i) for node in nodes.values() for i in node.inputs}
    queues = [n for n in nodes.values() if n.op.startswith(_QUEUES) and n.name in used]
    open_shape = [
        n
        for n in named
        if n.attributes.get("dtype") in ("float32", "uint8") and not n.attributes.get("shape")
    ]
    for found in (shaped, queues, open_shape):
        if len(found) == 1:
            return found[0].name
        if found:
            break
    names = ", ".join(node.name for node in found or named) or "none"
    raise UnsupportedModel(f"expected one input for pictures, the graph has: {names}")


def _answers(nodes: Mapping[str, Node], entry: str) -> list[str]:
    """Return candidates for the embedding: named so, or computed and used by nobody."""
    for name in _EMBEDDING_NAMES:
        if name in nodes:
            return [name]
    training = {
        name
        for name, node in nodes.items()
        for i in node.inputs
        if ":" in i and source_of(i) in nodes and nodes[source_of(i)].op in _STATISTICS
    }
    return [
        name
        for name in loose_ends(nodes)
        if not training & set(ordered(nodes, [name], entry)) and name != entry
    ]


def _lies_behind(nodes: Mapping[str, Node], reference: str, entry: str) -> bool:
    return entry in ordered(nodes, [source_of(reference)], entry)
