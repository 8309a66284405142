"""One ONNX node as a rule sees it: typed attributes, inputs, a way to write torch operations."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import onnx
from onnx import AttributeProto
from torch import Tensor

from onnxfr.errors import UnreadableModel, UnsupportedOperator
from onnxfr.models.graph.builder import Builder
from onnxfr.models.graph.tensors import to_tensor
from onnxfr.models.graph.values import Size, Value


class Node:
    """A node with its inputs already converted.

    Args:
        proto: the node as stored.
        version: the version of the operator set it is written in.
        inputs: one value per input; None where an optional input is left out.
        builder: the network under construction.
        alone: per input, whether this node alone reads it, so that it may be merged into it.
    """

    def __init__(
        self,
        proto: onnx.NodeProto,
        version: int,
        inputs: list[Value | None],
        builder: Builder,
        alone: list[bool],
    ) -> None:
        self.operator = proto.op_type
        self.version = version
        self.inputs = inputs
        self.outputs = len(proto.output)
        self.builder = builder
        self._alone = alone
        self.name = proto.name or (proto.output[0] if proto.output else "")
        self.wanted = [bool(name) for name in proto.output]
        self._attributes = {attribute.name: attribute for attribute in proto.attribute}

    def __getitem__(self, index: int) -> Value:
        value = self.get(index)
        if value is None:
            raise UnreadableModel(
                f"node {self.name!r} ({self.operator}) lacks input {index}, which it needs"
            )
        return value

    def get(self, index: int) -> Value | None:
        """Return an input that may be left out."""
        return self.inputs[index] if index < len(self.inputs) else None

    def present(self) -> list[Value]:
        """Return the inputs that are there."""
        return [value for value in self.inputs if value is not None]

    def only_reads(self, value: Value) -> bool:
        """Whether nobody else reads this input."""
        return any(
            mine is value and alone for mine, alone in zip(self.inputs, self._alone, strict=True)
        )

    def emit(self, function: Callable[..., Any], *args: Any, **kwargs: Any) -> Value:
        """Write one torch operation (see :meth:`Builder.emit`)."""
        return self.builder.emit(function, *args, **kwargs)

    def emit_like_input(self, function: Callable[..., Any], *args: Any, **kwargs: Any) -> Value:
        """Write one torch operation whose result has the shape and type of the first input."""
        return self.builder.emit_shaped(self[0], function, *args, **kwargs)

    def emit_many(
        self, count: int, function: Callable[..., Any], *args: Any, **kwargs: Any
    ) -> list[Value]:
        """Write one torch operation with several results."""
        return self.builder.emit_many(count, function, *args, **kwargs)

    def unsupported(self, why: str) -> UnsupportedOperator:
        """Return the error that says this node has no differentiable form."""
        return UnsupportedOperator(self.operator, self.version, self.name, why)

    def constant(self, index: int, what: str) -> Tensor:
        """Return an input that must not depend on the pixels or the batch."""
        tensor = self[index].constant
        if tensor is None:
            raise self.unsupported(f"its {what} (input {index}) is computed while the network runs")
        return tensor

    def numbers(self, index: int) -> tuple[Size, ...] | Value | None:
        """Return an integer vector: its numbers where known, else the value; None if left out."""
        value = self.get(index)
        if value is None:
            return None
        return value if value.numbers is None else value.numbers

    def fixed_numbers(self, index: int, what: str) -> tuple[int, ...] | None:
        """Return an integer vector that must be constant; None if left out."""
        if self.get(index) is None:
            return None
        return tuple(int(entry) for entry in self.constant(index, what).reshape(-1))

    def has(self, name: str) -> bool:
        """Whether the attribute is written in the file."""
        return name in self._attributes

    def integer(self, name: str, default: int) -> int:
        """Return an integer attribute."""
        found = self._attribute(name, AttributeProto.INT)
        return default if found is None else int(found.i)

    def real(self, name: str, default: float) -> float:
        """Return a float attribute."""
        found = self._attribute(name, AttributeProto.FLOAT)
        return default if found is None else float(found.f)

    def integers(self, name: str) -> tuple[int, ...] | None:
        """Return an integer-list attribute, None if absent."""
        found = self._attribute(name, AttributeProto.INTS)
        return None if found is None else tuple(int(entry) for entry in found.ints)

    def reals(self, name: str) -> tuple[float, ...] | None:
        """Return a float-list attribute, None if absent."""
        found = self._attribute(name, AttributeProto.FLOATS)
        return None if found is None else tuple(float(entry) for entry in found.floats)

    def choice(self, name: str, default: str, *known: str) -> str:
        """Return which of the known words a string attribute says."""
        found = self._attribute(name, AttributeProto.STRING)
        word = default if found is None else found.s.decode("utf-8", "replace")
        for candidate in (default, *known):
            if word == candidate:
                return candidate
        raise self.unsupported(f"{name} is {word!r}, expected one of {sorted({default, *known})}")

    def text(self, name: str) -> str:
        """Return a free string attribute; the caller must not let it into the graph unchecked."""
        found = self._attribute(name, AttributeProto.STRING)
        return "" if found is None else found.s.decode("utf-8", "replace")

    def tensor(self, name: str) -> Tensor | None:
        """Return a tensor attribute, None if absent."""
        found = self._attribute(name, AttributeProto.TENSOR)
        return None if found is None else to_tensor(found.t)

    def tensor_type(self, name: str) -> int:
        """Return the element type of a tensor attribute, 0 if absent."""
        found = self._attribute(name, AttributeProto.TENSOR)
        return 0 if found is None else int(found.t.data_type)

    def _attribute(self, name: str, kind: int) -> onnx.AttributeProto | None:
        found = self._attributes.get(name)
        if found is not None and found.type != kind:
            raise UnreadableModel(
                f"attribute {name!r} of node {self.name!r} ({self.operator}) has the wrong type"
            )
        return found
