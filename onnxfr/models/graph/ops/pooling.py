"""Poolings and local response normalisation."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import torch
from torch import Tensor
from torch.nn import functional as F

from onnxfr.models.graph.node import Node
from onnxfr.models.graph.ops.windows import Window, read_window
from onnxfr.models.graph.rules import operator
from onnxfr.models.graph.values import Value, dimensions

_MAX = {1: F.max_pool1d, 2: F.max_pool2d, 3: F.max_pool3d}
_AVERAGE: dict[int, Callable[..., Tensor]] = {1: F.avg_pool1d, 2: F.avg_pool2d, 3: F.avg_pool3d}
_CONVOLVE = {1: torch.conv1d, 2: torch.conv2d, 3: torch.conv3d}


def _stretched(node: Node, x: Value, window: Window) -> Window:
    """Lengthen the end pads so that rounding down gives what ``ceil_mode`` asks for.

    A last window that would begin beyond the input and its begin pad is left out, as onnxruntime
    does it.
    """
    if not node.integer("ceil_mode", 0):
        return window
    sizes = dimensions(x.shape, 2)
    if sizes is None:
        raise node.unsupported("ceil_mode needs an input of fixed size")
    ends = []
    for i, size in enumerate(sizes):
        begin, end, stride = window.begins[i], window.ends[i], window.strides[i]
        steps = -(-(size + begin + end - window.reach[i]) // stride)
        if steps * stride >= size + begin:
            steps -= 1
        ends.append(max(steps * stride + window.reach[i] - size - begin, min(end, 0)))
    return replace(window, ends=tuple(ends))


def _fitted(x: Value, window: Window) -> bool:
    """Whether torch's own padding, up to half the kernel and alike at both ends, will do."""
    return window.even and all(
        0 <= 2 * begin <= size for begin, size in zip(window.begins, window.kernel, strict=True)
    )


@operator("MaxPool")
def max_pool(node: Node) -> Value:
    """Largest entry of each window; padding never wins."""
    if node.outputs > 1 and any(node.wanted[1:]):
        raise node.unsupported("the places of the maxima are asked for")
    x = node[0]
    window = _stretched(node, x, read_window(node, x, pools=True))
    padding = window.begins
    if not _fitted(x, window):
        x = node.emit(F.pad, x, window.pad_order, "constant", -torch.inf)
        padding = (0,) * len(padding)
    pool = _MAX[len(window.kernel)]
    return node.emit(pool, x, window.kernel, window.strides, padding, window.dilations)


@operator("AveragePool")
def average_pool(node: Node) -> Value:
    """Mean of each window, with or without its padding."""
    return averaged(node, node[0])


def averaged(node: Node, x: Value) -> Value:
    """Write the average pooling that a node's attributes describe."""
    asked = read_window(node, x, pools=True)
    window = _stretched(node, x, asked)
    if any(cut < 0 and end > cut for cut, end in zip(asked.ends, window.ends, strict=True)):
        raise node.unsupported("ceil_mode asks for windows over what auto_pad cuts off")
    whole = bool(node.integer("count_include_pad", 0))
    simple = window == asked and _fitted(x, window) and set(window.dilations) == {1}
    if simple:
        pool = _AVERAGE[len(window.kernel)]
        whole = whole or not any(window.begins)
        return node.emit(pool, x, window.kernel, window.strides, window.begins, False, whole)
    sizes = dimensions(x.shape, 2)
    if sizes is None:
        raise node.unsupported("this padding needs an input of fixed size")
    counted = torch.ones(1, 1, *sizes)
    if whole:
        counted = F.pad(counted, asked.pad_order, value=1.0)
        rest = [w - a for w, a in zip(window.pad_order, asked.pad_order, strict=True)]
        counted = F.pad(counted, rest)
    else:
        counted = F.pad(counted, window.pad_order)
    weights = 1.0 / window_sums(counted, *_sliding(window))
    sums = node.emit(window_sums, _padded(node, x, window), *_sliding(window))
    return node.emit(torch.mul, sums, Value.constant_of(weights))


def _padded(node: Node, x: Value, window: Window) -> Value:
    return node.emit(F.pad, x, window.pad_order) if any(window.pad_order) else x


Sliding = tuple[tuple[int, ...], tuple[int, ...], tuple[int, ...]]


def _sliding(window: Window) -> Sliding:
    return window.kernel, window.strides, window.dilations


def window_sums(
    x: Tensor, kernel: tuple[int, ...], strides: tuple[int, ...], dilations: tuple[int, ...]
) -> Tensor:
    """Sum the entries of each window of an already padded input."""
    rank = len(kernel)
    if set(dilations) == {1}:
        area = torch.Size(kernel).numel()
        return _AVERAGE[rank](x, kernel, strides) * float(area)
    flat = x.reshape(x.shape[0] * x.shape[1], 1, *x.shape[2:])
    ones = torch.ones(1, 1, *kernel, dtype=x.dtype, device=x.device)
    sums = _CONVOLVE[rank](flat, ones, None, strides, 0, dilations)
    return sums.reshape(*x.shape[:2], *sums.shape[2:])


@operator("LpPool", since=2)
def lp_pool(node: Node) -> Value:
    """p-norm of each window."""
    x = node[0]
    window = _stretched(node, x, read_window(node, x, pools=True))
    return node.emit(lp_windows, _padded(node, x, window), node.integer("p", 2), *_sliding(window))


def lp_windows(
    x: Tensor,
    p: int,
    kernel: tuple[int, ...],
    strides: tuple[int, ...],
    dilations: tuple[int, ...],
) -> Tensor:
    """Return the p-norm of each window of an already padded input."""
    return window_sums(x.abs() ** p, kernel, strides, dilations) ** (1.0 / p)


@operator("GlobalAveragePool")
def global_average_pool(node: Node) -> Value:
    """Mean over all spatial axes."""
    if node[0].rank == 4:
        return node.emit(torch.mean, node[0], (2, 3), True)
    return node.emit(mean_over_space, node[0])


@operator("GlobalMaxPool")
def global_max_pool(node: Node) -> Value:
    """Largest entry over all spatial axes."""
    return node.emit(largest_over_space, node[0])


def mean_over_space(x: Tensor) -> Tensor:
    """Average over all axes but the first two."""
    return torch.mean(x, tuple(range(2, x.dim())), True)


def largest_over_space(x: Tensor) -> Tensor:
    """Take the maximum over all axes but the first two."""
    return torch.amax(x, tuple(range(2, x.dim())), True)


@operator("GlobalLpPool", since=2)
def global_lp_pool(node: Node) -> Value:
    """p-norm over all spatial axes."""
    return node.emit(lp_over_space, node[0], node.integer("p", 2))


def lp_over_space(x: Tensor, p: int) -> Tensor:
    """Return the p-norm over all axes but the first two."""
    norm: Tensor = torch.linalg.vector_norm(x, p, dim=tuple(range(2, x.dim())), keepdim=True)
    return norm


@operator("LRN")
def lrn(node: Node) -> Value:
    """Divide by the energy of neighbouring channels."""
    size = node.integer("size", 1)
    alpha, beta = node.real("alpha", 1e-4), node.real("beta", 0.75)
    return node.emit_like_input(local_response, node[0], size, alpha, beta, node.real("bias", 1.0))


def local_response(x: Tensor, size: int, alpha: float, beta: float, bias: float) -> Tensor:
    """Normalise over ``size`` channels around each; an even window reaches further up."""
    before, after = (size - 1) // 2, size // 2
    squares = F.pad(x.flatten(2).square().transpose(1, 2), (before, after))
    energy = F.avg_pool1d(squares, size, 1).transpose(1, 2).reshape(x.shape)
    return x / (bias + alpha * energy) ** beta
