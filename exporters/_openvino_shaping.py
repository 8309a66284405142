"""OpenVINO's operators that move, cut, resize and quantise values, as ONNX nodes."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from onnxfr.errors import UnreadableModel, UnsupportedModel
from onnxfr.exporters import _layers as layers
from onnxfr.exporters._graph_writer import Attribute, GraphWriter
from onnxfr.exporters._openvino_ir import DTYPES, Layer
from onnxfr.exporters._openvino_operators import writes
from onnxfr.exporters._operands import (
    Array,
    Operand,
    Operands,
    concat,
    for_one,
    integers,
    named,
    reshape,
    sizes_of,
    stored,
)


@writes("Convert", "ConvertLike")
def _convert(graph: GraphWriter, layer: Layer, operands: Operands) -> Operand:
    """Unpack stored numbers; computed values are float32 throughout, as OpenVINO computes them."""
    operand = operands[0]
    if isinstance(operand, str):
        return operand
    kind = layer.text("destination_type", "f32")
    if kind not in DTYPES:
        raise UnsupportedModel(f"{layer}: converts to {kind!r}")
    return operand.astype(DTYPES[kind])


@writes("ShapeOf")
def _shape_of(graph: GraphWriter, layer: Layer, operands: Operands) -> Operand:
    return sizes_of(graph, operands[0])


@writes("Reshape")
def _reshape(graph: GraphWriter, layer: Layer, operands: Operands) -> Operand:
    target = integers(operands, 1, str(layer))
    if 0 in target and not layer.flag("special_zero"):
        raise UnsupportedModel(f"{layer}: reshapes to nothing: {target}")
    return reshape(graph, operands[0], target, layer.name)


@writes("Transpose")
def _transpose(graph: GraphWriter, layer: Layer, operands: Operands) -> Operand:
    x, order = named(graph, operands[0]), integers(operands, 1, str(layer))
    order = order or tuple(reversed(range(len(graph.shape(x)))))
    return graph.add("Transpose", [x], {"perm": order}, layer.name)


@writes("Squeeze")
def _squeeze(graph: GraphWriter, layer: Layer, operands: Operands) -> Operand:
    x = named(graph, operands[0])
    if len(operands) > 1:
        axes = integers(operands, 1, str(layer))
    else:
        axes = tuple(k for k, side in enumerate(graph.shape(x)) if side == 1)
    return graph.add("Squeeze", [x, graph.integers(axes)], name=layer.name)


@writes("Unsqueeze")
def _unsqueeze(graph: GraphWriter, layer: Layer, operands: Operands) -> Operand:
    axes = graph.integers(integers(operands, 1, str(layer)))
    return graph.add("Unsqueeze", [named(graph, operands[0]), axes], name=layer.name)


@writes("Concat")
def _concat(graph: GraphWriter, layer: Layer, operands: Operands) -> Operand:
    axis = int(layer.number_of("axis"))
    return concat(graph, operands, axis, layer.name)


@writes("Gather")
def _gather(graph: GraphWriter, layer: Layer, operands: Operands) -> Operand:
    if layer.number_of("batch_dims", 0):
        raise UnsupportedModel(f"{layer}: gathers with batch_dims")
    axis = {"axis": integers(operands, 2, str(layer))[0]}
    return graph.add("Gather", [named(graph, each) for each in operands[:2]], axis, layer.name)


@writes("Split", "VariadicSplit")
def _split(graph: GraphWriter, layer: Layer, operands: Operands) -> Sequence[Operand]:
    x = named(graph, operands[0])
    shape = graph.shape(x)
    axis = integers(operands, 1, str(layer))[0] % max(len(shape), 1)
    side = shape[axis]
    if side is None:
        raise UnsupportedModel(f"{layer}: splits the batch")
    if layer.kind == "Split":
        count = int(layer.number_of("num_splits"))
        if not 0 < count <= side or side % count:
            raise UnreadableModel(f"{layer}: {side} cannot be split into {count}")
        lengths = [side // count] * count
    else:
        lengths = list(integers(operands, 2, str(layer)))
        if lengths.count(-1) == 1:
            lengths[lengths.index(-1)] = side - sum(lengths) - 1
    if min(lengths) < 0 or sum(lengths) != side:
        raise UnreadableModel(f"{layer}: {side} cannot be split into {lengths}")
    ends = np.cumsum([0, *lengths]).tolist()
    return [
        _slice(graph, x, ends[k : k + 1], ends[k + 1 : k + 2], [1], [axis])
        for k in range(len(lengths))
    ]


def _slice(
    graph: GraphWriter,
    x: str,
    begin: Sequence[int],
    end: Sequence[int],
    step: Sequence[int],
    axes: Sequence[int],
    name: str = "",
) -> str:
    parts = [graph.integers(part) for part in (begin, end, axes, step)]
    return graph.add("Slice", [x, *parts], name=name)


@writes("Slice")
def _plain_slice(graph: GraphWriter, layer: Layer, operands: Operands) -> Operand:
    begin, end, step = (integers(operands, k, str(layer)) for k in (1, 2, 3))
    axes = integers(operands, 4, str(layer)) if len(operands) > 4 else tuple(range(len(begin)))
    return _slice(graph, named(graph, operands[0]), begin, end, step, axes, layer.name)


@writes("StridedSlice")
def _strided_slice(graph: GraphWriter, layer: Layer, operands: Operands) -> Operand:
    begin, end = (integers(operands, k, str(layer)) for k in (1, 2))
    step = integers(operands, 3, str(layer)) if len(operands) > 3 else (1,) * len(begin)
    masks = {
        key: (*layer.numbers(f"{key}_mask"), *(0,) * len(begin))
        for key in ("begin", "end", "new_axis", "shrink_axis", "ellipsis")
    }
    if any(masks["new_axis"]) or any(masks["ellipsis"]):
        raise UnsupportedModel(f"{layer}: cuts with new axes or an ellipsis")
    if not len(begin) == len(end) == len(step):
        raise UnreadableModel(f"{layer}: begin, end and strides differ in length")
    far = 2**31 - 1
    first, last, drop = [], [], []
    for k, (start, stop, by) in enumerate(zip(begin, end, step, strict=True)):
        if masks["shrink_axis"][k]:
            drop.append(k)
            first.append(start)
            last.append(far if start == -1 else start + 1)
            continue
        first.append((0 if by > 0 else far) if masks["begin"][k] else start)
        last.append((far if by > 0 else -far) if masks["end"][k] else stop)
    axes = list(range(len(begin)))
    x = _slice(graph, named(graph, operands[0]), first, last, step, axes, layer.name)
    return graph.add("Squeeze", [x, graph.integers(drop)]) if drop else x


_PAD_MODES = {"constant": "constant", "edge": "edge", "reflect": "reflect"}


@writes("Pad")
def _pad(graph: GraphWriter, layer: Layer, operands: Operands) -> Operand:
    mode = _PAD_MODES.get(layer.text("pad_mode", "constant").lower())
    if mode is None:
        raise UnsupportedModel(f"{layer}: pads by {layer.text('pad_mode')!r}")
    amounts = (*integers(operands, 1, str(layer)), *integers(operands, 2, str(layer)))
    if max(map(abs, amounts), default=0) > layers.MAX_WINDOW:
        raise UnsupportedModel(f"{layer}: pads by {amounts}")
    inputs = [named(graph, operands[0]), graph.integers(amounts)]
    if len(operands) > 3 and mode == "constant":
        inputs.append(graph.weight(stored(operands, 3, str(layer)).astype("<f4").reshape(())))
    return graph.add("Pad", inputs, {"mode": mode}, layer.name)


@writes("Broadcast")
def _broadcast(graph: GraphWriter, layer: Layer, operands: Operands) -> Operand:
    if layer.text("mode", "numpy").lower() not in ("numpy", "bidirectional"):
        raise UnsupportedModel(f"{layer}: broadcasts by {layer.text('mode')!r}")
    target = graph.integers(for_one(integers(operands, 1, str(layer))))
    return graph.add("Expand", [named(graph, operands[0]), target], name=layer.name)


@writes("CumSum")
def _cum_sum(graph: GraphWriter, layer: Layer, operands: Operands) -> Operand:
    flags = {key: int(layer.flag(key)) for key in ("exclusive", "reverse")}
    axis = graph.weight(np.asarray(integers(operands, 1, str(layer))[0], dtype=np.int64))
    return graph.add("CumSum", [named(graph, operands[0]), axis], flags, layer.name)


@writes("Tile")
def _tile(graph: GraphWriter, layer: Layer, operands: Operands) -> Operand:
    times = graph.integers(integers(operands, 1, str(layer)))
    return graph.add("Tile", [named(graph, operands[0]), times], name=layer.name)


@writes("Select")
def _select(graph: GraphWriter, layer: Layer, operands: Operands) -> Operand:
    return graph.add("Where", [named(graph, each) for each in operands], name=layer.name)


_COORDINATES = {
    "half_pixel", "pytorch_half_pixel", "asymmetric", "align_corners", "tf_half_pixel_for_nn",
}  # fmt: skip


@writes("Interpolate")
def _interpolate(graph: GraphWriter, layer: Layer, operands: Operands) -> Operand:
    mode = {
        "nearest": "nearest",
        "linear": "linear",
        "linear_onnx": "linear",
        "cubic": "cubic",
    }.get(layer.text("mode").lower())
    where = layer.text("coordinate_transformation_mode", "half_pixel").lower()
    if mode is None or where not in _COORDINATES or layer.flag("antialias"):
        raise UnsupportedModel(f"{layer}: resizes by {layer.text('mode')!r} and {where!r}")
    if any(layer.numbers("pads_begin")) or any(layer.numbers("pads_end")):
        raise UnsupportedModel(f"{layer}: pads while resizing")
    x = named(graph, operands[0])
    sizes = layer.text("shape_calculation_mode", "sizes").lower() == "sizes"
    old = layer.version == "opset4"
    amounts = stored(operands, 2 if old and not sizes else 1, str(layer)).reshape(-1)
    place = 3 if old else 2
    rank = len(graph.shape(x))
    axes = integers(operands, place, str(layer)) if len(operands) > place else tuple(range(rank))
    attributes: dict[str, Attribute] = {"mode": mode, "coordinate_transformation_mode": where}
    if mode == "nearest":
        attributes["nearest_mode"] = layer.text("nearest_mode", "round_prefer_floor").lower()
    if mode == "cubic":
        attributes["cubic_coeff_a"] = layer.number_of("cube_coeff", -0.75)
    scales = np.ones(rank, dtype=np.float32)
    for axis, amount in zip(axes, amounts, strict=True):
        side = graph.shape(x)[axis]
        if axis == 0 or side is None or not 0 < amount <= layers.MAX_WINDOW:
            raise UnsupportedModel(f"{layer}: resizes axis {axis} to {amount}")
        scales[axis] = amount / side if sizes else amount
    return graph.add("Resize", [x, "", graph.weight(scales)], attributes, layer.name)


@writes("FakeQuantize")
def _fake_quantize(graph: GraphWriter, layer: Layer, operands: Operands) -> Operand:
    """Quantise to ``levels`` steps from the lower to the upper end and back.

    The value is moved to start at zero, so that any range is exact with 8-bit integers.
    """
    levels = int(layer.number_of("levels"))
    if not 2 <= levels <= 256:
        raise UnsupportedModel(f"{layer}: {levels} levels; 8 bits have 256")
    x = named(graph, operands[0])
    ends = [stored(operands, k, str(layer)).astype(np.float32) for k in (1, 2, 3, 4)]
    low, high, out_low, out_high = np.broadcast_arrays(*ends)
    if np.any(high <= low):
        raise UnsupportedModel(f"{layer}: a range that is empty or turned round")
    moved = _shift(graph, x, -low)
    width = (high - low) / np.float32(levels - 1)
    out_width = (out_high - out_low) / np.float32(levels - 1)
    if levels < 256:
        moved = graph.add("Min", [moved, graph.weight(np.ascontiguousarray(high - low))])
    steps, axis = _scales(layer, width, len(graph.shape(x)))
    back, _ = _scales(layer, out_width, len(graph.shape(x)))
    zero = np.zeros(steps.shape, dtype=np.uint8)
    whole = graph.add(
        "QuantizeLinear", [moved, graph.weight(steps), graph.weight(zero)], {"axis": axis}
    )
    real = graph.add(
        "DequantizeLinear", [whole, graph.weight(back), graph.weight(zero)], {"axis": axis}
    )
    return _shift(graph, real, out_low)


def _shift(graph: GraphWriter, x: str, by: Array) -> str:
    return graph.add("Add", [x, graph.weight(np.ascontiguousarray(by))]) if np.any(by) else x


def _scales(layer: Layer, values: Array, rank: int) -> tuple[Array, int]:
    """Return one scale, or one per slice of the only axis along which they differ."""
    long = [k for k, side in enumerate(values.shape) if side > 1]
    if not long:
        return values.reshape(-1)[0].reshape(()), 1
    if len(long) > 1:
        raise UnsupportedModel(f"{layer}: ranges differ along several axes")
    return values.reshape(-1), long[0] + rank - values.ndim
