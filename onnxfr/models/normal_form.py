"""The normal form: image (N,3,H,W) RGB in [0,1] in, unit-length embedding (N,D) out.

Colour order, scaling, whitening, layout, number type and L2 normalisation become nodes around the
vendor's graph, written in the vendor's own opset so that not one of its operators changes meaning.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import numpy as np
import onnx
from numpy.typing import ArrayLike
from onnx import NodeProto, TensorProto, helper, numpy_helper

from onnxfr.errors import UnreadableModel
from onnxfr.models.preprocessing import LUMA, Preprocessing
from onnxfr.models.structure import ImageInput, graph_inputs
from onnxfr.models.vendor import inner_graphs, opset_of

INPUT, OUTPUT = "image", "embedding"
MARK = "onnxfr.normal_form"
VERSION = "1"
_SMALLEST_NORM = 1e-12


@dataclass
class _Writer:
    """Collects nodes and constants; hides where an operator's attributes became inputs."""

    opset: int
    stem: str
    nodes: list[NodeProto] = field(default_factory=list)
    constants: list[TensorProto] = field(default_factory=list)

    def constant(self, values: ArrayLike, dtype: type = np.float32) -> str:
        name = f"{self.stem}/constant{len(self.constants)}"
        self.constants.append(numpy_helper.from_array(np.asarray(values, dtype), name))
        return name

    def add(self, op: str, inputs: list[str], **attributes: Any) -> str:
        name = f"{self.stem}/{op.lower()}{len(self.nodes)}"
        self.nodes.append(helper.make_node(op, inputs, [name], name=name, **attributes))
        return name

    def reduce(self, op: str, value: str, axes: list[int]) -> str:
        as_input = self.opset >= (13 if op == "ReduceSum" else 18)
        if as_input:
            return self.add(op, [value, self.constant(axes, np.int64)], keepdims=1)
        return self.add(op, [value], axes=axes, keepdims=1)

    def at_least(self, value: str, low: float) -> str:
        if self.opset >= 11:
            return self.add("Clip", [value, self.constant(low)])
        return self.add("Clip", [value], min=low)

    def to_bytes(self, value: str) -> str:
        """Round to 0..255 by a cast, through which the differentiable engine passes gradients."""
        return self.add(
            "Cast", [self.add("Add", [value, self.constant(0.5)])], to=TensorProto.UINT8
        )


def to_normal_form(
    core: onnx.ModelProto,
    image: ImageInput,
    preprocessing: Preprocessing,
    *,
    size: tuple[int, int],
    output: str,
    output_shape: tuple[int, ...],
    dynamic: bool,
) -> onnx.ModelProto:
    """Wrap the vendor's graph; ``output_shape`` is what one picture really gives."""
    model = onnx.ModelProto()
    model.CopyFrom(core)
    graph = model.graph
    opset = opset_of(model)
    stem = _unused_stem(graph)
    for reserved in (INPUT, OUTPUT):
        _rename(model, reserved, f"{stem}/vendor/{reserved}")
    source, target = (
        f"{stem}/vendor/{n}" if n in (INPUT, OUTPUT) else n for n in (image.name, output)
    )
    head = _Writer(opset, f"{stem}/in")
    prepared = _prepare(head, preprocessing, image, size)
    head.nodes.append(helper.make_node("Identity", [prepared], [source], name=f"{stem}/in/vendor"))
    tail = _Writer(opset, f"{stem}/out")
    _normalise(tail, target, output_shape)
    nodes = [*head.nodes, *graph.node, *tail.nodes]
    del graph.node[:]
    graph.node.extend(nodes)
    graph.initializer.extend([*head.constants, *tail.constants])
    batch = "N" if dynamic else 1
    dim = int(np.prod(output_shape[1:]))
    del graph.input[:]
    del graph.output[:]
    graph.input.append(
        helper.make_tensor_value_info(INPUT, TensorProto.FLOAT, [batch, 3, size[0], size[1]])
    )
    graph.output.append(helper.make_tensor_value_info(OUTPUT, TensorProto.FLOAT, [batch, dim]))
    helper.set_model_props(model, {MARK: VERSION})
    _check(model)
    return model


def is_normal_form(model: onnx.ModelProto) -> bool:
    """Tell whether a model is one we wrote: the mark, one input and one output of our names."""
    marked = any(p.key == MARK and p.value == VERSION for p in model.metadata_props)
    inputs = [value.name for value in graph_inputs(model.graph)]
    return marked and inputs == [INPUT] and [o.name for o in model.graph.output] == [OUTPUT]


def takes_bytes(model: onnx.ModelProto) -> bool:
    """Tell whether a model in normal form rounds its picture to 8 bits before the vendor's part."""
    return any(
        node.op_type == "Cast" and node.attribute[0].i == TensorProto.UINT8
        for node in model.graph.node
        if node.name.split("/")[1:2] == ["in"]
    )


def _prepare(
    writer: _Writer, preprocessing: Preprocessing, image: ImageInput, size: tuple[int, int]
) -> str:
    value = INPUT
    affine = preprocessing.affine()
    if affine is None:
        value = _whiten(writer, value, smallest=(3 * size[0] * size[1]) ** -0.5)
    else:
        mean, std = (a.reshape(1, 3, 1, 1) for a in affine)
        if np.any(mean):
            value = writer.add("Sub", [value, writer.constant(mean)])
        if np.any(std != 1):
            value = writer.add("Mul", [value, writer.constant(1 / std.astype(np.float64))])
    if preprocessing.color == "bgr":
        value = writer.add("Gather", [value, writer.constant([2, 1, 0], np.int64)], axis=1)
    elif preprocessing.color == "grey":
        weights = writer.constant(np.reshape(LUMA, (1, 3, 1, 1)))
        value = writer.reduce("ReduceSum", writer.add("Mul", [value, weights]), [1])
    if preprocessing.layout == "nhwc":
        value = writer.add("Transpose", [value], perm=[0, 2, 3, 1])
    if image.elem_type == TensorProto.UINT8:
        return writer.to_bytes(value)
    if image.elem_type == TensorProto.INT8:
        floats = writer.add("Cast", [writer.to_bytes(value)], to=TensorProto.FLOAT)
        value = writer.add("Sub", [floats, writer.constant(128.0)])
    if image.elem_type != TensorProto.FLOAT:
        value = writer.add("Cast", [value], to=image.elem_type)
    return value


def _whiten(writer: _Writer, value: str, smallest: float) -> str:
    """FaceNet's per-image standardisation, its floor on the deviation included."""
    value = writer.add("Mul", [value, writer.constant(255.0)])
    centred = writer.add("Sub", [value, writer.reduce("ReduceMean", value, [1, 2, 3])])
    squared = writer.add("Mul", [centred, centred])
    variance = writer.reduce("ReduceMean", squared, [1, 2, 3])
    # The floor comes before the root, whose slope is infinite at the variance of a flat picture.
    deviation = writer.add("Sqrt", [writer.at_least(variance, smallest**2)])
    return writer.add("Div", [centred, deviation])


def _normalise(writer: _Writer, value: str, shape: tuple[int, ...]) -> None:
    value = writer.add("Cast", [value], to=TensorProto.FLOAT)
    if len(shape) != 2:
        value = writer.add("Flatten", [value], axis=1)
    squared = writer.add("Mul", [value, value])
    norm = writer.add("Sqrt", [writer.reduce("ReduceSum", squared, [1])])
    floor = writer.add("Add", [norm, writer.constant(_SMALLEST_NORM)])
    writer.nodes.append(
        helper.make_node("Div", [value, floor], [OUTPUT], name=f"{writer.stem}/unit")
    )


def _unused_stem(graph: onnx.GraphProto) -> str:
    """Return a prefix no tensor of the graph has, even if it is one we wrapped before."""
    taken = {name.split("/")[0] for node in graph.node for name in node.output}
    taken |= {each.name.split("/")[0] for each in (*graph.initializer, *graph.input)}
    return next(
        stem for stem in (f"onnxfr{k or ''}" for k in range(len(taken) + 1)) if stem not in taken
    )


def _rename(model: onnx.ModelProto, old: str, new: str) -> None:
    for graph in (model.graph, *inner_graphs(model.graph)):
        for node in graph.node:
            for names in (node.input, node.output):
                for k, name in enumerate(names):
                    if name == old:
                        names[k] = new
        for item in (*graph.initializer, *graph.input, *graph.output):
            if item.name == old:
                item.name = new


def _check(model: onnx.ModelProto) -> None:
    try:
        onnx.checker.check_model(model, full_check=True)
    except Exception as strict:
        try:
            onnx.checker.check_model(model)
        except Exception:
            reason = " ".join(str(strict).split())[:300]
            raise UnreadableModel(f"the graph violates the ONNX specification: {reason}") from None
