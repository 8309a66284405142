"""What can be said of a vendor's graph by looking at it: its image input and its static hints.

Names are never trusted: InsightFace's own heuristic (names of the first eight nodes) is replaced
by reading the constants that really touch the input.
"""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np
import onnx
from numpy.typing import NDArray
from onnx import TensorProto, numpy_helper

from onnxfr.errors import UnsupportedModel
from onnxfr.models.preprocessing import GRID, Color, Layout, Scaling

FLOAT_INPUTS = {
    TensorProto.FLOAT,
    TensorProto.FLOAT16,
    TensorProto.BFLOAT16,
    TensorProto.DOUBLE,
}
BYTE_INPUTS = {TensorProto.UINT8, TensorProto.INT8}
_PASSED_OVER = {"Identity", "Cast", "Transpose", "QuantizeLinear", "DequantizeLinear", "Dropout"}
_AFFINE = {"Sub", "Add", "Mul", "Div", "BatchNormalization"}


@dataclass(frozen=True)
class ImageInput:
    """The input that takes the picture; ``None`` marks a size the file leaves open."""

    name: str
    elem_type: int
    layout: Layout
    channels: int
    height: int | None
    width: int | None
    batch: int | None

    @property
    def colors(self) -> tuple[Color, ...]:
        """The colour orders that its channels can hold."""
        return ("rgb", "bgr") if self.channels == 3 else ("grey",)

    @property
    def scalings(self) -> tuple[Scaling, ...]:
        """The scalings worth trying: a byte holds nothing but 0..255."""
        return ("0-255",) if self.elem_type in BYTE_INPUTS else GRID


@dataclass(frozen=True)
class StaticHints:
    """What the first nodes reveal; ``pixel_range`` is the range of values the input expects."""

    pixel_range: str | None = None
    color: str | None = None
    reasons: tuple[str, ...] = field(default_factory=tuple)


def graph_inputs(graph: onnx.GraphProto) -> list[onnx.ValueInfoProto]:
    """Return the true inputs: old IR versions also list initializers among them."""
    stored = {tensor.name for tensor in graph.initializer}
    return [value for value in graph.input if value.name not in stored]


def shape_of(value: onnx.ValueInfoProto) -> list[int | None]:
    """Return the declared shape; an open or symbolic size is None."""
    dims = value.type.tensor_type.shape.dim
    return [d.dim_value if d.HasField("dim_value") and d.dim_value > 0 else None for d in dims]


def constants_of(graph: onnx.GraphProto) -> dict[str, TensorProto]:
    """Return every stored constant by name, initializers and Constant nodes alike."""
    found = {tensor.name: tensor for tensor in graph.initializer}
    for node in graph.node:
        if node.op_type == "Constant":
            for attribute in node.attribute:
                if attribute.name == "value":
                    found[node.output[0]] = attribute.t
                elif attribute.name in ("value_float", "value_floats"):
                    values = np.asarray(onnx.helper.get_attribute_value(attribute), np.float32)
                    found[node.output[0]] = numpy_helper.from_array(values, node.output[0])
                elif attribute.name in ("value_int", "value_ints"):
                    integers = np.asarray(onnx.helper.get_attribute_value(attribute), np.int64)
                    found[node.output[0]] = numpy_helper.from_array(integers, node.output[0])
    return found


def find_image_input(model: onnx.ModelProto) -> ImageInput:
    """Return the one input that takes pictures, or say why there is none."""
    inputs = graph_inputs(model.graph)
    usable = FLOAT_INPUTS | BYTE_INPUTS
    pictures = [
        value
        for value in inputs
        if value.type.tensor_type.elem_type in usable and _could_be_picture(_picture_shape(value))
    ]
    if len(pictures) != 1:
        seen = ", ".join(_declaration(v) for v in inputs) or "no input at all"
        several = "name the embedding of one picture with --output, or " if pictures else ""
        raise UnsupportedModel(
            "expected exactly one image input of shape (N,3,H,W) or (N,H,W,3), or with 1 channel, "
            f"of floats (16, 32 or 64 bits) or bytes; found {len(pictures)} among: {seen}; "
            f"{several}ask the vendor for a graph that takes one aligned picture"
        )
    value = pictures[0]
    others = ", ".join(_declaration(other) for other in inputs if other is not value)
    if others:
        raise UnsupportedModel(
            f"expected a network that takes a picture and nothing else; besides {value.name} this "
            f"one wants {others}: where the embedding does not depend on it, name the embedding "
            "with --output; else ask the vendor for a graph with that value inside"
        )
    shape = _picture_shape(value)
    layout = _layout(shape, model.graph, value.name)
    channel, height, width = (1, 2, 3) if layout == "nchw" else (3, 1, 2)
    return ImageInput(
        name=value.name,
        elem_type=value.type.tensor_type.elem_type,
        layout=layout,
        channels=shape[channel] or _channels_filtered(model.graph, value.name) or 3,
        height=shape[height],
        width=shape[width],
        batch=shape[0],
    )


def _declaration(value: onnx.ValueInfoProto) -> str:
    kind = TensorProto.DataType.Name(value.type.tensor_type.elem_type).lower()
    sizes = ", ".join("?" if size is None else str(size) for size in shape_of(value))
    if not value.type.tensor_type.HasField("shape"):
        sizes = "no shape"
    return f"{value.name}: {kind}[{sizes}]"


def _picture_shape(value: onnx.ValueInfoProto) -> list[int | None]:
    """Return the declared shape; a file that declares none may mean a picture of any size."""
    return shape_of(value) if value.type.tensor_type.HasField("shape") else [None] * 4


def _channels_filtered(graph: onnx.GraphProto, name: str) -> int | None:
    """Return how many channels the first convolution takes, where it alone reads the picture."""
    stored = {tensor.name: tensor.dims for tensor in graph.initializer}
    for node in _chain(graph, name):
        if node.op_type == "Conv" and len(dims := stored.get(node.input[1], ())) == 4:
            groups = next((a.i for a in node.attribute if a.name == "group"), 1)
            return int(dims[1] * groups)
    return None


def _could_be_picture(shape: list[int | None]) -> bool:
    if len(shape) != 4:
        return False
    channel_first = shape[1] in (1, 3, None) and all(s is None or s >= 8 for s in shape[2:])
    channel_last = shape[3] in (1, 3, None) and all(s is None or s >= 8 for s in shape[1:3])
    return channel_first or channel_last


def _layout(shape: list[int | None], graph: onnx.GraphProto, name: str) -> Layout:
    if shape[1] in (1, 3):
        return "nchw"
    if shape[3] in (1, 3):
        return "nhwc"
    for node in _chain(graph, name):
        if node.op_type == "Transpose":
            perm = next((list(a.ints) for a in node.attribute if a.name == "perm"), [])
            return "nhwc" if perm == [0, 3, 1, 2] else "nchw"
    return "nchw"


def _chain(graph: onnx.GraphProto, name: str, limit: int = 16) -> list[onnx.NodeProto]:
    """Follow the input through single-consumer nodes that do no filtering."""
    consumers: dict[str, list[onnx.NodeProto]] = {}
    for node in graph.node:
        for used in node.input:
            consumers.setdefault(used, []).append(node)
    chain: list[onnx.NodeProto] = []
    while len(users := consumers.get(name, [])) == 1 and len(chain) < limit:
        node = users[0]
        chain.append(node)
        if node.op_type not in _PASSED_OVER | _AFFINE:
            break
        name = node.output[0]
    return chain


def static_hints(model: onnx.ModelProto, image: ImageInput) -> StaticHints:
    """Read what the file itself says about its preprocessing."""
    for prop in model.metadata_props:
        if prop.key == "onnxfr.normal_form":
            return StaticHints("0-1", "rgb", ("the file is already in onnxfr's normal form",))
    reasons: list[str] = []
    color = _color_from_metadata(model, reasons)
    if image.elem_type in BYTE_INPUTS:
        reasons.append("the input takes bytes, so it expects 0..255")
        return StaticHints("0-255", color, tuple(reasons))
    constants = constants_of(model.graph)
    for node in _chain(model.graph, image.name):
        if node.op_type not in _AFFINE:
            continue
        values = _affine_constant(node, constants)
        if values is None:
            break
        expected, order = _read_constant(node.op_type, values)
        if expected is not None:
            reasons.append(f"{node.op_type} by {_short(values)} at the input expects {expected}")
            return StaticHints(expected, order or color, tuple(reasons))
    return StaticHints(None, color, tuple(reasons))


def _color_from_metadata(model: onnx.ModelProto, reasons: list[str]) -> str | None:
    for prop in model.metadata_props:
        key, value = prop.key.lower(), prop.value.strip().lower()
        if key in ("color", "colour", "color_order", "channel_order", "input_color"):
            for order in ("rgb", "bgr"):
                if value == order:
                    reasons.append(f"metadata {prop.key}={prop.value}")
                    return order
    return None


def _affine_constant(
    node: onnx.NodeProto, constants: dict[str, TensorProto]
) -> NDArray[np.float64] | None:
    if node.op_type == "BatchNormalization" and len(node.input) < 5:
        return None  # the first run will say what is wrong with it
    operand = node.input[3] if node.op_type == "BatchNormalization" else None
    names = [operand] if operand else [n for n in node.input if n in constants]
    if len(names) != 1 or names[0] not in constants:
        return None
    values = numpy_helper.to_array(constants[names[0]]).astype(np.float64).ravel()
    return values if 0 < values.size <= 3 else None


def _read_constant(op: str, values: NDArray[np.float64]) -> tuple[str | None, str | None]:
    size = float(np.abs(values).mean())
    order = None
    if values.size == 3 and op in ("Sub", "Add") and np.ptp(np.abs(values)) > 0.02 * size:
        # ImageNet means fall from red to blue, so their order gives the channels away.
        order = "rgb" if abs(values[0]) > abs(values[2]) else "bgr"
    if op in ("Sub", "Add", "BatchNormalization"):
        if 80 < size < 160:
            return "0-255", order
        if 0.3 < size < 0.6 and op != "BatchNormalization":
            return "0-1", order
    if op == "Mul" and 0.003 < size < 0.02:
        return "0-255", None
    if op == "Div" and 40 < size < 300:
        return "0-255", None
    return None, None


def _short(values: NDArray[np.float64]) -> str:
    return "[" + ", ".join(f"{v:.4g}" for v in values) + "]"
