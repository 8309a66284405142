"""Who answers for a verifier: how far each picture is above the threshold of its reference."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from onnxfr.errors import DataError, NonFiniteAnswer, SpecError
from onnxfr.models.comparer import Comparer
from onnxfr.models.ensemble import Ensemble
from onnxfr.models.wrapper import FRModel
from onnxfr.types import Embeddings, Images

Rows = NDArray[np.intp]


class Answers(ABC):
    """A verifier bound to the references of some rows."""

    @abstractmethod
    def margins(self, images: Images, rows: Rows) -> NDArray[np.float32]:
        """Return similarity above the threshold; NaN where there is no verdict."""

    @abstractmethod
    def take(self, rows: Rows) -> Answers:
        """Return the answers for some of the rows."""


class EmbeddedAnswers(Answers):
    """Cosines of embeddings; several models answer with the mean of their margins."""

    def __init__(
        self,
        members: Sequence[FRModel],
        thresholds: Sequence[float],
        references: Sequence[Embeddings],
        batch_size: int,
    ) -> None:
        self.members, self.thresholds = members, thresholds
        self.references, self._batch_size = references, batch_size

    def margins(self, images: Images, rows: Rows) -> NDArray[np.float32]:
        """Embed the pictures and compare them with the references."""
        total = np.zeros(len(images), dtype=np.float32)
        for start in range(0, len(images), self._batch_size):
            # A slice, not a list of rows: a view costs nothing, a copy of a batch does.
            chunk = slice(start, start + self._batch_size)
            for model, references, threshold in zip(
                self.members, self.references, self.thresholds, strict=True
            ):
                found = embed_each(model, np.ascontiguousarray(images[chunk]))
                similarity = np.einsum("nd,nd->n", found, references[rows[chunk]])
                total[chunk] += (similarity - threshold) / len(self.members)
        return total

    def take(self, rows: Rows) -> EmbeddedAnswers:
        """Return the answers for some of the rows."""
        some = [each[rows] for each in self.references]
        return EmbeddedAnswers(self.members, self.thresholds, some, self._batch_size)


class ComparedAnswers(Answers):
    """Verdicts of a verifier that takes two pictures."""

    def __init__(self, comparer: Comparer, references: Images | None) -> None:
        if references is None:
            raise DataError(f"{comparer.name} compares pictures; it needs the references as such")
        self._comparer, self._references = comparer, references

    def margins(self, images: Images, rows: Rows) -> NDArray[np.float32]:
        """Ask the verifier, everything at once: it knows best how to spread the questions."""
        return self._comparer.compare(images, self._references[rows])

    def take(self, rows: Rows) -> ComparedAnswers:
        """Return the answers for some of the rows."""
        return ComparedAnswers(self._comparer, self._references[rows])


class References(Protocol):
    """What a probe knows about its references."""

    @property
    def references(self) -> Images | None:
        """The pictures."""

    @property
    def reference_embeddings(self) -> Embeddings | None:
        """What stands in for them where only templates are stored."""


def answers_of(
    model: FRModel, threshold: float | None, probe: References, batch_size: int
) -> Answers:
    """Return who answers for a model; ensembles and comparers bring their own thresholds."""
    if isinstance(model, Comparer):
        return ComparedAnswers(model, probe.references)
    members = model.members if isinstance(model, Ensemble) else (model,)
    thresholds = model.thresholds if isinstance(model, Ensemble) else (threshold,)
    known = [float(value) for value in thresholds if value is not None]
    if len(known) < len(members):
        raise SpecError("an oracle needs the model's threshold; measure or state one")
    references = _embed_references(members, probe, batch_size)
    return EmbeddedAnswers(members, known, references, batch_size)


def _embed_references(
    members: Sequence[FRModel], probe: References, batch_size: int
) -> list[Embeddings]:
    if probe.references is None:
        given = probe.reference_embeddings
        if given is None or len(members) > 1:
            raise DataError("several models need the references as pictures, not as embeddings")
        return [given]
    pictures = probe.references
    if not len(pictures):
        return [np.zeros((0, member.card.embedding_dim), np.float32) for member in members]
    parts = chunks(np.arange(len(pictures)), batch_size)
    return [np.concatenate([embed_each(each, pictures[c]) for c in parts]) for each in members]


def embed_each(model: FRModel, images: Images) -> Embeddings:
    """Embed pictures; a row the model has no finite answer for is NaN and spoils no other."""
    try:
        return model.embed(images)
    except NonFiniteAnswer:
        if len(images) == 1:
            return np.full((1, model.card.embedding_dim), np.nan, dtype=np.float32)
    half = len(images) // 2
    return np.concatenate([embed_each(model, part) for part in (images[:half], images[half:])])


def chunks(rows: Rows, size: int) -> list[Rows]:
    """Cut rows into pieces of at most ``size``."""
    return [rows[k : k + size] for k in range(0, len(rows), size)]
