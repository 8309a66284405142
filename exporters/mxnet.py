"""MXNet models: a ``-symbol.json`` graph and its ``.params`` weights, read without the package.

MXNet is retired and does not install beside a current NumPy, so both formats are read here. The
graph keeps its own normalisation of pixels where it has one.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import onnx

from onnxfr.errors import UnreadableModel, UnsupportedModel
from onnxfr.exporters._graph_writer import GraphWriter
from onnxfr.exporters._mxnet_layer import Layer
from onnxfr.exporters._mxnet_operators import OPERATORS, Array, Operand
from onnxfr.exporters._mxnet_params import LIST_MAGIC, read_params
from onnxfr.exporters.base import (
    Exported,
    Size,
    companion,
    exporter,
    fit_size,
    head_of,
    read_source,
)
from onnxfr.models.preprocessing import Preprocessing

_MAX_JSON = 64 << 20
_MAGIC = LIST_MAGIC.to_bytes(8, "little")
_SCALING = {"_minus_scalar", "_mul_scalar", "_MinusScalar", "_MulScalar"}


@dataclass(frozen=True)
class Symbol:
    """The graph: its nodes in order of computation and which of their outputs are answers."""

    nodes: tuple[Layer, ...]
    sources: tuple[tuple[tuple[int, int], ...], ...]
    heads: tuple[int, ...]
    shapes: Mapping[str, str] = field(default_factory=dict)


def _is_params(path: Path) -> bool:
    return head_of(path, 8) == _MAGIC


def _is_symbol(path: Path) -> bool:
    if head_of(path, 1) != b"{":
        return False
    raw = json.loads(read_source(path, _MAX_JSON))
    return isinstance(raw, dict) and {"nodes", "arg_nodes", "heads"} <= raw.keys()


def _recognises(path: Path) -> bool:
    return _is_params(path) or _is_symbol(path)


@exporter(
    "mxnet",
    _recognises,
    "NAME-symbol.json with NAME-0000.params beside it",
    "an independent ONNX conversion of one MobileFaceNet: 32 faces, equal to the last bit",
)
def export_mxnet(source: Path, arch: str | None = None, input_size: Size | None = None) -> Exported:
    """Export an MXNet model; either of its two files may be named."""
    if _is_params(source):
        symbol_path, params_path = companion(source, _is_symbol, "its -symbol.json"), source
    else:
        symbol_path, params_path = source, companion(source, _is_params, "its .params file")
    symbol = read_symbol(read_source(symbol_path, _MAX_JSON))
    params = read_params(read_source(params_path), params_path.name)
    data = _data_node(symbol, params)
    model, notes = fit_size(lambda size: _build(symbol, params, data, size), input_size, None)
    return Exported(
        model,
        "mxnet",
        arch,
        preprocessing=_hint(symbol, data),
        notes=(*notes, f"{len(params)} arrays of {params_path.name}"),
    )


def read_symbol(content: bytes) -> Symbol:
    """Parse a symbol file and check that every node uses earlier ones only."""
    try:
        raw = json.loads(content)
        nodes, sources = [], []
        for place, item in enumerate(raw["nodes"]):
            settings = item.get("attrs") or item.get("param") or item.get("attr") or {}
            used = tuple((int(entry[0]), int(entry[1])) for entry in item["inputs"])
            if any(not 0 <= node < place for node, _ in used):
                raise UnreadableModel(f"node {item['name']!r} uses a node that comes after it")
            texts = {str(key): str(value) for key, value in settings.items()}
            nodes.append(Layer(str(item["op"]), str(item["name"]), texts))
            sources.append(used)
        heads = tuple(int(entry[0]) for entry in raw["heads"])
    except (ValueError, KeyError, TypeError, IndexError, AttributeError, RecursionError) as error:
        raise UnreadableModel(f"not an MXNet symbol file: {error!r}") from None
    if not heads or any(not 0 <= head < len(nodes) for head in heads):
        raise UnreadableModel(f"the symbol file names the answers {heads} of {len(nodes)} nodes")
    return Symbol(tuple(nodes), tuple(sources), heads)


def _data_node(symbol: Symbol, params: Mapping[str, Array]) -> int:
    """Return the variable the picture enters: the first one an operator uses without weights."""
    for used in symbol.sources:
        if used and symbol.nodes[used[0][0]].op == "null":
            name = symbol.nodes[used[0][0]].name
            if name not in params:
                return used[0][0]
    raise UnsupportedModel("the MXNet graph has no input: every variable has stored values")


def _build(symbol: Symbol, params: Mapping[str, Array], data: int, size: Size) -> onnx.ModelProto:
    graph = GraphWriter("mxnet")
    picture = graph.input(symbol.nodes[data].name, (3, *size))
    values: dict[int, Operand] = {data: picture}
    needed = _needed(symbol)
    for place, node in enumerate(symbol.nodes):
        if place not in needed or place in values:
            continue
        if node.op == "null":
            if node.name in params:
                values[place] = params[node.name]
            continue
        operands = [values.get(k) for k, _ in symbol.sources[place]]
        if any(output for k, output in symbol.sources[place] if isinstance(values.get(k), str)):
            raise UnsupportedModel(f"node {node.name!r} uses the second output of an operator")
        write = OPERATORS.get(node.op)
        if write is None:
            raise UnsupportedModel(
                f"MXNet operator {node.op} (node {node.name!r}) has no ONNX form here; "
                f"known are: {', '.join(sorted(OPERATORS))}"
            )
        values[place] = write(graph, node, operands)
    outputs: dict[str, str] = {}
    for head in symbol.heads:
        value = values.get(head)
        if not isinstance(value, str):
            raise UnreadableModel("an answer of the MXNet graph is not computed")
        outputs[f"{symbol.nodes[head].name}_output"] = value
    return graph.build(outputs)


def _needed(symbol: Symbol) -> set[int]:
    found: set[int] = set()
    pending = list(symbol.heads)
    while pending:
        node = pending.pop()
        if node not in found:
            found.add(node)
            pending.extend(k for k, _ in symbol.sources[node])
    return found


def _hint(symbol: Symbol, data: int) -> Preprocessing | None:
    """Say raw RGB where the graph scales pixels itself, as MXNet's face networks do."""
    first: Any = next(
        (
            node
            for node, used in zip(symbol.nodes, symbol.sources, strict=True)
            if used and used[0][0] == data
        ),
        None,
    )
    if first is not None and first.op in _SCALING:
        return Preprocessing(color="rgb", scaling="0-255")
    return None
