"""Foolbox, torchattacks and ART on the verification margin, behind a classifier of two logits.

Used by the attack benchmarks in an environment that has onnxfr and these packages. Class 1 means
that the attacker has won, so that every peer attacks class 0 without a target. torchvision, which
torchattacks and ART import and do not need here, is replaced by an empty module.
"""

from __future__ import annotations

import math
import sys
import types
from collections.abc import Callable
from typing import Any

import numpy as np
import torch

from onnxfr.models.wrapper import OnnxModel
from onnxfr.oracle import Oracle
from onnxfr.probe import Probe
from onnxfr.threat import Threat
from onnxfr.types import Goal, Images

Peer = Callable[[], Images]


class TwoLogits(torch.nn.Module):
    """The margin of each row's own pair as two logits; ``rows`` says which pairs are asked."""

    def __init__(self, model: OnnxModel, probe: Probe, goal: Goal, threshold: float) -> None:
        super().__init__()
        self._model = model
        assert probe.references is not None
        self._references = torch.from_numpy(model.embed(probe.references))
        self._sign, self._threshold = (-1.0 if goal is Goal.DODGE else 1.0), threshold
        self.rows: slice = slice(None)

    def forward(self, images: torch.Tensor) -> torch.Tensor:
        embeddings = self._model.embed_grad(images.float())
        cosine = (embeddings * self._references[self.rows]).sum(1)
        margin = self._sign * (cosine - self._threshold)
        return torch.stack([-margin, margin], 1)


def without_torchvision() -> None:
    """Put an empty module in torchvision's place unless it is there."""
    try:
        import torchvision  # noqa: F401
    except Exception:  # a broken build raises RuntimeError
        root = types.ModuleType("torchvision")
        for name in ("transforms", "models"):
            part = types.ModuleType(f"torchvision.{name}")
            setattr(root, name, part)
            sys.modules[f"torchvision.{name}"] = part
        sys.modules["torchvision"] = root


def foolbox_attack(logits: TwoLogits, probe: Probe, name: str, threat: Threat, steps: int) -> Peer:
    """Return one of Foolbox's attacks, ready to run."""
    import foolbox as fb

    linf = threat.norm == "linf"
    model = fb.PyTorchModel(logits.eval(), bounds=(0, 1), device="cpu")
    images = torch.from_numpy(probe.images)
    labels = torch.zeros(len(images), dtype=torch.long)
    side = math.sqrt(probe.images[0].size)
    budget = None if threat.eps is None else float(threat.eps) * (1.0 if linf else side)
    start = {"random_start": False} if name == "bim" else {}
    kinds: dict[str, Callable[[], Any]] = {
        "bim": lambda: (fb.attacks.LinfPGD if linf else fb.attacks.L2PGD)(
            rel_stepsize=1.5 / steps, steps=steps, **start
        ),
        "pgd": lambda: (fb.attacks.LinfPGD if linf else fb.attacks.L2PGD)(
            rel_stepsize=1.5 / steps, steps=steps
        ),
        "cw": lambda: fb.attacks.L2CarliniWagnerAttack(
            binary_search_steps=max(steps // 100, 1), steps=100
        ),
        "deepfool": lambda: (
            fb.attacks.LinfDeepFoolAttack if linf else fb.attacks.L2DeepFoolAttack
        )(steps=steps, candidates=2),
        "fmn": lambda: (fb.attacks.LInfFMNAttack if linf else fb.attacks.L2FMNAttack)(steps=steps),
        "ddn": lambda: fb.attacks.DDNAttack(steps=steps),
    }
    attack = kinds[name]()

    def run() -> Images:
        torch.manual_seed(0)
        _, clipped, _ = attack(model, images, labels, epsilons=budget)
        return np.asarray(clipped.detach().numpy(), dtype=np.float32)

    return run


def torchattacks_attack(
    logits: TwoLogits, probe: Probe, name: str, threat: Threat, steps: int
) -> Peer:
    """Return torchattacks' PGD or APGD; APGD row by row, since it asks about changing subsets."""
    import torchattacks

    eps, linf = float(threat.eps or 0.0), threat.norm == "linf"
    images = torch.from_numpy(probe.images)
    if name == "pgd":
        attack = torchattacks.PGD(logits, eps=eps, alpha=1.5 * eps / steps, steps=steps)
        labels = torch.zeros(len(images), dtype=torch.long)
        return lambda: attack(images, labels).detach().numpy()
    size = eps if linf else eps * math.sqrt(probe.images[0].size)
    attack = torchattacks.APGD(
        logits, norm="Linf" if linf else "L2", eps=size, steps=steps, loss="ce"
    )

    def run() -> Images:
        made = []
        for k in range(len(images)):
            logits.rows = slice(k, k + 1)
            made.append(attack(images[k : k + 1], torch.zeros(1, dtype=torch.long)))
        logits.rows = slice(None)
        return torch.cat(made).detach().numpy()

    return run


def art_pgd(logits: TwoLogits, probe: Probe, threat: Threat, steps: int) -> Peer:
    """Return ART's PGD."""
    from art.attacks.evasion import ProjectedGradientDescentPyTorch
    from art.estimators.classification import PyTorchClassifier

    eps = float(threat.eps or 0.0)
    classifier = PyTorchClassifier(
        logits,
        loss=torch.nn.CrossEntropyLoss(),
        input_shape=probe.images.shape[1:],
        nb_classes=2,
        clip_values=(0.0, 1.0),
        device_type="cpu",
    )
    attack = ProjectedGradientDescentPyTorch(
        classifier,
        norm=np.inf,
        eps=eps,
        eps_step=1.5 * eps / steps,
        max_iter=steps,
        num_random_init=1,
        batch_size=len(probe),
        verbose=False,
    )
    labels = np.eye(2, dtype=np.float32)[np.zeros(len(probe), dtype=int)]
    return lambda: np.asarray(attack.generate(probe.images, y=labels), dtype=np.float32)


def outcome(oracle: Oracle, probe: Probe, threat: Threat, images: Images) -> np.ndarray:
    """Return the cost of each picture as our own judge sees it: infinite where it does not win."""
    images = np.clip(images, 0.0, 1.0)
    distance = threat.distance(probe.images, images).astype(np.float64)
    won = oracle.verify(images) > 0
    if threat.eps is not None:
        won &= distance <= np.asarray(threat.eps) + 1e-5
    return np.where(won, distance, np.inf)
