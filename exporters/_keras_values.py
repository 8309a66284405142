"""What Keras layers are made of while they become nodes: settings, arrays, and what was written."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from onnxfr.errors import UnsafeFile, UnsupportedModel
from onnxfr.exporters._keras_weights import Arrays
from onnxfr.exporters._tf_values import Array, Node, Stored
from onnxfr.exporters.base import MAX_BYTES

Argument = str | float
"""What a call is given: the name of a computed value, or a number."""


@dataclass
class Builder:
    """Collects nodes and stored numbers."""

    nodes: list[Node] = field(default_factory=list)
    weights: dict[str, Stored] = field(default_factory=dict)
    notes: list[str] = field(default_factory=list)
    _taken: set[str] = field(default_factory=set)
    _bytes: int = 0

    def add(self, op: str, name: str, inputs: Sequence[str], **attributes: Any) -> str:
        """Add a node under a name that is free and return that name."""
        free = name.replace(":", "_")
        if free in self._taken:
            free = f"{free}#{len(self.nodes)}"
        self._taken.add(free)
        self.nodes.append(Node(op, free, tuple(inputs), attributes))
        return free

    def constant(self, name: str, values: Any) -> str:
        """Add stored numbers; reals become 32-bit ones."""
        kept = np.asarray(values)
        if kept.dtype.kind == "f":
            kept = kept.astype(np.float32)
        self._bytes += kept.nbytes
        if self._bytes > MAX_BYTES:
            raise UnsafeFile(f"the Keras model unfolds to more than {MAX_BYTES >> 20} MiB")
        free = self.add("Const", name, ())
        self.weights[free] = kept
        return free

    def operand(self, name: str, value: Argument) -> str:
        """Return a computed value's name, or add a number."""
        return value if isinstance(value, str) else self.constant(name, np.float32(value))


@dataclass(frozen=True)
class Layer:
    """One layer: its class, its unique name, its settings and its arrays."""

    kind: str
    name: str
    config: Mapping[str, Any]
    arrays: Arrays
    own_name: str

    def take(self, *names: str) -> list[Array]:
        """Return the layer's arrays."""
        return self.arrays.take(self.own_name, names)

    def unsupported(self, what: str) -> UnsupportedModel:
        """Return an error that names the layer."""
        return UnsupportedModel(f"the Keras layer {self.name!r} ({self.kind}) {what}")
