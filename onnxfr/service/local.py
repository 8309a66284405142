"""A model of this machine that answers like a service: verdicts and rejections, no embeddings."""

from __future__ import annotations

import hashlib
from collections import OrderedDict
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor

import numpy as np
from numpy.typing import NDArray

from onnxfr.alignment.pool import worker_count
from onnxfr.models.comparer import Comparer
from onnxfr.models.remote.model import to_pixels
from onnxfr.models.remote.reading import Kind, Verdict
from onnxfr.service.verifier import Refusal, Verifier
from onnxfr.types import Access, Embeddings, Images, Pixels

_BATCH = 64
_KEPT = 1024


class LocalVerifier(Comparer):
    """A verifier without HTTP around it; decisions only, as the strictest services give.

    Embeddings of recent pictures are kept: an attack sends the same reference again and again.
    """

    access = Access.DECISION

    def __init__(self, verifier: Verifier) -> None:
        self.verifier, self.card = verifier, verifier.model.card
        # One pool for life: each of its threads opens the detector once.
        self._pool = ThreadPoolExecutor(worker_count(None), "onnxfr-cut")
        self._known: OrderedDict[bytes, NDArray[np.float32] | str] = OrderedDict()

    def compare(self, images: Images, references: Images) -> NDArray[np.float32]:
        """Return 1 and -1, or NaN for a rejected picture."""
        answers = self.verdicts(images, references)
        told = [np.nan if each.match is None else 2.0 * each.match - 1.0 for each in answers]
        return np.array(told, dtype=np.float32)

    def verdicts(self, images: Images, references: Images) -> list[Verdict]:
        """Return the answer to each question."""
        left, right = self._look(to_pixels(images)), self._look(to_pixels(references))
        return [self._judge(a, b) for a, b in zip(left, right, strict=True)]

    def _judge(self, left: NDArray[np.float32] | str, right: NDArray[np.float32] | str) -> Verdict:
        for side in (left, right):
            if isinstance(side, str):
                return Verdict(Kind.REJECTED, detail=side)
        try:
            found = self.verifier.judge(float(np.dot(left, right)))
        except Refusal as refused:
            return Verdict(Kind.REJECTED, detail=refused.code)
        return Verdict(Kind.JUDGED, found.match)

    def _look(self, pictures: Sequence[Pixels]) -> list[NDArray[np.float32] | str]:
        keys = [
            hashlib.sha256(each.tobytes()).digest() + repr(each.shape).encode() for each in pictures
        ]
        fresh = {key: each for key, each in zip(keys, pictures, strict=True)}
        found: dict[bytes, NDArray[np.float32] | str] = {
            key: self._known[key] for key in fresh if key in self._known
        }
        waiting = [key for key in fresh if key not in found]
        crops: list[tuple[bytes, Pixels]] = []
        for key, crop in zip(
            waiting, self._pool.map(self._cut, [fresh[key] for key in waiting]), strict=True
        ):
            if isinstance(crop, str):
                found[key] = crop
            else:
                crops.append((key, crop))
        for at in range(0, len(crops), _BATCH):
            part = crops[at : at + _BATCH]
            rows: Embeddings = self.verifier.embed([crop for _, crop in part])
            found |= {key: row for (key, _), row in zip(part, rows, strict=True)}
        self._keep(found)
        return [found[key] for key in keys]

    def _cut(self, pixels: Pixels) -> Pixels | str:
        try:
            return self.verifier.cut(pixels, "picture")
        except Refusal as refused:
            return refused.code

    def _keep(self, found: dict[bytes, NDArray[np.float32] | str]) -> None:
        for key, value in found.items():
            self._known[key] = value
            self._known.move_to_end(key)
        while len(self._known) > _KEPT:
            self._known.popitem(last=False)
