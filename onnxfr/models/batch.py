"""Making a graph accept any batch size, with a proof against its own one-picture answers.

Exporters bake the traced batch into Reshape constants, class tokens and declared shapes. We run the
graph once, follow where the batch axis goes through every node, and free exactly the constants that
hold it. A repair that does not reproduce the one-picture answers is dropped: the engines then loop.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import onnx
from numpy.typing import NDArray
from onnx import helper, numpy_helper

from onnxfr.errors import EngineError
from onnxfr.models.card import Repair
from onnxfr.models.sessions import open_session, run_session, unit_rows
from onnxfr.models.structure import ImageInput, constants_of, graph_inputs

_TOLERANCE = {"fp32": 1e-4, "fp16": 2e-2, "int8": 2e-3, "mixed": 2e-2}
_PICTURES = 5

_RANGE_OF_ALL = "DynamicQuantize"
_SHARED_RANGE = (
    "the graph quantises by the range of all pictures it is given, so that each would change the "
    "answers of the others; the engines run it one picture at a time"
)


@dataclass(frozen=True)
class BatchVerdict:
    """The graph to use, whether it takes any batch, what was changed, and notes for the card."""

    model: onnx.ModelProto
    dynamic: bool
    repairs: tuple[Repair, ...]
    notes: tuple[str, ...]


def free_batch(
    model: onnx.ModelProto, image: ImageInput, size: tuple[int, int], output: str, precision: str
) -> BatchVerdict:
    """Return a version of ``model`` that takes any batch, or the model itself with a note."""
    pictures = sample_pictures(image, size)
    batch = image.batch or 1
    if any(node.op_type.startswith(_RANGE_OF_ALL) for node in model.graph.node):
        return BatchVerdict(model, False, (), (_SHARED_RANGE,))
    expected = _one_by_one(model, pictures, output, batch)
    tolerance = _TOLERANCE[precision]
    declared = _with_open_batch(model)
    worst = _largest_difference(declared, pictures, output, expected)
    if worst is not None and worst <= tolerance:
        if image.batch is None:
            return BatchVerdict(declared, True, (), ())
        detail = f"the input declared a batch of {batch}; the graph itself takes any"
        return BatchVerdict(
            declared, True, (Repair(name="batch", detail=detail, max_abs=worst),), ()
        )
    repaired, changed = _repair_constants(model, image, pictures[:1].repeat(batch, axis=0))
    if changed:
        worst = _largest_difference(repaired, pictures, output, expected)
        if worst is not None and worst <= tolerance:
            detail = f"freed the batch baked into {len(changed)} nodes: {', '.join(changed[:4])}"
            detail += " ..." if len(changed) > 4 else ""
            repair = Repair(name="batch-constants", detail=detail, max_abs=worst)
            return BatchVerdict(repaired, True, (repair,), ())
    note = (
        "the graph answers differently, or not at all, for more than one picture at a time; the "
        "engines run it one picture at a time"
    )
    return BatchVerdict(model, False, (), (note,))


def sample_pictures(image: ImageInput, size: tuple[int, int]) -> NDArray[Any]:
    """Return smooth pictures with some noise, as the input takes them."""
    rng = np.random.Generator(np.random.Philox(key=7))
    coarse = rng.uniform(0, 255, (_PICTURES, 8, 8, image.channels))
    rows = np.linspace(0, 7, size[0]).round().astype(int)
    columns = np.linspace(0, 7, size[1]).round().astype(int)
    pictures = coarse[:, rows][:, :, columns] + rng.normal(
        0, 10, (_PICTURES, *size, image.channels)
    )
    if image.layout == "nchw":
        pictures = pictures.transpose(0, 3, 1, 2)
    dtype = helper.tensor_dtype_to_np_dtype(image.elem_type)
    low, high = (-128, 127) if dtype == np.int8 else (0, 255)
    return np.ascontiguousarray(np.clip(pictures, low, high).astype(dtype))


def _one_by_one(
    model: onnx.ModelProto, pictures: NDArray[Any], output: str, batch: int
) -> NDArray[np.float32]:
    session = open_session(model)
    rows = []
    for k in range(len(pictures)):
        answer = run_session(session, pictures[k : k + 1].repeat(batch, axis=0), output)
        rows.append(answer.reshape(batch, -1)[:1])
    return unit_rows(np.concatenate(rows))


def _largest_difference(
    model: onnx.ModelProto, pictures: NDArray[Any], output: str, expected: NDArray[np.float32]
) -> float | None:
    counts = (len(pictures), 2, 1)
    try:
        session = open_session(model)
        answers = [run_session(session, pictures[:count], output) for count in counts]
    except EngineError:
        return None
    worst = 0.0
    for answer, count in zip(answers, counts, strict=True):
        whole = answer.ndim > 1 and len(answer) == count
        if not whole or answer.size != count * expected.shape[1] or not np.isfinite(answer).all():
            return None
        worst = max(worst, float(np.abs(unit_rows(answer) - expected[:count]).max()))
    return worst


def _with_open_batch(model: onnx.ModelProto) -> onnx.ModelProto:
    opened = onnx.ModelProto()
    opened.CopyFrom(model)
    for value in graph_inputs(opened.graph):
        if value.type.tensor_type.shape.dim:
            value.type.tensor_type.shape.dim[0].dim_param = "N"
    return opened


def _repair_constants(
    model: onnx.ModelProto, image: ImageInput, picture: NDArray[Any]
) -> tuple[onnx.ModelProto, list[str]]:
    shapes = _true_shapes(model, picture)
    repaired = _with_open_batch(model)
    graph = repaired.graph
    constants = constants_of(graph)
    axes: dict[str, int] = {image.name: 0}
    changed: list[str] = []
    nodes = list(graph.node)
    del graph.node[:]
    for node in nodes:
        carrying = [name for name in node.input if name in axes]
        if carrying:
            _free_node(node, graph, constants, shapes, axes, changed)
            for name in node.output:
                if shapes.get(name):  # a single number holds no batch
                    axes[name] = _axis_after(node, carrying[0], axes, shapes, name)
        graph.node.append(node)
    return repaired, changed


def _true_shapes(model: onnx.ModelProto, picture: NDArray[Any]) -> dict[str, tuple[int, ...]]:
    """Run the graph once with every tensor exposed and note its shape."""
    exposed = onnx.ModelProto()
    exposed.CopyFrom(model)
    known = {value.name for value in exposed.graph.output}
    for node in exposed.graph.node:
        for name in node.output:
            if name and name not in known:
                exposed.graph.output.append(onnx.ValueInfoProto(name=name))
                known.add(name)
    try:
        session = open_session(exposed, optimise=False)
        names = [value.name for value in session.get_outputs()]
        answers = session.run(names, {session.get_inputs()[0].name: picture})
    except Exception:
        return {}
    shapes = {name: np.shape(a) for name, a in zip(names, answers, strict=True)}
    shapes[session.get_inputs()[0].name] = picture.shape
    return shapes


def _axis_after(
    node: onnx.NodeProto,
    name: str,
    axes: dict[str, int],
    shapes: dict[str, tuple[int, ...]],
    output: str,
) -> int:
    axis, before, after = axes[name], shapes.get(name, ()), shapes[output]
    if node.op_type == "Transpose":
        perm = next((list(a.ints) for a in node.attribute if a.name == "perm"), None)
        return (perm or list(range(len(before)))[::-1]).index(axis)
    if node.op_type == "Shape":
        return 0
    if len(before) == len(after) and node.op_type != "Reshape":
        return axis
    return _axis_by_prefix(before, after, axis)


def _axis_by_prefix(before: tuple[int, ...], after: tuple[int, ...], axis: int) -> int:
    """Locate the batch after a reshape: as many values stand before it as did before."""
    ahead = int(np.prod(before[:axis], dtype=np.int64))
    fits = [j for j in range(len(after)) if int(np.prod(after[:j], dtype=np.int64)) == ahead]
    exact = [j for j in fits if after[j] == before[axis]]
    return (exact or fits or [0])[0]


def _free_node(
    node: onnx.NodeProto,
    graph: onnx.GraphProto,
    constants: dict[str, onnx.TensorProto],
    shapes: dict[str, tuple[int, ...]],
    axes: dict[str, int],
    changed: list[str],
) -> None:
    label = node.name or node.output[0]
    if node.op_type == "Reshape" and node.input[0] in axes and node.input[1] in constants:
        before, after = shapes.get(node.input[0]), shapes.get(node.output[0])
        target = numpy_helper.to_array(constants[node.input[1]]).astype(np.int64)
        if before and after and len(after) == len(target):
            axis = _axis_by_prefix(before, after, axes[node.input[0]])
            if target[axis] > 0:
                freed = np.asarray(after, dtype=np.int64)
                freed[axis] = -1
                fresh = f"{node.output[0]}/onnxfr_shape"
                graph.initializer.append(numpy_helper.from_array(freed, fresh))
                node.input[1] = fresh
                changed.append(label)
    elif node.op_type == "Concat":
        _expand_constants(node, graph, shapes, axes, changed, label)
    elif node.op_type == "Resize" and node.input[0] in axes and len(node.input) > 3:
        sizes = constants.get(node.input[3])
        axis, before = axes[node.input[0]], shapes.get(node.input[0], ())
        if sizes is not None and list(sizes.dims) == [len(before)]:
            wanted = numpy_helper.to_array(sizes).tolist()
            stem = f"{node.output[0]}/onnxfr_sizes"
            node.input[3] = _with_batch_of(graph, node.input[0], axis, wanted, stem)
            changed.append(label)


def _expand_constants(
    node: onnx.NodeProto,
    graph: onnx.GraphProto,
    shapes: dict[str, tuple[int, ...]],
    axes: dict[str, int],
    changed: list[str],
    label: str,
) -> None:
    """Give a class token or similar constant the batch of what it is joined with."""
    carrier = next(name for name in node.input if name in axes)
    axis, shape = axes[carrier], shapes.get(carrier)
    joined = next((a.i for a in node.attribute if a.name == "axis"), 0)
    if shape is None or len(shape) < 2 or joined % len(shape) == axis:
        return
    for k, name in enumerate(node.input):
        if name in axes:
            continue
        stem = f"{node.output[0]}/onnxfr_expand{k}"
        wanted = _with_batch_of(graph, carrier, axis, [1] * len(shape), stem)
        graph.node.append(helper.make_node("Expand", [name, wanted], [stem]))
        node.input[k] = stem
        changed.append(label)


def _with_batch_of(
    graph: onnx.GraphProto, carrier: str, axis: int, shape: list[int], stem: str
) -> str:
    """Write nodes that make a shape whose entry at ``axis`` is the carrier's; return its name."""
    for part, values in (
        ("axis", [axis]),
        ("head", shape[:axis]),
        ("tail", shape[axis + 1 :]),
    ):
        tensor = numpy_helper.from_array(np.asarray(values, np.int64), f"{stem}_{part}")
        graph.initializer.append(tensor)
    parts = [f"{stem}_head", f"{stem}_n", f"{stem}_tail"]
    graph.node.extend(
        [
            helper.make_node("Shape", [carrier], [f"{stem}_shape"]),
            helper.make_node("Gather", [f"{stem}_shape", f"{stem}_axis"], [f"{stem}_n"]),
            helper.make_node("Concat", parts, [f"{stem}_to"], axis=0),
        ]
    )
    return f"{stem}_to"
