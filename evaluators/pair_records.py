"""What became of each pair as flat columns, and small copies of faces for the report."""

from __future__ import annotations

import numpy as np
import pyarrow as pa

from onnxfr.alignment.aligner import Outcome
from onnxfr.data.images import load_pixels
from onnxfr.data.pairs import ImageSource, PairSet
from onnxfr.errors import DataError
from onnxfr.evaluators.crops import CropStore
from onnxfr.evaluators.faces import EmbeddedFaces
from onnxfr.evaluators.pictures import thumbnail


def pair_records(pairs: PairSet, probes: EmbeddedFaces, references: EmbeddedFaces) -> pa.Table:
    """Return one record per pair: the left image as a probe, the right one as a reference."""
    left, right = probes.embeddings[pairs.left], references.embeddings[pairs.right]
    scores = np.einsum("nd,nd->n", left.astype(np.float64), right.astype(np.float64))
    sides = list(zip(pairs.left, pairs.right, strict=True))
    outcome = [_pair_outcome(probes.outcome[a], references.outcome[b]) for a, b in sides]
    scored = np.array([each is Outcome.ALIGNED for each in outcome], dtype=np.bool_)
    rejected = [each not in (Outcome.ALIGNED, Outcome.UNREADABLE) for each in outcome]
    images = pairs.images
    reasons = [probes.reason[a] or references.reason[b] or None for a, b in sides]
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


def small_picture(source: ImageSource, crops: CropStore | None) -> bytes | None:
    """Return a small JPEG of one image for people to look at, or None where there is none."""
    try:
        pixels = load_pixels(source) if crops is None else crops.show(source)
    except DataError:
        return None
    return None if pixels is None else thumbnail(pixels)


def _pair_outcome(left: Outcome, right: Outcome) -> Outcome:
    # A broken file is the data set's fault and must not be counted as the system's rejection.
    if Outcome.UNREADABLE in (left, right):
        return Outcome.UNREADABLE
    return right if left is Outcome.ALIGNED else left
