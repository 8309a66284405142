"""A model behind a corruption, as an attacker holds it who knows what happens to his pictures.

Gradients pass the corruption as if it were not there (BPDA with the identity, Athalye et al. 2018).
What it draws at random is drawn by the picture asked, so anew at every step: he knows the kind of
noise but not the noise, and answers are reproducible. Over many steps that averages the draws.
"""

from __future__ import annotations

import hashlib

import numpy as np
import torch
from numpy.typing import NDArray

from onnxfr.corruptions.base import to_frames
from onnxfr.evaluators.treatment import Channel
from onnxfr.models.wrapper import FRModel
from onnxfr.probe import to_array
from onnxfr.types import Embeddings, Images


class Channelled(FRModel):
    """Answers for pictures that have passed a channel; references must come as embeddings.

    Args:
        inner: the verifier at the other end.
        channel: what pictures pass on their way.
        points: ``(5, 2)`` landmarks of the crops, for occluders; None for the usual place.
    """

    def __init__(
        self, inner: FRModel, channel: Channel, points: NDArray[np.floating] | None = None
    ) -> None:
        self.inner, self.card = inner, inner.card
        self._channel, self._points = channel, points

    @property
    def differentiable(self) -> bool:
        """Whether the verifier itself is."""
        return self.inner.differentiable

    def embed(self, images: Images) -> Embeddings:
        """Embed what comes out of the channel."""
        return self.inner.embed(self._sent(images))

    def embed_grad(self, images: torch.Tensor) -> torch.Tensor:
        """Embed what comes out; gradients reach ``images`` unchanged by the channel."""
        sent = torch.as_tensor(self._sent(to_array(images))).to(images)
        return self.inner.embed_grad(images + (sent - images).detach())

    def _sent(self, images: Images) -> Images:
        if not len(images):
            return images
        ids = [hashlib.sha256(frame.tobytes()).hexdigest() for frame in to_frames(images)]
        points = None if self._points is None else np.repeat(self._points[None], len(ids), axis=0)
        return self._channel(images, ids, points)
