"""Measures a zoo model on labelled faces the way its card says, for ``onnxfr zoo verify``."""

from __future__ import annotations

from typing import Any

import numpy as np

from onnxfr.cli.progress import bar
from onnxfr.data.pairs import PairSet, open_pairs
from onnxfr.evaluators.faces import crop_store, embed_faces, needs_alignment
from onnxfr.metrics.protocols import AccuracyResult, kfold_accuracy, oracle_accuracy
from onnxfr.model_zoo import ZooCard
from onnxfr.models.card import ReportedAccuracy
from onnxfr.paths import cache_dir
from onnxfr.runs.context import Context

MEASURED_HERE = "onnxfr"
"""Who reported an accuracy that this command must reproduce; others used other crops."""


def measure(card: ZooCard, data: str, tolerance: float, *, quiet: bool = False) -> dict[str, Any]:
    """Return the measured accuracy beside the card's, in percent."""
    pairs = open_pairs(data)
    name = data_name(pairs)
    result = _accuracy(card, data, quiet=quiet)
    known = expected(card, name, "10fold" if result.protocol.startswith("kfold") else "oracle")
    value = 100 * result.accuracy.value
    difference = None if known is None else round(value - known.value, 4)
    return {
        "name": card.name,
        "data": name,
        "pairs": len(pairs),
        "accuracy": round(value, 4),
        "interval": [round(100 * result.accuracy.low, 4), round(100 * result.accuracy.high, 4)],
        "threshold": round(result.threshold.value, 4),
        "protocol": result.protocol,
        "rejected": result.rejected,
        "expected": None if known is None else known.value,
        "difference": difference,
        "ok": None if difference is None else abs(difference) <= tolerance,
    }


def data_name(pairs: PairSet) -> str:
    """Return the name by which cards call this data: raw pictures and parts are data of their own.

    ``lfw`` is all of it, aligned; ``lfw-raw-fold1`` the first fold of pictures not aligned yet.
    """
    folds = np.unique(pairs.fold) if pairs.fold is not None else np.arange(10)
    part = "" if len(folds) == 10 else "-fold" + "+".join(str(fold + 1) for fold in folds)
    return f"{pairs.name}{'' if pairs.aligned is not False else '-raw'}{part}"


def expected(card: ZooCard, data: str, protocol: str = "10fold") -> ReportedAccuracy | None:
    """Return the accuracy of our own measurement that the card states for this data."""
    for entry in card.reported:
        if (entry.data, entry.protocol, entry.by) == (data, protocol, MEASURED_HERE):
            return entry
    return None


def verdict(row: dict[str, Any]) -> str:
    """Return one line for a person."""
    low, high = row["interval"]
    found = f"{row['accuracy']:.2f} % [{low:.2f}, {high:.2f}] at {row['threshold']:.3f}"
    if row["ok"] is None:
        return f"{row['name']}: {found}; its card states no measurement of ours on {row['data']}"
    word = "as stated" if row["ok"] else "NOT as stated"
    return f"{row['name']}: {found}, card {row['expected']:.2f} %: {word}"


def _accuracy(card: ZooCard, data: str, *, quiet: bool) -> AccuracyResult:
    context = Context(cache_dir() / "embeddings")
    ref = context.identify(card.name)
    described = context.describe(data)
    pairs = context.pairs(described)
    # A network with a frame of its own must get it even from pictures aligned to another.
    own_frame = card.template not in ("arcface", "whole")
    align = needs_alignment(pairs, "yes" if own_frame else "auto")
    crops = crop_store(context, context.model(ref)) if align else None
    with bar(card.name, quiet=quiet) as report:
        faces = embed_faces(context.reporting(report), ref, pairs, crops=crops)
    left, right = faces.embeddings[pairs.left], faces.embeddings[pairs.right]
    scores = np.einsum("nd,nd->n", left.astype(np.float64), right.astype(np.float64))
    rejected = ~(faces.usable[pairs.left] & faces.usable[pairs.right])
    if pairs.fold is not None and len(np.unique(pairs.fold)) == 1:
        # One fold leaves no other to choose the threshold on; the protocol's name says so.
        return oracle_accuracy(scores, pairs.same, rejected=rejected, data=data_name(pairs))
    return kfold_accuracy(scores, pairs.same, fold=pairs.fold, rejected=rejected, data=pairs.name)
