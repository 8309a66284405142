"""Attention as one operator, in ONNX's form and in onnxruntime's."""

from __future__ import annotations

import math

import torch
from torch import Tensor

from onnxfr.models.graph.node import Node
from onnxfr.models.graph.rules import MICROSOFT, operator
from onnxfr.models.graph.values import Value


@operator("Attention", since=23)
def attention(node: Node) -> Value:
    """Scaled dot-product attention, with grouped heads, mask, causality and soft cap."""
    if any(node.wanted[1:]) or any(node.get(i) is not None for i in (4, 5, 6)):
        raise node.unsupported("a cache of keys and values, which only text models have")
    heads = node.integer("q_num_heads", 0), node.integer("kv_num_heads", 0)
    scale = node.real("scale", 0.0) if node.has("scale") else None
    causal, cap = bool(node.integer("is_causal", 0)), node.real("softcap", 0.0)
    return node.emit(attended, node[0], node[1], node[2], node.get(3), heads, scale, causal, cap)


def attended(
    query: Tensor,
    key: Tensor,
    value: Tensor,
    mask: Tensor | None,
    heads: tuple[int, int],
    scale: float | None,
    causal: bool,
    cap: float,
) -> Tensor:
    """Attend; three-dimensional inputs carry their heads inside the last axis."""
    flat = query.dim() == 3
    q = split_heads(query, heads[0]) if flat else query
    k, v = (split_heads(t, heads[1]) if flat else t for t in (key, value))
    groups = q.shape[1] // k.shape[1]
    if groups > 1:
        k, v = k.repeat_interleave(groups, 1), v.repeat_interleave(groups, 1)
    factor = 1.0 / math.sqrt(q.shape[-1]) if scale is None else scale
    scores = torch.matmul(q * factor, k.transpose(-1, -2))
    if cap:
        scores = cap * torch.tanh(scores / cap)
    if mask is not None:
        scores = masked(scores, mask)
    if causal:
        seen = torch.ones(scores.shape[-2:], dtype=torch.bool, device=scores.device).tril()
        scores = masked(scores, seen)
    result = torch.matmul(torch.softmax(scores, -1), v)
    return result.transpose(1, 2).flatten(2) if flat else result


def masked(scores: Tensor, mask: Tensor) -> Tensor:
    """Add a mask of numbers, or hide what a mask of truth values leaves out."""
    if mask.dtype == torch.bool:
        return torch.where(mask, scores, torch.full_like(scores, -torch.inf))
    return scores + mask


def split_heads(x: Tensor, heads: int) -> Tensor:
    """Return ``(N, heads, tokens, size)``."""
    return x.reshape(*x.shape[:2], heads, -1).transpose(1, 2)


@operator("MultiHeadAttention", domain=MICROSOFT)
def multi_head_attention(node: Node) -> Value:
    """Attention of onnxruntime over separate queries, keys and values."""
    if any(node.wanted[1:]) or any(node.get(i) is not None for i in (4, *range(6, 10))):
        raise node.unsupported("padding masks or a cache of keys and values")
    scale = node.real("scale", 0.0) or None
    heads = node.integer("num_heads", 1)
    causal = bool(node.integer("unidirectional", 0))
    query, key, value = node[0], node[1], node[2]
    if node.get(3) is not None:
        query, key, value = node.emit_many(3, biased, query, key, value, node[3])
    mask = node.get(5)
    return node.emit(attended, query, key, value, mask, (heads, heads), scale, causal, 0.0)


def biased(query: Tensor, key: Tensor, value: Tensor, bias: Tensor) -> tuple[Tensor, ...]:
    """Add one joint bias vector to queries, keys and values."""
    width = query.shape[-1]
    parts = torch.split(bias, [width, width, bias.shape[0] - 2 * width])
    return query + parts[0], key + parts[1], value + parts[2]


@operator("Attention", domain=MICROSOFT)
def packed_attention(node: Node) -> Value:
    """Attention of onnxruntime with the projection of the input inside."""
    if any(node.wanted[1:]) or any(node.get(i) is not None for i in (3, 4, *range(6, 9))):
        raise node.unsupported("padding masks or a cache of keys and values")
    if node.has("qkv_hidden_sizes") or node.integer("do_rotary", 0):
        raise node.unsupported("unequal widths or rotary embedding")
    heads, scale = node.integer("num_heads", 1), node.real("scale", 0.0) or None
    causal = bool(node.integer("unidirectional", 0))
    parts = node.emit_many(3, projected, node[0], node[1], node.get(2))
    return node.emit(attended, *parts, node.get(5), (heads, heads), scale, causal, 0.0)


def projected(x: Tensor, weight: Tensor, bias: Tensor | None) -> tuple[Tensor, ...]:
    """Project to queries, keys and values by one joint matrix."""
    joint = torch.matmul(x, weight)
    return torch.chunk(joint if bias is None else joint + bias, 3, -1)
