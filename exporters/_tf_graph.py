"""From TensorFlow nodes, however they were stored, to an ONNX graph.

TensorFlow.js, frozen graphs, SavedModels, TFLite and Keras all come down to named nodes and stored
numbers here. TensorFlow's pictures are NHWC; the graph is written NCHW throughout, and only an
operator that depends on the order of axes sees it turned back.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence

import onnx

from onnxfr.errors import UnreadableModel, UnsupportedModel
from onnxfr.exporters import (  # noqa: F401
    _tf_operators,
    _tf_shaping,
)
from onnxfr.exporters._graph_writer import GraphWriter
from onnxfr.exporters._tf_folding import FOLDERS
from onnxfr.exporters._tf_values import OPERATORS, Node, Operand, Stored, Value
from onnxfr.exporters.base import Size

MOST_NODES = 50_000


def split_reference(reference: str) -> tuple[str, int]:
    """Return the node of ``name:k`` and which of its answers is meant."""
    name, colon, place = reference.rpartition(":")
    if not colon:
        return reference, 0
    if not place.isdecimal() or len(place) > 5:
        raise UnreadableModel(f"{reference!r} is no answer of a node")
    return name, int(place)


def source_of(reference: str) -> str:
    """Return the name of the node that a reference points to."""
    return split_reference(reference)[0]


def by_name(found: Iterable[Node]) -> dict[str, Node]:
    """Return the nodes by name."""
    nodes: dict[str, Node] = {}
    for node in found:
        if node.name in nodes:
            raise UnreadableModel(f"two nodes are called {node.name!r}")
        if len(nodes) >= MOST_NODES:
            raise UnreadableModel(f"more than {MOST_NODES} nodes: no face network is that long")
        nodes[node.name] = node
    return nodes


def loose_ends(nodes: Mapping[str, Node]) -> list[str]:
    """Return the nodes that compute something nobody uses again."""
    used = {source_of(name) for node in nodes.values() for name in node.inputs}
    sources = ("Const", "Placeholder", "NoOp")
    loose = [name for name, node in nodes.items() if name not in used and node.op not in sources]
    if not loose:
        raise UnreadableModel("the graph is a circle: it has no answer that nobody uses again")
    return loose


def picture_size(node: Node) -> Size | None:
    """Return the picture size an input declares, None where it leaves it open."""
    shape = node.attributes.get("shape")
    if isinstance(shape, list) and len(shape) == 4 and min(shape[1:3]) > 0:
        return shape[1], shape[2]
    return None


def build_graph(
    producer: str,
    nodes: Mapping[str, Node],
    weights: Mapping[str, Stored],
    entry: str,
    outputs: Sequence[str],
    size: Size,
) -> onnx.ModelProto:
    """Write everything between the picture ``entry`` and the answers ``outputs``."""
    graph = GraphWriter(producer)
    values: dict[str, tuple[Operand, ...]] = {entry: (Value(graph.input(entry, (3, *size)), True),)}
    for name in ordered(nodes, [source_of(name) for name in outputs], stop=entry):
        if name not in values:
            inputs = [_picked(values, reference) for reference in nodes[name].inputs]
            values[name] = _written(graph, nodes[name], weights, inputs)
    answers: dict[str, str] = {}
    for reference in outputs:
        value = _picked(values, reference)
        if not isinstance(value, Value):
            raise UnreadableModel(f"the answer {reference!r} is a constant")
        answers[reference] = value.plain(graph).name
    return graph.build(answers)


def _picked(values: Mapping[str, tuple[Operand, ...]], reference: str) -> Operand:
    name, place = split_reference(reference)
    if place >= len(values[name]):
        raise UnsupportedModel(f"the graph uses {reference!r}, a further output of an operator")
    return values[name][place]


def _written(
    graph: GraphWriter, node: Node, weights: Mapping[str, Stored], inputs: list[Operand]
) -> tuple[Operand, ...]:
    if node.op == "Const":
        if node.name not in weights:
            raise UnreadableModel(f"the constant {node.name!r} has no stored values")
        return (weights[node.name],)
    if node.op in FOLDERS and inputs and not any(isinstance(i, Value) for i in inputs):
        return (FOLDERS[node.op](node, inputs),)
    write = OPERATORS.get(node.op)
    if write is None:
        raise UnsupportedModel(
            f"TensorFlow operator {node.op} ({node.name!r}) has no ONNX form here; "
            f"known are: {', '.join(sorted(OPERATORS))}"
        )
    answer = write(graph, node, inputs)
    return answer if isinstance(answer, tuple) else (answer,)


def ordered(
    nodes: Mapping[str, Node],
    outputs: Sequence[str],
    stop: str | None = None,
    inputs_of: Callable[[Node], Iterable[str]] = lambda node: map(source_of, node.inputs),
) -> list[str]:
    """Return what the answers need, inputs first; without recursion, as graphs may be deep.

    Nothing before ``stop`` is asked for.
    """
    done: dict[str, None] = {}
    open_nodes: set[str] = set()
    pending = list(reversed(outputs))
    while pending:
        name = pending[-1]
        if name not in nodes:
            raise UnreadableModel(f"the graph uses {name!r}, which it does not define")
        needs = () if name == stop else inputs_of(nodes[name])
        waiting = [source for source in needs if source not in done]
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
