"""What a cell may use while it runs: models, pair sets, embeddings, each loaded once per worker."""

from __future__ import annotations

import hashlib
import time
from collections import OrderedDict
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from onnxfr.data.images import image_sha
from onnxfr.data.pairs import PairSet, open_pairs
from onnxfr.errors import DataError, ModelError
from onnxfr.runs.cells import DataRef, ModelRef
from onnxfr.runs.embedding_cache import EmbeddingCache
from onnxfr.runs.work import Report
from onnxfr.types import Embeddings, Images

if TYPE_CHECKING:
    from onnxfr.models.card import Card
    from onnxfr.models.wrapper import FRModel


class Context:
    """A worker's models, pair sets and embedding cache."""

    def __init__(self, cache: Path, report: Report | None = None, max_models: int = 8) -> None:
        self.embeddings = EmbeddingCache(cache)
        self._report = report
        self._max_models = max_models
        self._models: OrderedDict[str, FRModel] = OrderedDict()
        self._cards: dict[str, Card] = {}
        self._pairs: dict[tuple[str, int, int | None, str], PairSet] = {}

    def model(self, ref: str | ModelRef) -> FRModel:
        """Return the model behind ``ref``, loaded at first use and kept.

        A planned model (a ModelRef) is checked to be the one that was planned with.
        """
        name = ref.ref if isinstance(ref, ModelRef) else ref
        sha256 = ref.sha256 if isinstance(ref, ModelRef) else None
        if name in self._models and sha256 not in (None, self._models[name].card.sha256):
            del self._models[name]
        if name not in self._models:
            # Imported here because torch takes seconds, which workers without a model need not pay.
            from onnxfr.models.remote.reference import is_remote, open_remote
            from onnxfr.models.wrapper import load_model

            self._models[name] = open_remote(name) if is_remote(name) else load_model(name)
            if len(self._models) > self._max_models:
                self._models.popitem(last=False)
        model = self._models[name]
        self._models.move_to_end(name)
        if sha256 not in (None, model.card.sha256):
            raise ModelError(
                f"{name} changed after the run was planned: expected sha256 {str(sha256)[:12]}..., "
                f"found {model.card.sha256[:12]}...; run again to plan with the new file"
            )
        return model

    def card(self, ref: ModelRef) -> Card:
        """Return a model's card, kept longer than the model: plans ask for those of many."""
        if ref.sha256 not in self._cards:
            self._cards[ref.sha256] = self.model(ref).card
        return self._cards[ref.sha256]

    def pairs(self, spec: str | DataRef) -> PairSet:
        """Return the pair set behind ``spec``, opened at first use and kept.

        A planned one (a DataRef) is checked to be the one that was planned with.
        """
        ref = spec if isinstance(spec, DataRef) else DataRef(spec, "", 0, "")
        wanted = (ref.spec, ref.seed, ref.limit, ref.fingerprint)
        if wanted not in self._pairs:
            opened = open_pairs(ref.spec, seed=ref.seed, pairs=ref.limit)
            if ref.fingerprint and _fingerprint(opened) != ref.fingerprint:
                raise DataError(
                    f"{ref.spec} changed after the run was planned; run again to plan with the "
                    "pictures as they are now"
                )
            self._pairs[wanted] = opened
        return self._pairs[wanted]

    def identify(self, ref: str) -> ModelRef:
        """Return the content hash and the name of a model as it is on disk now."""
        self._models.pop(ref, None)
        card = self.model(ref).card
        return ModelRef(ref, card.sha256, card.name, card.template)

    def describe(
        self, spec: str, *, seed: int = 0, limit: int | None = None, strict: bool = False
    ) -> DataRef:
        """Open a pair set and return its size and a fingerprint of protocol and picture bytes."""
        pairs = open_pairs(spec, strict=strict, seed=seed, pairs=limit)
        fingerprint = _fingerprint(pairs)
        self._pairs[(spec, seed, limit, fingerprint)] = pairs
        return DataRef(spec, fingerprint, len(pairs), pairs.name, seed, limit)

    def embed(
        self,
        ref: str | ModelRef,
        keys: Sequence[str],
        load: Callable[[Sequence[int]], Images],
        *,
        view: str = "",
        batch_size: int = 64,
    ) -> Embeddings:
        """Return the embeddings of images known by content, computing only those never seen.

        Args:
            ref: the model.
            keys: content hash of each image; duplicates are embedded once.
            load: gives the images at some positions of ``keys`` as one batch.
            view: what was done to the image after hashing (``"flip"``), part of the cache key.
            batch_size: images per call of ``load`` and of the model.
        """
        model = self.model(ref)
        space = self.embeddings.space(model.card.sha256, view)
        first: dict[str, int] = {}
        for position, key in enumerate(keys):
            first.setdefault(key, position)
        unique = list(first)
        rows, found = space.find(unique)
        missing = np.flatnonzero(~found)
        for begin in range(0, len(missing), batch_size):
            batch = missing[begin : begin + batch_size]
            fresh = model.embed(load([first[unique[i]] for i in batch]))
            space.put([unique[i] for i in batch], fresh)
            if rows is None:
                rows = np.zeros((len(unique), fresh.shape[1]), dtype=np.float32)
            rows[batch] = fresh
            self.report(begin + len(batch), len(missing))
        if rows is None:
            return np.zeros((0, 0), dtype=np.float32)
        order = {key: i for i, key in enumerate(unique)}
        return rows[[order[key] for key in keys]]

    def device(self, ref: str | ModelRef) -> str:
        """Return where this process computes embeddings: ``cpu``, ``cuda``, or unknown."""
        from onnxfr.models.comparer import Comparer
        from onnxfr.models.wrapper import OnnxModel

        model = self.model(ref)
        if isinstance(model, Comparer):
            return "remote"
        return model.engine.device if isinstance(model, OnnxModel) else "unknown"

    def seconds_per_image(self, ref: str | ModelRef, batch_size: int = 16) -> float:
        """Return how long one forward pass takes here, from one measured batch.

        A service is not asked for that: its pace says how long a question takes at least.
        """
        from onnxfr.models.remote.model import RemoteModel

        model = self.model(ref)
        if isinstance(model, RemoteModel):
            return model.seconds_per_question
        shape = (batch_size, 3, model.card.input_height, model.card.input_width)
        images = np.full(shape, 0.5, dtype=np.float32)
        model.embed(images)
        begin = time.perf_counter()
        model.embed(images)
        return (time.perf_counter() - begin) / batch_size

    def release(self) -> None:
        """Forget loaded models and pair sets, for a process whose workers have their own."""
        self._models.clear()
        self._pairs.clear()

    def report(self, done: int, total: int) -> None:
        """Tell how far the current cell is; free to call often."""
        if self._report is not None:
            self._report(done, total)

    def reporting(self, report: Report | None) -> Context:
        """Send progress to ``report`` from now on and return self."""
        self._report = report
        return self


def _fingerprint(pairs: PairSet) -> str:
    """Return a digest of protocol and picture bytes."""
    content = hashlib.sha256(pairs.fingerprint().encode())
    for image in pairs.images:
        try:
            content.update(image_sha(image).encode())
        except DataError:
            content.update(b"unreadable")
    return content.hexdigest()
