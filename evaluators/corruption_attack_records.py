"""What attacks and corruptions together make of a pair: one flat row per pair and condition."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from onnxfr.attacks import Attack
from onnxfr.data.pairs import PairSet
from onnxfr.evaluators.attacked import (
    Rules,
    fight,
    fresh_margins,
    identity_of,
    is_randomised,
    unplayed,
)
from onnxfr.evaluators.games import Games
from onnxfr.evaluators.pictures import thumbnail, to_pixels
from onnxfr.evaluators.treatment import CLEAN, Channel
from onnxfr.models.wrapper import FRModel
from onnxfr.probe import round8
from onnxfr.types import Images

PICTURES = (
    "clean_picture",
    "attacked_picture",
    "corrupted_picture",
    "both_picture",
    "reference_picture",
)
"""Binary columns, JPEG, filled for the pairs to show."""

COLUMNS = pa.schema(
    [
        *((name, pa.string()) for name in ("pair", "left", "right")),
        *((name, pa.string()) for name in ("left_identity", "right_identity")),
        ("same", pa.bool_()),
        *((name, pa.string()) for name in ("goal", "norm")),
        ("eps", pa.float64()),
        ("threshold", pa.float64()),
        *((name, pa.string()) for name in ("threshold_origin", "protocol", "order", "seeks")),
        *((name, pa.string()) for name in ("preset", "corruption")),
        ("severity", pa.int64()),
        *((name, pa.string()) for name in ("outcome", "reason")),
        *((f"won_{name}", pa.bool_()) for name in ("clean", "attacked", "corrupted", "both")),
        *((f"margin_{name}", pa.float64()) for name in ("clean", "attacked", "corrupted", "both")),
        ("distance", pa.float64()),
        *((name, pa.binary()) for name in PICTURES),
    ]
)
"""``won_attacked`` is of the attack alone, ``won_corrupted`` of the corruption alone."""

Row = dict[str, Any]
Margins = NDArray[np.float32]


@dataclass(frozen=True, kw_only=True)
class Duel:
    """Everything one cell plays with."""

    model: FRModel
    pairs: PairSet
    games: Games
    attack: Attack
    rules: Rules
    points: NDArray[np.floating] | None
    """Landmarks of the crops, for occluders."""
    shown: Collection[str]

    @property
    def pictures(self) -> list[str]:
        """The ids of the probes' pictures, which decide the draws of corruptions."""
        sides = self.pairs.left[self.games.rows]
        return [self.pairs.images[int(index)].id for index in sides]

    def judge(self) -> Callable[[Images], Margins]:
        """Return how pictures are judged: once, or by several looks if answers are random."""
        oracle = self.rules.oracle(self.model, self.games.probe)
        if is_randomised(self.model, self.games.probe):
            return lambda images: fresh_margins(oracle, images)
        return oracle.verify

    def rows(
        self, channel: Channel, margins: dict[str, Margins], **more: Sequence[Any]
    ) -> list[Row]:
        """Return one record per game; a margin above 0 is the attacker's."""
        return [
            identity_of(self.pairs, row, self.rules)
            | {
                "outcome": "played",
                "corruption": channel.treatment.method,
                "severity": channel.severity,
            }
            | {f"margin_{name}": float(values[k]) for name, values in margins.items()}
            | {f"won_{name}": bool(values[k] > 0) for name, values in margins.items()}
            | {name: values[k] for name, values in more.items()}
            for k, row in enumerate(self.games.rows.tolist())
        ]

    def illustrate(self, rows: list[Row], faces: dict[str, Images]) -> None:
        """Add the pictures of the games to show."""
        for k, name in enumerate(self.games.probe.ids):
            if name in self.shown:
                rows[k] |= {
                    f"{title}_picture": thumbnail(to_pixels(images[k]))
                    for title, images in faces.items()
                }


def attack_first(duel: Duel, channels: Sequence[Channel]) -> Iterator[Row]:
    """Yield what is left of attacks on clean pictures after each corruption."""
    yield from unplayed(duel.pairs, duel.games, duel.rules)
    probe = duel.games.probe
    if not len(probe):
        return
    assert probe.references is not None, "games are made with their references"
    attacked = round8(fight(duel.model, probe, duel.attack, duel.rules).result.images)
    distance = duel.rules.threat.distance(probe.images, attacked).astype(float).tolist()
    margins_of, ids = duel.judge(), duel.pictures
    alone = {"clean": margins_of(probe.images), "attacked": margins_of(attacked)}
    for channel in channels:
        both, corrupted = (channel(x, ids, duel.points) for x in (attacked, probe.images))
        margins = alone | {"corrupted": margins_of(corrupted), "both": margins_of(both)}
        rows = duel.rows(channel, margins, distance=distance)
        faces = {"clean": probe.images, "attacked": attacked, "corrupted": corrupted, "both": both}
        duel.illustrate(rows, faces | {"reference": probe.references})
        yield from rows


def corrupted_first(duel: Duel, channels: Sequence[Channel]) -> Iterator[Row]:
    """Yield what attacks on corrupted pictures achieve; wins and distances are those of floats."""
    yield from unplayed(duel.pairs, duel.games, duel.rules)
    probe = duel.games.probe
    if not len(probe):
        return
    assert probe.references is not None, "games are made with their references"
    clean = duel.judge()(probe.images)
    for channel in channels:
        unchanged = channel.treatment.method == CLEAN
        images = probe.images if unchanged else channel(probe.images, duel.pictures, duel.points)
        here = replace(duel, games=replace(duel.games, probe=replace(probe, images=images)))
        corrupted = here.judge()(images)
        result = fight(duel.model, here.games.probe, duel.attack, duel.rules).result
        rows = here.rows(
            channel,
            {"clean": clean, "corrupted": corrupted, "both": result.margin},
            distance=result.distance.tolist(),
            won_both=(result.won | result.won_clean).tolist(),
        )
        faces = {"clean": probe.images, "corrupted": images, "both": result.images}
        here.illustrate(rows, faces | {"reference": probe.references})
        yield from rows
