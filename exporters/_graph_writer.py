"""Writes an ONNX graph node by node and knows the shape of every value at once.

Readers of foreign formats need shapes while they write (rounding of pooling windows, flattened
sizes), so each node's output type is inferred as it is added.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import onnx
from numpy.typing import NDArray
from onnx import TensorProto, defs, helper, numpy_helper, shape_inference

from onnxfr.errors import UnreadableModel

OPSET = 17
IR_VERSION = 8
MAX_NODES = 100_000

Attribute = int | float | str | Sequence[int] | Sequence[float]


@dataclass(frozen=True)
class Packed:
    """Whole numbers that stand for reals: ``(numbers - zero) * scale``, per slice of ``axis``."""

    numbers: NDArray[Any]
    scale: NDArray[np.float32]
    zero: NDArray[Any]
    axis: int = 0

    @property
    def shape(self) -> tuple[int, ...]:
        """The shape of the numbers."""
        return self.numbers.shape

    @property
    def ndim(self) -> int:
        """How many axes there are."""
        return self.numbers.ndim

    def __len__(self) -> int:
        return len(self.numbers)

    def reals(self) -> NDArray[np.float32]:
        """Return the reals the numbers stand for."""
        sides = [1] * self.ndim
        if self.scale.size > 1:
            sides[self.axis] = -1
        scale, zero = (part.reshape(sides) for part in (self.scale, self.zero))
        return ((self.numbers.astype(np.float64) - zero) * scale).astype(np.float32)


class GraphWriter:
    """Collects inputs, weights and nodes; ``build`` makes a checked model of them."""

    def __init__(self, producer: str) -> None:
        self._producer = producer
        self._nodes: list[onnx.NodeProto] = []
        self._inputs: list[onnx.ValueInfoProto] = []
        self._weights: dict[str, TensorProto] = {}
        self._types: dict[str, onnx.TypeProto] = {}

    def input(self, name: str, shape: Sequence[int]) -> str:
        """Declare the float input; ``shape`` is without the batch, which is dynamic."""
        if any(not 0 < side <= 4096 for side in shape):
            raise UnreadableModel(f"expected an input of 1 to 4096 pixels a side, got {shape}")
        free = self._free(name)
        kind = helper.make_tensor_type_proto(TensorProto.FLOAT, ["N", *shape])
        self._inputs.append(helper.make_value_info(free, kind))
        self._types[free] = kind
        return free

    def weight(self, values: NDArray[Any] | Packed, name: str = "weight") -> str:
        """Add a constant; every float becomes float32, packed numbers stay packed."""
        if isinstance(values, Packed):
            return self._packed(values, name)
        kept = np.ascontiguousarray(values)
        if kept.dtype.kind == "f":
            kept = kept.astype(np.float32)
        free = self._free(name)
        tensor = numpy_helper.from_array(kept.reshape(values.shape), free)
        self._weights[free] = tensor
        self._types[free] = helper.make_tensor_type_proto(tensor.data_type, values.shape)
        return free

    def _packed(self, values: Packed, name: str) -> str:
        single = values.scale.size == 1
        parts = [part.reshape(() if single else -1) for part in (values.scale, values.zero)]
        inputs = [self.weight(part, name) for part in (values.numbers, *parts)]
        axis: dict[str, Attribute] = {} if single else {"axis": values.axis}
        return self.add("DequantizeLinear", inputs, axis, name)

    def integers(self, values: Sequence[int], name: str = "shape") -> str:
        """Add a list of int64, as shapes, axes and pads are given."""
        return self.weight(np.asarray(values, dtype=np.int64), name)

    def number(self, value: float) -> str:
        """Add a single float, as factors, ends and epsilons are given."""
        return self.weight(np.asarray(value, dtype=np.float32), "number")

    def add(
        self,
        operator: str,
        inputs: Sequence[str],
        attributes: Mapping[str, Attribute] | None = None,
        name: str = "",
    ) -> str:
        """Add a node with one output and return the output's name."""
        if len(self._nodes) >= MAX_NODES:
            raise UnreadableModel(f"more than {MAX_NODES} operators: no face network is that long")
        output = self._free(name or operator.lower())
        node = helper.make_node(operator, list(inputs), [output], name=output)
        for key, value in (attributes or {}).items():
            node.attribute.append(helper.make_attribute(key, value))
        try:
            inferred = shape_inference.infer_node_outputs(
                defs.get_schema(operator, OPSET),
                node,
                {key: self._types[key] for key in inputs if key},
                {key: self._weights[key] for key in inputs if key in self._weights},
                opset_imports=[helper.make_opsetid("", OPSET)],
            )
        except (shape_inference.InferenceError, RuntimeError, ValueError) as error:
            shapes = [self.shape(key) for key in inputs if key]
            raise UnreadableModel(
                f"layer {output!r} ({operator}) does not fit its inputs {shapes}: "
                f"{str(error).splitlines()[-1]}"
            ) from None
        self._nodes.append(node)
        self._types[output] = inferred[output]
        return output

    def shape(self, value: str) -> tuple[int | None, ...]:
        """Return a value's shape, None where it is the batch or unknown."""
        dims = self._types[value].tensor_type.shape.dim
        return tuple(d.dim_value if d.HasField("dim_value") else None for d in dims)

    def sides(self, value: str) -> tuple[int, ...]:
        """Return a value's shape without the batch, which must be fixed."""
        shape = self.shape(value)[1:]
        known = tuple(side for side in shape if side is not None)
        if len(known) != len(shape) or any(side <= 0 for side in known):
            raise UnreadableModel(f"the size of {value!r} cannot be told: {self.shape(value)}")
        return known

    def constant(self, value: str) -> NDArray[Any] | None:
        """Return the numbers of a weight, None for a computed value."""
        tensor = self._weights.get(value)
        return None if tensor is None else numpy_helper.to_array(tensor)

    def build(self, outputs: Mapping[str, str]) -> onnx.ModelProto:
        """Return the model; ``outputs`` gives the public name of each value that is answered."""
        if not outputs:
            raise UnreadableModel("the network has no answer")
        computed = {node.output[0] for node in self._nodes}
        answers, renames = [], []
        for public, value in outputs.items():
            name = value
            if value != public or value not in computed:
                name = self._free(public)
                renames.append(helper.make_node("Identity", [value], [name], name=name))
            answers.append(helper.make_value_info(name, self._types[value]))
        nodes = self._needed(list(outputs.values()))
        used = {key for node in nodes for key in node.input} | set(outputs.values())
        graph = helper.make_graph(
            [*nodes, *renames],
            self._producer,
            self._inputs,
            answers,
            [tensor for key, tensor in self._weights.items() if key in used],
        )
        model = helper.make_model(
            graph,
            producer_name=self._producer,
            opset_imports=[helper.make_opsetid("", OPSET)],
            ir_version=IR_VERSION,
        )
        onnx.checker.check_model(model)
        return model

    def _needed(self, outputs: list[str]) -> list[onnx.NodeProto]:
        wanted = set(outputs)
        kept = []
        for node in reversed(self._nodes):
            if wanted & set(node.output):
                kept.append(node)
                wanted |= set(node.input)
        return kept[::-1]

    def _free(self, name: str) -> str:
        taken = self._types
        if name and name not in taken:
            self._types[name] = onnx.TypeProto()
            return name
        count = len(taken)
        while f"{name}_{count}" in taken:
            count += 1
        self._types[f"{name}_{count}"] = onnx.TypeProto()
        return f"{name}_{count}"
