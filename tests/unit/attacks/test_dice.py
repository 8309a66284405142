"""Dice held still: generators wherever they are, and everything as it was afterwards."""

from __future__ import annotations

import random
from types import SimpleNamespace

import numpy as np
import torch

from onnxfr.attacks._dice import held


def rolls(box: SimpleNamespace) -> list[float]:
    """Roll every kind of dice once."""
    return [
        float(box.own.random()),
        float(box.deep["list"][0].inner.random()),
        float(box.old.random_sample()),
        float(torch.rand(1, generator=box.torch)),
        box.pure.random(),
        random.random(),
        float(np.random.random()),  # noqa: NPY002
        float(torch.rand(1)),
    ]


def test_every_roll_is_the_first_one_and_nothing_is_used_up() -> None:
    box = SimpleNamespace(
        own=np.random.default_rng(1),
        deep={"list": [SimpleNamespace(inner=np.random.Generator(np.random.Philox(2)))]},
        old=np.random.RandomState(3),
        torch=torch.Generator().manual_seed(4),
        pure=random.Random(5),
    )
    box.itself = box
    free = [rolls(box), rolls(box)]
    assert all(a != b for a, b in zip(*free, strict=True))
    with held(box) as restore:
        seen = []
        for _ in range(3):
            restore()
            seen.append(rolls(box))
    assert seen[0] == seen[1] == seen[2]
    assert rolls(box) == seen[0]
