"""Fitting a checkpoint's keys to an architecture, and finding the architecture a checkpoint is of.

Training scripts wrap networks (``module.``, ``backbone.``) and every project names layers its own
way. All wrappings and conventions are tried; the best fit says exactly which keys did not match.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from functools import cache

from torch import Tensor

from onnxfr.exporters.architectures.base import ARCHITECTURES, Architecture

WRAPPERS = ("module", "backbone", "model", "net", "network", "encoder", "feature_extractor")
OPTIONAL = "num_batches_tracked"
"""A counter BatchNorm keeps for training; older checkpoints lack it."""


@dataclass(frozen=True)
class Fit:
    """The result of renaming a checkpoint's keys to those of one architecture."""

    architecture: str
    convention: str
    state_dict: dict[str, Tensor]
    missing: tuple[str, ...]
    unexpected: tuple[str, ...]
    misshapen: tuple[str, ...]
    discarded: tuple[str, ...]

    @property
    def complete(self) -> bool:
        """Tell whether every key matched, in both directions, with its shape."""
        return not (self.missing or self.unexpected or self.misshapen)

    @property
    def faults(self) -> int:
        """Count the keys that did not match."""
        return len(self.missing) + len(self.unexpected) + len(self.misshapen)

    def report(self, limit: int = 8) -> str:
        """Say in a few lines which keys did not match."""
        lines = [
            f"{self.architecture} ({self.convention} names): {len(self.state_dict)} keys matched"
        ]
        for label in ("missing", "unexpected", "misshapen", "discarded"):
            keys: tuple[str, ...] = getattr(self, label)
            if keys:
                more = f" and {len(keys) - limit} more" if len(keys) > limit else ""
                lines.append(f"{len(keys)} {label}: {', '.join(keys[:limit])}{more}")
        return "; ".join(lines)


def fit(state: Mapping[str, Tensor], architecture: Architecture) -> Fit:
    """Return the best fit over all wrappings and naming conventions."""
    wanted = shapes_of(architecture.name)
    conventions: list[tuple[str, Callable[[str], str]]] = [("own", str)]
    conventions += [(known.convention, known.rename) for known in architecture.key_maps]
    best: Fit | None = None
    for unwrapped, outside in _unwrapped(state):
        for convention, rename in conventions:
            renamed = {rename(key): value for key, value in unwrapped.items()}
            attempt = _compare(renamed, wanted, architecture, convention, outside)
            if best is None or attempt.faults < best.faults:
                best = attempt
            if best.complete:
                return best
    assert best is not None
    return best


def detect_architecture(state: Mapping[str, Tensor]) -> str | None:
    """Return the first architecture whose every key and shape agrees, else None."""
    values = sum(value.numel() for value in state.values())
    for name, architecture in ARCHITECTURES.items():
        needed = sum(_size(shape) for key, shape in shapes_of(name).items() if OPTIONAL not in key)
        if needed <= values and fit(state, architecture).complete:
            return name
    return None


@cache
def shapes_of(name: str) -> dict[str, tuple[int, ...]]:
    """Return the names and shapes of an architecture's tensors, computed once."""
    return ARCHITECTURES.get(name).shapes()


def _size(shape: tuple[int, ...]) -> int:
    size = 1
    for length in shape:
        size *= length
    return size


def _unwrapped(
    state: Mapping[str, Tensor], depth: int = 3
) -> Iterator[tuple[dict[str, Tensor], tuple[str, ...]]]:
    """Yield the keys as they are and with wrappers taken off, with the keys left outside."""
    pending: list[tuple[dict[str, Tensor], tuple[str, ...], int]] = [(dict(state), (), depth)]
    while pending:
        current, outside, left = pending.pop(0)
        yield current, outside
        if not left:
            continue
        for wrapper in WRAPPERS:
            prefix = f"{wrapper}."
            inside = {k.removeprefix(prefix): v for k, v in current.items() if k.startswith(prefix)}
            if inside:
                rest = tuple(key for key in current if not key.startswith(prefix))
                pending.append((inside, outside + rest, left - 1))


def _compare(
    renamed: dict[str, Tensor],
    wanted: dict[str, tuple[int, ...]],
    architecture: Architecture,
    convention: str,
    outside: tuple[str, ...],
) -> Fit:
    matched: dict[str, Tensor] = {}
    unexpected: list[str] = []
    misshapen: list[str] = []
    discarded = list(outside)
    for key, value in renamed.items():
        if key in wanted:
            if _bare(tuple(value.shape)) == _bare(wanted[key]):
                matched[key] = value.reshape(wanted[key])
            else:
                misshapen.append(f"{key} {tuple(value.shape)} for {wanted[key]}")
        elif any(key == part or key.startswith(f"{part}.") for part in architecture.discard):
            discarded.append(key)
        elif not key.endswith(OPTIONAL):
            unexpected.append(key)
    missing = [
        key
        for key in wanted
        if key not in matched and key not in renamed and not key.endswith(OPTIONAL)
    ]
    return Fit(
        architecture.name,
        convention,
        matched,
        tuple(missing),
        tuple(unexpected),
        tuple(misshapen),
        tuple(discarded),
    )


def _bare(shape: tuple[int, ...]) -> tuple[int, ...]:
    """Drop trailing ones: a 1x1 convolution over one pixel is a linear layer."""
    while shape and shape[-1] == 1:
        shape = shape[:-1]
    return shape
