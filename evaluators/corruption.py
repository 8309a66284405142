"""Does it still work in bad light, rain, blur? Verification of corrupted pictures (OODFace, 2024).

Records hold scores only, so one run answers under every threshold rule: ``frozen`` on clean pairs
at the FMR target (ours), the ``oracle`` of each condition (the paper's) and ``kfold`` within each
condition. OODFace corrupts both pictures; ours is the probe, as in the field. A pair with a
corrupted picture that the model answers with NaN is a rejection, ``no_score``: it matches nobody.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache
from typing import Annotated, ClassVar, Literal

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from pydantic import Field

from onnxfr.alignment.aligner import Aligner, Outcome
from onnxfr.alignment.detector import Detector
from onnxfr.alignment.pool import ordered_map
from onnxfr.corruptions import SEVERITIES
from onnxfr.corruptions.base import check_severity
from onnxfr.data.images import load_pixels
from onnxfr.data.pairs import PairSet
from onnxfr.errors import DataError, SpecError
from onnxfr.evaluators.base import EVALUATORS, Evaluator, PlanContext, Records, Result
from onnxfr.evaluators.corrupted_faces import Preparer, embed_corrupted
from onnxfr.evaluators.corruption_results import results_of
from onnxfr.evaluators.corruption_table import NO_SCORE, Rule
from onnxfr.evaluators.faces import EmbeddedFaces, crop_store, embed_faces, needs_alignment
from onnxfr.evaluators.pair_records import pair_records
from onnxfr.evaluators.pictures import thumbnail
from onnxfr.evaluators.treatment import (
    CLEAN,
    OODFACE,
    Treatment,
    canonical_chains,
    chosen_corruptions,
    settings_of,
)
from onnxfr.models.wrapper import FRModel
from onnxfr.runs.cells import Cell, Cost, canonical
from onnxfr.runs.context import Context

_CLEAN_PRIORITY, _PRIORITY = 90.0, 50.0
_KEPT = ("pair", "same", "score", "rejected", "outcome")
"""Columns of a corrupted pair; what does not change with the condition is in the clean records."""


@EVALUATORS.register("corruption")
@dataclass(frozen=True)
class CorruptedVerification(Evaluator):
    """Scores of pairs under corruptions.

    ``corruptions`` are names or ``oodface`` (the twenty of Acc_cor), ``extended`` (ours), ``all``.
    ``detect`` puts the face detector into the loop for ready-made crops too; unaligned pictures
    always go through it. ``examples`` pictures of each condition are kept for the report.
    """

    name: ClassVar[str] = "corruption"
    version: ClassVar[int] = 1

    apply_to: Literal["probe", "reference", "both"] = "probe"
    thresholds: tuple[Rule, ...] = ("frozen", "oracle", "kfold")
    corruptions: tuple[str, ...] = (OODFACE,)
    severities: tuple[int, ...] = SEVERITIES
    chains: tuple[str, ...] = ()
    preset: Literal["oodface-code", "oodface-paper", "imagecorruptions"] = "oodface-code"
    frost_photographs: str = ""
    align: Literal["auto", "yes", "no"] = "auto"
    detect: bool = False
    strict: bool = False
    examples: Annotated[int, Field(ge=0)] = 1

    def __post_init__(self) -> None:
        """Refuse unknown names, severities and rules before any work is planned."""
        chosen_corruptions(self.corruptions)
        canonical_chains(self.chains)
        for severity in self.severities:
            check_severity(severity)
        if not self.thresholds or not (self.severities or not self.corruptions):
            raise SpecError("corruption needs at least one threshold rule and one severity")
        if not self.corruptions and not self.chains:
            raise SpecError("corruption needs at least one corruption or chain, got neither")

    def plan(self, context: PlanContext) -> list[Cell]:
        """Return, per model and data set, the clean cell and one per corruption or chain."""
        severities = sorted(set(self.severities))
        methods = {CLEAN: [0]}
        methods |= {name: severities for name in chosen_corruptions(self.corruptions)}
        methods |= {chain: [1] for chain in canonical_chains(self.chains)}
        return [
            context.cell(
                self,
                model,
                data,
                method=method,
                params=self._params(context, levels),
                condition={"apply_to": self.apply_to, "preset": self.preset},
                priority=_CLEAN_PRIORITY if method == CLEAN else _PRIORITY,
                cost=Cost(images=len(self._changed(context.context.pairs(data))) * len(levels)),
            )
            for model in context.models
            for data in context.data
            for method, levels in methods.items()
        ]

    def run(self, cell: Cell, context: Context) -> Records:
        """Return one record per pair and severity."""
        pairs, model = context.pairs(cell.data), context.model(cell.model)
        align = needs_alignment(pairs, cell.params["align"])
        if cell.method == CLEAN:
            return _clean_records(cell, context, pairs, align)
        preparer = _preparer(cell, pairs, model, align)
        indexes = self._changed(pairs, cell.condition["apply_to"])
        changed = embed_corrupted(context, model, preparer, indexes)
        probes = references = None
        if cell.condition["apply_to"] != "both":
            clean = _clean_faces(cell, context, pairs, align)
            side = cell.condition["apply_to"]
            probes, references = (None, clean) if side == "probe" else (clean, None)
        tables = []
        for severity, faces in changed.items():
            table = pair_records(pairs, probes or faces, references or faces).select(_KEPT)
            tables.append(_with(_refuse_silence(table), "severity", severity, pa.int64()))
        return pa.concat_tables(tables).append_column("example", _examples(cell, preparer))

    def summarise(self, records: pa.Table) -> list[Result]:
        """Return accuracies and error rates under every condition and their aggregates."""
        return results_of(records, self.thresholds)

    def _params(self, context: PlanContext, levels: list[int]) -> dict[str, object]:
        return {
            "severities": levels,
            **settings_of(self.preset, self.frost_photographs),
            "align": self.align,
            "detect": self.detect,
            "strict": self.strict or context.strict,
            "examples": self.examples,
            "fmr": context.fmr,
        }

    def _changed(self, pairs: PairSet, apply_to: str | None = None) -> list[int]:
        """Return the pictures that are corrupted, each once."""
        sides = {"probe": (pairs.left,), "reference": (pairs.right,)}
        both = (pairs.left, pairs.right)
        chosen = sides.get(apply_to or self.apply_to, both)
        return [int(index) for index in np.unique(np.concatenate(chosen))]


def _clean_records(cell: Cell, context: Context, pairs: PairSet, align: bool) -> pa.Table:
    faces = _clean_faces(cell, context, pairs, align)
    table = pair_records(pairs, faces, faces)
    preparer = _preparer(cell, pairs, context.model(cell.model), align)
    table = table.append_column("example", _examples(cell, preparer))
    thresholds = canonical(
        [[entry.value, entry.origin] for entry in context.model(cell.model).card.thresholds]
    )
    for name, value, kind in (
        ("severity", 0, pa.int64()),
        ("aligned_here", align, pa.bool_()),
        ("watched", align or cell.params["detect"], pa.bool_()),
        ("fmr", cell.params["fmr"], pa.float64()),
        ("card_thresholds", thresholds, pa.string()),
    ):
        table = _with(table, name, value, kind)
    return table


def _clean_faces(cell: Cell, context: Context, pairs: PairSet, align: bool) -> EmbeddedFaces:
    """Return the untouched faces; most are in the embedding cache already."""
    crops = crop_store(context, context.model(cell.model)) if align else None
    faces = embed_faces(context, cell.model, pairs, crops=crops, strict=cell.params["strict"])
    if align or not cell.params["detect"]:
        return faces
    seen = _seen(pairs)
    outcome = tuple(
        Outcome.NO_FACE if each is Outcome.ALIGNED and not found else each
        for each, found in zip(faces.outcome, seen, strict=True)
    )
    reason = tuple(
        "no face found" if each is Outcome.NO_FACE else why
        for each, why in zip(outcome, faces.reason, strict=True)
    )
    return EmbeddedFaces(faces.embeddings, outcome, reason)


@lru_cache(maxsize=2)
def _seen(pairs: PairSet) -> tuple[bool, ...]:
    """Tell in which untouched crops the detector sees a face; a worker's cells share the answer."""
    detector = Detector()

    def look(index: int) -> bool:
        try:
            return bool(detector.detect(load_pixels(pairs.images[index])))
        except DataError:
            return False

    return tuple(ordered_map(look, _all(pairs)))


def _refuse_silence(table: pa.Table) -> pa.Table:
    """Turn pairs without a finite score into rejections: one such picture must not fail a cell."""
    known = pc.fill_null(pc.is_finite(table["score"]), False)
    silent = pc.and_not(pc.equal(table["outcome"], "scored"), known)
    if not pc.any(silent).as_py():
        return table
    for name, column in (
        ("score", pc.if_else(silent, pa.scalar(None, pa.float64()), table["score"])),
        ("rejected", pc.or_(silent, table["rejected"])),
        ("outcome", pc.if_else(silent, NO_SCORE, table["outcome"])),
    ):
        table = table.set_column(table.schema.get_field_index(name), name, column)
    return table


def _preparer(cell: Cell, pairs: PairSet, model: FRModel, align: bool) -> Preparer:
    params = cell.params
    treatment = Treatment(
        cell.method, tuple(params["severities"]), params["preset"], cell.seed, params["frost"]
    )
    card = model.card
    return Preparer(
        pairs,
        treatment,
        card.input_size,
        aligner=Aligner(card.template, card.input_size) if align else None,
        watch=Detector() if params["detect"] and not align else None,
        strict=params["strict"],
    )


def _examples(cell: Cell, preparer: Preparer) -> pa.Array:
    """Return the column of kept pictures: those of the first genuine pairs, one per person."""
    pairs = preparer.pairs
    side = pairs.right if cell.condition["apply_to"] == "reference" else pairs.left
    shown: dict[str, int] = {}
    for row in np.argsort(~pairs.same, kind="stable").tolist():
        source = pairs.images[side[row]]
        if len(shown) < cell.params["examples"]:
            shown.setdefault(source.identity or source.id, row)
    columns: list[bytes | None] = [None] * (len(pairs) * len(cell.params["severities"]))
    for row in shown.values():
        for level, face in enumerate(preparer.show(int(side[row]))):
            columns[level * len(pairs) + row] = None if face is None else thumbnail(face)
    return pa.array(columns, pa.binary())


def _all(pairs: PairSet) -> list[int]:
    return list(range(len(pairs.images)))


def _with(table: pa.Table, name: str, value: object, kind: pa.DataType) -> pa.Table:
    return table.append_column(name, pa.array([value] * table.num_rows, kind))
