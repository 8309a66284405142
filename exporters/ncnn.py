"""ncnn models: a ``.param`` text graph and its ``.bin`` weights, fp32, fp16 and 8-bit tables.

The weight file has no names and no lengths: it is read in the order of the layers, each of which
knows how many numbers it owns. A file that is longer or shorter than its layers is refused.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import onnx

from onnxfr.errors import UnreadableModel, UnsupportedModel
from onnxfr.exporters._graph_writer import GraphWriter
from onnxfr.exporters._ncnn_layers import LAYERS
from onnxfr.exporters._ncnn_weights import Layer, Stored, read_weights
from onnxfr.exporters.base import (
    Exported,
    Size,
    companion,
    exporter,
    fit_size,
    head_of,
    read_source,
)

_MAGIC = b"7767517"
_BINARY_MAGIC = (7767517).to_bytes(4, "little")
_MAX_TEXT = 16 << 20
_MOST_LAYERS = 20_000
_ARRAY_KEY = -23300


def _is_param(path: Path) -> bool:
    return head_of(path, 16).split()[:1] == [_MAGIC]


def _recognises(path: Path) -> bool:
    if _is_param(path):
        return True
    return path.suffix == ".bin" and _is_param(path.with_suffix(".param"))


@exporter(
    "ncnn",
    _recognises,
    "NAME.param with NAME.bin beside it",
    "ncnn 1.0.20261020 with one MobileFaceNet: 32 faces, unit embeddings within 3.2e-7",
)
def export_ncnn(source: Path, arch: str | None = None, input_size: Size | None = None) -> Exported:
    """Export an ncnn model; either of its two files may be named."""
    if head_of(source, 4) == _BINARY_MAGIC:
        raise UnsupportedModel(f"{source.name} is a binary .param file; give the text one")
    if _is_param(source):
        param, weights = source, _weights_of(source)
    else:
        param, weights = companion(source, _is_param, "its .param file"), source
    net = read_param(read_source(param, _MAX_TEXT))
    stored = read_weights(net, read_source(weights), weights.name)
    model, notes = fit_size(lambda size: _build(net, stored, size), input_size, _told_size(net))
    return Exported(model, "ncnn", arch, notes=(*notes, f"weights of {weights.name}"))


def _weights_of(param: Path) -> Path:
    same_name = param.with_suffix(".bin")
    if same_name.is_file():
        return same_name
    return companion(param, lambda other: other.suffix == ".bin", "its .bin file")


def read_param(content: bytes) -> tuple[Layer, ...]:
    """Parse the text graph."""
    lines = [line.split() for line in content.decode("utf-8", errors="replace").splitlines()]
    lines = [words for words in lines if words]
    if len(lines) < 3 or lines[0] != [_MAGIC.decode()] or len(lines[1]) != 2:
        raise UnreadableModel("not an ncnn .param file: expected its mark and two counts")
    rows = lines[2:]
    if len(rows) > _MOST_LAYERS or not lines[1][0].isdigit() or int(lines[1][0]) != len(rows):
        raise UnreadableModel(f"the .param file promises {lines[1][0]} layers, {len(rows)} follow")
    return tuple(_layer(words) for words in rows)


def _layer(words: list[str]) -> Layer:
    try:
        kind, name, inputs, outputs = words[0], words[1], int(words[2]), int(words[3])
        if min(inputs, outputs) < 0 or 4 + inputs + outputs > len(words):
            raise ValueError("fewer blob names than promised")
        blobs = words[4 : 4 + inputs + outputs]
        numbers: dict[int, tuple[float, ...]] = {}
        for word in words[4 + inputs + outputs :]:
            key, _, text = word.partition("=")
            values = tuple(float(part) for part in text.split(","))
            place = int(key)
            numbers[place if place > _ARRAY_KEY else _ARRAY_KEY - place] = (
                values if place > _ARRAY_KEY else values[1:]
            )
    except (ValueError, IndexError) as error:
        raise UnreadableModel(f"line {' '.join(words)[:80]!r} is no ncnn layer: {error}") from None
    return Layer(kind, name, tuple(blobs[:inputs]), tuple(blobs[inputs:]), numbers)


def _told_size(net: tuple[Layer, ...]) -> Size | None:
    for layer in net:
        if layer.kind == "Input" and layer.integer(1, 0) and layer.integer(0, 0):
            return layer.integer(1, 0), layer.integer(0, 0)
    return None


def _build(
    net: tuple[Layer, ...], stored: Mapping[str, tuple[Stored, ...]], size: Size
) -> onnx.ModelProto:
    graph = GraphWriter("ncnn")
    values: dict[str, str] = {}
    used: set[str] = set()
    for layer in net:
        if layer.kind == "Input":
            if values:
                raise UnsupportedModel("the ncnn graph has several inputs; expected one picture")
            values[layer.outputs[0]] = graph.input(layer.outputs[0], (3, *size))
            continue
        write = LAYERS.get(layer.kind)
        if write is None:
            raise UnsupportedModel(
                f"ncnn layer {layer.kind} ({layer.name!r}) has no ONNX form here; "
                f"known are: {', '.join(sorted(LAYERS))}"
            )
        missing = [blob for blob in layer.inputs if blob not in values]
        if missing:
            raise UnreadableModel(f"layer {layer.name!r} uses {missing} before it is computed")
        used.update(layer.inputs)
        answer = write(graph, layer, [values[blob] for blob in layer.inputs], stored[layer.name])
        values.update(dict.fromkeys(layer.outputs, answer))
    answers = {blob: values[blob] for layer in net for blob in layer.outputs}
    loose = {blob: value for blob, value in answers.items() if blob not in used}
    if not loose:
        raise UnreadableModel("the ncnn graph has no answer: every value is used again")
    return graph.build(loose)
