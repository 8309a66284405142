"""What an architecture entry says, and the registry of all of them."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass

import torch
from torch import nn

from onnxfr.models.preprocessing import Preprocessing
from onnxfr.registry import Registry


@dataclass(frozen=True)
class Reported:
    """A parameter count as a paper prints it, in millions.

    Some tables count the classifier used in training; ``head`` is the number of its parameters.
    """

    source: str
    millions: str
    head: int = 0

    def agrees(self, parameters: int) -> bool:
        """Tell whether ``parameters`` rounds to the printed digits."""
        digits = len(self.millions.partition(".")[2])
        return f"{(parameters + self.head) / 1e6:.{digits}f}" == self.millions


@dataclass(frozen=True)
class KeyMap:
    """One public naming convention of checkpoint keys, translated to our names."""

    convention: str
    rename: Callable[[str], str]


@dataclass(frozen=True)
class Architecture:
    """One network: how to build it and what its checkpoints look like.

    ``discard`` holds key prefixes that belong to training only (classifier, mask token); they are
    reported and left out. ``outputs`` names the module's outputs, the embedding first.
    ``preprocessing`` is what public weights of the family were trained on, None where they differ.
    """

    name: str
    build: Callable[[], nn.Module]
    input_size: tuple[int, int]
    embedding_dim: int
    paper: str
    reported: tuple[Reported, ...] = ()
    preprocessing: Preprocessing | None = None
    key_maps: tuple[KeyMap, ...] = ()
    discard: tuple[str, ...] = ()
    outputs: tuple[str, ...] = ("embedding",)

    def shapes(self) -> dict[str, tuple[int, ...]]:
        """Return every parameter and buffer name with its shape, without allocating weights."""
        with torch.device("meta"):
            module = self.build()
        return {key: tuple(value.shape) for key, value in module.state_dict().items()}


ARCHITECTURES: Registry[Architecture] = Registry("architecture", "onnxfr.exporters.architectures")


def register(entry: Architecture) -> None:
    """File ``entry`` under its own name."""
    ARCHITECTURES.register(entry.name)(entry)


def count_parameters(module: nn.Module) -> int:
    """Return the number of learnable values."""
    return sum(parameter.numel() for parameter in module.parameters())


def prefixes(pairs: Iterable[tuple[str, str]]) -> Callable[[str], str]:
    """Return a renamer that replaces the longest matching dotted prefix of a key."""
    ordered = sorted(pairs, key=lambda pair: -len(pair[0]))

    def rename(key: str) -> str:
        for old, new in ordered:
            if key == old or key.startswith(f"{old}."):
                return new + key[len(old) :]
        return key

    return rename
