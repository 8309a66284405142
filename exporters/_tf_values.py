"""What TensorFlow operators work on: computed values, stored numbers, and the order of axes."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from numpy.typing import NDArray

from onnxfr.errors import UnsupportedModel
from onnxfr.exporters._graph_writer import GraphWriter, Packed

Array = NDArray[Any]
BATCH = -(2**40)
"""Stands for the free number of pictures where a graph computes with shapes; arithmetic with it
gives sizes no operator accepts."""
TO_FIRST, TO_LAST = (0, 3, 1, 2), (0, 2, 3, 1)


@dataclass(frozen=True)
class Value:
    """A computed value; ``turned`` where TensorFlow's NHWC is stored as NCHW."""

    name: str
    turned: bool = False

    def plain(self, graph: GraphWriter) -> Value:
        """Return the value in TensorFlow's own order of axes."""
        if not self.turned:
            return self
        return Value(graph.add("Transpose", [self.name], {"perm": TO_LAST}))

    def first(self, graph: GraphWriter) -> str:
        """Return the name of the value with channels first."""
        if self.turned:
            return self.name
        if len(graph.shape(self.name)) != 4:
            raise UnsupportedModel(f"{self.name!r} is no picture: {graph.shape(self.name)}")
        return graph.add("Transpose", [self.name], {"perm": TO_FIRST})


Stored = Array | Packed
Operand = Value | Stored


@dataclass(frozen=True)
class Node:
    """One operator of the graph."""

    op: str
    name: str
    inputs: tuple[str, ...]
    attributes: Mapping[str, Any]
    controls: tuple[str, ...] = ()
    """Nodes that must come first; they matter only to tell which branch a node belongs to."""

    def flag(self, key: str) -> bool:
        """Return a boolean attribute, false where absent."""
        return bool(self.attributes.get(key) or False)

    def sides(self, key: str) -> tuple[int, int]:
        """Return height and width of an NHWC list such as strides."""
        found = self.attributes.get(key) or [1, 1, 1, 1]
        if len(found) != 4 or found[0] != 1 or found[3] != 1:
            raise UnsupportedModel(f"{self.op} {self.name!r} has {key} {found}")
        return int(found[1]), int(found[2])


Operands = Sequence[Operand]
Writer = Callable[[GraphWriter, Node, Operands], Operand | tuple[Operand, ...]]
OPERATORS: dict[str, Writer] = {}


def writes(*names: str) -> Callable[[Writer], Writer]:
    """Return a decorator that files a function under TensorFlow's names of an operator."""

    def decorate(function: Writer) -> Writer:
        OPERATORS.update(dict.fromkeys(names, function))
        return function

    return decorate


def computed(node: Node, operands: Operands, place: int = 0) -> Value:
    """Return an input that the graph computes."""
    operand = operands[place] if place < len(operands) else None
    if not isinstance(operand, Value):
        raise UnsupportedModel(f"{node.op} {node.name!r} has no computed input {place}")
    return operand


def stored(node: Node, operands: Operands, place: int) -> Array:
    """Return the reals of an input whose numbers are in the file."""
    return reals(kept(node, operands, place))


def kept(node: Node, operands: Operands, place: int) -> Stored:
    """Return an input whose numbers are in the file, packed if it holds them packed."""
    operand = operands[place] if place < len(operands) else None
    if operand is None or isinstance(operand, Value):
        raise UnsupportedModel(f"{node.op} {node.name!r} has no stored input {place}")
    return operand


def reals(numbers: Stored) -> Array:
    """Return stored numbers as an ordinary array."""
    return numbers.reals() if isinstance(numbers, Packed) else numbers
