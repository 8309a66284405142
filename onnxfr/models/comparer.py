"""Verifiers that only compare: pictures in, a verdict out, nothing about embeddings.

A remote service and a model behind a face detector are both of this kind. They take 8-bit pictures,
may refuse one (no face found), and may stop answering when a budget of calls is spent.
"""

from __future__ import annotations

import math
from abc import abstractmethod

import numpy as np
import torch
from numpy.typing import NDArray

from onnxfr.errors import AccessDenied
from onnxfr.models.wrapper import FRModel
from onnxfr.types import Access, Embeddings, Images

UNASKED = -math.inf
"""The margin of a picture for which no call was left: nobody has judged it."""


class CallsSpent(Exception):
    """No call is left for any of the pictures asked about: a signal, no failure."""


class Comparer(FRModel):
    """A verifier that answers decisions, and scores where ``access`` says so."""

    access: Access = Access.DECISION
    unserved: int = 0
    """Questions so far for which no call was left."""

    @property
    def differentiable(self) -> bool:
        """Never: there is no gradient of a verdict."""
        return False

    @abstractmethod
    def compare(self, images: Images, references: Images) -> NDArray[np.float32]:
        """Return how far each picture is above the threshold; positive means accepted.

        A verifier without scores answers 1 and -1. NaN means that no verdict was given: a picture
        refused, or an answer that makes no sense. ``UNASKED`` means that no call was left for this
        one, ``CallsSpent`` that none was left for any of them.
        """

    def embed(self, images: Images) -> Embeddings:
        """Raise: embeddings stay inside the verifier."""
        raise AccessDenied(self._refusal())

    def embed_grad(self, images: torch.Tensor) -> torch.Tensor:
        """Raise: there is nothing to differentiate."""
        raise AccessDenied(self._refusal())

    def _refusal(self) -> str:
        level = self.access.name.lower()
        return f"{self.name} answers {level}s only; choose an evaluator or attack that asks no more"
