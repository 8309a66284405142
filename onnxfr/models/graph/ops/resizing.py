"""Resize and Upsample as one matrix per axis, so that every mode is exact and differentiable.

Coordinates are worked out in float32 (for ``half_pixel_symmetric`` partly in float64) as
onnxruntime does: near a tie the last bits pick the pixel. Like onnxruntime, a resize to the same
size copies, whatever its factors.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import reduce

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from onnxfr.models.graph.node import Node
from onnxfr.models.graph.rules import operator
from onnxfr.models.graph.values import Size, Value

Reals = NDArray[np.float32]

_COORDINATES = (
    "half_pixel_symmetric",
    "pytorch_half_pixel",
    "align_corners",
    "asymmetric",
    "tf_half_pixel_for_nn",
    "tf_crop_and_resize",
)
_ROUNDINGS = ("round_prefer_ceil", "floor", "ceil")
_TIE = 1e-6
"""How near to the middle between two pixels onnxruntime takes a place for the middle itself."""


@dataclass(frozen=True)
class Axis:
    """How one axis is resized."""

    size: int
    target: int
    scale: float
    mode: str = "nearest"
    coordinates: str = "asymmetric"
    rounding: str = "simple"
    cubic: float = -0.75
    exclude: bool = False
    antialias: bool = False
    begin: float = 0.0
    end: float = 1.0

    def places(self) -> Reals:
        """Return where in the input each entry of the result lies."""
        i = np.arange(self.target, dtype=np.float32)
        scale, half = np.float32(self.scale), np.float32(0.5)
        size, target = self.size, self.target
        match self.coordinates:
            case "asymmetric":
                return i / scale
            case "tf_half_pixel_for_nn":
                return (i + half) / scale
            case "align_corners":
                return i * np.float32(size - 1) / np.float32(max(target - 1, 1))
            case "tf_crop_and_resize":
                begin, end, last = (
                    np.float32(self.begin),
                    np.float32(self.end),
                    np.float32(size - 1),
                )
                if target == 1:
                    return half * (begin + end) * last + 0 * i
                return begin * last + i * (end - begin) * last / np.float32(target - 1)
            case "half_pixel_symmetric":
                adjust = np.float32(target) / (scale * np.float32(size))
                offset = np.float32(size) / 2 * (1 - adjust)
                wide = np.float64(offset) + (i + 0.5).astype(np.float64) / np.float64(scale) - 0.5
                return wide.astype(np.float32)
        if self.coordinates == "pytorch_half_pixel" and target == 1:
            return 0 * i
        return (i + half) / scale - half

    def nearest(self) -> NDArray[np.int64]:
        """Return which entry of the input each entry of the result repeats."""
        x = self.places()
        tie = np.abs(x - np.floor(x) - np.float32(0.5)) <= _TIE
        match self.rounding:
            case "simple":
                picked = np.ceil(x) if self.scale < 1 else np.trunc(x)
            case "round_prefer_floor":
                picked = np.where(tie, np.floor(x), np.round(x))
            case "round_prefer_ceil":
                picked = np.where(tie, np.ceil(x), np.round(x))
            case "floor":
                picked = np.floor(x)
            case _:
                picked = np.ceil(x)
        return np.clip(picked, 0, self.size - 1).astype(np.int64)

    def outside(self) -> NDArray[np.bool_]:
        """Mark entries of the result that lie outside the input."""
        x = self.places()
        return (x < 0) | (x > self.size - 1)

    def matrix(self) -> NDArray[np.float64]:
        """Return the weight of each input entry (column) in each entry of the result (row)."""
        x = self.places().astype(np.float64)
        stretch = max(1.0 / self.scale, 1.0) if self.antialias else 1.0
        reach = (2.0 if self.mode == "cubic" else 1.0) * stretch
        if self.mode == "linear" and not self.antialias:
            x = np.clip(x, 0, self.size - 1)
        taps = np.floor(x)[:, None] + np.arange(-int(np.ceil(reach)), int(np.ceil(reach)) + 2)
        weights = self._kernel((taps - x[:, None]) / stretch)
        inside = (taps >= 0) & (taps < self.size)
        if self.exclude:
            weights = np.where(inside, weights, 0.0)
        if self.exclude or self.antialias:
            weights = weights / weights.sum(axis=1, keepdims=True)
        result = np.zeros((self.target, self.size))
        rows = np.broadcast_to(np.arange(self.target)[:, None], taps.shape)
        np.add.at(result, (rows, np.clip(taps, 0, self.size - 1).astype(np.int64)), weights)
        return result

    def _kernel(self, distance: NDArray[np.float64]) -> NDArray[np.float64]:
        d, a = np.abs(distance), self.cubic
        if self.mode == "linear":
            return np.where(d < 1, 1 - d, 0.0)
        near = (a + 2) * d**3 - (a + 3) * d**2 + 1
        far = a * d**3 - 5 * a * d**2 + 8 * a * d - 4 * a
        return np.where(d <= 1, near, np.where(d < 2, far, 0.0))


@operator("Upsample", since=7)
def upsample_attribute(node: Node) -> Value:
    """Resize by factors written as an attribute."""
    return _resized(node, node.reals("scales") or (), None)


@operator("Upsample", since=9)
@operator("Resize", since=10)
def upsample(node: Node) -> Value:
    """Resize by given factors."""
    return _resized(node, tuple(node.constant(1, "factors").tolist()), None)


@operator("Resize", since=11)
def resize(node: Node) -> Value:
    """Resize by factors or to sizes, with all of ONNX's coordinate rules."""
    scales = sizes = None
    given = node.get(2)
    if given is not None and (given.constant is None or given.constant.numel()):
        scales = tuple(float(entry) for entry in node.constant(2, "factors").tolist())
    else:
        sizes = node[3].numbers
        if sizes is None:
            raise node.unsupported("its sizes are computed while the network runs")
    return _resized(node, scales, sizes)


def _resized(node: Node, scales: tuple[float, ...] | None, sizes: tuple[Size, ...] | None) -> Value:
    x = node[0]
    if x.shape is None:
        raise node.unsupported("needs an input of fixed size")
    axes = [axis % len(x.shape) for axis in node.integers("axes") or range(len(x.shape))]
    rule = _rule(node)
    crops = rule.coordinates == "tf_crop_and_resize"
    region = node.constant(1, "region").tolist() if crops else [0.0] * len(axes) + [1.0] * len(axes)
    plans: list[tuple[int, Axis]] = []
    for i, axis in enumerate(axes):
        size, target = x.shape[axis], None if sizes is None else sizes[i]
        begin, end = region[i], region[i + len(axes)]
        factor = None if scales is None else scales[i]
        if (target == size or factor == 1.0) and (begin, end) == (0.0, 1.0):
            continue
        if not isinstance(size, int) or not isinstance(target, int | None):
            raise node.unsupported("resizes the batch axis")
        if factor is None:
            assert target is not None
            factor = target / size
        target = int(np.floor(np.float32(size) * np.float32(factor))) if target is None else target
        plan = replace(rule, size=size, target=target, scale=factor, begin=begin, end=end)
        plans.append((axis, plan))
    if not crops and all(plan.target == plan.size for _, plan in plans):
        return x
    return reduce(lambda value, step: _along(node, value, *step), plans, x)


def _rule(node: Node) -> Axis:
    """Read what all axes have in common."""
    mode = node.choice("mode", "nearest", "linear", "cubic", "bilinear", "bicubic")
    policy = node.choice("keep_aspect_ratio_policy", "stretch", "not_larger", "not_smaller")
    if policy != "stretch":
        raise node.unsupported(f"keep_aspect_ratio_policy is {policy!r}")
    plain = Axis(1, 1, 1.0, mode.removeprefix("bi"))
    if node.operator == "Upsample" or node.version < 11:
        return plain
    smooth = bool(node.integer("antialias", 0)) and mode != "nearest"
    return replace(
        plain,
        coordinates=node.choice("coordinate_transformation_mode", "half_pixel", *_COORDINATES),
        rounding=node.choice("nearest_mode", "round_prefer_floor", *_ROUNDINGS),
        cubic=node.real("cubic_coeff_a", -0.75),
        exclude=bool(node.integer("exclude_outside", 0)) and (mode == "cubic" or smooth),
        antialias=smooth,
    )


def _along(node: Node, x: Value, axis: int, plan: Axis) -> Value:
    """Resize one axis."""
    if plan.mode == "nearest":
        result = node.emit(
            torch.index_select, x, axis, Value.constant_of(torch.from_numpy(plan.nearest()))
        )
    else:
        weights = torch.from_numpy(plan.matrix()).to(torch.float32)
        result = node.emit(weighted_along, x, Value.constant_of(weights), axis)
    if plan.coordinates != "tf_crop_and_resize" or not plan.outside().any():
        return result
    assert x.rank is not None
    shape = (-1, *(1,) * (x.rank - 1 - axis))
    mask = Value.constant_of(torch.from_numpy(plan.outside()).reshape(shape))
    return node.emit(torch.masked_fill, result, mask, node.real("extrapolation_value", 0.0))


def weighted_along(x: Tensor, weights: Tensor, axis: int) -> Tensor:
    """Multiply one axis by a matrix."""
    if axis == x.dim() - 1:
        return torch.matmul(x, weights.t())
    if axis == x.dim() - 2:
        return torch.matmul(weights, x)
    return torch.matmul(x.movedim(axis, -1), weights.t()).movedim(-1, axis)
