"""Attacks from words: ``bim``, ``pgd(restarts=5)``, ``lgc+dim+tim``, ``smallest:mim``.

A sum joins the views and filters of its parts from left to right, takes the largest momentum and
the look-ahead, neighbours and dropout of whichever part has them. Brackets set hyper-parameters:
``smallest(schedule=robfr):bim(steps=40)``, ``dim+tim(steps=50)`` (those of the whole sum).
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np
import torch
from numpy.typing import NDArray

from onnxfr.attacks._iterative import Filter, IterativeGradient, View
from onnxfr.attacks.base import ATTACKS, Attack, build
from onnxfr.errors import SpecError
from onnxfr.oracle import Oracle
from onnxfr.probe import Probe
from onnxfr.rng import RowRng
from onnxfr.threat import Threat


@dataclass(frozen=True)
class Composition(IterativeGradient):
    """Several presets of the gradient loop as one attack; made by ``make_attack``."""

    steps: int = 100
    momentum: float = 1.0
    parts: tuple[str, ...] = ("mim",)

    name: ClassVar[str] = "composition"
    paper: ClassVar[str] = "composition"

    @property
    def label(self) -> str:
        """The sum as it was written."""
        return "+".join(self.parts)

    def check(self, oracle: Oracle, probe: Probe, threat: Threat) -> None:
        """Check what each part needs besides."""
        super().check(oracle, probe, threat)
        for part in self._presets():
            part.check(oracle, probe, threat)

    def views(self) -> tuple[View, ...]:
        """Return the views of all parts."""
        return tuple(view for part in self._presets() for view in part.views())

    def filters(self) -> tuple[Filter, ...]:
        """Return the filters of all parts."""
        return tuple(change for part in self._presets() for change in part.filters())

    def hook(
        self, rng: RowRng
    ) -> Callable[[int, torch.Tensor, NDArray[np.intp]], torch.Tensor] | None:
        """Return the feature hook of the first part that has one."""
        hooks = (part.hook(rng) for part in self._presets())
        return next((hook for hook in hooks if hook is not None), None)

    def _presets(self) -> list[IterativeGradient]:
        return [_preset(part) for part in self.parts]


_SEARCH = re.compile(r"smallest(?:\((?P<settings>[^()]*)\))?:(?P<inner>.+)")
_NAMED = re.compile(r"(?P<name>[^()]+?)(?:\((?P<settings>[^()]*)\))?")


def make_attack(text: str, parameters: Mapping[str, Any] | None = None) -> Attack:
    """Return the attack called ``text``, some of its hyper-parameters set.

    ``a+b`` composes presets of the gradient loop; ``smallest:a`` searches the smallest budget of a.
    ``parameters`` go before those in the brackets of the text.
    """
    search = _SEARCH.fullmatch(text)
    if search is not None:
        inner = make_attack(search["inner"])
        given = _settings(search["settings"], text) | dict(parameters or {})
        return build(ATTACKS.get("smallest_budget"), {"attack": inner} | given)
    named = _NAMED.fullmatch(text)
    if named is None:
        raise SpecError(f"an attack is written like bim(steps=40) or dim+tim; got {text!r}")
    text, given = named["name"], _settings(named["settings"], text) | dict(parameters or {})
    if "+" not in text:
        return build(ATTACKS.get(text), given)
    words = tuple(word.strip() for word in text.split("+"))
    presets = [_preset(word) for word in words]
    joined: dict[str, Any] = {
        "parts": words,
        "momentum": max(preset.momentum for preset in presets),
        "lookahead": any(preset.lookahead for preset in presets),
        "random_start": any(preset.random_start for preset in presets),
        "neighbours": max(preset.neighbours for preset in presets),
    }
    return build(Composition, joined | given)


def _settings(text: str | None, whole: str) -> dict[str, Any]:
    """Return ``steps=40,loss=margin`` as values; what is no JSON value is taken for text."""
    found: dict[str, Any] = {}
    for part in filter(None, (part.strip() for part in (text or "").split(","))):
        name, equals, value = (piece.strip() for piece in part.partition("="))
        if not equals or not value:
            raise SpecError(f"expected name=value in the brackets of {whole!r}, got {part!r}")
        try:
            found[name] = json.loads(value)
        except ValueError:
            found[name] = value
    return found


def _preset(word: str) -> IterativeGradient:
    kind = ATTACKS.get(word)
    if not issubclass(kind, IterativeGradient):
        raise SpecError(f"{word} is no gradient preset and cannot be part of a sum")
    return kind()
