"""Sampling at computed places, as spatial transformers do."""

from __future__ import annotations

import torch
from torch import Tensor
from torch.nn import functional as F

from onnxfr.models.graph.node import Node
from onnxfr.models.graph.ops.layout import Numbers, as_list
from onnxfr.models.graph.rules import operator
from onnxfr.models.graph.values import Value

_MODES = {"linear": "bilinear", "cubic": "bicubic"}


@operator("GridSample", since=16)
def grid_sample_16(node: Node) -> Value:
    """Sample an image on a grid, modes in their old spelling."""
    return _sampled(node, node.choice("mode", "bilinear", "nearest", "bicubic"))


@operator("GridSample", since=20)
def grid_sample(node: Node) -> Value:
    """Sample an image on a grid."""
    mode = node.choice("mode", "linear", "nearest", "cubic")
    return _sampled(node, _MODES.get(mode, mode))


def _sampled(node: Node, mode: str) -> Value:
    padding = node.choice("padding_mode", "zeros", "border", "reflection")
    aligned = bool(node.integer("align_corners", 0))
    return node.emit(F.grid_sample, node[0], node[1], mode, padding, aligned)


@operator("AffineGrid", since=20)
def affine_grid(node: Node) -> Value:
    """The grid of places that an affine map visits."""
    return node.emit(grid_of, node[0], node.numbers(1), bool(node.integer("align_corners", 0)))


def grid_of(theta: Tensor, size: Numbers, aligned: bool) -> Tensor:
    """Return normalised coordinates for each pixel of an image of ``size``."""
    return F.affine_grid(theta, as_list(size), aligned)


@operator("CenterCropPad", since=18)
def center_crop_pad(node: Node) -> Value:
    """Crop or pad around the centre to given sizes."""
    return node.emit(centred_to, node[0], node.numbers(1), node.integers("axes"))


def centred_to(x: Tensor, sizes: Numbers, axes: tuple[int, ...] | None) -> Tensor:
    """Crop or pad each axis by equal amounts; the odd one comes off, or goes to, the end."""
    places = tuple(range(x.dim())) if axes is None else tuple(axis % x.dim() for axis in axes)
    for axis, size in zip(places, as_list(sizes), strict=True):
        more = size - x.shape[axis]
        if more < 0:
            x = x.narrow(axis, -more // 2, size)
        elif more > 0:
            pads = [0] * (2 * (x.dim() - axis))
            pads[-2:] = [more // 2, more - more // 2]
            x = F.pad(x, pads)
    return x


@operator("Det", since=11)
def determinant(node: Node) -> Value:
    """Determinants of square matrices."""
    return node.emit(torch.det, node[0])
