"""TensorFlow.js graph models: a ``model.json`` and its weight shards, quantised ones too.

Neither Node nor TensorFlow is needed.
"""

from __future__ import annotations

import base64
import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import onnx

from onnxfr.errors import UnreadableModel, UnsupportedModel
from onnxfr.exporters._tf_graph import build_graph, by_name, loose_ends, picture_size
from onnxfr.exporters._tf_values import Node
from onnxfr.exporters._tfjs_weights import read_weights
from onnxfr.exporters.base import Exported, Size, exporter, fit_size, head_of, read_source

_MAX_JSON = 256 << 20


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
    entry = _placeholder(nodes)

    def build(size: Size) -> onnx.ModelProto:
        return build_graph("tfjs", nodes, weights, entry.name, outputs, size)

    model, notes = fit_size(build, input_size, picture_size(entry))
    return Exported(model, "tfjs", arch, notes=(*notes, f"{len(weights)} weights"))


def read_nodes(raw: Any) -> dict[str, Node]:
    """Return the nodes by name."""
    if not isinstance(raw, list):
        raise UnreadableModel("the TensorFlow.js graph has no list of nodes")
    return by_name(_node(item) for item in raw)


def _node(item: Any) -> Node:
    inputs = tuple(str(i) for i in item.get("input", ()) if not str(i).startswith("^"))
    attributes = {str(k): _attribute(v) for k, v in item.get("attr", {}).items()}
    return Node(str(item["op"]), str(item["name"]), inputs, attributes)


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
    return loose_ends(nodes)


def _placeholder(nodes: Mapping[str, Node]) -> Node:
    found = [node for node in nodes.values() if node.op == "Placeholder"]
    if len(found) != 1:
        names = ", ".join(node.name for node in found) or "none"
        raise UnsupportedModel(f"expected one input, the graph has: {names}")
    return found[0]
