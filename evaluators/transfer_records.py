"""What a transfer evaluation stores about a pair and a target; one flat row each."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
import pyarrow as pa

from onnxfr.errors import DataError
from onnxfr.evaluators.attacked import Rules, identity_of, pictures_of, unplayed
from onnxfr.evaluators.attention_pictures import attention_columns
from onnxfr.evaluators.crafting import Answers, ask, fooled
from onnxfr.evaluators.games import Games, clean_threshold, load_games
from onnxfr.evaluators.surrogates import knowledge
from onnxfr.metrics.perceptual import distortion
from onnxfr.probe import round8
from onnxfr.runs.cells import Cell, ModelRef
from onnxfr.runs.context import Context
from onnxfr.threat import Threat
from onnxfr.types import Goal, Images

COLUMNS = pa.schema(
    [
        ("pair", pa.string()),
        ("left", pa.string()),
        ("right", pa.string()),
        ("left_identity", pa.string()),
        ("right_identity", pa.string()),
        ("same", pa.bool_()),
        ("goal", pa.string()),
        ("norm", pa.string()),
        ("eps", pa.float64()),
        ("threshold", pa.float64()),
        ("threshold_origin", pa.string()),
        ("source", pa.string()),
        ("members", pa.string()),
        ("target", pa.string()),
        ("level", pa.string()),
        ("inside", pa.bool_()),
        ("steps", pa.int64()),
        ("outcome", pa.string()),
        ("reason", pa.string()),
        ("won_clean", pa.bool_()),
        ("won_passed", pa.bool_()),
        ("won_float", pa.bool_()),
        ("won_8bit", pa.bool_()),
        ("score_clean", pa.float64()),
        ("score_float", pa.float64()),
        ("score_8bit", pa.float64()),
        ("linf", pa.float64()),
        ("l2", pa.float64()),
        ("l2n", pa.float64()),
        ("psnr", pa.float64()),
        ("ssim", pa.float64()),
        ("clean_picture", pa.binary()),
        ("adversarial_picture", pa.binary()),
        ("difference_picture", pa.binary()),
        ("reference_picture", pa.binary()),
        ("difference_gain", pa.float64()),
        ("clean_attention", pa.binary()),
        ("adversarial_attention", pa.binary()),
        ("attention_note", pa.string()),
    ]
)
"""Every record has these, empty where they do not apply."""


@dataclass(frozen=True)
class Batch:
    """The adversarial pictures of one cell, ready to be shown to targets."""

    cell: Cell
    context: Context
    frame: ModelRef
    """The source that decided size and template of the pictures."""
    games: Games
    made: Images
    threat: Threat
    goal: Goal

    @cached_property
    def files(self) -> Images:
        """The pictures as 8-bit files that keep the budget.

        A clean picture that was resized is no file itself: rounding both sides of a pair apart
        could add a grey level to a change.
        """
        return self.threat.as_file(self.games.probe.images, self.made)

    def records(self, target: ModelRef, number: int) -> Iterator[dict[str, Any]]:
        """Yield one record per pair; pictures are kept with the first target only."""
        given, pairs = self.cell.params, self.context.pairs(self.cell.data)
        threshold = clean_threshold(
            self.context, target, self.cell.data, given["threshold"], align=given["align"]
        )
        rules = Rules(goal=self.goal, threat=self.threat, threshold=threshold)
        common = self._common(target)
        model = self.context.model(target)
        own = self._own_games(target)
        answers = ask(model, own.probe, self.games.probe, self.made, self.files)
        looks = self._attention(target, own)
        measured = distortion(round8(self.games.probe.images), self.files)
        wins = {
            name: fooled(scores, threshold.value, self.goal)
            for name, scores in _scores(answers).items()
        }
        for k, row in enumerate(self.games.rows.tolist()):
            shown = self.games.probe.ids[k] in given["shown"] and number == 0
            yield (
                identity_of(pairs, row, rules)
                | common
                | {"outcome": "played"}
                | {f"won_{name}": bool(won[k]) for name, won in wins.items()}
                | {
                    "score_clean": float(answers.clean[k]),
                    "score_float": float(answers.float32[k]),
                    "score_8bit": float(answers.rounded[k]),
                    "linf": float(measured.linf[k]),
                    "l2": float(measured.l2[k]),
                    "l2n": float(measured.l2n[k]),
                    "psnr": float(measured.psnr[k]) if np.isfinite(measured.psnr[k]) else None,
                    "ssim": float(measured.ssim[k]),
                }
                | (pictures_of(self.games.probe, self.files, k) if shown else {})
                | looks.get(k, {})
            )
        for lost in unplayed(pairs, self.games, rules):
            yield lost | common

    def _common(self, target: ModelRef) -> dict[str, Any]:
        given = self.cell.params
        known = {model.sha256: model for model in (self.cell.model, *self.cell.others)}
        members = [known[sha] for sha in given["members"]]
        cards = [self.context.model(member).card for member in members]
        return {
            "source": given["source"],
            "members": " + ".join(member.name for member in members),
            "target": target.name,
            "level": knowledge(cards, self.context.model(target).card),
            "inside": target.sha256 in given["members"],
            "steps": given["steps"],
        }

    def _own_games(self, target: ModelRef) -> Games:
        made, card = (self.context.model(model).card for model in (self.frame, target))
        if (card.input_size, card.template) == (made.input_size, made.template):
            return self.games
        own = load_games(
            self.context,
            target,
            self.cell.data,
            self.games.probe.ids,
            align=self.cell.params["align"],
        )
        if own.unplayable:
            raise DataError(next(iter(own.unplayable.values())))
        return own

    def _attention(self, target: ModelRef, own: Games) -> dict[int, dict[str, Any]]:
        """Return what the target looks at in the first pair shown, clean and attacked."""
        shown = self.cell.params["shown"][:1]
        found: dict[int, dict[str, Any]] = {}
        for k, name in enumerate(self.games.probe.ids):
            if name not in shown:
                continue
            assert own.probe.references is not None, "games are made with their references"
            found[k] = attention_columns(
                self.context.model(target),
                own.probe.images[k],
                self.files[k],
                own.probe.references[k],
            )
        return found


def inside_pairs(records: pa.Table) -> frozenset[tuple[str, str]]:
    """Return the (source, target) where the target is the source or one of its members.

    Names do not tell: an ensemble is called after all its members, and says ``all others`` of some.
    """
    columns = (records[name].to_pylist() for name in ("source", "target", "inside"))
    rows = zip(*columns, strict=True)
    return frozenset((source, target) for source, target, inside in rows if inside)


def _scores(answers: Answers) -> dict[str, Any]:
    return {
        "clean": answers.clean,
        "passed": answers.passed,
        "float": answers.float32,
        "8bit": answers.rounded,
    }
