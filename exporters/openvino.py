"""OpenVINO models: an ``.xml`` graph of version 10 or 11 and its ``.bin`` weights.

OpenVINO is not needed. Stored numbers that are unpacked, reshaped or quantised on the way to an
operator (compressed weights, shapes) are computed while reading.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

import onnx

from onnxfr.errors import UnreadableModel, UnsupportedModel
from onnxfr.exporters import _openvino_shaping  # noqa: F401
from onnxfr.exporters._graph_writer import GraphWriter
from onnxfr.exporters._openvino_ir import Layer, Port, constant_of, parse_xml, read_layers
from onnxfr.exporters._openvino_operators import OPERATORS
from onnxfr.exporters._operands import Operand, fold
from onnxfr.exporters.base import (
    Exported,
    Size,
    companion,
    exporter,
    fit_size,
    head_of,
    read_source,
)

_MAX_XML = 256 << 20
_LEAST_FOLDED = 1 << 16
_MOVING = {
    "Broadcast", "Concat", "Convert", "Gather", "Maximum", "Reshape", "Slice", "Squeeze",
    "StridedSlice", "Unsqueeze",
}  # fmt: skip
"""Operators that may carry the size of a free batch, since they do not compute with it."""


def _is_graph(path: Path) -> bool:
    head = head_of(path, 512)
    return b"<net " in head and b"version=" in head


def _recognises(path: Path) -> bool:
    if _is_graph(path):
        return True
    return path.suffix == ".bin" and _is_graph(path.with_suffix(".xml"))


@exporter(
    "openvino",
    _recognises,
    "NAME.xml (version 10 or 11) with NAME.bin beside it",
    "OpenVINO 2026.4.1 with seven networks, fp32 and fp16: 24 faces, unit embeddings within 4.0e-6",
)
def export_openvino(
    source: Path, arch: str | None = None, input_size: Size | None = None
) -> Exported:
    """Export an OpenVINO model; either of its two files may be named."""
    graph_file = source if _is_graph(source) else source.with_suffix(".xml")
    layers = read_layers(parse_xml(read_source(graph_file, _MAX_XML)))
    weights_file = _weights_of(graph_file)
    weights = memoryview(read_source(weights_file))
    shape, told = _entry(layers)
    model, notes = fit_size(
        lambda size: _build(layers, weights, _sized(shape, size)), input_size, told
    )
    return Exported(model, "openvino", arch, notes=(*notes, f"weights of {weights_file.name}"))


def _weights_of(graph_file: Path) -> Path:
    same_name = graph_file.with_suffix(".bin")
    if same_name.is_file():
        return same_name
    return companion(graph_file, lambda other: other.suffix == ".bin", "its .bin file")


def _entry(layers: Sequence[Layer]) -> tuple[tuple[int, ...], Size | None]:
    """Return the input's shape without the batch, and the picture size where it is fixed."""
    entries = [layer for layer in layers if layer.kind == "Parameter"]
    if len(entries) != 1:
        names = ", ".join(layer.name for layer in entries) or "none"
        raise UnsupportedModel(f"expected one input, the OpenVINO graph has: {names}")
    stated = entries[0].free_shape()
    if len(stated) != 4 or 3 not in (stated[1], stated[3]):
        raise UnsupportedModel(f"expected pictures of three channels, the input is {stated}")
    shape = stated[1:]
    sides = shape[1:] if shape[0] == 3 else shape[:2]
    return shape, (sides[0], sides[1]) if min(sides) > 0 else None


def _sized(shape: tuple[int, ...], size: Size) -> tuple[int, ...]:
    return (3, *size) if shape[0] == 3 else (*size, 3)


def _build(layers: Sequence[Layer], weights: memoryview, shape: tuple[int, ...]) -> onnx.ModelProto:
    graph = GraphWriter("openvino")
    values: dict[Port, Operand] = {}
    answers: dict[str, str] = {}
    named = {layer.number: layer for layer in layers}
    most = max(_LEAST_FOLDED, 2 * len(weights))
    for layer in _order(layers, named):
        if layer.kind == "Parameter":
            values[layer.number, layer.outputs[0]] = graph.input(layer.told or layer.name, shape)
            continue
        if layer.kind == "Result":
            value = values[layer.inputs[0]]
            if not isinstance(value, str):
                raise UnreadableModel(f"the answer {layer.name!r} is stored, not computed")
            answers[named[layer.inputs[0][0]].told or layer.name] = value
            continue
        if layer.kind == "Const":
            values[layer.number, layer.outputs[0]] = constant_of(layer, weights)
            continue
        found = _compute(graph, layer, [values[port] for port in layer.inputs], most)
        values.update(
            ((layer.number, port), each) for port, each in zip(layer.outputs, found, strict=False)
        )
    return graph.build(answers)


def _compute(
    graph: GraphWriter, layer: Layer, operands: Sequence[Operand], most: int
) -> Sequence[Operand]:
    write = OPERATORS.get(layer.kind)
    if write is None:
        raise UnsupportedModel(
            f"OpenVINO operator {layer.kind} ({layer.name!r}) has no ONNX form here; "
            f"known are: {', '.join(sorted(OPERATORS))}"
        )

    def written(target: GraphWriter) -> Sequence[Operand]:
        found = write(target, layer, operands)
        return found if isinstance(found, list) else [found]  # type: ignore[list-item]

    arrays = [operand for operand in operands if not isinstance(operand, str)]
    if len(arrays) < len(operands) or not operands:
        return written(graph)
    return fold(written, arrays, most, str(layer), moves_only=layer.kind in _MOVING)


def _order(layers: Sequence[Layer], named: Mapping[int, Layer]) -> list[Layer]:
    """Return the layers, inputs first; without recursion, as graphs may be deep."""
    done: dict[int, Layer] = {}
    open_layers: set[int] = set()
    pending = [layer.number for layer in reversed(layers)]
    while pending:
        number = pending[-1]
        if number not in named:
            raise UnreadableModel(f"the graph uses layer {number}, which it does not define")
        layer = named[number]
        for source, port in layer.inputs:
            if source in named and port not in named[source].outputs:
                raise UnreadableModel(f"{layer} uses output {port} that layer {source} lacks")
        waiting = [source for source, _ in layer.inputs if source not in done]
        if number in done or not waiting:
            done[number] = layer
            open_layers.discard(number)
            pending.pop()
        elif number in open_layers and any(source in open_layers for source in waiting):
            raise UnreadableModel(f"the graph is a circle through {layer}")
        else:
            open_layers.add(number)
            pending.extend(reversed(waiting))
    return list(done.values())
