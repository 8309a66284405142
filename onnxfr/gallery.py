"""A window on a 1:N service: a picture goes in, who it is taken for comes out; every look is paid.

The Oracle compares a picture with one reference; a watch list or a door compares it with everybody
enrolled and answers with all who match. One picture is one question, whatever the gallery's size.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

import numpy as np
from numpy.typing import NDArray

from onnxfr.errors import AccessDenied, DataError, SpecError
from onnxfr.models.answers import embed_each
from onnxfr.models.wrapper import FRModel
from onnxfr.types import Access, Embeddings, Images


class Gallery:
    """Enrolled people, one template each, behind a model and its threshold.

    Args:
        model: the recogniser.
        references: one picture per person.
        threshold: the cosine above which two pictures are taken for one person.
        access: ``DECISION`` answers who matches, ``SCORE`` also how well.
        max_queries: cap on the pictures that may be asked about.
        batch_size: most pictures per call of the engine.
    """

    def __init__(
        self,
        model: FRModel,
        references: Images,
        threshold: float,
        *,
        access: Access = Access.DECISION,
        max_queries: int | None = None,
        batch_size: int = 64,
    ) -> None:
        if not len(references):
            raise DataError("a gallery needs at least one person")
        if max_queries is not None and max_queries < 1:
            raise SpecError(f"max_queries is at least 1; got {max_queries}")
        self.access, self.max_queries, self.queries = access, max_queries, 0
        self._model, self._threshold, self._batch_size = model, threshold, batch_size
        self._templates = self._embedded(model.embed, references)

    def __len__(self) -> int:
        return len(self._templates)

    @property
    def left(self) -> int:
        """How many more pictures may be asked about."""
        if self.max_queries is None:
            return int(np.iinfo(np.int64).max)
        return self.max_queries - self.queries

    def match(self, images: Images) -> NDArray[np.bool_]:
        """Return who each picture is taken for, ``(pictures, people)``."""
        # A comparison with NaN is False: a picture without an embedding matches nobody.
        return self._ask(images) > 0

    def margins(self, images: Images) -> NDArray[np.float32]:
        """Return how far each picture is above the threshold of each person."""
        if self.access < Access.SCORE:
            raise AccessDenied("this gallery answers who matches, not how well")
        return self._ask(images)

    def _ask(self, images: Images) -> NDArray[np.float32]:
        if len(images) > self.left:
            raise AccessDenied(
                f"{len(images)} pictures were asked about, {self.left} questions are left"
            )
        self.queries += len(images)
        similarity = self._embedded(partial(embed_each, self._model), images) @ self._templates.T
        return np.asarray(similarity - np.float32(self._threshold), dtype=np.float32)

    def _embedded(self, embed: Callable[[Images], Embeddings], images: Images) -> Embeddings:
        starts = range(0, len(images), self._batch_size)
        found = [embed(images[k : k + self._batch_size]) for k in starts]
        return np.concatenate([np.zeros((0, self._model.card.embedding_dim), np.float32), *found])
