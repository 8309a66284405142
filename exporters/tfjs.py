"""TensorFlow.js graph models: a ``model.json`` and its weight shards, quantised ones too.

Neither Node nor TensorFlow is needed. TensorFlow's pictures are NHWC; the graph is written NCHW
throughout, and only an operator that depends on the order of axes sees it turned back.
"""

from __future__ import annotations

import base64
import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import onnx

from onnxfr.errors import UnreadableModel, UnsupportedModel
from onnxfr.exporters import _tfjs_operators, _tfjs_shaping  # noqa: F401
from onnxfr.exporters._graph_writer import GraphWriter
from onnxfr.exporters._tfjs_values import OPERATORS, Array, Node, Operand, Value
from onnxfr.exporters._tfjs_weights import read_weights
from onnxfr.exporters.base import Exported, Size, exporter, fit_size, head_of, read_source

_MAX_JSON = 256 << 20
_MOST_NODES = 50_000


def _recognises(path: Path) -> bool:
    if not head_of(path, 64).lstrip().startswith(b"{"):
        return False
    raw = json.loads(read_source(path, _MAX_JSON))
    return isinstance(raw, dict) and {"modelTopology", "weightsManifest"} <= raw.keys()


@exporter(
    "tfjs",
    _recognises,
    "a TensorFlow.js model.json with its weight shards beside it",
    "TensorFlow.js with MobileFace and two MobileNets (one float16): unit embeddings within 3.4e-7",
)
def export_tfjs(source: Path, arch: str | None = None, input_size: Size | None = None) -> Exported:
    """Export a TensorFlow.js graph model."""
    raw = json.loads(read_source(source, _MAX_JSON))
    topology = raw["modelTopology"]
    if raw.get("format") == "layers-model" or "node" not in topology:
        raise UnsupportedModel(
            f"{source.name} is a TensorFlow.js layers model; convert the Keras original instead, "
            "or save it as a graph model"
        )
    nodes = read_nodes(topology["node"])
    weights = read_weights(raw["weightsManifest"], source.parent)
    outputs = _outputs(raw, nodes)
    told = _told_size(nodes)
    model, notes = fit_size(lambda s: _build(nodes, weights, outputs, s), input_size, told)
    return Exported(model, "tfjs", arch, notes=(*notes, f"{len(weights)} weights"))


def read_nodes(raw: Any) -> dict[str, Node]:
    """Return the nodes by name."""
    if not isinstance(raw, list) or len(raw) > _MOST_NODES:
        raise UnreadableModel("the TensorFlow.js graph has no list of nodes, or an absurd one")
    nodes: dict[str, Node] = {}
    for item in raw:
        inputs = tuple(str(i) for i in item.get("input", ()) if not str(i).startswith("^"))
        attributes = {str(k): _attribute(v) for k, v in item.get("attr", {}).items()}
        node = Node(str(item["op"]), str(item["name"]), inputs, attributes)
        if node.name in nodes:
            raise UnreadableModel(f"two nodes are called {node.name!r}")
        nodes[node.name] = node
    return nodes


def _attribute(raw: Any) -> Any:
    """Return the plain value of an attribute in TensorFlow's JSON notation."""
    if not isinstance(raw, dict) or len(raw) != 1:
        return None
    (kind, value) = next(iter(raw.items()))
    match kind:
        case "i":
            return int(value)
        case "f":
            return float(value)
        case "b":
            return bool(value)
        case "s":
            return _text(value)
        case "list" if isinstance(value, dict):
            return [_attribute({key: v}) for key, vs in value.items() for v in vs]
        case "shape" if isinstance(value, dict):
            return [int(dim.get("size", -1)) for dim in value.get("dim", ())]
    return value


def _text(value: Any) -> str:
    if isinstance(value, list):
        return bytes(value).decode("utf-8", errors="replace")
    return base64.b64decode(str(value), validate=False).decode("utf-8", errors="replace")


def _outputs(raw: Mapping[str, Any], nodes: Mapping[str, Node]) -> list[str]:
    """Return the names of the answers: those of the signature, else the nodes nobody uses."""
    for place in (raw, raw.get("userDefinedMetadata") or {}):
        signature = place.get("signature") or {}
        named = [str(v["name"]).split(":")[0] for v in signature.get("outputs", {}).values()]
        found = [name for name in named if name in nodes]
        if found:
            return found
    used = {_source(name) for node in nodes.values() for name in node.inputs}
    sources = ("Const", "Placeholder")
    loose = [name for name, node in nodes.items() if name not in used and node.op not in sources]
    if not loose:
        raise UnreadableModel("the graph is a circle: it has no answer that nobody uses again")
    return loose


def _source(reference: str) -> str:
    name, _, place = reference.partition(":")
    if place not in ("", "0"):
        raise UnsupportedModel(f"the graph uses {reference!r}, a second output of an operator")
    return name


def _told_size(nodes: Mapping[str, Node]) -> Size | None:
    shape = _placeholder(nodes).attributes.get("shape")
    if isinstance(shape, list) and len(shape) == 4 and min(shape[1:3]) > 0:
        return shape[1], shape[2]
    return None


def _placeholder(nodes: Mapping[str, Node]) -> Node:
    found = [node for node in nodes.values() if node.op == "Placeholder"]
    if len(found) != 1:
        names = ", ".join(node.name for node in found) or "none"
        raise UnsupportedModel(f"expected one input, the graph has: {names}")
    return found[0]


def _build(
    nodes: Mapping[str, Node], weights: Mapping[str, Array], outputs: list[str], size: Size
) -> onnx.ModelProto:
    graph = GraphWriter("tfjs")
    entry = _placeholder(nodes)
    values: dict[str, Operand] = {entry.name: Value(graph.input(entry.name, (3, *size)), True)}
    for name in _order(nodes, outputs):
        node = nodes[name]
        if name in values:
            continue
        if node.op == "Const":
            if name not in weights:
                raise UnreadableModel(f"the constant {name!r} is in no weight shard")
            values[name] = weights[name]
            continue
        write = OPERATORS.get(node.op)
        if write is None:
            raise UnsupportedModel(
                f"TensorFlow operator {node.op} ({name!r}) has no ONNX form here; "
                f"known are: {', '.join(sorted(OPERATORS))}"
            )
        values[name] = write(graph, node, [values[_source(i)] for i in node.inputs])
    answers: dict[str, str] = {}
    for name in outputs:
        value = values[name]
        if not isinstance(value, Value):
            raise UnreadableModel(f"the answer {name!r} is a constant")
        answers[name] = value.plain(graph).name
    return graph.build(answers)


def _order(nodes: Mapping[str, Node], outputs: list[str]) -> list[str]:
    """Return what the answers need, inputs first; without recursion, as graphs may be deep."""
    done: dict[str, None] = {}
    open_nodes: set[str] = set()
    pending = list(reversed(outputs))
    while pending:
        name = pending[-1]
        if name not in nodes:
            raise UnreadableModel(f"the graph uses {name!r}, which it does not define")
        waiting = [s for s in map(_source, nodes[name].inputs) if s not in done]
        if name in done or not waiting:
            done[name] = None
            open_nodes.discard(name)
            pending.pop()
        elif name in open_nodes and any(source in open_nodes for source in waiting):
            raise UnreadableModel(f"the graph is a circle through {name!r}")
        else:
            open_nodes.add(name)
            pending.extend(reversed(waiting))
    return list(done)
