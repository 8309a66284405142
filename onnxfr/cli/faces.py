"""Real faces for the commands that examine a model: loaded, aligned where needed, shuffled."""

from __future__ import annotations

import numpy as np

from onnxfr.data.images import load_pixels, to_images
from onnxfr.data.pairs import PairSet, open_pairs
from onnxfr.errors import DataError
from onnxfr.models.preprocessing_probe import LabelledPairs
from onnxfr.types import Images


def labelled_pairs(spec: str, *, most: int, seed: int = 0) -> LabelledPairs:
    """Return a balanced, shuffled selection of a data set's pairs with their pictures."""
    chosen = open_pairs(spec, seed=seed).draw(most, seed)
    order = np.random.Generator(np.random.Philox(key=seed)).permutation(len(chosen))
    used = np.unique(np.concatenate([chosen.left, chosen.right]))
    images = _pictures(chosen, used)
    place = np.full(len(chosen.images), -1, dtype=np.intp)
    place[used] = np.arange(len(used))
    return LabelledPairs(
        images=images,
        left=place[chosen.left[order]],
        right=place[chosen.right[order]],
        same=chosen.same[order],
    )


def some_faces(spec: str, *, most: int, seed: int = 0) -> Images:
    """Return up to ``most`` pictures of a data set."""
    chosen = open_pairs(spec, seed=seed).draw(max(most // 2, 2), seed)
    used = np.unique(np.concatenate([chosen.left, chosen.right]))[:most]
    return _pictures(chosen, used)


def _pictures(pairs: PairSet, indexes: np.ndarray[tuple[int], np.dtype[np.intp]]) -> Images:
    pixels = [load_pixels(pairs.images[int(k)]) for k in indexes]
    sizes = {p.shape for p in pixels}
    if len(sizes) != 1:
        raise DataError(
            f"the pictures of {pairs.name} have {len(sizes)} different sizes; align them first: "
            "onnxfr align IN OUT"
        )
    return to_images(pixels)
