"""Plays Foolbox's, ART's and torchattacks' query attacks, in the environment that has them.

Reads a job (JSON) and pictures (NumPy), plays each pair alone, and writes one line per pair: what
was reached after each number of questions. The job says who answers: a plain onnxruntime session,
as whoever has only the peer would use, or our engine, the same function sooner. Needs NumPy, torch,
foolbox, torchattacks, adversarial-robustness-toolbox, and onnxruntime or onnxfr. Started by
``decision_peers.py``.
Where a peer's default cannot work on pictures of faces, what is set instead says why.
"""

import contextlib
import json
import logging
import sys
import time
from pathlib import Path

import foolbox
import numpy as np
import torch
from art.attacks import evasion
from art.estimators.classification import BlackBoxClassifier, BlackBoxClassifierNeuralNetwork

GEODA_WAVES = 28
"""Frequencies along each axis in ART's GeoDA: a quarter of a 112-pixel side, as in ours."""

if not hasattr(np, "mat"):
    np.mat = np.asmatrix  # noqa: NPY201 the way ART's GeoDA calls it


class Spent(Exception):
    """The pair has used up its questions."""


class Verifier:
    """One pair's verifier: class 1 means that the attacker has won; counts and remembers.

    Class 2 never comes: ART refuses some attacks on two classes.
    """

    def __init__(self, engine, clean, reference, job):
        self.engine, self.clean, self.job = engine, clean, job
        self.template = self.embed(reference[None])[0]
        self.sign = -1 if job["goal"] == "dodge" else 1
        self.queries, self.best, self.curve = 0, np.inf, []
        self.known = {}

    def embed(self, images):
        return self.engine(np.ascontiguousarray(images, np.float32))

    def margins(self, images):
        """Return signed margins, each question counted; raise when the cap is reached."""
        # Some attacks clip at the end only; a verifier never sees anything outside the range.
        images = np.clip(np.asarray(images, np.float32), 0, 1)
        left = self.job["queries"] - self.queries
        if left <= 0:
            raise Spent
        found = self.sign * (self.embed(images[:left]) @ self.template - self.job["threshold"])
        for image, margin in zip(images, found, strict=False):
            self.queries += 1
            if margin > 0 and (distance := self.distance(image)) < self.best:
                self.best = distance
                self.curve.append((self.queries, distance))
        if len(images) > left:
            raise Spent
        return found

    def distance(self, image):
        change = (image - self.clean).astype(np.float64)
        if self.job["norm"] == "linf":
            return float(np.abs(change).max())
        return float(np.sqrt(np.mean(np.square(change))))

    def classes(self, images):
        """Return one-hot classes."""
        won = self.margins(images) > 0
        return np.stack([~won, won, won & ~won], axis=1).astype(np.float32)

    def logits(self, images):
        """Return the margin as two logits."""
        margins = self.margins(images)
        return np.stack([-margins, margins], axis=1)

    def known_logits(self, images):
        """Return logits; a picture asked before is answered from memory and not charged."""
        answers = []
        for image in images:
            key = np.ascontiguousarray(image, np.float32).tobytes()
            if key not in self.known:
                self.known = {**dict(list(self.known.items())[-2:]), key: self.logits(image[None])}
            answers.append(self.known[key])
        return np.concatenate(answers)


class Network(torch.nn.Module):
    """The verifier as Foolbox and torchattacks want it."""

    def __init__(self, ask):
        super().__init__()
        self.ask = ask

    def forward(self, x):
        return torch.as_tensor(self.ask(x.detach().numpy()))


class ChannelsFirst(BlackBoxClassifier):
    """ART's black box, which does not say by itself where its channels are."""

    channels_first = True


class SignOPT(evasion.SignOPTAttack):
    """ART's, with the first search along the ray to the start turned the right way round.

    With a target ART 1.20.1 moves the losing end to points that win and the winning end to points
    that do not, so that it ends at the start or at the clean picture and never moves again. With
    two classes the search without a target, which is right, is the same search.
    """

    def _fine_grained_binary_search(self, x_0, y_0, theta, initial, best, target=None):
        self.targeted = False
        found = super()._fine_grained_binary_search(x_0, y_0, theta, initial, best)
        self.targeted = True
        return found


def play_foolbox(verifier, kind, clean, start):
    """Run a Foolbox attack until its questions are spent."""
    network = Network(verifier.classes).eval()
    model = foolbox.PyTorchModel(network, bounds=(0, 1), device="cpu")
    criterion = foolbox.criteria.Misclassification(torch.zeros(1, dtype=torch.long))
    if kind == "boundary":
        attack = foolbox.attacks.BoundaryAttack(steps=1_000_000)
    else:
        attack = foolbox.attacks.HopSkipJumpAttack(steps=10_000)
    x, y = torch.as_tensor(clean[None]), torch.as_tensor(start[None])
    attack.run(model, x, criterion, starting_points=y)


def play_torchattacks(verifier, kind, clean, start):
    """Run torchattacks' port of AutoAttack's Square until it wins or its questions are spent."""
    from _peer_attacks import without_torchvision

    without_torchvision()
    import torchattacks

    job = verifier.job
    network = Network(verifier.logits).eval()
    attack = torchattacks.Square(
        network, norm="Linf", eps=job["eps"], n_queries=job["queries"], seed=job["seed"]
    )
    attack.device = torch.device("cpu")
    attack(torch.as_tensor(clean[None]), torch.zeros(1, dtype=torch.long))


def play_art(verifier, kind, clean, start):
    """Run an ART attack until its questions are spent."""
    shape, queries = clean.shape, verifier.job["queries"]
    model = ChannelsFirst(verifier.classes, shape, 3, clip_values=(0.0, 1.0))
    x, truth, wish = clean[None], np.array([[1.0, 0.0, 0.0]]), np.array([[0.0, 1.0, 0.0]])
    if kind == "boundary":
        attack = evasion.BoundaryAttack(model, targeted=False, max_iter=1_000_000, verbose=False)
        attack.generate(x, truth, x_adv_init=start[None].copy())
    elif kind == "hopskipjump":
        attack = evasion.HopSkipJump(model, targeted=False, norm=2, max_iter=10_000, verbose=False)
        attack.generate(x, truth, x_adv_init=start[None].copy())
    elif kind == "geoda":
        # ART bisects to within 0.1 and probes 0.004 around: every probe gets the same answer. The
        # authors' tolerance is 1e-4. Its random start loses; all attacks begin alike.
        attack = evasion.GeoDA(
            model, 64, 2, GEODA_WAVES, max_iter=queries, bin_search_tol=1e-4, verbose=False
        )
        attack._find_random_adversarial = lambda x, y: start[None].copy()
        save_cosine_basis(shape[1])
        attack.generate(x, truth)
    elif kind == "sign_opt":
        attack = SignOPT(
            model, targeted=True, max_iter=10_000, query_limit=10 * queries, verbose=False
        )
        attack.generate(x, wish, x_init=start[None].copy())
    else:
        # It asks about the picture it has twice before each new one.
        model = BlackBoxClassifierNeuralNetwork(
            verifier.known_logits, shape, 2, channels_first=True, clip_values=(0.0, 1.0)
        )
        eps = verifier.job["eps"]
        attack = evasion.SquareAttack(model, eps=eps, max_iter=queries, verbose=False)
        attack.generate(x.copy(), truth[:, :2])


def save_cosine_basis(size):
    """Put ART's basis where it looks for it: its own loops take half a minute to make it."""
    path = Path(f"2d_dct_basis_{GEODA_WAVES}_{size}.npy")
    if not path.exists():
        places, waves = np.arange(size)[:, None] + 0.5, np.arange(GEODA_WAVES)
        axis = np.cos(np.pi * places * waves / size) * np.sqrt(2 / size)
        axis[:, 0] /= np.sqrt(2)
        np.save(path, np.kron(axis, axis))


def answering(job):
    """Return the function from pictures to embeddings that the job asks for."""
    model = Path(job["model"])
    if job["engine"] == "ours":
        from onnxfr.models.wrapper import load_model

        return load_model(model, threads=job["threads"]).embed
    import onnxruntime

    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = job["threads"]
    session = onnxruntime.InferenceSession(str(model), options, ["CPUExecutionProvider"])
    name = session.get_inputs()[0].name
    return lambda images: session.run(None, {name: images})[0]


def main():
    """Play every pair of a job."""
    folder = Path(sys.argv[1])
    job = json.loads((folder / "job.json").read_text())
    data = np.load(folder / "pairs.npz")
    logging.disable(logging.WARNING)
    torch.set_num_threads(1)
    engine = answering(job)
    players = {"foolbox": play_foolbox, "art": play_art, "torchattacks": play_torchattacks}
    for k in job["pairs"]:
        np.random.seed(job["seed"] + k)  # noqa: NPY002 the packages know no other way
        torch.manual_seed(job["seed"] + k)
        mine = job | {"seed": job["seed"] + k}
        verifier = Verifier(engine, data["images"][k], data["references"][k], mine)
        start = time.process_time()
        with contextlib.suppress(Spent), contextlib.redirect_stdout(sys.stderr):
            players[job["who"]](verifier, job["attack"], data["images"][k], data["starts"][k])
        seconds = time.process_time() - start
        line = {"pair": k, "curve": verifier.curve, "queries": verifier.queries}
        sys.stdout.write(json.dumps(line | {"seconds": seconds}) + "\n")
        sys.stdout.flush()


if __name__ == "__main__":
    main()
