"""The pictures of a pair set as one model sees them: read, aligned where needed, embedded once.

Reading and aligning run in threads ahead of the model, so a run costs little more than its
inference. A picture that gives no embedding is an outcome, not an error: without a face it is a
rejection that metrics count, unreadable it is a defect of the data set that they leave out.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from itertools import islice

import numpy as np
from numpy.typing import NDArray

from onnxfr.alignment.aligner import Aligner, Outcome, Rejection
from onnxfr.alignment.pool import ordered_map
from onnxfr.data.images import image_sha, to_images
from onnxfr.data.pairs import PairSet, Problem
from onnxfr.data.stream import read_all
from onnxfr.errors import DataError
from onnxfr.evaluators.crops import CropStore
from onnxfr.models.geometry import fit_array
from onnxfr.models.wrapper import FRModel
from onnxfr.runs.cells import ModelRef
from onnxfr.runs.context import Context
from onnxfr.runs.embedding_cache import Space
from onnxfr.types import Embeddings, Images, Pixels

_BATCH = 64
_BLOCK = 256
_NO_KEY = ""

Seen = tuple[int, Pixels | Problem | Rejection]


@dataclass(frozen=True)
class EmbeddedFaces:
    """One row per image of a pair set; rows of images without an embedding are zero."""

    embeddings: Embeddings
    outcome: tuple[Outcome, ...]
    reason: tuple[str, ...]

    @property
    def usable(self) -> NDArray[np.bool_]:
        """Which images have an embedding."""
        return np.array([outcome is Outcome.ALIGNED for outcome in self.outcome], dtype=np.bool_)


def needs_alignment(pairs: PairSet, align: str) -> bool:
    """Tell whether ``align`` (auto, yes or no) means that this pair set is aligned here.

    What does not say that it is aligned is taken for raw pictures.
    """
    return align == "yes" or (align == "auto" and pairs.aligned is not True)


def crop_store(context: Context, model: FRModel) -> CropStore:
    """Return the crops cut for a model's template and size."""
    aligner = Aligner(model.card.template, model.card.input_size)
    return CropStore(context.embeddings.root / "crops", aligner)


def embed_faces(
    context: Context,
    ref: ModelRef,
    pairs: PairSet,
    *,
    crops: CropStore | None = None,
    flip: bool = False,
    strict: bool = False,
) -> EmbeddedFaces:
    """Embed every image of a pair set, computing only what was never computed before.

    Args:
        context: where models and caches are.
        ref: the model.
        pairs: the images.
        crops: aligns the pictures first; None takes them as they are.
        flip: add the embedding of the mirrored picture and normalise.
        strict: raise on an unreadable picture instead of noting it.
    """
    model = context.model(ref)
    reader = _Reader(pairs, crops, strict)
    view = "" if crops is None else crops.view
    views = [view, f"{view} flip"] if flip else [view]
    spaces = [context.embeddings.space(model.card.sha256, name) for name in views]
    missing = _missing(spaces, reader.keys)
    fresh: list[dict[str, NDArray[np.float32]]] = [{} for _ in views]
    context.report(0, len(missing))
    for done, indexes, images in reader.batches(missing, model.card.input_size):
        keys = [reader.keys[index] for index in indexes]
        mirrored = (images, images[..., ::-1])
        for space, rows, pictures in zip(spaces, fresh, mirrored, strict=False):
            if keys:
                values = model.embed(np.ascontiguousarray(pictures))
                space.put(keys, values)
                rows.update(zip(keys, values, strict=True))
        context.report(done, len(missing))
    reader.share_outcomes()
    total = np.zeros((len(pairs.images), model.card.embedding_dim), dtype=np.float32)
    for space, rows in zip(spaces, fresh, strict=True):
        total += _all_rows(space, reader.keys, rows, total.shape)
    if flip:
        total /= np.maximum(np.linalg.norm(total, axis=1, keepdims=True), 1e-12)
    return EmbeddedFaces(total, tuple(reader.outcome), tuple(reader.reason))


class _Reader:
    """Reads and aligns ahead of the model, and notes what became of each picture."""

    def __init__(self, pairs: PairSet, crops: CropStore | None, strict: bool) -> None:
        self._pairs, self._crops, self._strict = pairs, crops, strict
        self.outcome = [Outcome.ALIGNED] * len(pairs.images)
        self.reason = [""] * len(pairs.images)
        blocks = [range(at, at + _BLOCK) for at in range(0, len(pairs.images), _BLOCK)]
        # Handing single digests from thread to thread would cost more than computing them.
        self.keys = [key for block in ordered_map(self._keys_of, blocks) for key in block]

    def batches(
        self, missing: Sequence[int], size: tuple[int, int]
    ) -> Iterator[tuple[int, list[int], Images]]:
        """Yield (how many are done, indexes, images), one batch prepared while another is used."""
        if self._crops is None:
            seen: Iterator[Seen] = read_all(self._pairs, missing, strict=self._strict)
        else:
            seen = ordered_map(self._cut, missing)

        def prepare() -> tuple[int, list[int], Images] | None:
            items = list(islice(seen, _BATCH))
            good = [(i, item) for i, item in items if self._note(i, item)]
            images = stack_pictures(
                [item for _, item in good if isinstance(item, np.ndarray)], size
            )
            return (len(items), [i for i, _ in good], images) if items else None

        done = 0
        with ThreadPoolExecutor(1, thread_name_prefix="onnxfr-batch") as pool:
            coming = pool.submit(prepare)
            while (batch := coming.result()) is not None:
                coming = pool.submit(prepare)
                done += batch[0]
                yield done, batch[1], batch[2]

    def share_outcomes(self) -> None:
        """Give every copy of a refused picture the outcome of the one that was looked at."""
        refused = {
            key: (outcome, reason)
            for key, outcome, reason in zip(self.keys, self.outcome, self.reason, strict=True)
            if outcome is not Outcome.ALIGNED and key != _NO_KEY
        }
        for index, key in enumerate(self.keys):
            if key in refused:
                self.outcome[index], self.reason[index] = refused[key]

    def _keys_of(self, block: range) -> list[str]:
        keys = []
        for index in range(block.start, min(block.stop, len(self._pairs.images))):
            source = self._pairs.images[index]
            try:
                digest = image_sha(source)
                keys.append(digest if self._crops is None else self._crops.key(source, digest))
            except DataError as error:
                if self._strict:
                    raise
                self._note(index, Problem(source.id, str(error).removeprefix(f"{source.id}: ")))
                keys.append(_NO_KEY)
        return keys

    def _cut(self, index: int) -> Seen:
        assert self._crops is not None
        source = self._pairs.images[index]
        try:
            return index, self._crops.crop(source, self.keys[index])
        except DataError as error:
            if self._strict:
                raise
            return index, Problem(source.id, str(error).removeprefix(f"{source.id}: "))

    def _note(self, index: int, item: Pixels | Problem | Rejection) -> bool:
        """Keep what became of a picture; true if it can be embedded."""
        if isinstance(item, Rejection):
            self.outcome[index], self.reason[index] = item.outcome, item.reason
        elif isinstance(item, Problem):
            self.outcome[index], self.reason[index] = Outcome.UNREADABLE, item.reason
        return isinstance(item, np.ndarray)


def _missing(spaces: Sequence[Space], keys: Sequence[str]) -> list[int]:
    """Return one index for each key that lacks a row in some space."""
    known = np.ones(len(keys), dtype=np.bool_)
    for space in spaces:
        known &= space.find(keys)[1]
    first: dict[str, int] = {}
    for index in np.flatnonzero(~known).tolist():
        if keys[index] != _NO_KEY:
            first.setdefault(keys[index], index)
    return list(first.values())


def _all_rows(
    space: Space,
    keys: Sequence[str],
    fresh: Mapping[str, NDArray[np.float32]],
    shape: tuple[int, ...],
) -> Embeddings:
    # A cache that cannot be written still leaves the rows computed just now.
    rows, _ = space.find(keys)
    values = np.zeros(shape, dtype=np.float32) if rows is None else rows
    for index, key in enumerate(keys):
        if key in fresh:
            values[index] = fresh[key]
    return values


def stack_pictures(pixels: Sequence[Pixels], size: tuple[int, int]) -> Images:
    """Return pictures as one batch; those of mixed sizes are brought to ``size``."""
    if not pixels:
        return np.zeros((0, 3, *size), dtype=np.float32)
    if len({picture.shape for picture in pixels}) == 1:
        return to_images(pixels)
    return np.concatenate([fit_array(to_images([picture]), size) for picture in pixels])
