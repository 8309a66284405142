"""Caffe models: prototxt with caffemodel, or a caffemodel alone, which holds its net as well.

Both notations are read by hand, so neither Caffe nor generated code is needed, and custom fields of
the many Caffe forks do no harm. Layers that only train (data, losses, accuracies) are left out.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import onnx

from onnxfr.errors import UnreadableModel, UnsupportedModel
from onnxfr.exporters._caffe_layers import LAYERS
from onnxfr.exporters._caffe_messages import Tree, read_binary, read_text
from onnxfr.exporters._caffe_net import SKIPPED, V1_TYPES, Array, Layer
from onnxfr.exporters._graph_writer import GraphWriter
from onnxfr.exporters._wire import top_fields
from onnxfr.exporters.base import (
    Exported,
    Size,
    companion,
    exporter,
    fit_size,
    head_of,
    read_source,
)
from onnxfr.models.preprocessing import Preprocessing

_MAX_TEXT = 16 << 20
_TEST = (1, "TEST")
_LAYERS, _V1_LAYERS = 100, 2


def _is_text(path: Path) -> bool:
    """Tell text that speaks of layers from weights; it may still be broken prototxt."""
    if b"\x00" in head_of(path, 4096):
        return False
    content = read_source(path, _MAX_TEXT)
    return b"layer" in content and _decodes(content)


def _decodes(content: bytes) -> bool:
    try:
        content.decode("utf-8")
    except UnicodeDecodeError:
        return False
    return True


def _is_prototxt(path: Path) -> bool:
    if not _is_text(path):
        return False
    tree = read_text(read_source(path, _MAX_TEXT).decode("utf-8"))
    return any(isinstance(v, dict) for v in (*tree.get("layer", ()), *tree.get("layers", ())))


def _is_caffemodel(path: Path) -> bool:
    content = read_source(path)
    known = top_fields(content)
    if known.get(1, "bytes") != "bytes" or not {_LAYERS, _V1_LAYERS} & known.keys():
        return False
    tree = read_binary(content)
    return any(layer.get("type") for layer in (*tree.get("layer", ()), *tree.get("layers", ())))


def _recognises(path: Path) -> bool:
    return _is_weights(path) or _is_prototxt(path)


@exporter(
    "caffe",
    _recognises,
    "NAME.caffemodel, with or without NAME.prototxt beside it",
    "OpenCV 4.14's dnn with one MobileFaceNet: 16 faces, unit embeddings within 3.8e-7",
)
def export_caffe(source: Path, arch: str | None = None, input_size: Size | None = None) -> Exported:
    """Export a Caffe model; a prototxt needs its caffemodel beside it."""
    structure = None
    weights_path = source
    if _is_text(source):
        structure = read_text(read_source(source, _MAX_TEXT).decode("utf-8"))
        weights_path = companion(source, _is_weights, "its .caffemodel")
    weights = read_binary(read_source(weights_path))
    net = structure or weights
    blobs = _blobs(weights)
    layers = [layer for layer in _layers(net) if _is_inference(layer)]
    model, notes = fit_size(lambda size: _build(net, layers, blobs, size), input_size, _told(net))
    described = f"net of {source.name}, weights of {weights_path.name}"
    return Exported(model, "caffe", arch, _hint(net), notes=(*notes, described))


def _is_weights(path: Path) -> bool:
    try:
        return _is_caffemodel(path)
    except UnreadableModel:
        return False


def _layers(net: Tree) -> list[Layer]:
    found = []
    for tree in (*net.get("layers", ()), *net.get("layer", ())):
        if not isinstance(tree, dict):
            raise UnreadableModel("a Caffe layer is not a message")
        kind = tree.get("type", [""])[0]
        name = str(tree.get("name", [""])[0])
        found.append(Layer(str(V1_TYPES.get(kind, kind)), name, tree))
    if not found:
        raise UnreadableModel("the Caffe net has no layers")
    return found


def _is_inference(layer: Layer) -> bool:
    phases = [rule.get("phase", [None])[0] for rule in layer.messages("include")]
    excluded = [rule.get("phase", [None])[0] for rule in layer.messages("exclude")]
    if any(phase in _TEST for phase in excluded):
        return False
    stated = [phase for phase in phases if phase is not None]
    return not stated or any(phase in _TEST for phase in stated)


def _blobs(weights: Tree) -> dict[str, tuple[Array, ...]]:
    return {layer.name: layer.blobs() for layer in _layers(weights)}


def _input_shapes(net: Tree) -> list[tuple[str, list[int]]]:
    """Return the inputs a net declares with their four numbers, in any of Caffe's three ways."""
    found: list[tuple[str, list[int]]] = []
    sizes = [[int(v) for v in shape.get("dim", ())] for shape in net.get("input_shape", ())]
    flat = [int(v) for v in net.get("input_dim", ())]
    sizes += [flat[k : k + 4] for k in range(0, len(flat), 4)]
    for place, name in enumerate(net.get("input", ())):
        found.append((str(name), sizes[place] if place < len(sizes) else []))
    for layer in _layers(net):
        if layer.kind == "Input":
            shapes = layer.part("input_param").get("shape", [])
            dims = [int(v) for v in shapes[0].get("dim", ())] if shapes else []
            found.append((layer.tops[0] if layer.tops else "data", dims))
    return found


def _told(net: Tree) -> Size | None:
    for _, dims in _input_shapes(net):
        if len(dims) == 4:
            return dims[2], dims[3]
    for layer in _layers(net):
        crop = layer.part("transform_param").get("crop_size")
        if crop:
            return int(crop[0]), int(crop[0])
    return None


def _hint(net: Tree) -> Preprocessing | None:
    """Say what a training net's data layer does to pixels; Caffe reads pictures as BGR."""
    for layer in _layers(net):
        transform = layer.part("transform_param")
        means = [float(v) for v in transform.get("mean_value", ())]
        scale = float(transform.get("scale", [1.0])[0])
        if not means or len(means) not in (1, 3) or scale <= 0:
            continue
        blue, green, red = means if len(means) == 3 else means * 3
        mean = (red / 255, green / 255, blue / 255)
        std = 1 / (scale * 255)
        return Preprocessing(color="bgr", scaling="custom", mean=mean, std=(std, std, std))
    return None


def _build(
    net: Tree, layers: list[Layer], blobs: Mapping[str, tuple[Array, ...]], size: Size
) -> onnx.ModelProto:
    graph = GraphWriter("caffe")
    declared = _input_shapes(net)
    names = [name for name, _ in declared] or [_first_bottom(layers)]
    if len(names) != 1:
        raise UnsupportedModel(f"the Caffe net has the inputs {names}; expected one picture")
    channels = declared[0][1][1] if declared and len(declared[0][1]) == 4 else 3
    values = {names[0]: graph.input(names[0], (channels, *size))}
    used: set[str] = set()
    for layer in layers:
        if layer.kind in SKIPPED or not set(layer.bottoms) <= values.keys():
            continue
        write = LAYERS.get(layer.kind)
        if write is None:
            raise UnsupportedModel(
                f"Caffe layer {layer.kind} ({layer.name!r}) has no ONNX form here; "
                f"known are: {', '.join(sorted(LAYERS))}"
            )
        if not layer.bottoms or not layer.tops:
            raise UnreadableModel(f"Caffe layer {layer.name!r} lacks an input or an output")
        inputs = [values[bottom] for bottom in layer.bottoms]
        answer = write(graph, layer, inputs, blobs.get(layer.name, ()))
        used.update(layer.bottoms)
        used.difference_update(layer.tops)
        values.update(dict.fromkeys(layer.tops, answer))
    loose = {name: value for name, value in values.items() if name not in used | {names[0]}}
    if not loose:
        raise UnreadableModel("the Caffe net computes nothing from its input")
    return graph.build(loose)


def _first_bottom(layers: list[Layer]) -> str:
    for layer in layers:
        if layer.kind not in SKIPPED and layer.bottoms:
            return layer.bottoms[0]
    raise UnreadableModel("the Caffe net has no layer that takes a picture")
