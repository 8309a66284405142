"""What attacks and corruptions together make of a pair: one flat row per pair and condition."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from onnxfr.alignment.templates import TEMPLATES
from onnxfr.attacks import Attack
from onnxfr.data.pairs import PairSet
from onnxfr.evaluators.attacked import (
    FRESH_LOOKS,
    Rules,
    fight,
    games_for,
    identity_of,
    is_randomised,
    unplayed,
)
from onnxfr.evaluators.channelled import Channelled
from onnxfr.evaluators.crafting import embed_all
from onnxfr.evaluators.faces import needs_alignment
from onnxfr.evaluators.games import Games, clean_threshold
from onnxfr.evaluators.pictures import thumbnail, to_pixels
from onnxfr.evaluators.treatment import CLEAN, Channel, Treatment
from onnxfr.models.wrapper import FRModel
from onnxfr.probe import Probe
from onnxfr.runs.cells import Cell
from onnxfr.runs.context import Context
from onnxfr.threat import Threat
from onnxfr.types import Access, Goal, Images

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

ATTACK_FIRST, AIMED, CORRUPTION_FIRST = "attack_first", "aimed", "corruption_first"
"""The orders: attack then corruption, the same by one who knows it, corruption then attack."""

_OUT_OF_REACH = 1.5

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
    point: NDArray[np.floating] | None
    """Landmarks of every crop, for occluders; None for the usual place."""
    shown: Collection[str]

    @property
    def pictures(self) -> list[str]:
        """The ids of the probes' pictures, which decide the draws of corruptions."""
        sides = self.pairs.left[self.games.rows]
        return [self.pairs.images[int(index)].id for index in sides]

    def send(self, channel: Channel, images: Images) -> Images:
        """Return one picture per game as the verifier gets it."""
        points = None if self.point is None else np.repeat(self.point[None], len(images), axis=0)
        return channel(images, self.pictures, points)

    @cached_property
    def judge(self) -> Callable[[Images], Margins]:
        """How pictures are judged: once, or by several looks if answers are random."""
        looks = FRESH_LOOKS if is_randomised(self.model, self.games.probe) else 1
        return replace(self.rules, looks=looks).oracle(self.model, self.games.probe).verify

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
    if len(probe):
        made = fight(duel.model, probe, duel.attack, duel.rules).result.images
        made = duel.rules.threat.as_file(probe.images, made)
        plain = {"clean": duel.judge(probe.images), "attacked": duel.judge(made)}
        for channel in channels:
            yield from _sent(duel, channel, made, plain)


def aimed(duel: Duel, channels: Sequence[Channel]) -> Iterator[Row]:
    """Yield what reaches the verifier of attacks that were made for each corruption."""
    yield from unplayed(duel.pairs, duel.games, duel.rules)
    probe = duel.games.probe
    for channel in channels if len(probe) else ():
        assert probe.references is not None, "games are made with their references"
        known = replace(
            probe, references=None, reference_embeddings=embed_all(duel.model, probe.references)
        )
        made = _aim(duel, Channelled(duel.model, channel, duel.point), known)
        made = duel.rules.threat.as_file(probe.images, made)
        plain = {"clean": duel.judge(probe.images), "attacked": duel.judge(made)}
        yield from _sent(duel, channel, made, plain)


def _aim(duel: Duel, target: FRModel, known: Probe) -> Images:
    """Return attacks on the model behind a channel.

    A pair that the attacker's own draw of the corruption breaks would be left alone, although the
    draw that counts may not break it: it is attacked with the threshold out of reach.
    """
    result = fight(target, known, duel.attack, duel.rules).result
    made, aside = result.images.copy(), np.flatnonzero(result.won_clean)
    if aside.size:
        far = -_OUT_OF_REACH if duel.rules.goal is Goal.DODGE else _OUT_OF_REACH
        rules = replace(duel.rules, threshold=replace(duel.rules.threshold, value=far))
        made[aside] = fight(target, known.take(aside), duel.attack, rules).result.images
    return made


def _sent(duel: Duel, channel: Channel, attacked: Images, plain: dict[str, Margins]) -> list[Row]:
    probe = duel.games.probe
    assert probe.references is not None, "games are made with their references"
    both, corrupted = (duel.send(channel, images) for images in (attacked, probe.images))
    margins = plain | {"corrupted": duel.judge(corrupted), "both": duel.judge(both)}
    distance = duel.rules.threat.distance(probe.images, attacked).astype(float).tolist()
    rows = duel.rows(channel, margins, distance=distance)
    faces = {"clean": probe.images, "attacked": attacked, "corrupted": corrupted, "both": both}
    duel.illustrate(rows, faces | {"reference": probe.references})
    return rows


def corrupted_first(duel: Duel, channels: Sequence[Channel]) -> Iterator[Row]:
    """Yield what attacks on corrupted pictures achieve; wins and distances are those of floats."""
    yield from unplayed(duel.pairs, duel.games, duel.rules)
    probe = duel.games.probe
    if not len(probe):
        return
    assert probe.references is not None, "games are made with their references"
    clean = duel.judge(probe.images)
    for channel in channels:
        unchanged = channel.treatment.method == CLEAN
        images = probe.images if unchanged else duel.send(channel, probe.images)
        here = replace(duel, games=replace(duel.games, probe=replace(probe, images=images)))
        corrupted = here.judge(images)
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


def duel_of(cell: Cell, context: Context, attack: Attack) -> Duel:
    """Read the games of a cell and all that playing them needs."""
    model = context.model(cell.model)
    games = games_for(
        context,
        cell.model,
        cell.data,
        cell.rows,
        attack,
        align=cell.params["align"],
        seed=cell.seed,
        landmarks=cell.params["landmarks"],
    )
    if attack.access == Access.GRADIENT and not model.differentiable:
        games = games.refused("the model has no differentiable form: attack it by queries")
    return Duel(
        model=model,
        pairs=context.pairs(cell.data),
        games=games,
        attack=attack,
        rules=_rules(cell, context, attack),
        point=_point(cell, context),
        shown=cell.params["shown"],
    )


def _rules(cell: Cell, context: Context, attack: Attack) -> Rules:
    asks = attack.access != Access.GRADIENT
    return Rules(
        goal=Goal(cell.condition["goal"]),
        threat=Threat(
            norm=cell.condition["norm"],
            eps=cell.condition["eps"],
            max_queries=cell.params["max_queries"] if asks else None,
        ),
        threshold=clean_threshold(
            context, cell.model, cell.data, cell.params["threshold"], align=cell.params["align"]
        ),
        seed=cell.seed,
        precision=cell.params["precision"],
    )


def channels_of(cell: Cell) -> list[Channel]:
    """Return the corruptions and severities that a cell covers."""
    given = cell.params
    return [
        Channel(treatment, severity)
        for name, levels in given["levels"]
        for treatment in [
            Treatment(name, tuple(levels), given["preset"], cell.seed, given["frost"])
        ]
        for severity in levels
    ]


def _point(cell: Cell, context: Context) -> NDArray[np.floating] | None:
    """Return where landmarks lie in crops that were cut here; None for the usual place."""
    card = context.model(cell.model).card
    template = TEMPLATES.get(card.template)
    if template.rule is None or not needs_alignment(context.pairs(cell.data), cell.params["align"]):
        return None
    return template.points(card.input_size)
