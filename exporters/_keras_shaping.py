"""Keras layers that pool, pad and reorder, as nodes of the TensorFlow family."""

from __future__ import annotations

import numpy as np

from onnxfr.exporters._keras_layers import Given, Settings, makes, pair, value_of
from onnxfr.exporters._keras_values import Builder, Layer
from onnxfr.exporters._tf_values import BATCH


@makes("Flatten")
def _flatten(b: Builder, layer: Layer, given: Given, settings: Settings) -> str:
    return b.add("Flatten", layer.name, [value_of(layer, given)])


@makes("Reshape")
def _reshape(b: Builder, layer: Layer, given: Given, settings: Settings) -> str:
    shape = np.asarray([BATCH, *map(int, layer.config["target_shape"])], np.int64)
    return b.add(
        "Reshape", layer.name, [value_of(layer, given), b.constant(f"{layer.name}/to", shape)]
    )


@makes("Permute")
def _permute(b: Builder, layer: Layer, given: Given, settings: Settings) -> str:
    order = b.constant(f"{layer.name}/order", np.asarray([0, *map(int, layer.config["dims"])]))
    return b.add("Transpose", layer.name, [value_of(layer, given), order])


@makes("ZeroPadding2D")
def _padding(b: Builder, layer: Layer, given: Given, settings: Settings) -> str:
    told = layer.config.get("padding", 1)
    rows, columns = [told, told] if isinstance(told, int) else told
    amounts = np.asarray([[0, 0], pair(rows), pair(columns), [0, 0]], np.int64)
    return b.add(
        "Pad", layer.name, [value_of(layer, given), b.constant(f"{layer.name}/by", amounts)]
    )


@makes("MaxPooling2D", "AveragePooling2D")
def _pool(b: Builder, layer: Layer, given: Given, settings: Settings) -> str:
    kernel = pair(layer.config.get("pool_size", 2))
    strides = pair(layer.config.get("strides") or kernel)
    return b.add(
        "MaxPool" if layer.kind.startswith("Max") else "AvgPool",
        layer.name,
        [value_of(layer, given)],
        ksize=[1, *kernel, 1],
        strides=[1, *strides, 1],
        padding=str(layer.config.get("padding", "valid")).upper(),
    )


@makes("GlobalAveragePooling2D", "GlobalMaxPooling2D")
def _global_pool(b: Builder, layer: Layer, given: Given, settings: Settings) -> str:
    axes = b.constant(f"{layer.name}/axes", np.asarray([1, 2]))
    op = "Max" if "Max" in layer.kind else "Mean"
    keep = bool(layer.config.get("keepdims", False))
    return b.add(op, layer.name, [value_of(layer, given), axes], keep_dims=keep)
