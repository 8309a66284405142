"""dlib's metric networks (``.dat``): its ResNet face embedding, read without dlib.

A dlib network is stored from the outside in: first the kinds of all layers, then the input, then
each layer's numbers from the inside out. Tags and skips leave no trace but their place, so the two
arrangements of dlib's residual blocks are recognised and any other is refused.
"""

from __future__ import annotations

from pathlib import Path

import numpy as np
import onnx

from onnxfr.errors import UnreadableModel, UnsupportedModel
from onnxfr.exporters import _layers as layers
from onnxfr.exporters._dlib_stream import DlibReader, Layer
from onnxfr.exporters._graph_writer import GraphWriter
from onnxfr.exporters.base import Exported, Size, exporter, head_of, read_source
from onnxfr.models.preprocessing import Preprocessing

_START = b"\x01\x01\x01\x0dloss_metric_"
_WRAPPER, _LAYER, _INNERMOST = 1, 2, 3
_MOST_LAYERS = 2000
_PIXEL_RANGE = 256.0


def _recognises(path: Path) -> bool:
    return head_of(path, len(_START)) == _START


@exporter(
    "dlib",
    _recognises,
    "a metric network's .dat file",
    "dlib 20.0.1 with its face embedding: 16 faces, unit embeddings within 2.4e-7",
)
def export_dlib(source: Path, arch: str | None = None, input_size: Size | None = None) -> Exported:
    """Export a dlib metric network; its picture size is part of the file."""
    reader = DlibReader(read_source(source), source.name)
    reader.integer()
    loss = reader.text()
    if not loss.startswith("loss_metric_"):
        raise UnsupportedModel(f"{source.name} trains by {loss!r}; expected a metric network")
    threshold = (reader.real(), reader.real())[1]
    kinds = _kinds(reader)
    means, size = _input_layer(reader)
    if input_size not in (None, size):
        raise UnsupportedModel(f"the network takes {size[0]}x{size[1]} pictures, no others")
    steps = _steps(reader, kinds)
    if reader.left:
        raise UnreadableModel(f"{source.name} has {reader.left} bytes after its network")
    return Exported(
        _build(steps, means, size),
        "dlib",
        arch,
        Preprocessing(color="rgb", scaling="0-255"),
        template="dlib",
        notes=(f"trained to tell people apart by an L2 distance of {threshold:.3g}",),
    )


def _kinds(reader: DlibReader) -> list[int]:
    """Return the kind of every layer, the innermost first."""
    kinds: list[int] = []
    while not kinds or kinds[-1] != _INNERMOST:
        kind = reader.integer()
        if kind not in (_WRAPPER, _LAYER, _INNERMOST) or len(kinds) >= _MOST_LAYERS:
            raise UnreadableModel(f"a dlib layer of format {kind} is not known")
        kinds.append(kind)
    return kinds[::-1]


def _input_layer(reader: DlibReader) -> tuple[tuple[float, float, float], Size]:
    kind = reader.text()
    if kind != "input_rgb_image_sized":
        raise UnsupportedModel(f"the network's input is {kind!r}; expected an RGB image")
    means = (reader.real(), reader.real(), reader.real())
    return means, (reader.integer(), reader.integer())


def _steps(reader: DlibReader, kinds: list[int]) -> list[Layer | None]:
    """Return the layers, the innermost first; None stands for a tag or skip."""
    steps: list[Layer | None] = []
    for kind in kinds:
        if kind == _WRAPPER:
            steps.append(None)
            continue
        steps.append(reader.layer())
        reader.state()
        if kind == _INNERMOST:
            reader.integer()
    return steps


def _build(
    steps: list[Layer | None], means: tuple[float, float, float], size: Size
) -> onnx.ModelProto:
    graph = GraphWriter("dlib")
    x = graph.input("image", (3, *size))
    centred = graph.add("Sub", [x, graph.weight(layers.per_channel(graph, x, np.array(means)))])
    x = graph.add("Mul", [centred, graph.weight(np.asarray(1 / _PIXEL_RANGE, np.float32))])
    held, place = "", 0
    while place < len(steps):
        step = steps[place]
        if step is None:
            if steps[place + 1 : place + 2] == [None]:
                # tag2 keeps the main path, skip1 goes back to what tag1 kept
                x, held = held, x
                place += 1
            else:
                held = x
        elif step.kind == "add_prev_":
            x = _add(graph, x, held)
        else:
            x = _write(graph, step, x, f"layer{place}")
        place += 1
        if not x:
            raise UnsupportedModel("the network skips to a tag that does not come before")
    return graph.build({"embedding": layers.flatten(graph, x)})


def _write(graph: GraphWriter, step: Layer, x: str, name: str) -> str:
    if step.kind == "relu_":
        return graph.add("Relu", [x], name=name)
    if step.kind == "affine_":
        return layers.scale_shift(graph, x, step.arrays[0], step.arrays[1], name)
    if step.kind == "fc_2":
        bias = step.arrays[1] if len(step.arrays) > 1 else None
        return layers.dense(graph, x, step.arrays[0], bias, name)
    height, width, down, across, top, left = step.numbers
    pads = (top, left, top, left)
    if step.kind == "con_4":
        weight, bias = step.arrays
        return layers.conv2d(graph, x, weight, bias, stride=(down, across), pads=pads, name=name)
    kind: layers.PoolKind = "max" if step.kind == "max_pool_2" else "average"
    if height == 0 or width == 0:
        return layers.global_pool(graph, x, kind)
    window = ((height, width), (down, across), pads)
    return layers.pool(graph, x, kind, *window, counts_pads=False, name=name)


def _add(graph: GraphWriter, left: str, right: str) -> str:
    """Add values of different sizes as dlib does: the smaller one is continued with zeros."""
    if not right:
        raise UnsupportedModel("the network adds a tag that does not come before")
    sides = graph.sides(left), graph.sides(right)
    if len(sides[0]) != len(sides[1]):
        raise UnreadableModel(f"values of shapes {sides} are added")
    largest = tuple(max(pair) for pair in zip(*sides, strict=True))
    names = []
    for value, own in zip((left, right), sides, strict=True):
        missing = [whole - part for whole, part in zip(largest, own, strict=True)]
        if any(missing):
            amounts = graph.integers([0] * (len(own) + 1) + [0, *missing])
            value = graph.add("Pad", [value, amounts], {"mode": "constant"})
        names.append(value)
    return graph.add("Add", names)
