"""Several models attacked as one: four ways to join their margins (FACESEC and beyond).

Each model's own threshold is subtracted before anything is averaged, so that a model with a high
threshold does not drown the others. As an FRModel the ensemble embeds into the joined space, whose
cosine is the mean cosine and whose threshold is the mean threshold: its margin is the mean margin.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Sequence
from typing import Literal, get_args

import numpy as np
import torch
from numpy.typing import NDArray

from onnxfr.errors import SpecError
from onnxfr.models.card import Card
from onnxfr.models.wrapper import FRModel
from onnxfr.types import Embeddings, Images

Mode = Literal["margin", "loss", "alternating", "gradient"]
"""``margin``: mean margin. ``loss``: mean of a loss that fades once a model is beaten.
``alternating``: one model per step of an ascent in turn; attacks that do not step so get the mean.
``gradient``: mean of gradients made equally long."""

Margins = Callable[[], torch.Tensor]

# The loss mode's softness in cosine units: members beaten by three of these hardly pull any more.
_SOFTNESS = 0.05


class Ensemble(FRModel):
    """A set of surrogates with one threshold each."""

    def __init__(
        self, members: Sequence[FRModel], thresholds: Sequence[float], mode: Mode = "margin"
    ) -> None:
        if not members or len(members) != len(thresholds):
            raise SpecError(
                f"an ensemble needs at least one model and one threshold for each; got "
                f"{len(members)} models and {len(thresholds)} thresholds"
            )
        if mode not in get_args(Mode):
            raise SpecError(f"an ensemble mode is one of {', '.join(get_args(Mode))}; got {mode!r}")
        self.members, self.thresholds, self.mode = tuple(members), tuple(thresholds), mode
        self.card = self._joined_card()

    @property
    def threshold(self) -> float:
        """The threshold of the joined space."""
        return float(np.mean(self.thresholds))

    @property
    def differentiable(self) -> bool:
        """Whether every member is."""
        return all(member.differentiable for member in self.members)

    def embed(self, images: Images) -> Embeddings:
        """Embed into the joined space; rows have unit length."""
        joined = np.concatenate([member.embed(images) for member in self.members], axis=1)
        return np.asarray(joined / np.sqrt(len(self.members)), dtype=np.float32)

    def embed_grad(self, images: torch.Tensor) -> torch.Tensor:
        """Embed into the joined space differentiably."""
        joined = torch.cat([member.embed_grad(images) for member in self.members], dim=1)
        scaled: torch.Tensor = joined / len(self.members) ** 0.5
        return scaled

    def similarity(self, left: Images, right: Images) -> NDArray[np.float32]:
        """Return the mean of the members' cosines, each at its own picture size."""
        found = [member.similarity(left, right) for member in self.members]
        mean: NDArray[np.float32] = np.mean(found, axis=0, dtype=np.float32)
        return mean

    def _joined_card(self) -> Card:
        first = self.members[0].card
        cards = [member.card for member in self.members]
        digest = hashlib.sha256(repr((self.mode, self.thresholds)).encode())
        for card in cards:
            digest.update(card.sha256.encode())
        names = "+".join(card.name for card in cards)[:80]
        return first.model_copy(
            update={
                "name": f"{self.mode}.{names}".replace("+", "_"),
                "sha256": digest.hexdigest(),
                "architecture": " + ".join(card.architecture for card in cards),
                "training_set": " + ".join(card.training_set for card in cards),
                "embedding_dim": sum(card.embedding_dim for card in cards),
                "thresholds": (),
                "reported": (),
            }
        )


def joined_gradient(
    mode: Mode, margins: Sequence[Margins], image: torch.Tensor, turn: int | None
) -> tuple[torch.Tensor, torch.Tensor]:
    """Return the mean margin and the ascent direction of a mode.

    ``margins`` compute each member's margin from ``image`` when called, so that members whose
    gradient is not needed cost a forward pass at most. The direction is as long as a gradient of
    the margin: attacks that linearise it take the length for how fast the margin grows. Without a
    ``turn`` no member is alone on its turn: ``alternating`` is the mean margin then.
    """
    if mode == "alternating" and turn is not None:
        leader = turn % len(margins)
        values = margins[leader]()
        gradient = torch.autograd.grad(values.sum(), image)[0]
        with torch.no_grad():
            others = [other() for k, other in enumerate(margins) if k != leader]
        return torch.stack([values.detach(), *others]).mean(0), gradient
    if mode == "margin" and len(margins) == 1:
        values = margins[0]()
        return values.detach(), torch.autograd.grad(values.sum(), image)[0]
    total = torch.zeros_like(image)
    length: float | torch.Tensor = 0.0 if mode == "gradient" else 1.0
    seen = []
    for left, margin in zip(reversed(range(len(margins))), margins, strict=True):
        value = margin()
        seen.append(value.detach())
        pull = value
        if mode == "loss":
            pull = -_SOFTNESS * torch.nn.functional.softplus(-value / _SOFTNESS)
        # Members look through one and the same view, whose graph must outlive all but the last.
        gradient = torch.autograd.grad(pull.sum(), image, retain_graph=left > 0)[0]
        if mode == "gradient":
            size = gradient.reshape(len(gradient), -1).abs().sum(1).clamp_min(1e-12)
            size = size.reshape(-1, *[1] * (gradient.ndim - 1))
            gradient, length = gradient / size, length + size / len(margins)
        total += gradient / len(margins)
    return torch.stack(seen).mean(0), total * length
