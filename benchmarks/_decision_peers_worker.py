"""Plays Foolbox's and ART's decision attacks, in the environment that has them.

Reads a job (JSON) and pictures (NumPy), plays each pair alone against one onnxruntime session, and
writes one line per pair: the distance reached after each number of questions. Needs NumPy,
onnxruntime, torch, foolbox and adversarial-robustness-toolbox. Started by ``decision_peers.py``.
"""

import contextlib
import json
import logging
import sys
import time
from pathlib import Path

import foolbox
import numpy as np
import onnxruntime
import torch
from art.attacks import evasion
from art.estimators.classification import BlackBoxClassifier

if not hasattr(np, "mat"):
    np.mat = np.asmatrix  # noqa: NPY201 the way ART's GeoDA calls it


class Spent(Exception):
    """The pair has used up its questions."""


class Verifier:
    """One pair's verifier: class 1 means that the attacker has won; counts and remembers.

    Class 2 never comes: ART refuses some attacks on two classes.
    """

    def __init__(self, session, clean, reference, job):
        self.session, self.clean, self.job = session, clean, job
        self.name = session.get_inputs()[0].name
        self.template = self.embed(reference[None])[0]
        self.sign = -1 if job["goal"] == "dodge" else 1
        self.queries, self.best = 0, np.inf
        self.curve = []

    def embed(self, images):
        return self.session.run(None, {self.name: np.ascontiguousarray(images, np.float32)})[0]

    def ask(self, images):
        """Return one-hot classes; raise when the cap is reached."""
        # Some attacks clip at the end only; a verifier never sees anything outside the range.
        images = np.clip(np.asarray(images, np.float32), 0, 1)
        left = self.job["queries"] - self.queries
        if left <= 0:
            raise Spent
        similarity = self.embed(images[:left]) @ self.template
        won = self.sign * (similarity - self.job["threshold"]) > 0
        for image, verdict in zip(images, won, strict=False):
            self.queries += 1
            distance = float(np.sqrt(np.mean(np.square((image - self.clean).astype(np.float64)))))
            if verdict and distance < self.best:
                self.best = distance
                self.curve.append((self.queries, distance))
        if len(images) > left:
            raise Spent
        return np.stack([~won, won, won & ~won], axis=1).astype(np.float32)


class Network(torch.nn.Module):
    """The verifier as Foolbox wants it."""

    def __init__(self, verifier):
        super().__init__()
        self.verifier = verifier

    def forward(self, x):
        return torch.as_tensor(self.verifier.ask(x.detach().numpy()))


class ChannelsFirst(BlackBoxClassifier):
    """ART's black box, which does not say by itself where its channels are."""

    channels_first = True


def play_foolbox(verifier, kind, clean, start):
    """Run a Foolbox attack until its questions are spent."""
    model = foolbox.PyTorchModel(Network(verifier).eval(), bounds=(0, 1), device="cpu")
    criterion = foolbox.criteria.Misclassification(torch.zeros(1, dtype=torch.long))
    if kind == "boundary":
        attack = foolbox.attacks.BoundaryAttack(steps=1_000_000)
    else:
        attack = foolbox.attacks.HopSkipJumpAttack(steps=10_000)
    x, y = torch.as_tensor(clean[None]), torch.as_tensor(start[None])
    attack.run(model, x, criterion, starting_points=y)


def play_art(verifier, kind, clean, start):
    """Run an ART attack until its questions are spent."""
    shape = clean.shape
    model = ChannelsFirst(verifier.ask, shape, 3, clip_values=(0.0, 1.0))
    x, truth, wish = clean[None], np.array([[1.0, 0.0, 0.0]]), np.array([[0.0, 1.0, 0.0]])
    queries = verifier.job["queries"]
    if kind == "boundary":
        attack = evasion.BoundaryAttack(model, targeted=False, max_iter=1_000_000, verbose=False)
        attack.generate(x, truth, x_adv_init=start[None].copy())
    elif kind == "hopskipjump":
        attack = evasion.HopSkipJump(model, targeted=False, norm=2, max_iter=10_000, verbose=False)
        attack.generate(x, truth, x_adv_init=start[None].copy())
    elif kind == "geoda":
        attack = evasion.GeoDA(model, norm=2, max_iter=queries, verbose=False)
        # Its own random start would leave the pair out of reach; all attacks begin alike.
        attack._find_random_adversarial = lambda x, y: start[None].copy()
        attack.generate(x, truth)
    else:
        attack = evasion.SignOPTAttack(
            model, targeted=True, max_iter=10_000, query_limit=10 * queries, verbose=False
        )
        attack.generate(x, wish, x_init=start[None].copy())


def main():
    """Play every pair of a job."""
    folder = Path(sys.argv[1])
    job = json.loads((folder / "job.json").read_text())
    data = np.load(folder / "pairs.npz")
    logging.disable(logging.WARNING)
    torch.set_num_threads(1)
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = job["threads"]
    session = onnxruntime.InferenceSession(job["model"], options, ["CPUExecutionProvider"])
    play = play_foolbox if job["who"] == "foolbox" else play_art
    for k in range(len(data["images"])):
        np.random.seed(job["seed"] + k)  # noqa: NPY002 the packages know no other way
        torch.manual_seed(job["seed"] + k)
        verifier = Verifier(session, data["images"][k], data["references"][k], job)
        start = time.perf_counter()
        with contextlib.suppress(Spent):
            play(verifier, job["attack"], data["images"][k], data["starts"][k])
        seconds = time.perf_counter() - start
        line = {"pair": k, "curve": verifier.curve, "queries": verifier.queries}
        sys.stdout.write(json.dumps(line | {"seconds": seconds}) + "\n")
        sys.stdout.flush()


if __name__ == "__main__":
    main()
