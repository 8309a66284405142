"""What the attacker may change and how often he may ask: norm, budget, query cap, region."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import TypeVar, get_args

import numpy as np
import torch
from numpy.typing import NDArray

from onnxfr.errors import SpecError
from onnxfr.probe import round8
from onnxfr.types import Norm

Batch = TypeVar("Batch", NDArray[np.float32], torch.Tensor)
"""NumPy or torch: what goes in comes out."""

_TINY = 1e-12
_ROUNDING = 1e-6
_LEVEL = 1 / 255
_ROUNDING_VARIANCE = 1 / 12
_SAFE = 0.995
_SHRINKINGS = 12


@dataclass(frozen=True, kw_only=True)
class Threat:
    """The rules of one game; ``eps`` None means: as small as possible.

    Args:
        norm: ``linf`` or the normalised ``l2`` (root mean square change).
        eps: the budget in [0, 1] pixel units, for all rows or one per row.
        max_queries: cap per row on decisions and scores together, and on gradients on their own.
        region: where pixels may change: 1 inside, 0 outside, broadcastable to ``(N, 3, H, W)``.
    """

    norm: Norm = "linf"
    eps: float | NDArray[np.float64] | None = None
    max_queries: int | None = None
    region: NDArray[np.float32] | None = None

    def __post_init__(self) -> None:
        if self.norm not in get_args(Norm):
            raise SpecError(f"a norm is one of {', '.join(get_args(Norm))}; got {self.norm!r}")
        if self.eps is not None:
            budget = np.asarray(self.eps, dtype=np.float64)
            if budget.ndim > 1 or not ((budget >= 0) & (budget <= 1)).all():
                raise SpecError(f"eps lies in [0, 1] (8/255 for 8 grey levels); got {self.eps!r}")
        if self.max_queries is not None and self.max_queries < 1:
            raise SpecError(f"max_queries is at least 1; got {self.max_queries}")

    def take(self, rows: NDArray[np.intp]) -> Threat:
        """Return the rules of some rows."""
        eps, region = self.eps, self.region
        if isinstance(eps, np.ndarray) and eps.ndim:
            eps = eps[rows]
        if region is not None and region.ndim == 4 and len(region) > 1:
            region = region[rows]
        return replace(self, eps=eps, region=region)

    def within(self, eps: float | NDArray[np.float64]) -> Threat:
        """Return the same rules under another budget."""
        return replace(self, eps=eps)

    def radius(self, like: torch.Tensor) -> torch.Tensor:
        """Return the budget of each row of ``like`` as ``(N, 1, 1, 1)``."""
        assert self.eps is not None, "this threat has no budget"
        budget = torch.as_tensor(self.eps, dtype=like.dtype, device=like.device)
        return budget.expand(len(like)).reshape(-1, 1, 1, 1)

    def distance(self, clean: Batch, adv: Batch) -> Batch:
        """Return the size of each row's change in this norm, ``(N,)``."""
        if isinstance(clean, np.ndarray):
            pair = torch.from_numpy(clean), torch.from_numpy(adv)
            return self.distance(*pair).numpy()
        change = (adv - clean).flatten(1)
        if self.norm == "linf":
            return change.abs().amax(1) if len(change) else change.new_zeros(0)
        # Squares of single grey levels underflow nothing, but their float32 sum drifts. No wider
        # copy of the change is made: its fresh memory would cost more than the sum.
        size: torch.Tensor = torch.linalg.vector_norm(change, dim=1, dtype=torch.float64)
        return (size / math.sqrt(max(change.shape[1], 1))).to(clean.dtype)

    def project(self, clean: Batch, adv: Batch) -> Batch:
        """Return the point of region, ball and pixel range nearest to ``adv``."""
        if isinstance(clean, np.ndarray):
            return self.project(torch.from_numpy(clean), torch.from_numpy(adv)).numpy()
        change = self.restrict(adv - clean)
        if self.eps is not None and self.norm == "linf":
            radius = self.radius(clean)
            change = torch.minimum(torch.maximum(change, -radius), radius)
        elif self.eps is not None:
            size = self.distance(torch.zeros_like(change), change).reshape(-1, 1, 1, 1)
            change = change * (self.radius(clean) / size.clamp_min(_TINY)).clamp_max(1.0)
        return (clean + change).clamp(0.0, 1.0)

    def box(self, clean: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor] | None:
        """Return the least and greatest values each pixel may take, if the threat is such a box."""
        if self.eps is None or self.norm != "linf":
            return None
        reach = self.restrict(self.radius(clean).expand_as(clean))
        return (clean - reach).clamp_min(0.0), (clean + reach).clamp_max(1.0)

    def in_levels(self) -> Threat:
        """Return the rules for pictures that will be rounded to 8 bits, which then keep these.

        In linf a budget is a whole number of grey levels; in l2 rounding adds its own variance.
        """
        if self.eps is None:
            return self
        levels = np.asarray(self.eps, dtype=np.float64) * 255
        if self.norm == "linf":
            levels = np.floor(levels + 1e-4)
        else:
            levels = _SAFE * np.sqrt(np.maximum(np.square(levels) - _ROUNDING_VARIANCE, 0.0))
        return replace(self, eps=levels * _LEVEL if levels.ndim else float(levels) * _LEVEL)

    def as_file(self, clean: NDArray[np.float32], adv: NDArray[np.float32]) -> NDArray[np.float32]:
        """Return pictures rounded to 8 bits that keep the budget from the rounded clean ones."""
        file, middle = round8(adv), round8(clean)
        if self.eps is None:
            return file
        if self.norm == "linf":
            reach = np.reshape(np.asarray(self.in_levels().eps, dtype=np.float32), (-1, 1, 1, 1))
            return round8(np.clip(file, middle - reach, middle + reach))
        budget, change = np.broadcast_to(np.asarray(self.eps), len(file)), adv - middle
        for turn in range(_SHRINKINGS):
            size = self.distance(middle, file)
            over = np.flatnonzero(size > budget + _ROUNDING)
            if not over.size:
                break
            # Where nothing smaller is a change at all, the clean file is what is left.
            share = _SAFE * budget[over] / size[over] if turn < _SHRINKINGS - 1 else 0 * size[over]
            change[over] *= np.reshape(share, (-1, 1, 1, 1)).astype(np.float32)
            file[over] = round8(middle[over] + change[over])
        return file

    def allows(self, clean: NDArray[np.float32], adv: NDArray[np.float32]) -> NDArray[np.bool_]:
        """Tell which rows keep the budget, the region and the pixel range, rounding aside."""
        inner = tuple(range(1, adv.ndim))
        low, high = adv.min(axis=inner, initial=0.0), adv.max(axis=inner, initial=1.0)
        allowed = np.asarray((low >= -_ROUNDING) & (high <= 1 + _ROUNDING), dtype=np.bool_)
        if self.eps is not None:
            allowed &= self.distance(clean, adv) <= np.asarray(self.eps) + _ROUNDING
        if self.region is not None:
            outside = (adv - clean) * (1 - self.region)
            allowed &= np.abs(outside).reshape(len(clean), -1).max(axis=1, initial=0) <= _ROUNDING
        return allowed

    def restrict(self, change: torch.Tensor) -> torch.Tensor:
        """Return a change or gradient with everything outside the region set to zero."""
        if self.region is None:
            return change
        return change * torch.as_tensor(self.region, dtype=change.dtype, device=change.device)

    def steepest(self, gradient: torch.Tensor) -> torch.Tensor:
        """Return the direction of steepest ascent, of size 1 in this norm (0 where flat)."""
        gradient = self.restrict(gradient)
        if self.norm == "linf":
            return gradient.sign()
        values = max(gradient[:1].numel(), 1)
        size = gradient.flatten(1).square().sum(1).sqrt().clamp_min(_TINY) / math.sqrt(values)
        return gradient / size.reshape(-1, 1, 1, 1)

    def slope(self, gradient: torch.Tensor) -> torch.Tensor:
        """Return how fast the margin grows along ``steepest``, per unit of distance, ``(N,)``."""
        return (self.restrict(gradient) * self.steepest(gradient)).flatten(1).sum(1)
