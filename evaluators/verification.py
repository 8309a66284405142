"""Is it the same person? Clean verification: one cosine per pair, every protocol on top."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated, ClassVar, Literal

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray
from pydantic import Field

from onnxfr.data.pairs import PairSet
from onnxfr.evaluators.base import EVALUATORS, Evaluator, PlanContext, Records, Result
from onnxfr.evaluators.crops import CropStore
from onnxfr.evaluators.faces import crop_store, embed_faces, needs_alignment
from onnxfr.evaluators.pair_records import pair_records, small_picture
from onnxfr.evaluators.scored import split
from onnxfr.evaluators.verification_results import results_of
from onnxfr.metrics.thresholds import checked_cosine
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
    examples: Annotated[int, Field(ge=0)] = 6
    thresholds: tuple[float, ...] = ()

    def plan(self, context: PlanContext) -> list[Cell]:
        """Return one cell per model and data set: a cell's time is embedding, done once anyway."""
        for threshold in self.thresholds:
            checked_cosine(threshold)
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
        table = pair_records(pairs, faces, faces)
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


def _example_faces(
    pairs: PairSet, table: pa.Table, examples: int, crops: CropStore | None
) -> tuple[list[bytes | None], list[bytes | None]]:
    """Return small pictures for the hardest pairs: least alike genuine, most alike impostor."""
    scores = np.asarray(table["score"].to_numpy(zero_copy_only=False), dtype=np.float64)
    left: list[bytes | None] = [None] * len(pairs)
    right: list[bytes | None] = [None] * len(pairs)
    for row in hardest(scores, pairs.same, examples):
        left[row] = small_picture(pairs.images[pairs.left[row]], crops)
        right[row] = small_picture(pairs.images[pairs.right[row]], crops)
    return left, right


def hardest(scores: NDArray[np.float64], same: NDArray[np.bool_], count: int) -> list[int]:
    """Return rows of the ``count`` hardest scored pairs of each class, hardest first."""
    rows: list[int] = []
    for members, sign in ((same, 1.0), (~same, -1.0)):
        at = np.flatnonzero(members & np.isfinite(scores))
        rows.extend(at[np.argsort(sign * scores[at], kind="stable")][:count].tolist())
    return rows
