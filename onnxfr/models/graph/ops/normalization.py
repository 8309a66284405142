"""Normalisations; always with the stored statistics, never with those of the batch."""

from __future__ import annotations

import torch
from torch import Tensor
from torch.nn import functional as F

from onnxfr.models.graph.node import Node
from onnxfr.models.graph.rules import MICROSOFT, operator
from onnxfr.models.graph.values import Value


@operator("BatchNormalization", since=7)
def batch_normalization(node: Node) -> Value:
    """One scale and shift per channel, merged into the layer before where there is one."""
    if node.integer("spatial", 1) != 1:
        raise node.unsupported("statistics per pixel (spatial=0)")
    x, epsilon = node[0], node.real("epsilon", 1e-5)
    constants = [node[i].constant for i in range(1, 5)]
    if any(constant is None for constant in constants):
        return node.emit_like_input(normalised, x, *node.inputs[1:5], epsilon)
    gamma, beta, mean, variance = (c.to(torch.float64) for c in constants if c is not None)
    scale = gamma / torch.sqrt(variance + epsilon)
    shift = beta - mean * scale
    if x.rescale is not None and x.channel_axis == 1 and node.only_reads(x):
        return x.rescale(scale, shift)
    if x.rank is None:
        return node.emit_like_input(normalised, x, *node.inputs[1:5], epsilon)
    shape = (-1, *(1,) * (x.rank - 2))
    factors = [Value.constant_of(t.to(torch.float32).reshape(shape)) for t in (scale, shift)]
    return node.emit_like_input(scaled, x, *factors)


def scaled(x: Tensor, scale: Tensor, shift: Tensor) -> Tensor:
    """Return ``x * scale + shift``."""
    return torch.addcmul(shift, x, scale)


def normalised(
    x: Tensor, gamma: Tensor, beta: Tensor, mean: Tensor, variance: Tensor, epsilon: float
) -> Tensor:
    """Normalise with statistics that are themselves computed."""
    return F.batch_norm(x, mean, variance, gamma, beta, False, 0.0, epsilon)


@operator("InstanceNormalization")
def instance_normalization(node: Node) -> Value:
    """Normalise each channel of each image by itself."""
    epsilon = node.real("epsilon", 1e-5)
    return node.emit_like_input(per_instance, node[0], node[1], node[2], epsilon)


def per_instance(x: Tensor, scale: Tensor, shift: Tensor, epsilon: float) -> Tensor:
    """Normalise over space; torch's own refuses single pixels, ONNX does not."""
    axes = tuple(range(2, x.dim()))
    variance, mean = torch.var_mean(x, axes, correction=0, keepdim=True)
    shape = (-1, *(1,) * len(axes))
    unit = (x - mean) * torch.rsqrt(variance + epsilon)
    return unit * scale.reshape(shape) + shift.reshape(shape)


@operator("GroupNormalization", since=18)
def group_normalization_by_group(node: Node) -> Value:
    """Normalise groups of channels; one scale per group."""
    groups = node.integer("num_groups", 1)
    return node.emit_like_input(
        per_group, node[0], node[1], node[2], groups, node.real("epsilon", 1e-5), True
    )


@operator("GroupNormalization", since=21)
def group_normalization(node: Node) -> Value:
    """Normalise groups of channels; one scale per channel."""
    groups = node.integer("num_groups", 1)
    return node.emit_like_input(
        per_group, node[0], node[1], node[2], groups, node.real("epsilon", 1e-5), False
    )


def per_group(
    x: Tensor, scale: Tensor, shift: Tensor, groups: int, epsilon: float, shared: bool
) -> Tensor:
    """Normalise groups of channels; ``shared`` scales are one per group."""
    if shared:
        size = x.shape[1] // groups
        scale, shift = scale.repeat_interleave(size), shift.repeat_interleave(size)
    return F.group_norm(x, groups, scale, shift, epsilon)


@operator("LayerNormalization")
def layer_normalization(node: Node) -> Value | list[Value]:
    """Normalise the trailing axes of each row; onnxruntime had it long before version 17."""
    x, scale, shift = node[0], node[1], node.get(2)
    axis, epsilon = node.integer("axis", -1), node.real("epsilon", 1e-5)
    if any(node.wanted[1:]):
        return node.emit_many(3, layer_statistics, x, scale, shift, axis, epsilon)
    tail = _tail(x, axis)
    if tail is not None and scale.shape == tail and (shift is None or shift.shape == tail):
        return node.emit_like_input(F.layer_norm, x, tail, scale, shift, epsilon)
    return node.emit_many(3, layer_statistics, x, scale, shift, axis, epsilon)[0]


def _tail(x: Value, axis: int) -> tuple[int, ...] | None:
    if x.shape is None:
        return None
    tail = [size for size in x.shape[axis % len(x.shape) :] if isinstance(size, int)]
    return tuple(tail) if len(tail) == len(x.shape) - axis % len(x.shape) else None


def layer_statistics(
    x: Tensor, scale: Tensor, shift: Tensor | None, axis: int, epsilon: float
) -> tuple[Tensor, Tensor, Tensor]:
    """Return the normalised rows, their means, and their inverse deviations."""
    axes = tuple(range(axis % x.dim(), x.dim()))
    variance, mean = torch.var_mean(x, axes, correction=0, keepdim=True)
    inverse = torch.rsqrt(variance + epsilon)
    result = (x - mean) * inverse * scale
    return (result if shift is None else result + shift), mean, inverse


@operator("SkipLayerNormalization", domain=MICROSOFT)
def skip_layer_normalization(node: Node) -> Value | list[Value]:
    """Layer normalisation of a sum of two values and a bias."""
    total = node.emit(torch.add, node[0], node[1])
    bias = node.get(4)
    if bias is not None:
        total = node.emit(torch.add, total, bias)
    epsilon = node.real("epsilon", 1e-12)
    values = node.emit_many(3, layer_statistics, total, node[2], node.get(3), -1, epsilon)
    return [*values, total]


@operator("RMSNormalization", since=23)
@operator("SimplifiedLayerNormalization")
def rms_normalization(node: Node) -> Value:
    """Divide by the root mean square of the trailing axes."""
    axis, epsilon = node.integer("axis", -1), node.real("epsilon", 1e-5)
    return node.emit(by_root_mean_square, node[0], node[1], axis, epsilon)


def by_root_mean_square(x: Tensor, scale: Tensor, axis: int, epsilon: float) -> Tensor:
    """Return ``x / rms(x) * scale`` over the axes from ``axis`` on."""
    axes = tuple(range(axis % x.dim(), x.dim()))
    return x * torch.rsqrt(x.square().mean(axes, keepdim=True) + epsilon) * scale


@operator("LpNormalization")
def lp_normalization(node: Node) -> Value:
    """Divide by the 1- or 2-norm along one axis; a zero vector stays zero."""
    return node.emit_like_input(by_norm, node[0], node.integer("p", 2), node.integer("axis", -1))


def by_norm(x: Tensor, p: int, axis: int) -> Tensor:
    """Return unit vectors along ``axis``; zero vectors stay zero."""
    norm = torch.linalg.vector_norm(x, p, dim=axis, keepdim=True)
    return x / torch.where(norm == 0, torch.ones_like(norm), norm)


@operator("MeanVarianceNormalization", since=9)
def mean_variance_normalization(node: Node) -> Value:
    """Zero mean and unit variance over the given axes."""
    return node.emit_like_input(whitened, node[0], node.integers("axes") or (0, 2, 3))


def whitened(x: Tensor, axes: tuple[int, ...]) -> Tensor:
    """Return zero mean and unit variance over ``axes``, guarded as ONNX's definition is."""
    mean = x.mean(axes, keepdim=True)
    variance = x.square().mean(axes, keepdim=True) - mean.square()
    return (x - mean) / (variance.sqrt() + 1e-9)
