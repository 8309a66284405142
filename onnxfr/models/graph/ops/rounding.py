"""Rounding with a straight-through gradient, for quantised values only.

A quantised value is carried as whole numbers in the network's float type, so that gradients can
flow through an int8 network at all. Clipping to the type's range keeps its true gradient, zero
outside.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor


class _Through(torch.autograd.Function):
    """Round in the forward pass, hand the gradient on unchanged in the backward pass."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, towards_zero: bool) -> Tensor:
        return torch.trunc(x) if towards_zero else torch.round(x)

    @staticmethod
    def backward(ctx: Any, *grads: Any) -> Any:
        return grads[0], None


def round_through(x: Tensor) -> Tensor:
    """Round halves to even; the gradient is that of the identity."""
    result: Tensor = _Through.apply(x, False)  # type: ignore[no-untyped-call]
    return result


def integer_through(x: Tensor, low: int, high: int) -> Tensor:
    """Drop the fraction and wrap into the range, as a cast in C does; gradient of the identity."""
    whole: Tensor = _Through.apply(x, True)  # type: ignore[no-untyped-call]
    span = high - low + 1
    turns = torch.floor((whole.detach() - low) / span)
    return whole - turns * span
