"""Decides TensorFlow 1's branches: at inference only one side of each ``Switch`` is alive."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace

import numpy as np

from onnxfr.errors import UnsupportedModel
from onnxfr.exporters._tf_graph import ordered, source_of, split_reference
from onnxfr.exporters._tf_values import Array, Node

_SWITCHES, _MERGES = ("Switch", "RefSwitch"), ("Merge", "RefMerge")
_PASSES = ("Identity", "StopGradient", "PlaceholderWithDefault")
PLACEHOLDERS = ("Placeholder", "PlaceholderV2", "PlaceholderWithDefault")


def inference_value(node: Node) -> Array | None:
    """Return what a placeholder other than the pictures is at inference, None if that is open."""
    if node.attributes.get("dtype") == "bool":
        return np.asarray(False)
    if node.attributes.get("dtype") == "float32" and "keep" in node.name.lower():
        return np.asarray(1, np.float32)
    return None


class Branches:
    """Which answers of the nodes are alive, and what ``Switch`` and ``Merge`` hand on."""

    def __init__(self, nodes: Mapping[str, Node], constants: Mapping[str, Array]) -> None:
        self._nodes = nodes
        self._constants = constants
        self._dead: set[str] = set()
        self._same: dict[str, str] = {}
        self._truth: dict[str, bool] = {}

    def settle(self, outputs: Sequence[str], stop: str | None) -> dict[str, Node]:
        """Return the living nodes that ``outputs`` need, branches replaced by what they pass."""
        found: dict[str, Node] = {}
        for name in ordered(self._nodes, outputs, stop, self._sources):
            node = self._nodes[name]
            if name == stop:
                found[name] = node
            elif node.op in _SWITCHES:
                self._switch(node)
            elif node.op in _MERGES:
                self._merge(node)
            elif any(self._is_dead(i) for i in (*node.inputs, *node.controls)):
                self._dead.add(f"{name}:0")
            else:
                self._remember_truth(node)
                found[name] = replace(node, inputs=tuple(map(self.resolve, node.inputs)))
        return found

    def resolve(self, reference: str) -> str:
        """Return where a value comes from once the branches are decided."""
        return self._same.get(_full(reference), reference)

    def _sources(self, node: Node) -> Iterable[str]:
        return map(source_of, (*node.inputs, *node.controls))

    def _is_dead(self, reference: str) -> bool:
        name, place = split_reference(reference)
        key = f"{name}:{place}"
        if name in self._nodes and self._nodes[name].op in _SWITCHES:
            return key in self._dead
        return f"{name}:0" in self._dead

    def _switch(self, node: Node) -> None:
        value, decider = node.inputs[0], _full(self.resolve(node.inputs[1]))
        if decider not in self._truth:
            raise UnsupportedModel(
                f"{node.op} {node.name!r} decides by a value computed at run time"
            )
        gone = self._is_dead(value)
        for place in (0, 1):
            self._same[f"{node.name}:{place}"] = self.resolve(value)
            if gone or place != int(self._truth[decider]):
                self._dead.add(f"{node.name}:{place}")

    def _merge(self, node: Node) -> None:
        alive = [i for i in node.inputs if not self._is_dead(i)]
        if len(alive) > 1:
            raise UnsupportedModel(f"{node.op} {node.name!r} joins two living branches")
        if alive:
            self._same[f"{node.name}:0"] = self.resolve(alive[0])
        else:
            self._dead.add(f"{node.name}:0")

    def _remember_truth(self, node: Node) -> None:
        key = f"{node.name}:0"
        constant = self._constants.get(node.name)
        if constant is not None:
            if constant.dtype == bool and constant.size == 1:
                self._truth[key] = bool(constant.reshape(-1)[0])
            return
        decider = _full(self.resolve(node.inputs[0])) if node.inputs else ""
        if decider in self._truth and node.op in (*_PASSES, "LogicalNot"):
            self._truth[key] = self._truth[decider] != (node.op == "LogicalNot")


def _full(reference: str) -> str:
    name, place = split_reference(reference)
    return f"{name}:{place}"
