"""Keras layers as nodes of the TensorFlow family.

A Lambda layer holds Python code, which is never run, not even decoded: only the scaling of
InceptionResNetV1 is known, by its argument ``scale``.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np

from onnxfr.errors import UnsafeFile
from onnxfr.exporters._keras_values import Argument, Builder, Layer

Given = tuple[Argument, ...]
Settings = Mapping[str, Any]
Maker = Callable[[Builder, Layer, Given, Settings], str]
LAYERS: dict[str, Maker] = {}


def makes(*kinds: str) -> Callable[[Maker], Maker]:
    """Return a decorator that files a function under Keras's names of a layer."""

    def decorate(function: Maker) -> Maker:
        LAYERS.update(dict.fromkeys(kinds, function))
        return function

    return decorate


def value_of(layer: Layer, given: Given) -> str:
    """Return the one computed value that a layer is given."""
    if len(given) != 1 or not isinstance(given[0], str):
        raise layer.unsupported(f"is given {len(given)} values, expected one")
    return given[0]


def pair(value: Any) -> list[int]:
    """Return height and width of a setting that may state both at once."""
    return [int(value)] * 2 if isinstance(value, int) else [int(v) for v in value]


_SIMPLE = {
    "relu": "Relu", "relu6": "Relu6", "sigmoid": "Sigmoid", "tanh": "Tanh", "softmax": "Softmax",
    "elu": "Elu", "selu": "Selu", "softplus": "Softplus", "exponential": "Exp",
}  # fmt: skip


def _activate(b: Builder, layer: Layer, x: str, activation: Any) -> str:
    if isinstance(activation, dict):
        activation = activation.get("config")
    name = f"{layer.name}/activation"
    if activation in (None, "linear"):
        return x
    if activation in _SIMPLE:
        return b.add(_SIMPLE[activation], name, [x])
    if activation in ("swish", "silu"):
        return b.add("Mul", name, [x, b.add("Sigmoid", f"{name}/gate", [x])])
    raise layer.unsupported(f"has the activation {activation!r}")


def _window(layer: Layer) -> dict[str, Any]:
    config = layer.config
    return {
        "padding": str(config.get("padding", "valid")).upper(),
        "strides": [1, *pair(config.get("strides") or 1), 1],
        "dilations": [1, *pair(config.get("dilation_rate") or 1), 1],
    }


def _biased(b: Builder, layer: Layer, x: str, bias: Any) -> str:
    if bias is None:
        return x
    return b.add("BiasAdd", f"{layer.name}/biased", [x, b.constant(f"{layer.name}/bias", bias)])


@makes("Conv2D", "Convolution2D", "DepthwiseConv2D", "SeparableConv2D")
def _convolution(b: Builder, layer: Layer, given: Given, settings: Settings) -> str:
    x = value_of(layer, given)
    kernels = {"DepthwiseConv2D": ["depthwise_kernel"],
               "SeparableConv2D": ["depthwise_kernel", "pointwise_kernel"]}  # fmt: skip
    names = kernels.get(layer.kind, ["kernel"])
    biased = bool(layer.config.get("use_bias", True))
    arrays = layer.take(*names, *(["bias"] if biased else []))
    depth = layer.kind != "Conv2D" and layer.kind in kernels
    kernel = b.constant(f"{layer.name}/kernel", arrays[0])
    op = "DepthwiseConv2dNative" if depth else "Conv2D"
    x = b.add(op, layer.name, [x, kernel], **_window(layer))
    if layer.kind == "SeparableConv2D":
        point = b.constant(f"{layer.name}/point", arrays[1])
        x = b.add("Conv2D", f"{layer.name}/pointwise", [x, point], padding="VALID")
    x = _biased(b, layer, x, arrays[-1] if biased else None)
    return _activate(b, layer, x, layer.config.get("activation"))


@makes("Dense")
def _dense(b: Builder, layer: Layer, given: Given, settings: Settings) -> str:
    biased = bool(layer.config.get("use_bias", True))
    arrays = layer.take("kernel", *(["bias"] if biased else []))
    kernel = b.constant(f"{layer.name}/kernel", arrays[0])
    x = b.add("MatMul", layer.name, [value_of(layer, given), kernel])
    x = _biased(b, layer, x, arrays[1] if biased else None)
    return _activate(b, layer, x, layer.config.get("activation"))


@makes("BatchNormalization", "BatchNormalizationV1", "SyncBatchNormalization")
def _batch_norm(b: Builder, layer: Layer, given: Given, settings: Settings) -> str:
    config = layer.config
    axis = config.get("axis", -1)
    if (axis[0] if isinstance(axis, list) else axis) not in (-1, 3, 1):
        raise layer.unsupported(f"normalises along axis {axis}")
    scaled, centred = bool(config.get("scale", True)), bool(config.get("center", True))
    names = [*(["gamma"] if scaled else []), *(["beta"] if centred else [])]
    arrays = [a.astype(np.float64) for a in layer.take(*names, "moving_mean", "moving_variance")]
    mean, variance = arrays[-2:]
    factor = 1 / np.sqrt(variance + float(config.get("epsilon", 1e-3)))
    if scaled:
        factor = factor * arrays[0]
    shift = (arrays[-3] if centred else 0) - mean * factor
    return _affine(b, layer, value_of(layer, given), factor, shift)


def _affine(b: Builder, layer: Layer, x: str, factor: Any, shift: Any) -> str:
    x = b.add("Mul", f"{layer.name}/scaled", [x, b.constant(f"{layer.name}/factor", factor)])
    return b.add("AddV2", layer.name, [x, b.constant(f"{layer.name}/shift", shift)])


@makes("Rescaling")
def _rescaling(b: Builder, layer: Layer, given: Given, settings: Settings) -> str:
    factor, shift = (np.asarray(layer.config[key], np.float64) for key in ("scale", "offset"))
    return _affine(b, layer, value_of(layer, given), factor, shift)


@makes("Activation", "Softmax")
def _activation(b: Builder, layer: Layer, given: Given, settings: Settings) -> str:
    wanted = layer.config.get("activation", "softmax")
    return _activate(b, layer, value_of(layer, given), wanted)


@makes("ReLU")
def _relu(b: Builder, layer: Layer, given: Given, settings: Settings) -> str:
    config, x = layer.config, value_of(layer, given)
    if config.get("threshold"):
        raise layer.unsupported("has a threshold")
    most, slope = config.get("max_value"), float(config.get("negative_slope") or 0)
    if slope:
        x = b.add("LeakyRelu", layer.name, [x], alpha=slope)
    else:
        x = b.add("Relu", layer.name, [x])
    if most is None:
        return x
    return b.add("Minimum", f"{layer.name}/most", [x, b.operand(f"{layer.name}/end", float(most))])


@makes("LeakyReLU", "ELU")
def _leaky(b: Builder, layer: Layer, given: Given, settings: Settings) -> str:
    config, x = layer.config, value_of(layer, given)
    if layer.kind == "ELU":
        if float(np.asarray(config.get("alpha", 1.0))) != 1:
            raise layer.unsupported("has an alpha other than one")
        return b.add("Elu", layer.name, [x])
    slope = float(config.get("negative_slope", config.get("alpha", 0.3)))
    return b.add("LeakyRelu", layer.name, [x], alpha=slope)


@makes("PReLU")
def _prelu(b: Builder, layer: Layer, given: Given, settings: Settings) -> str:
    slope = b.constant(f"{layer.name}/alpha", layer.take("alpha")[0])
    return b.add("Prelu", layer.name, [value_of(layer, given), slope])


_JOINS = {
    "Add": "AddV2", "Subtract": "Sub", "Multiply": "Mul", "Maximum": "Maximum",
    "Minimum": "Minimum", "TrueDivide": "RealDiv", "Divide": "RealDiv",
}  # fmt: skip


@makes(*_JOINS)
def _join(b: Builder, layer: Layer, given: Given, settings: Settings) -> str:
    return _joined(b, layer, _JOINS[layer.kind], given)


def _joined(b: Builder, layer: Layer, op: str, given: Given) -> str:
    if len(given) < 2:
        raise layer.unsupported("is given one value, expected several")
    names = [b.operand(f"{layer.name}/{k}", value) for k, value in enumerate(given)]
    last = names[0]
    for name in names[1:]:
        last = b.add(op, layer.name, [last, name])
    return last


_OPERATORS = {
    "__operators__.add": "AddV2", "math.add": "AddV2", "math.subtract": "Sub",
    "math.multiply": "Mul", "math.truediv": "RealDiv", "math.divide": "RealDiv",
}  # fmt: skip


@makes("TFOpLambda", "SlicingOpLambda")
def _operator(b: Builder, layer: Layer, given: Given, settings: Settings) -> str:
    """Write an operator that was called between layers; its name is data, no code is involved."""
    function = str(layer.config.get("function"))
    if function == "math.l2_normalize" and settings.get("axis") in (1, -1, [1], [-1]):
        return _unit(b, layer, given, settings)
    other = settings.get("y")
    if function in _OPERATORS and isinstance(other, int | float):
        return _joined(b, layer, _OPERATORS[function], (*given, float(other)))
    raise layer.unsupported(f"calls {function}")


@makes("Concatenate")
def _concatenate(b: Builder, layer: Layer, given: Given, settings: Settings) -> str:
    names = [value for value in given if isinstance(value, str)]
    axis = b.constant(f"{layer.name}/axis", np.asarray(int(layer.config.get("axis", -1))))
    return b.add("ConcatV2", layer.name, [*names, axis])


@makes(
    "InputLayer", "Dropout", "SpatialDropout2D", "GaussianNoise", "GaussianDropout",
    "AlphaDropout", "ActivityRegularization",
)  # fmt: skip
def _same(b: Builder, layer: Layer, given: Given, settings: Settings) -> str:
    return value_of(layer, given)


@makes("Lambda")
def _lambda(b: Builder, layer: Layer, given: Given, settings: Settings) -> str:
    arguments = layer.config.get("arguments")
    scale = arguments.get("scale") if isinstance(arguments, dict) and len(arguments) == 1 else None
    if not isinstance(scale, int | float) or isinstance(scale, bool):
        raise UnsafeFile(
            f"the Keras layer {layer.name!r} is a Lambda: it holds Python code, which is never run."
            " Known is only the scaling of InceptionResNetV1 (argument scale); save the model with "
            "layers instead of Lambda, or as a SavedModel"
        )
    note = (
        "Lambda layers were taken as multiplication by their argument scale; their code was not run"
    )
    if note not in b.notes:
        b.notes.append(note)
    factor = b.operand(f"{layer.name}/scale", float(scale))
    return b.add("Mul", layer.name, [value_of(layer, given), factor])


@makes("UnitNormalization")
def _unit(b: Builder, layer: Layer, given: Given, settings: Settings) -> str:
    axis = layer.config.get("axis", -1)
    if axis not in (-1, 1, [-1], [1]):
        raise layer.unsupported(f"normalises along axis {axis}")
    x, name = value_of(layer, given), layer.name
    last = b.constant(f"{name}/axis", np.asarray([-1]))
    total = b.add(
        "Sum", f"{name}/sum", [b.add("Square", f"{name}/square", [x]), last], keep_dims=True
    )
    least = b.add("Maximum", f"{name}/least", [total, b.operand(f"{name}/eps", 1e-12)])
    return b.add("Mul", name, [x, b.add("Rsqrt", f"{name}/root", [least])])
