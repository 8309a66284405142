"""Puts the bodies of TensorFlow 2's functions where they are called, so that one graph is left."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from onnxfr.errors import UnreadableModel, UnsupportedModel
from onnxfr.exporters._tf_graph import MOST_NODES, by_name, split_reference
from onnxfr.exporters._tf_messages import Function, Graph
from onnxfr.exporters._tf_values import Node

_CALLS = ("PartitionedCall", "StatefulPartitionedCall")
_FIRST_ANSWER = {"FusedBatchNorm": "y", "FusedBatchNormV2": "y", "FusedBatchNormV3": "y"}


class Inliner:
    """One graph made of a graph and the functions it calls."""

    def __init__(self, graph: Graph) -> None:
        self._functions = graph.functions
        self._pending = list(reversed(graph.nodes))
        self._done: list[Node] = []
        self._same: dict[str, str] = {}

    def inlined(self) -> dict[str, Node]:
        """Return the nodes by name, without calls."""
        while self._pending:
            node = self._pending.pop()
            function = self._called(node)
            if function is None:
                self._done.append(node)
            else:
                self._open(node, function)
            if len(self._done) + len(self._pending) > MOST_NODES:
                raise UnreadableModel(f"the functions unfold to more than {MOST_NODES} nodes")
        names = {node.name for node in self._done}
        return by_name(
            replace(
                node,
                inputs=tuple(map(self.resolve, node.inputs)),
                controls=tuple(c for c in node.controls if c in names),
            )
            for node in self._done
        )

    def resolve(self, reference: str) -> str:
        """Return the node's answer behind a call's answer."""
        for _ in range(len(self._same) + 1):
            name, place = split_reference(reference)
            found = self._same.get(f"{name}:{place}")
            if found is None:
                return reference
            reference = found
        raise UnreadableModel(f"the answer {reference!r} of a function is a circle")

    def _called(self, node: Node) -> Function | None:
        if node.op not in _CALLS:
            return self._functions.get(node.op)
        name = node.attributes.get("f")
        if name not in self._functions:
            raise UnreadableModel(f"{node.name!r} calls the function {name!r}, which is not there")
        return self._functions[name]

    def _open(self, call: Node, function: Function) -> None:
        if len(call.inputs) != len(function.arguments):
            raise UnreadableModel(
                f"{call.name!r} gives {len(call.inputs)} arguments to {function.name!r}, which "
                f"takes {len(function.arguments)}"
            )
        arguments = dict(zip(function.arguments, call.inputs, strict=True))
        inner = {node.name: node for node in function.nodes}
        for node in function.nodes:
            inputs = tuple(_reference(i, call.name, arguments, inner) for i in node.inputs)
            name = f"{call.name}/{node.name}"
            self._pending.append(replace(node, name=name, inputs=inputs, controls=()))
        for place, answer in enumerate(function.answers):
            if answer not in function.returns:
                raise UnreadableModel(f"the function {function.name!r} never returns {answer!r}")
            target = _reference(function.returns[answer], call.name, arguments, inner)
            self._same[f"{call.name}:{place}"] = target


def _reference(
    reference: str, call: str, arguments: Mapping[str, str], inner: Mapping[str, Node]
) -> str:
    """Turn a function's own notation, ``node:answer:k``, into a graph's, ``node:k``."""
    name, _, rest = reference.partition(":")
    if name in arguments:
        return arguments[name]
    if name not in inner:
        raise UnreadableModel(f"a function uses {reference!r}, which it does not define")
    answer, _, place = rest.partition(":")
    if not (place or "0").isdecimal() or len(place) > 5:
        raise UnreadableModel(f"{reference!r} is no answer of a node")
    if answer != _FIRST_ANSWER.get(inner[name].op, answer):
        raise UnsupportedModel(f"the graph uses {reference!r}, statistics that only training needs")
    return f"{call}/{name}:{place or 0}"
