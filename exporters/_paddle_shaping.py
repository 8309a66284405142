"""PaddlePaddle's operators that make, move, cut, reduce and resize values, as ONNX nodes."""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np

from onnxfr.errors import UnreadableModel, UnsafeFile, UnsupportedModel
from onnxfr.exporters import _layers as layers
from onnxfr.exporters._graph_writer import Attribute, GraphWriter
from onnxfr.exporters._operands import (
    Array,
    Operand,
    Operands,
    concat,
    for_one,
    named,
    reshape,
    sizes_of,
    stored,
)
from onnxfr.exporters._paddle_operators import channels_first, given, setting, writes
from onnxfr.exporters._paddle_program import Step, element_type

_MOST_FILLED = 1 << 16


@writes("full")
def _full(graph: GraphWriter, step: Step, operands: Operands) -> Operand:
    shape = [int(side) for side in setting(step, "shape", [1])]
    if min(shape, default=0) < 0 or math.prod(shape) > _MOST_FILLED:
        raise UnsafeFile(f"{step}: fills the shape {shape}")
    kind = element_type(setting(step, "dtype", "float32"))
    value = step.settings.get("str_value") or setting(step, "value", 0.0)
    return np.full(shape, float(value)).astype(kind)


@writes("full_int_array")
def _full_int_array(graph: GraphWriter, step: Step, operands: Operands) -> Operand:
    return np.asarray([int(value) for value in setting(step, "value")], dtype=np.int64)


@writes("shape", "shape64")
def _shape(graph: GraphWriter, step: Step, operands: Operands) -> Operand:
    return sizes_of(graph, operands[0])


@writes("cast")
def _cast(graph: GraphWriter, step: Step, operands: Operands) -> Operand:
    """Change stored numbers; computed values are float32 throughout."""
    operand = operands[0]
    if isinstance(operand, str):
        return operand
    return operand.astype(element_type(setting(step, "dtype", setting(step, "out_dtype", -1))))


@writes("assign", "share_data")
def _same(graph: GraphWriter, step: Step, operands: Operands) -> Operand:
    return operands[0]


@writes("reshape")
def _reshape(graph: GraphWriter, step: Step, operands: Operands) -> Operand:
    if len(operands) > 2:
        places = range(1, len(operands))
        target = [int(v) for k in places for v in stored(operands, k, str(step)).reshape(-1)]
    else:
        target = [int(value) for value in given(step, operands, "shape", 1)]
    return reshape(graph, operands[0], target, "reshape")


@writes("flatten")
def _flatten(graph: GraphWriter, step: Step, operands: Operands) -> Operand:
    x = named(graph, operands[0])
    rank = len(graph.shape(x))
    first, last = (int(setting(step, key)) % max(rank, 1) for key in ("start_axis", "stop_axis"))
    if (first, last) == (1, rank - 1):
        return layers.flatten(graph, x)
    if first == 0:
        raise UnsupportedModel(f"{step}: flattens the batch")
    sides = graph.sides(x)
    merged = (*sides[: first - 1], math.prod(sides[first - 1 : last]), *sides[last:])
    return reshape(graph, x, (0, *merged), "flatten")


@writes("flatten_to_rows")
def _flatten_to_rows(graph: GraphWriter, step: Step, operands: Operands) -> Operand:
    if int(setting(step, "axis", 1)) != 1:
        raise UnsupportedModel(f"{step}: flattens the batch")
    return layers.flatten(graph, named(graph, operands[0]))


@writes("transpose")
def _transpose(graph: GraphWriter, step: Step, operands: Operands) -> Operand:
    order = tuple(int(axis) for axis in setting(step, "perm"))
    return graph.add("Transpose", [named(graph, operands[0])], {"perm": order})


@writes("squeeze", "unsqueeze")
def _axes(graph: GraphWriter, step: Step, operands: Operands) -> Operand:
    x = named(graph, operands[0])
    axes = [int(axis) for axis in given(step, operands, "axis", 1)]
    if step.kind == "squeeze" and not axes:
        axes = [k for k, side in enumerate(graph.shape(x)) if side == 1]
    return graph.add(step.kind.capitalize(), [x, graph.integers(axes)])


@writes("concat")
def _concat(graph: GraphWriter, step: Step, operands: Operands) -> Operand:
    if "axis" in step.settings:
        return concat(graph, operands, int(setting(step, "axis")), "concat")
    axis = int(stored(operands, len(operands) - 1, str(step)).reshape(-1)[0])
    return concat(graph, operands[:-1], axis, "concat")


@writes("stack")
def _stack(graph: GraphWriter, step: Step, operands: Operands) -> Operand:
    axis = int(setting(step, "axis", 0))
    place = graph.integers([axis])
    raised = [graph.add("Unsqueeze", [named(graph, each), place]) for each in operands]
    return graph.add("Concat", raised, {"axis": axis})


@writes("split", "split_with_num")
def _split(graph: GraphWriter, step: Step, operands: Operands) -> Sequence[Operand]:
    x = named(graph, operands[0])
    axis = int(given(step, operands, "axis", len(operands) - 1 if len(operands) > 1 else 1)[0])
    side = graph.shape(x)[axis]
    if side is None:
        raise UnsupportedModel(f"{step}: splits the batch")
    count = int(step.settings.get("num") or 0)
    lengths = [side // count] * count if count else given(step, operands, "sections", 1)
    lengths = [int(length) for length in lengths]
    if lengths.count(-1) == 1:
        lengths[lengths.index(-1)] = side - sum(lengths) - 1
    if not lengths or min(lengths) < 0 or sum(lengths) != side:
        raise UnreadableModel(f"{step}: {side} cannot be split into {lengths}")
    ends = np.cumsum([0, *lengths]).tolist()
    return [
        graph.add("Slice", [x, *(graph.integers([part]) for part in (ends[k], ends[k + 1], axis))])
        for k in range(len(lengths))
    ]


@writes("slice")
def _slice(graph: GraphWriter, step: Step, operands: Operands) -> Operand:
    x = named(graph, operands[0])
    starts, ends = (given(step, operands, key, k) for k, key in ((1, "starts"), (2, "ends")))
    parts = [[int(v) for v in part] for part in (starts, ends, setting(step, "axes"))]
    cut = graph.add("Slice", [x, *(graph.integers(part) for part in parts)])
    dropped = [int(axis) for axis in setting(step, "decrease_axis", [])]
    return graph.add("Squeeze", [cut, graph.integers(dropped)]) if dropped else cut


_REDUCE = {"mean": "ReduceMean", "max": "ReduceMax", "sum": "ReduceSum"}


@writes(*_REDUCE)
def _reduce(graph: GraphWriter, step: Step, operands: Operands) -> Operand:
    x = named(graph, operands[0])
    axes = [int(axis) for axis in given(step, operands, "axis", 1)]
    if setting(step, "reduce_all", False) or not axes:
        raise UnsupportedModel(f"{step}: reduces the batch")
    keep = int(bool(setting(step, "keepdim", False)))
    if step.kind == "sum":
        return graph.add("ReduceSum", [x, graph.integers(axes)], {"keepdims": keep})
    return graph.add(_REDUCE[step.kind], [x], {"axes": axes, "keepdims": keep})


@writes("p_norm")
def _p_norm(graph: GraphWriter, step: Step, operands: Operands) -> Operand:
    if float(setting(step, "porder", 2.0)) != 2 or setting(step, "asvector", False):
        raise UnsupportedModel(f"{step}: a norm of another order than 2")
    axis, keep = int(setting(step, "axis", -1)), int(setting(step, "keepdim", 0))
    return graph.add("ReduceL2", [named(graph, operands[0])], {"axes": [axis], "keepdims": keep})


@writes("norm")
def _norm(graph: GraphWriter, step: Step, operands: Operands) -> Operand:
    axis = int(setting(step, "axis"))
    eps = float(setting(step, "epsilon", 1e-10))
    return layers.l2_normalise(graph, named(graph, operands[0]), eps, (axis,))


@writes("expand")
def _expand(graph: GraphWriter, step: Step, operands: Operands) -> Operand:
    target = for_one([int(v) for v in given(step, operands, "shape", 1)])
    kept = [1 if side == -1 else side for side in target]
    return graph.add("Expand", [named(graph, operands[0]), graph.integers(kept)])


@writes("pad")
def _pad(graph: GraphWriter, step: Step, operands: Operands) -> Operand:
    amounts = [int(value) for value in setting(step, "paddings")]
    if max(map(abs, amounts), default=0) > layers.MAX_WINDOW:
        raise UnsupportedModel(f"{step}: pads by {amounts}")
    value = given(step, operands, "pad_value", 1)[0]
    order = graph.integers((*amounts[::2], *amounts[1::2]))
    return graph.add("Pad", [named(graph, operands[0]), order, graph.number(float(value))])


@writes("bilinear_interp", "nearest_interp")
def _interpolate(graph: GraphWriter, step: Step, operands: Operands) -> Operand:
    channels_first(step)
    x = named(graph, operands[0])
    height, width = graph.sides(x)[1:]
    wanted = [int(setting(step, key, -1)) for key in ("out_h", "out_w")]
    if len(operands) > 1:
        wanted = [int(v) for v in stored(operands, 1, str(step)).reshape(-1)[:2]]
    factors = [float(v) for v in setting(step, "scale", [])]
    if min(wanted) <= 0 and factors:
        wanted = [int(height * factors[0]), int(width * factors[-1])]
    if not 0 < min(wanted) <= max(wanted) <= layers.MAX_WINDOW:
        raise UnsupportedModel(f"{step}: resizes to {wanted}")
    where = "align_corners" if setting(step, "align_corners", False) else "asymmetric"
    linear = step.kind == "bilinear_interp"
    if linear and where == "asymmetric" and not int(setting(step, "align_mode", 1)):
        where = "half_pixel"
    mode = "linear" if linear else "nearest"
    attributes: dict[str, Attribute] = {"mode": mode, "coordinate_transformation_mode": where}
    if not linear:
        attributes["nearest_mode"] = "floor" if where == "asymmetric" else "round_prefer_ceil"
    scales: Array = np.asarray([1, 1, wanted[0] / height, wanted[1] / width], dtype=np.float32)
    return graph.add("Resize", [x, "", graph.weight(scales)], attributes)
