"""What the settings of attacks may be: refused when an attack is made, or of use."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np
import pytest
import torch
from attack_games import tiny_game, tiny_probe

from onnxfr.attacks import Attack, make_attack
from onnxfr.attacks._settings import Share
from onnxfr.attacks.decision.evolutionary import Evolutionary
from onnxfr.attacks.decision.master_face import search_master_faces
from onnxfr.attacks.white_box.dfanet import DFANet
from onnxfr.errors import SpecError
from onnxfr.gallery import Gallery
from onnxfr.models.wrapper import OnnxModel
from onnxfr.oracle import Oracle
from onnxfr.probe import Probe
from onnxfr.rng import RowRng
from onnxfr.threat import Threat
from onnxfr.types import Goal, Images


@dataclass(frozen=True)
class Idle(Attack):
    """An attack of somebody who forgot to check anything."""

    steps: int = 3
    width: float = 0.5
    part: Share = 0.5
    extra: int = 0
    eager: bool = False

    name: ClassVar[str] = "idle"

    def run(self, oracle: Oracle, probe: Probe, threat: Threat, rng: RowRng) -> Images:
        return probe.images


@dataclass(frozen=True)
class Busier(Idle):
    """Other defaults, and a preparation that does not call its parent's."""

    part: float = 0.9
    extra: int = 4

    def __post_init__(self) -> None:
        object.__setattr__(self, "prepared", 1 / self.steps)


@pytest.mark.parametrize("kind", [Idle, Busier])
@pytest.mark.parametrize(
    ("settings", "wanted"),
    [
        ({"steps": 0}, "idle: steps is a whole number at least 1; got 0"),
        ({"steps": 2.0}, "whole number"),
        ({"steps": True}, "whole number"),
        ({"steps": "ten"}, "whole number"),
        ({"width": 0.0}, "width is a number above 0; got 0.0"),
        ({"width": float("nan")}, "above 0"),
        ({"width": float("inf")}, "above 0"),
        ({"part": 1.01}, "part is a number above 0 and at most 1; got 1.01"),
        ({"extra": -1}, "extra is a whole number at least 0"),
        ({"eager": "False"}, "eager is true or false; got 'False'"),
    ],
)
def test_an_attack_is_checked_by_existing(
    kind: type[Attack], settings: dict[str, Any], wanted: str
) -> None:
    with pytest.raises(SpecError, match=wanted):
        kind(**settings)


@pytest.mark.parametrize("kind", [Idle, Busier])
def test_what_makes_sense_is_taken(kind: type[Attack]) -> None:
    kind(**{"steps": np.int64(2), "width": 1, "part": 1.0, "extra": 0, "eager": True})
    kind(**{"width": np.float32(0.5), "part": 1})


@pytest.mark.parametrize(
    "text",
    [
        "si(scales=0)",
        "ssm(samples=0)",
        "admix(others=0)",
        "fab(steps=0)",
        "dfanet(rate=1.0)",
        "cw(steps=0)",
        "low_query(faces=0)",
        "low_query(queries=0)",
        "pgd(random_start=False)",
        "simba(basis=wavelet)",
        "dim+tim(steps=0)",
        "smallest(rounds=0):bim",
    ],
)
def test_settings_that_would_win_nothing_are_refused(text: str) -> None:
    with pytest.raises(SpecError, match=r"is (a|one|true)"):
        make_attack(text)


@pytest.mark.parametrize("name", ["bsr", "sia"])
def test_more_blocks_than_pixels_are_refused(tiny: OnnxModel, name: str) -> None:
    probe, threat = tiny_probe(1), Threat(eps=0.05)
    for blocks in (16, 17):
        attack = make_attack(name, {"blocks": blocks, "samples": 1, "steps": 1})
        oracle = tiny_game(tiny, probe, threat, Goal.DODGE)
        if blocks == 16:
            assert attack(oracle, probe, threat).gradients[0] == 1
        else:
            with pytest.raises(SpecError, match="16 pixels a side; got 17"):
                attack(oracle, probe, threat)


def test_evolutionary_may_move_every_value(tiny: OnnxModel) -> None:
    probe, threat = tiny_probe(2), Threat(norm="l2", max_queries=60)
    oracle = tiny_game(tiny, probe, threat, Goal.IMPERSONATE)
    result = Evolutionary(chosen=1.0)(oracle, probe, threat)
    assert result.won.all() and (result.queries == 60).all()


def test_the_highest_dropout_leaves_some_features() -> None:
    rng = RowRng(0, ["pair"])
    drop = DFANet(rate=0.9999).hook(rng)
    kept = drop(0, torch.ones(1, 64, 16, 16), np.arange(1))
    assert torch.isfinite(kept).all() and 0 < int((kept > 0).sum()) < 16384 / 64


@pytest.mark.parametrize("name", ["faces", "queries", "population", "components"])
def test_a_search_for_no_master_face_is_refused(tiny: OnnxModel, name: str) -> None:
    probe = tiny_probe(3)
    assert probe.references is not None and probe.pool is not None
    gallery = Gallery(tiny, probe.references, 0.5)
    with pytest.raises(SpecError, match=f"{name} is a whole number at least 1; got 0"):
        search_master_faces(gallery, probe.pool, **{name: 0})
