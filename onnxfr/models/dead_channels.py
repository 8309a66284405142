"""Channels that a rectifier silences for every picture are dropped before onnxruntime sees them.

Weight decay drives whole filters towards zero. What is left of such a channel is its bias, and
where that is negative the rectifier behind it answers zero whatever the picture: interval
arithmetic proves it wherever a bounded activation (ReLU6) came before. The next layer then adds
products that are exactly zero, and does as well without them. A channel is dropped only if that is
proven with room for float32 rounding, so answers differ by no more than the order of a sum, for
every finite input.
"""

from __future__ import annotations

from collections import defaultdict

import numpy as np
import onnx
from numpy.typing import NDArray
from onnx import AttributeProto, TensorProto, helper, numpy_helper

from onnxfr.models.structure import constants_of

Floats = NDArray[np.float64]
Range = tuple[Floats, Floats]
"""Lowest and highest value of each channel, anywhere in the map and for every picture."""

_BLOCK = 16
"""onnxruntime computes channels in blocks of 4, 8 or 16, so that only whole blocks save time."""

_ROUNDING = 2.0**-23


def drop_dead_channels(model: onnx.ModelProto) -> int:
    """Drop channels proven to be zero, in place; return how many.

    Left alone: what feeds more than one layer, layers whose weights are not stored as float32, and
    graphs with branches.
    """
    if any(a.type == AttributeProto.GRAPH for n in model.graph.node for a in n.attribute):
        return 0
    network = _Network(model.graph)
    try:
        found = network.silent_channels()
    except (ValueError, IndexError):
        # A damaged constant or shapes that contradict each other: onnxruntime says what is wrong.
        return 0
    dropped = sum(network.drop(value, silent) for value, silent in found)
    if dropped:
        del model.graph.value_info[:]
    return dropped


class _Network:
    """A graph with its constants at hand and who computes and reads what."""

    def __init__(self, graph: onnx.GraphProto) -> None:
        self._graph = graph
        overridable = {value.name for value in graph.input}
        self._stored = {
            name: tensor for name, tensor in constants_of(graph).items() if name not in overridable
        }
        self._maker = {name: node for node in graph.node for name in node.output}
        self._readers: dict[str, list[onnx.NodeProto | None]] = defaultdict(list)
        for node in graph.node:
            for name in node.input:
                self._readers[name].append(node)
        for output in graph.output:
            self._readers[output.name].append(None)

    def silent_channels(self) -> list[tuple[str, NDArray[np.bool_]]]:
        """Return outputs of rectifiers and which of their channels are always zero."""
        ranges: dict[str, Range] = {}
        found = []
        for node in self._graph.node:
            known = self._range(node, ranges)
            if known is None:
                continue
            ranges[node.output[0]] = known
            silent = known[1] <= 0
            if self._is_rectifier(node) and silent.any():
                found.append((node.output[0], silent))
        return found

    def drop(self, value: str, silent: NDArray[np.bool_]) -> int:
        """Drop as many silent channels of a value as make whole blocks; return how many."""
        reader = self._only_reader(value)
        makers = self._makers(value)
        if reader is None or not makers or not self._is_conv(reader) or _group(reader) != 1:
            return 0
        alive = max(1, len(silent) - int(silent.sum()))
        excess = len(silent) - -(-alive // _BLOCK) * _BLOCK
        if excess <= 0 or self._weight(reader).shape[1] != len(silent):
            return 0
        kept = np.delete(np.arange(len(silent)), np.flatnonzero(silent)[-excess:])
        for layer in makers:
            if _group(layer) != 1:
                _set_group(layer, len(kept))
            for place in range(1, len(layer.input)):
                self._replace(layer, place, self._array(layer.input[place])[kept])
        self._replace(reader, 1, self._weight(reader)[:, kept])
        return excess

    def _makers(self, value: str) -> list[onnx.NodeProto]:
        """Return the layers that compute a value's channels one by one; none if others look on."""
        layers: list[onnx.NodeProto] = []
        while self._only_reader(value) is not None and value in self._maker:
            node = self._maker[value]
            if self._is_rectifier(node):
                value = node.input[0]
                continue
            if not self._is_conv(node):
                return []
            layers.append(node)
            if _group(node) == 1:
                return layers
            if not self._is_depthwise(node):
                return []
            value = node.input[0]
        return []

    def _range(self, node: onnx.NodeProto, ranges: dict[str, Range]) -> Range | None:
        if self._is_conv(node) and (_group(node) == 1 or self._is_depthwise(node)):
            return self._conv_range(node, ranges.get(node.input[0]))
        incoming = [ranges.get(name) for name in node.input]
        first = incoming[0] if incoming else None
        if first is None or node.domain not in ("", "ai.onnx"):
            return None
        if node.op_type == "Add" and len(incoming) == 2 and incoming[1] is not None:
            second = incoming[1]
            return (first[0] + second[0], first[1] + second[1]) if _alike(first, second) else None
        bounds = self._clip_bounds(node)
        if bounds is None:
            return None
        low, high = (np.clip(edge, *bounds) for edge in first)
        return low, high

    def _conv_range(self, node: onnx.NodeProto, incoming: Range | None) -> Range:
        weight = self._weight(node).astype(np.float64)
        spread = tuple(range(2, weight.ndim))
        up, down = (np.maximum(sign * weight, 0).sum(axis=spread) for sign in (1, -1))
        if _group(node) != 1:
            up, down = np.diag(up[:, 0]), np.diag(down[:, 0])
        channels = up.shape[1]
        low, high = incoming or (np.full(channels, -np.inf), np.full(channels, np.inf))
        # Borders are filled with zeros, wherever the map itself lies.
        low, high = np.minimum(low, 0), np.maximum(high, 0)
        bias = self._array(node.input[2]).astype(np.float64) if len(node.input) > 2 else 0.0
        largest = _total(up + down, np.maximum(-low, high)) + np.abs(bias)
        slack = largest * _ROUNDING * (weight[0].size + 2)
        top = bias + _total(up, high) + _total(down, -low) + slack
        bottom = bias - _total(up, -low) - _total(down, high) - slack
        return bottom, top

    def _clip_bounds(self, node: onnx.NodeProto) -> tuple[float, float] | None:
        """Return between which numbers an activation holds its input; None for other nodes."""
        if node.domain not in ("", "ai.onnx"):
            return None
        if node.op_type == "Relu":
            return 0.0, np.inf
        if node.op_type != "Clip":
            return None
        bounds = {"min": -np.inf, "max": np.inf}
        for attribute in node.attribute:
            bounds[attribute.name] = attribute.f
        for key, name in zip(bounds, node.input[1:], strict=False):
            if name and name not in self._stored:
                return None
            if name:
                bounds[key] = float(self._array(name).reshape(-1)[0])
        ordered = bounds["min"] <= bounds["max"]
        return (bounds["min"], bounds["max"]) if ordered else None

    def _is_rectifier(self, node: onnx.NodeProto) -> bool:
        bounds = self._clip_bounds(node)
        return bounds is not None and bounds[0] == 0

    def _is_conv(self, node: onnx.NodeProto) -> bool:
        """Whether a node is a convolution whose weight and bias are stored as float32."""
        stored = [self._stored.get(name) for name in node.input[1:]]
        return (
            node.op_type == "Conv"
            and node.domain in ("", "ai.onnx")
            and all(t is not None and t.data_type == TensorProto.FLOAT for t in stored)
        )

    def _is_depthwise(self, node: onnx.NodeProto) -> bool:
        shape = tuple(self._stored[node.input[1]].dims)
        return shape[:2] == (_group(node), 1)

    def _only_reader(self, value: str) -> onnx.NodeProto | None:
        readers = self._readers[value]
        return readers[0] if len(readers) == 1 else None

    def _weight(self, node: onnx.NodeProto) -> NDArray[np.float32]:
        return self._array(node.input[1])

    def _array(self, name: str) -> NDArray[np.float32]:
        return np.asarray(numpy_helper.to_array(self._stored[name]))

    def _replace(self, node: onnx.NodeProto, place: int, array: NDArray[np.float32]) -> None:
        """Give a layer a constant of its own: the stored one may serve others."""
        name = f"{node.output[0]}/kept{place}"
        tensor = numpy_helper.from_array(np.ascontiguousarray(array), name)
        if name in self._stored:
            self._stored[name].CopyFrom(tensor)
        else:
            self._graph.initializer.append(tensor)
            self._stored[name] = self._graph.initializer[-1]
            node.input[place] = name


def _total(weights: Floats, bound: Floats) -> Floats:
    """Add up non-negative weights times bounds, of which some may be infinite."""
    finite = np.isfinite(bound)
    unbounded = (weights[:, ~finite] > 0).any(axis=1)
    return np.where(unbounded, np.inf, weights[:, finite] @ bound[finite])


def _alike(first: Range, second: Range) -> bool:
    return first[0].shape == second[0].shape


def _group(node: onnx.NodeProto) -> int:
    return next((int(a.i) for a in node.attribute if a.name == "group"), 1)


def _set_group(node: onnx.NodeProto, group: int) -> None:
    kept = [attribute for attribute in node.attribute if attribute.name != "group"]
    del node.attribute[:]
    node.attribute.extend([*kept, helper.make_attribute("group", group)])
