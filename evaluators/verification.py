"""Is it the same person? Clean verification: one cosine per pair, every protocol on top."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar, Literal

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from onnxfr.alignment.aligner import Outcome
from onnxfr.data.images import load_pixels
from onnxfr.data.pairs import PairSet
from onnxfr.errors import DataError
from onnxfr.evaluators.base import EVALUATORS, Evaluator, PlanContext, Records, Result
from onnxfr.evaluators.crops import CropStore
from onnxfr.evaluators.faces import EmbeddedFaces, crop_store, embed_faces, needs_alignment
from onnxfr.evaluators.pictures import thumbnail
from onnxfr.evaluators.scored import split
from onnxfr.evaluators.verification_results import results_of
from onnxfr.runs.cells import Cell, Cost, canonical
from onnxfr.runs.context import Context

_PRIORITY = 100.0


@EVALUATORS.register("verification")
@dataclass(frozen=True)
class Verification(Evaluator):
    """Scores of clean pairs and what follows from them.

    ``examples`` of the hardest pairs of each class keep small pictures of their faces in the
    records, for the report; 0 keeps none. ``thresholds`` are further fixed ones to judge at.
    """

    name: ClassVar[str] = "verification"
    version: ClassVar[int] = 1

    flip: bool = False
    align: Literal["auto", "yes", "no"] = "auto"
    strict: bool = False
    examples: int = 6
    thresholds: tuple[float, ...] = ()

    def plan(self, context: PlanContext) -> list[Cell]:
        """Return one cell per model and data set: a cell's time is embedding, done once anyway."""
        cells = []
        for model in context.models:
            card = context.context.model(model).card
            for data in context.data:
                images = len(context.context.pairs(data).images)
                params = {
                    "align": self.align,
                    "strict": self.strict or context.strict,
                    "examples": self.examples,
                    "fmr": context.fmr,
                    "card_thresholds": [[entry.value, entry.origin] for entry in card.thresholds],
                }
                cell = context.cell(
                    self,
                    model,
                    data,
                    method="flip" if self.flip else "",
                    params=params,
                    priority=_PRIORITY,
                    cost=Cost(images=images * (2 if self.flip else 1)),
                )
                cells.append(cell)
        return cells

    def run(self, cell: Cell, context: Context) -> Records:
        """Return one record per pair."""
        pairs = context.pairs(cell.data)
        align = needs_alignment(pairs, cell.params["align"])
        crops = crop_store(context, context.model(cell.model)) if align else None
        faces = embed_faces(
            context,
            cell.model,
            pairs,
            crops=crops,
            flip=cell.method == "flip",
            strict=cell.params["strict"],
        )
        table = _records(pairs, faces)
        count = len(pairs)
        left, right = _example_faces(pairs, table, cell.params["examples"], crops)
        for name, column in (
            ("left_face", pa.array(left, pa.binary())),
            ("right_face", pa.array(right, pa.binary())),
            ("aligned_here", pa.array([align] * count, pa.bool_())),
            ("fmr", pa.array([cell.params["fmr"]] * count, pa.float64())),
            (
                "card_thresholds",
                pa.array([canonical(cell.params["card_thresholds"])] * count, pa.string()),
            ),
        ):
            table = table.append_column(name, column)
        return table

    def summarise(self, records: pa.Table) -> list[Result]:
        """Return accuracies, error rates and their intervals for every model and data set."""
        return [
            result for scored in split(records) for result in results_of(scored, self.thresholds)
        ]


def _records(pairs: PairSet, faces: EmbeddedFaces) -> pa.Table:
    left, right = faces.embeddings[pairs.left], faces.embeddings[pairs.right]
    scores = np.einsum("nd,nd->n", left.astype(np.float64), right.astype(np.float64))
    outcome = [
        _pair_outcome(faces.outcome[a], faces.outcome[b])
        for a, b in zip(pairs.left, pairs.right, strict=True)
    ]
    scored = np.array([each is Outcome.ALIGNED for each in outcome], dtype=np.bool_)
    rejected = [each not in (Outcome.ALIGNED, Outcome.UNREADABLE) for each in outcome]
    images = pairs.images
    reasons = [
        faces.reason[a] or faces.reason[b] or None
        for a, b in zip(pairs.left, pairs.right, strict=True)
    ]
    none = [None] * len(pairs)
    return pa.table(
        {
            "pair": pa.array(pairs.pair_ids(), pa.string()),
            "left": pa.array([images[i].id for i in pairs.left], pa.string()),
            "right": pa.array([images[i].id for i in pairs.right], pa.string()),
            "same": pa.array(pairs.same, pa.bool_()),
            "score": pa.array(scores, pa.float64(), mask=~scored),
            "rejected": pa.array(rejected, pa.bool_()),
            "outcome": pa.array(
                ["scored" if each is Outcome.ALIGNED else str(each) for each in outcome]
            ),
            "reason": pa.array(reasons, pa.string()),
            "fold": pa.array(none if pairs.fold is None else pairs.fold, pa.int64()),
            "group": pa.array(none if pairs.group is None else pairs.group, pa.string()),
            "left_identity": pa.array([images[i].identity for i in pairs.left], pa.string()),
            "right_identity": pa.array([images[i].identity for i in pairs.right], pa.string()),
        }
    )


def _pair_outcome(left: Outcome, right: Outcome) -> Outcome:
    # A broken file is the data set's fault and must not be counted as the system's rejection.
    if Outcome.UNREADABLE in (left, right):
        return Outcome.UNREADABLE
    return right if left is Outcome.ALIGNED else left


def _example_faces(
    pairs: PairSet, table: pa.Table, examples: int, crops: CropStore | None
) -> tuple[list[bytes | None], list[bytes | None]]:
    """Return small pictures for the hardest pairs: least alike genuine, most alike impostor."""
    scores = np.asarray(table["score"].to_numpy(zero_copy_only=False), dtype=np.float64)
    left: list[bytes | None] = [None] * len(pairs)
    right: list[bytes | None] = [None] * len(pairs)
    for row in hardest(scores, pairs.same, examples):
        left[row] = _picture(pairs, int(pairs.left[row]), crops)
        right[row] = _picture(pairs, int(pairs.right[row]), crops)
    return left, right


def hardest(scores: NDArray[np.float64], same: NDArray[np.bool_], count: int) -> list[int]:
    """Return rows of the ``count`` hardest scored pairs of each class, hardest first."""
    rows: list[int] = []
    for members, sign in ((same, 1.0), (~same, -1.0)):
        at = np.flatnonzero(members & np.isfinite(scores))
        rows.extend(at[np.argsort(sign * scores[at], kind="stable")][:count].tolist())
    return rows


def _picture(pairs: PairSet, index: int, crops: CropStore | None) -> bytes | None:
    source = pairs.images[index]
    try:
        pixels = load_pixels(source) if crops is None else crops.show(source)
    except DataError:
        return None
    if pixels is None:
        return None
    return thumbnail(pixels)
