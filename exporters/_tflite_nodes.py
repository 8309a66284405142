"""TFLite's operators as nodes of the TensorFlow family, merged activations and grids made explicit.

A quantised value is computed in reals and rounded to its grid (QuantizeLinear and
DequantizeLinear), as the integer kernels do up to their own rounding of the scale.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from onnxfr.errors import UnreadableModel, UnsupportedModel
from onnxfr.exporters._tf_values import Node, Stored
from onnxfr.exporters._tflite_schema import Network, Operator, Table, Tensor

Attributes = dict[str, Any]
Reader = Callable[[Table], Attributes]


def _window(options: Table, dilation: int) -> Attributes:
    """Return the window of a convolution; ``dilation`` is the field where its dilation begins."""
    return {
        "padding": "VALID" if options.number(0, "b") else "SAME",
        "stride": (options.number(2, "i"), options.number(1, "i")),
        "dilation": (options.number(dilation + 1, "i", 1), options.number(dilation, "i", 1)),
    }


def _pool(options: Table) -> Attributes:
    return {
        "padding": "VALID" if options.number(0, "b") else "SAME",
        "strides": [1, options.number(2, "i"), options.number(1, "i"), 1],
        "ksize": [1, options.number(4, "i"), options.number(3, "i"), 1],
    }


def _slice(options: Table) -> Attributes:
    names = ("begin", "end", "ellipsis", "new_axis", "shrink_axis")
    return {f"{name}_mask": options.number(k, "i") for k, name in enumerate(names)}


def _keep(options: Table) -> Attributes:
    return {"keep_dims": bool(options.number(0, "b"))}


def _plain(options: Table) -> Attributes:
    return {}


_NO_MERGE = -1
OPERATORS: dict[int, tuple[str, Reader, int]] = {
    0: ("AddV2", _plain, 0),
    1: ("AvgPool", _pool, 5),
    2: ("ConcatV2", _plain, 1),
    3: ("CONV_2D", lambda o: _window(o, 4), 3),
    4: ("DEPTHWISE_CONV_2D", lambda o: _window(o, 5), 4),
    6: ("Identity", _plain, _NO_MERGE),
    9: ("FULLY_CONNECTED", _plain, 0),
    11: ("L2_NORMALIZATION", _plain, 0),
    14: ("Sigmoid", _plain, _NO_MERGE),
    17: ("MaxPool", _pool, 5),
    18: ("Mul", _plain, 0),
    19: ("Relu", _plain, _NO_MERGE),
    21: ("Relu6", _plain, _NO_MERGE),
    22: ("Reshape", _plain, _NO_MERGE),
    25: ("Softmax", _plain, _NO_MERGE),
    28: ("Tanh", _plain, _NO_MERGE),
    34: ("Pad", _plain, _NO_MERGE),
    39: ("Transpose", _plain, _NO_MERGE),
    40: ("Mean", _keep, _NO_MERGE),
    41: ("Sub", _plain, 0),
    42: ("RealDiv", _plain, 0),
    43: ("Squeeze", lambda o: {"squeeze_dims": o.numbers(0, "<i4")}, _NO_MERGE),
    45: ("StridedSlice", _slice, _NO_MERGE),
    47: ("Exp", _plain, _NO_MERGE),
    49: ("Split", lambda o: {"num_split": o.number(0, "i")}, _NO_MERGE),
    53: ("Cast", _plain, _NO_MERGE),
    54: ("Prelu", _plain, _NO_MERGE),
    55: ("Maximum", _plain, _NO_MERGE),
    57: ("Minimum", _plain, _NO_MERGE),
    59: ("Neg", _plain, _NO_MERGE),
    60: ("PadV2", _plain, _NO_MERGE),
    70: ("ExpandDims", _plain, _NO_MERGE),
    74: ("Sum", _keep, _NO_MERGE),
    75: ("Sqrt", _plain, _NO_MERGE),
    76: ("Rsqrt", _plain, _NO_MERGE),
    77: ("Shape", _plain, _NO_MERGE),
    78: ("Pow", _plain, _NO_MERGE),
    82: ("Max", _keep, _NO_MERGE),
    83: ("Pack", lambda o: {"axis": o.number(1, "i")}, _NO_MERGE),
    92: ("Square", _plain, _NO_MERGE),
    98: ("LeakyRelu", lambda o: {"alpha": o.number(0, "f")}, _NO_MERGE),
    101: ("Abs", _plain, _NO_MERGE),
    102: ("SplitV", _plain, _NO_MERGE),
    111: ("Elu", _plain, _NO_MERGE),
    114: ("Identity", _plain, _NO_MERGE),
    117: ("HardSwish", _plain, _NO_MERGE),
}
_MERGED = {1: ("Relu", 0.0, np.inf), 3: ("Relu6", 0.0, 6.0), 4: ("Tanh", -1.0, 1.0)}
_ON_THE_GRID = frozenset(
    {
        "Reshape", "Pad", "MaxPool", "Transpose", "Squeeze", "ExpandDims", "Split", "SplitV",
        "StridedSlice", "Identity", "Relu",
    }
)  # fmt: skip


class Translator:
    """Collects the nodes and stored numbers of one network."""

    def __init__(self, network: Network) -> None:
        self._tensors = network.tensors
        self.nodes: list[Node] = []
        self.weights: dict[str, Stored] = {}
        self._names = {k: tensor.name for k, tensor in enumerate(network.tensors)}
        for tensor in network.tensors:
            if tensor.stored is not None:
                self.weights[tensor.name] = tensor.stored
                self.nodes.append(Node("Const", tensor.name, (), {}))
        for operator in network.operators:
            self._translate(operator)

    def _translate(self, operator: Operator) -> None:
        if operator.custom or operator.code not in OPERATORS:
            told = operator.custom or f"number {operator.code}"
            raise UnsupportedModel(f"the TFLite operator {told} has no ONNX form here")
        op, read, merged = OPERATORS[operator.code]
        options = operator.options
        attributes = read(options) if options else {}
        inputs = self._inputs(op, operator, options)
        first = self._tensors[operator.inputs[0]] if operator.inputs else None
        attributes["quantised"] = first is not None and first.quantised
        step = options.number(merged, "b") if options and merged != _NO_MERGE else 0
        if not operator.outputs:
            raise UnreadableModel(f"a step {op} of the TFLite file has no answer")
        if len(operator.outputs) > 1:
            self._several(op, operator, inputs, attributes)
            return
        tensor = self._tensors[operator.outputs[0]]
        chain = [(op, tuple(inputs), attributes), *self._activation(op, step, tensor)]
        if tensor.quantised and not self._already(op, operator, tensor):
            chain.append(("QUANTIZE", (), grid_of(tensor)))
        last = ""
        for place, (kind, given, settings) in enumerate(chain):
            name = tensor.name if place == len(chain) - 1 else f"{tensor.name}/step{place}"
            self.nodes.append(Node(kind, name, given or (last,), settings))
            last = name

    def _inputs(self, op: str, operator: Operator, options: Table | None) -> list[str]:
        inputs = [self._names[k] for k in operator.inputs if k >= 0]
        if op == "ConcatV2":
            inputs.append(self._number(operator, [options.number(0, "i") if options else 0]))
        elif op == "Reshape" and len(inputs) == 1:
            inputs.append(self._number(operator, options.numbers(0, "<i4") if options else []))
        return inputs

    def _number(self, operator: Operator, values: list[int]) -> str:
        name = f"{self._names[operator.outputs[0]]}/told"
        self.nodes.append(Node("Const", name, (), {}))
        self.weights[name] = np.asarray(values, np.int64)
        return name

    def _several(
        self, op: str, operator: Operator, inputs: list[str], attributes: Attributes
    ) -> None:
        whole = f"{self._names[operator.outputs[0]]}/parts"
        self.nodes.append(Node(op, whole, tuple(inputs), attributes))
        for place, index in enumerate(operator.outputs):
            tensor = self._tensors[index]
            part = f"{whole}:{place}"
            if tensor.quantised and not self._already(op, operator, tensor):
                self.nodes.append(Node("QUANTIZE", tensor.name, (part,), grid_of(tensor)))
            else:
                self.nodes.append(Node("Identity", tensor.name, (part,), {}))

    def _activation(
        self, op: str, step: int, tensor: Tensor
    ) -> list[tuple[str, tuple[str, ...], Attributes]]:
        """Return the merged activation, unless the grid of the answer clips alike."""
        if not step:
            return []
        if step not in _MERGED:
            raise UnsupportedModel(f"{op} {tensor.name!r} has the unknown activation {step} merged")
        kind, low, high = _MERGED[step]
        if tensor.quantised and kind != "Tanh" and tensor.dtype is not None:
            limits = np.iinfo(tensor.dtype)
            scale, zero = tensor.scale[0], (tensor.zero or (0,))[0]
            ends = (limits.min - zero) * scale, (limits.max - zero) * scale
            if ends[0] >= low - scale / 2 and ends[1] <= high + scale / 2:
                return []
        return [(kind, (), {})]

    def _already(self, op: str, operator: Operator, tensor: Tensor) -> bool:
        """Tell whether an operator's answer lies on its grid because its input did."""
        first = self._tensors[operator.inputs[1 if op == "Split" else 0]]
        same = (first.scale, first.zero, first.dtype) == (tensor.scale, tensor.zero, tensor.dtype)
        return op in _ON_THE_GRID and same


def grid_of(tensor: Tensor) -> Attributes:
    """Return the grid of a quantised value, one for all its numbers."""
    zero = tensor.zero or (0,)
    if len(tensor.scale) != 1 or len(zero) != 1:
        raise UnsupportedModel(f"the computed value {tensor.name!r} has a scale per channel")
    if tensor.dtype not in (np.dtype("i1"), np.dtype("u1")):
        raise UnsupportedModel(f"{tensor.name!r} is computed as {tensor.dtype}, expected 8 bits")
    limits = np.iinfo(tensor.dtype)
    if not (limits.min <= zero[0] <= limits.max and 0 < tensor.scale[0] < np.inf):
        raise UnreadableModel(f"{tensor.name!r} has an impossible grid")
    return {"scale": tensor.scale[0], "zero": zero[0], "dtype": tensor.dtype.str}
