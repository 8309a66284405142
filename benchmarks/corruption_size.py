"""Does it matter whether whole photographs are corrupted or the crops cut from them?

    python benchmarks/corruption_size.py MODEL lfw:PATH,folds=1 [--pairs 200]

PATH holds pictures that are not aligned, such as LFW's of 250 pixels. The same faces, cut by the
same landmarks (those of the clean picture), are corrupted once before and once after they are cut:
OODFace's twenty corruptions at five severities, both pictures of a pair, best threshold of each
condition. Prints Acc_cor, the rank correlation with the paper's order, and accuracies side by side.
"""

from __future__ import annotations

import argparse
from collections.abc import Callable

import numpy as np
from corruption_oodface import PRINTED, correlation
from numpy.typing import NDArray

from onnxfr.alignment.aligner import AlignedFace, Aligner
from onnxfr.alignment.geometry import warp
from onnxfr.corruptions import SEVERITIES, corrupt
from onnxfr.data.images import load_pixels, to_images
from onnxfr.data.pairs import PairSet
from onnxfr.evaluators.games import rows_of
from onnxfr.metrics.protocols import oracle_accuracy
from onnxfr.models.wrapper import OnnxModel, load_model
from onnxfr.paths import cache_dir
from onnxfr.runs.context import Context
from onnxfr.types import Goal

Pixels = NDArray[np.uint8]
Spoil = Callable[[Pixels, str], Pixels]


class Faces:
    """The pictures of some pairs and where the face is in each of them."""

    def __init__(self, model: OnnxModel, pairs: PairSet, count: int) -> None:
        self.model, self.size = model, model.card.input_size
        aligner = Aligner(model.card.template, self.size)
        ids = pairs.pair_ids()
        drawn = {*rows_of(pairs, Goal.DODGE, count // 2)}
        drawn |= {*rows_of(pairs, Goal.IMPERSONATE, count - count // 2)}
        rows = [row for row, name in enumerate(ids) if name in drawn]
        wanted = sorted({int(side[row]) for row in rows for side in (pairs.left, pairs.right)})
        self.names = [pairs.images[index].id for index in wanted]
        self.whole = [load_pixels(pairs.images[index]) for index in wanted]
        found = [aligner.align(pixels) for pixels in self.whole]
        lost = {i for i, face in zip(wanted, found, strict=True) if face.rejected}
        self.found = [face if isinstance(face, AlignedFace) else None for face in found]
        place = {index: k for k, index in enumerate(wanted)}
        kept = [r for r in rows if not {int(pairs.left[r]), int(pairs.right[r])} & lost]
        self.left = [place[int(pairs.left[row])] for row in kept]
        self.right = [place[int(pairs.right[row])] for row in kept]
        self.same = pairs.same[kept]

    def accuracy(self, spoil: Spoil, *, first: bool) -> float:
        """Return the best accuracy with pictures spoilt before (``first``) or after cutting."""
        crops = []
        for pixels, face, name in zip(self.whole, self.found, self.names, strict=True):
            if face is None:
                crops.append(np.zeros((*self.size, 3), np.uint8))
            elif first:
                crops.append(warp(spoil(pixels, name), face.matrix, self.size))
            else:
                crops.append(spoil(face.pixels, name))
        embeddings = self.model.embed(to_images(crops))
        scores = np.einsum("nd,nd->n", embeddings[self.left], embeddings[self.right])
        return 100 * oracle_accuracy(scores, self.same).accuracy.value


def measure(faces: Faces, *, first: bool) -> dict[str, list[float]]:
    """Return the accuracy under every corruption and severity."""
    return {
        name: [
            faces.accuracy(
                lambda pixels, label, name=name, severity=severity: corrupt(
                    pixels[None], name, severity, ids=[label]
                )[0],
                first=first,
            )
            for severity in SEVERITIES
        ]
        for name in PRINTED
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("model")
    parser.add_argument("data")
    parser.add_argument("--pairs", type=int, default=200)
    options = parser.parse_args()
    context = Context(cache_dir() / "embeddings")
    pairs = context.pairs(context.describe(options.data))
    faces = Faces(load_model(options.model), pairs, options.pairs)
    clean = faces.accuracy(lambda pixels, _: pixels, first=True)
    height, width = faces.whole[0].shape[:2]
    print(f"{len(faces.same)} pairs, clean {clean:.2f} %")
    tables = {first: measure(faces, first=first) for first in (True, False)}
    for first, table in tables.items():
        means = [float(np.mean(levels)) for levels in table.values()]
        what = f"photographs of {width} x {height}" if first else "crops"
        print(f"{what}: Acc_cor {np.mean(means):.2f}, Spearman {correlation(table):.3f}")
    print("| corruption | photographs | crops | paper |\n|---|---|---|---|")
    for name, paper in PRINTED.items():
        both = (float(np.mean(tables[first][name])) for first in (True, False))
        print("| " + " | ".join([name, *(f"{value:.1f}" for value in both), f"{paper:.1f}"]) + " |")


if __name__ == "__main__":
    main()
