"""What the converter knows of a value before the network ever runs.

Every value is worked out for a few trial batch sizes at once. What depends on the pixels exists
there as a shape only (torch's meta device); what follows from shapes and weights alone exists for
real. Comparing the trials therefore tells, without a rule per operator, what is constant, and which
numbers are linear in the batch size: the two things that let a whole shape subgraph vanish from the
finished network.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property

import torch
from torch import Tensor, fx

from onnxfr.models.graph.tensors import INTEGER_RANGES

FAR = 1021

BATCHES = (1, 2, 7, FAR)
"""Trial batch sizes: enough to refute a number that only looks linear in the batch size.

That a number does not depend on the batch is concluded from the trials, not proven. A prime larger
than any batch in use is among them, so that what changes late (``N // 8``, ``min(N, 64)``) is seen.
"""

LARGEST_SHAPE_VECTOR = 64


@dataclass(frozen=True)
class Affine:
    """The integer ``slope * N + offset`` where N is the batch size at run time."""

    slope: int
    offset: int

    def at(self, batch: int) -> int:
        """Return the number for one batch size."""
        return self.slope * batch + self.offset


Size = int | Affine


def fit(trials: tuple[int, ...]) -> Size | None:
    """Return the number, or the line through the trials, or None if they lie on no line."""
    slope = trials[1] - trials[0]
    if slope == 0 and len(set(trials)) == 1:
        return trials[0]
    line = Affine(slope, trials[0] - slope * BATCHES[0])
    fits = all(line.at(batch) == trial for batch, trial in zip(BATCHES, trials, strict=True))
    return line if fits else None


def fit_all(trials: list[tuple[int, ...]]) -> tuple[Size, ...] | None:
    """Fit each entry of equally long vectors; None unless all of them fit."""
    if len({len(trial) for trial in trials}) != 1:
        return None
    sizes = [fit(entries) for entries in zip(*trials, strict=True)]
    return tuple(size for size in sizes if size is not None) if None not in sizes else None


def dimensions(shape: tuple[Size, ...] | None, start: int = 0) -> tuple[int, ...] | None:
    """Return the sizes from ``start`` on if none of them depends on the batch."""
    if shape is None:
        return None
    fixed = [size for size in shape[start:] if isinstance(size, int)]
    return tuple(fixed) if len(fixed) == len(shape) - start else None


Rescale = Callable[[Tensor, Tensor], "Value"]


@dataclass(frozen=True)
class Whole:
    """The whole numbers behind a dequantised value, ``(numbers - zero) * scale``."""

    numbers: Value
    scale: Value
    zero: Value | None
    axis: int


@dataclass(frozen=True)
class Product:
    """The layer behind a sum of products, which can be written again for other operands.

    Args:
        operands: what is multiplied, and what is added.
        write: builds the layer for other operands.
        axis: the axis of the result along which the units run.
        units: the axis of the second operand along which they run.
    """

    operands: tuple[Value, Value, Value | None]
    write: Callable[[Value, Value, Value | None], Value]
    axis: int
    units: int


@dataclass(eq=False)
class Value:
    """One tensor of the network: its trials, and where the finished graph finds it.

    Args:
        trials: one tensor per trial batch size, or None where nothing is known.
        place: the node of the finished graph; None for a constant.
        elem_type: the ONNX element type where it cannot be read from the tensor (int4, float8...).
        rescale: builds ``scale * self + shift`` (per channel) without another operation.
        channel_axis: the axis those scales run along.
        whole: what the value was dequantised from.
        product: the layer it comes from; with ``whole`` operands its sums can be taken exactly.
    """

    trials: tuple[Tensor, ...] | None
    place: fx.Node | None = None
    elem_type: int = 0
    rescale: Rescale | None = None
    channel_axis: int = 1
    whole: Whole | None = None
    product: Product | None = None

    @staticmethod
    def constant_of(tensor: Tensor, elem_type: int = 0) -> Value:
        """Wrap a tensor that never changes."""
        return Value((tensor,) * len(BATCHES), elem_type=elem_type)

    @cached_property
    def real(self) -> bool:
        """Whether the value is known, i.e. does not depend on the pixels."""
        return self.trials is not None and not any(trial.is_meta for trial in self.trials)

    @cached_property
    def constant(self) -> Tensor | None:
        """The tensor itself where it is the same for every batch."""
        if self.trials is None or not self.real:
            return None
        first, *others = self.trials
        same = all(
            other is first or (other.dtype == first.dtype and torch.equal(other, first))
            for other in others
        )
        return first if same else None

    @cached_property
    def shape(self) -> tuple[Size, ...] | None:
        """The dimensions, each a number or linear in the batch size."""
        if self.trials is None:
            return None
        return fit_all([tuple(trial.shape) for trial in self.trials])

    @property
    def rank(self) -> int | None:
        """The number of dimensions where known."""
        return None if self.trials is None else self.trials[0].dim()

    @cached_property
    def numbers(self) -> tuple[Size, ...] | None:
        """The entries of a known integer vector or scalar, e.g. the target of a Reshape."""
        if self.trials is None or not self.real:
            return None
        first = self.trials[0]
        if first.is_floating_point() or first.dim() > 1 or first.numel() > LARGEST_SHAPE_VECTOR:
            return None
        return fit_all([tuple(int(entry) for entry in trial.reshape(-1)) for trial in self.trials])

    @property
    def carried(self) -> int:
        """The integer type of a value that the network carries in floats, 0 for any other."""
        floating = self.dtype is not None and self.dtype.is_floating_point
        return self.elem_type if floating and self.elem_type in INTEGER_RANGES else 0

    @property
    def dtype(self) -> torch.dtype | None:
        """The torch type where known."""
        return None if self.trials is None else self.trials[0].dtype
