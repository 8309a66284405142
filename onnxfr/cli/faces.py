"""Real faces for the commands that examine a model: read, aligned where needed, shuffled."""

from __future__ import annotations

import logging
from dataclasses import replace

import numpy as np

from onnxfr.alignment.aligner import Aligner
from onnxfr.data.images import to_images
from onnxfr.data.pairs import PairSet, Problem, open_pairs
from onnxfr.data.placement import misplaced
from onnxfr.data.stream import read_all
from onnxfr.errors import DataError
from onnxfr.evaluators.faces import needs_alignment
from onnxfr.models.preprocessing_probe import LabelledPairs
from onnxfr.types import Images, Pixels

log = logging.getLogger(__name__)


def labelled_pairs(spec: str, *, most: int, seed: int = 0) -> LabelledPairs:
    """Return a balanced, shuffled selection of a data set's pairs with their pictures."""
    chosen, images = _read(open_pairs(spec, seed=seed).draw(most, seed))
    order = np.random.Generator(np.random.Philox(key=seed)).permutation(len(chosen))
    if not chosen.same.any() or chosen.same.all():
        raise DataError(f"{spec} has no usable pairs of both kinds (same and different people)")
    return LabelledPairs(
        images=images,
        left=chosen.left[order],
        right=chosen.right[order],
        same=chosen.same[order],
    )


def some_faces(spec: str, *, most: int, seed: int = 0) -> Images:
    """Return up to ``most`` pictures of a data set."""
    return _read(open_pairs(spec, seed=seed).draw(max(most // 2, 2), seed))[1][:most]


def _read(pairs: PairSet) -> tuple[PairSet, Images]:
    """Read and align all pictures; those that cannot be used leave with their pairs."""
    aligner = Aligner() if needs_alignment(pairs, "auto") else None
    bad: dict[int, Problem] = {}
    good: dict[int, Pixels] = {}
    for index, item in read_all(pairs):
        if isinstance(item, Problem):
            bad[index] = item
            continue
        aligned = aligner.align(item) if aligner else None
        if aligned is not None and aligned.rejected:
            bad[index] = Problem(pairs.images[index].id, aligned.reason)
        else:
            good[index] = aligned.pixels if aligned is not None else item
    sizes = {pixels.shape for pixels in good.values()}
    if len(sizes) > 1:
        raise DataError(
            f"the pictures of {pairs.name} have {len(sizes)} different sizes; align them first: "
            "onnxfr align IN OUT"
        )
    warning = None if aligner else misplaced(pairs.name, list(good.values()))
    if warning:
        log.warning("%s", warning)
    kept = np.asarray(sorted(good), dtype=np.intp)
    usable = np.isin(pairs.left, kept) & np.isin(pairs.right, kept)
    if not usable.any():
        reason = next(iter(bad.values())).reason if bad else "it is empty"
        raise DataError(f"no pair of {pairs.name} can be used: {reason}")
    place = np.full(len(pairs.images), -1, dtype=np.intp)
    place[kept] = np.arange(len(kept))
    selected = replace(
        pairs,
        images=tuple(pairs.images[int(k)] for k in kept),
        left=place[pairs.left[usable]],
        right=place[pairs.right[usable]],
        same=pairs.same[usable],
        fold=None,
        group=None,
    )
    return selected, to_images([good[int(k)] for k in kept])
