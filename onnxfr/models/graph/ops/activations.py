"""Activation functions."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor
from torch.nn import functional as F

from onnxfr.models.graph.node import Node
from onnxfr.models.graph.rules import MICROSOFT, Rule, operator
from onnxfr.models.graph.values import Value

PLAIN: dict[str, Callable[..., Tensor]] = {
    "HardSwish": F.hardswish,
    "Mish": F.mish,
    "Relu": torch.relu,
    "Sigmoid": torch.sigmoid,
    "Softsign": F.softsign,
    "Tanh": torch.tanh,
}


def _plain(function: Callable[..., Tensor]) -> Rule:
    def rule(node: Node) -> Value:
        return node.emit_like_input(function, node[0])

    return rule


for _name, _function in PLAIN.items():
    operator(_name)(_plain(_function))


@operator("LeakyRelu")
def leaky_relu(node: Node) -> Value:
    """Rectifier with a fixed slope below zero."""
    return node.emit_like_input(F.leaky_relu, node[0], node.real("alpha", 0.01))


@operator("Elu")
def elu(node: Node) -> Value:
    """Exponential below zero."""
    return node.emit_like_input(F.elu, node[0], node.real("alpha", 1.0))


@operator("Celu", since=12)
def celu(node: Node) -> Value:
    """Continuously differentiable ELU."""
    return node.emit_like_input(F.celu, node[0], node.real("alpha", 1.0))


@operator("Selu")
def selu(node: Node) -> Value:
    """Scaled ELU with the constants of the file."""
    alpha = node.real("alpha", 1.67326319217681884765625)
    gamma = node.real("gamma", 1.05070102214813232421875)
    return node.emit_like_input(scaled_elu, node[0], alpha, gamma)


def scaled_elu(x: Tensor, alpha: float, gamma: float) -> Tensor:
    """Return ``gamma * elu(x)``."""
    return gamma * F.elu(x, alpha)


@operator("Softplus")
def softplus(node: Node) -> Value:
    """Smooth rectifier; the far end stays exact in float64."""
    return node.emit_like_input(F.softplus, node[0], 1.0, 50.0)


@operator("ThresholdedRelu", since=10)
def thresholded_relu(node: Node) -> Value:
    """Zero up to a threshold, identity above."""
    return node.emit_like_input(F.threshold, node[0], node.real("alpha", 1.0), 0.0)


@operator("HardSigmoid")
def hard_sigmoid(node: Node) -> Value:
    """Straight line clipped to [0, 1]."""
    return node.emit_like_input(
        clipped_line, node[0], node.real("alpha", 0.2), node.real("beta", 0.5)
    )


def clipped_line(x: Tensor, slope: float, offset: float) -> Tensor:
    """Return ``slope * x + offset`` clipped to [0, 1]."""
    return torch.clamp(x * slope + offset, 0.0, 1.0)


@operator("Shrink", since=9)
def shrink(node: Node) -> Value:
    """Zero near the origin, moved towards it outside."""
    return node.emit_like_input(shrunk, node[0], node.real("lambd", 0.5), node.real("bias", 0.0))


def shrunk(x: Tensor, limit: float, bias: float) -> Tensor:
    """Return ``x`` moved by ``bias`` towards zero outside ``[-limit, limit]``, zero inside."""
    moved = torch.where(x > limit, x - bias, torch.zeros_like(x))
    return torch.where(x < -limit, x + bias, moved)


@operator("Gelu", since=20)
def gelu(node: Node) -> Value:
    """Gaussian error linear unit."""
    form = node.choice("approximate", "none", "tanh")
    return node.emit_like_input(F.gelu, node[0], approximate=form)


@operator("Gelu", domain=MICROSOFT)
def microsoft_gelu(node: Node) -> Value:
    """Exact GELU."""
    return node.emit_like_input(F.gelu, node[0])


@operator("BiasGelu", domain=MICROSOFT)
def bias_gelu(node: Node) -> Value:
    """Exact GELU of a biased input."""
    return node.emit_like_input(F.gelu, node.emit(torch.add, node[0], node[1]))


@operator("FastGelu", domain=MICROSOFT)
def fast_gelu(node: Node) -> Value:
    """GELU by its tanh approximation, with an optional bias."""
    x = node[0] if node.get(1) is None else node.emit(torch.add, node[0], node[1])
    return node.emit_like_input(F.gelu, x, approximate="tanh")


@operator("QuickGelu", domain=MICROSOFT)
def quick_gelu(node: Node) -> Value:
    """GELU by a logistic function."""
    return node.emit_like_input(swish_of, node[0], node.real("alpha", 1.702))


@operator("Swish", since=24)
def swish(node: Node) -> Value:
    """Input times its logistic function."""
    return node.emit_like_input(swish_of, node[0], node.real("alpha", 1.0))


def swish_of(x: Tensor, alpha: float) -> Tensor:
    """Return ``x * sigmoid(alpha * x)``."""
    return F.silu(x) if alpha == 1.0 else x * torch.sigmoid(alpha * x)


@operator("PRelu", since=7)
def prelu(node: Node) -> Value:
    """Rectifier with learnt slopes, of any shape that broadcasts."""
    x, slope = node[0], node[1].constant
    if slope is not None and slope.numel() == 1:
        if x.rank is not None and slope.dim() <= x.rank:
            return node.emit_like_input(F.leaky_relu, x, float(slope))
    elif slope is not None and x.shape is not None and len(x.shape) >= 2:
        shape = (1,) * (len(x.shape) - slope.dim()) + tuple(slope.shape)
        if shape[1] == x.shape[1] == slope.numel():
            weight = Value.constant_of(slope.reshape(-1))
            return node.emit_like_input(channel_prelu, x, weight)
    return node.emit_like_input(broadcast_prelu, x, node[1])


def broadcast_prelu(x: Tensor, slope: Tensor) -> Tensor:
    """Rectify with one slope per whatever ``slope`` broadcasts to."""
    return torch.where(x > 0, x, x * slope)


def channel_prelu(x: Tensor, slope: Tensor) -> Tensor:
    """Rectify with one slope per channel."""
    result: Tensor = _ChannelPRelu.apply(x, slope)  # type: ignore[no-untyped-call]
    return result


class _ChannelPRelu(torch.autograd.Function):
    """PReLU whose gradient is two cheap passes.

    torch's own backward also works out the slopes' gradient, which nobody wants of a frozen
    network, and takes four times as long. ``forward`` saves by itself: with ``setup_context`` torch
    inspects its signature at every call, a tenth of a small network's gradient.
    """

    @staticmethod
    def forward(ctx: Any, x: Tensor, slope: Tensor) -> Tensor:
        ctx.save_for_backward(x, slope)
        return torch.prelu(x, slope)

    @staticmethod
    def backward(ctx: Any, *grads: Any) -> Any:
        x, slope = ctx.saved_tensors
        above = torch.ops.aten.threshold_backward(grads[0], x, 0)
        # In place: a third tensor would cost as much again in memory traffic.
        return above.lerp_(grads[0], slope.view(-1, *(1,) * (x.dim() - 2))), None


@operator("Softmax")
def softmax_flat(node: Node) -> Value:
    """Softmax over all axes from ``axis`` on."""
    return _over_flattened(node, "softmax")


@operator("Softmax", since=13)
def softmax(node: Node) -> Value:
    """Softmax over one axis."""
    return node.emit_like_input(torch.softmax, node[0], node.integer("axis", -1))


@operator("LogSoftmax")
def log_softmax_flat(node: Node) -> Value:
    """Log-softmax over all axes from ``axis`` on."""
    return _over_flattened(node, "log_softmax")


@operator("LogSoftmax", since=13)
def log_softmax(node: Node) -> Value:
    """Log-softmax over one axis."""
    return node.emit_like_input(torch.log_softmax, node[0], node.integer("axis", -1))


@operator("Hardmax")
def hardmax_flat(node: Node) -> Value:
    """One at the first largest entry of all axes from ``axis`` on."""
    return _over_flattened(node, "first_largest")


@operator("Hardmax", since=13)
def hardmax(node: Node) -> Value:
    """One at the first largest entry along one axis."""
    return node.emit_like_input(first_largest, node[0], node.integer("axis", -1))


def first_largest(x: Tensor, axis: int) -> Tensor:
    """Return ones at the first maximum along ``axis``, zeros elsewhere."""
    index = torch.argmax(x, dim=axis, keepdim=True)
    return torch.zeros_like(x).scatter(axis, index, 1.0)


_ALONG_AXIS: dict[str, Callable[..., Tensor]] = {
    "softmax": torch.softmax,
    "log_softmax": torch.log_softmax,
    "first_largest": first_largest,
}


def _over_flattened(node: Node, name: str) -> Value:
    x, axis = node[0], node.integer("axis", 1)
    if x.rank is not None and axis in (-1, x.rank - 1):
        return node.emit_like_input(_ALONG_AXIS[name], x, -1)
    return node.emit_like_input(apply_flattened, x, axis, name)


def apply_flattened(x: Tensor, axis: int, name: str) -> Tensor:
    """Apply a function to the axes from ``axis`` on as if they were one."""
    axis = axis % x.dim() if x.dim() else 0
    flat = x.reshape(*x.shape[:axis], x.shape[axis:].numel())
    return _ALONG_AXIS[name](flat, -1).reshape(x.shape)
