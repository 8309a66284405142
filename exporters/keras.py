"""Keras models: ``.h5`` of Keras 1 to 3 and ``.keras`` archives, read without Keras.

The layers are written one by one. Nothing in a file is run: Lambda layers hold Python code and are
refused, except the scaling of InceptionResNetV1, which is known by its argument.
"""

from __future__ import annotations

import zipfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import onnx

from onnxfr.errors import UnsupportedModel
from onnxfr.exporters._hdf5 import MARK
from onnxfr.exporters._keras_model import build_model
from onnxfr.exporters._keras_values import Builder
from onnxfr.exporters._keras_weights import ZIP_MARK, read_keras
from onnxfr.exporters._tf_graph import build_graph, by_name
from onnxfr.exporters._tf_values import Node
from onnxfr.exporters.base import Exported, Size, exporter, fit_size, head_of, read_source

_PICTURE = "pictures"


def _recognises(path: Path) -> bool:
    head = head_of(path, 8)
    if head == MARK:
        return True
    if head[:4] != ZIP_MARK:
        return False
    with zipfile.ZipFile(path) as archive:
        return {"config.json", "model.weights.h5"} <= set(archive.namelist())


@exporter(
    "keras",
    _recognises,
    "a whole Keras model, .h5 or .keras",
    "Keras 2 (tf_keras 2.21) with FaceNet, 8 LFW faces, and tiny nets of Keras 2 and 3: unit "
    "embeddings within 2.4e-7",
)
def export_keras(source: Path, arch: str | None = None, input_size: Size | None = None) -> Exported:
    """Export a Keras model."""
    described, arrays = read_keras(read_source(source))
    builder = Builder()
    entry = Node("Placeholder", _PICTURE, (), {})
    answer = build_model(builder, described, arrays, _PICTURE)

    def build(size: Size) -> onnx.ModelProto:
        nodes = by_name([entry, *builder.nodes])
        return build_graph("keras", nodes, builder.weights, _PICTURE, [answer], size)

    model, notes = fit_size(build, input_size, _told_size(described))
    return Exported(model, "keras", arch, notes=(*notes, *builder.notes))


def _told_size(described: Mapping[str, Any]) -> Size | None:
    """Return the picture size of the first layer that tells one."""
    config = described["config"]
    layers = config if isinstance(config, list) else config.get("layers", ())
    for layer in layers:
        told = layer.get("config") or {}
        shape = told.get("batch_input_shape") or told.get("batch_shape")
        if shape is None and not isinstance(config, list):
            shape = config.get("build_input_shape")
        if shape is None:
            continue
        if len(shape) != 4 or shape[3] not in (3, None):
            raise UnsupportedModel(f"expected pictures of height, width and 3 colours, got {shape}")
        return (int(shape[1]), int(shape[2])) if shape[1] and shape[2] else None
    return None
