"""Adversarial pictures made with surrogates, and what another model makes of them.

Shared by the transfer evaluator and by suites. Pictures are made at the size of the surrogate that
sees most of a face, rounded to 8 bits as a file would hold them, and fitted to each target's size
afterwards.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from typing import get_args

import numpy as np
from numpy.typing import NDArray

from onnxfr.alignment.templates import TEMPLATES
from onnxfr.attacks import Attack, make_attack
from onnxfr.budgets import read_eps, write_eps
from onnxfr.errors import DataError, OnnxfrWarning, SpecError
from onnxfr.evaluators.attacked import EOT_SAMPLES, is_randomised
from onnxfr.evaluators.faces import needs_alignment
from onnxfr.evaluators.games import Games, clean_threshold
from onnxfr.metrics.thresholds import Threshold
from onnxfr.models.card import Card
from onnxfr.models.ensemble import Ensemble, Mode
from onnxfr.models.wrapper import FRModel
from onnxfr.oracle import Oracle
from onnxfr.probe import Probe
from onnxfr.runs.cells import DataRef, ModelRef
from onnxfr.runs.context import Context
from onnxfr.threat import Threat
from onnxfr.types import Embeddings, Goal, Images, Norm

_BLOCK = 32
_OUT_OF_REACH = 1.5


@dataclass(frozen=True)
class Surrogate:
    """One model, or several attacked as one, with the threshold of each.

    Gradients are means over ``samples`` calls: more than one where a member is randomised.
    """

    members: tuple[FRModel, ...]
    thresholds: tuple[Threshold, ...]
    mode: Mode = "margin"
    samples: int = 1

    def oracle(self, probe: Probe, threat: Threat, goal: Goal, *, reachable: bool = True) -> Oracle:
        """Return a window on the surrogate; out of reach, nothing ever counts as won."""
        far = -_OUT_OF_REACH if goal is Goal.DODGE else _OUT_OF_REACH
        values = [entry.value if reachable else far for entry in self.thresholds]
        if len(self.members) == 1:
            model, threshold = self.members[0], values[0]
            return Oracle(
                model, probe, threat, goal=goal, threshold=threshold, samples=self.samples
            )
        ensemble = Ensemble(self.members, values, self.mode)
        return Oracle(ensemble, probe, threat, goal=goal, samples=self.samples)


@dataclass(frozen=True)
class Answers:
    """What a target says to clean, passed-through, float and 8-bit pictures: cosines, ``(N,)``.

    ``passed`` is the clean picture on the way the adversarial one takes, through the source's size:
    what resizing alone does.
    """

    clean: NDArray[np.float32]
    passed: NDArray[np.float32]
    float32: NDArray[np.float32]
    rounded: NDArray[np.float32]


def transfer_attack(name: str, steps: int) -> Attack:
    """Return the attack of a name, with a number of steps where it has steps to speak of."""
    attack = make_attack(name)
    if attack.seeks != "any":
        raise SpecError(
            f"{name} looks for the smallest change, which no other model is fooled by; transfer "
            "needs an attack that uses up a budget, such as mim, dim or lgc+tim"
        )
    if getattr(attack, "steps", 1) > 1 and "steps=" not in name:
        attack = make_attack(name, {"steps": steps})
    return attack


def make_surrogate(
    context: Context,
    members: Sequence[ModelRef],
    mode: Mode,
    data: DataRef,
    rule: str,
    *,
    align: str = "auto",
) -> Surrogate:
    """Load the members, each with its own threshold on clean data."""
    return Surrogate(
        tuple(context.model(member) for member in members),
        tuple(clean_threshold(context, member, data, rule, align=align) for member in members),
        mode,
    )


def craft(
    surrogate: Surrogate,
    probe: Probe,
    attack: Attack,
    threat: Threat,
    goal: Goal,
    *,
    seed: int,
    report: Callable[[int, int], None] = lambda done, total: None,
) -> Images:
    """Return one adversarial picture per game.

    A pair that the surrogate gets wrong by itself would be left alone by the attack, although the
    target may get it right: it is attacked with the threshold out of reach. Pictures that travel
    are files: in linf the budget is a whole number of grey levels, so that rounding keeps it. What
    one draw of a randomised surrogate is fooled by need not be what its next draw is: gradients are
    means over several (EOT), as in the white-box evaluator.
    """
    threat = threat.in_levels()
    if any(is_randomised(member, probe) for member in surrogate.members):
        surrogate = replace(surrogate, samples=EOT_SAMPLES)
    made = probe.images.copy()
    for begin in range(0, len(probe), _BLOCK):
        rows = np.arange(begin, min(begin + _BLOCK, len(probe)))
        some = probe.take(rows)
        result = attack(surrogate.oracle(some, threat, goal), some, threat, seed=seed)
        made[rows] = result.images
        aside = np.flatnonzero(result.won_clean)
        if aside.size:
            few = some.take(aside)
            window = surrogate.oracle(few, threat, goal, reachable=False)
            made[rows[aside]] = attack(window, few, threat, seed=seed).images
        report(int(rows[-1]) + 1, len(probe))
    return made


def ask(target: FRModel, own: Probe, source: Probe, made: Images, files: Images) -> Answers:
    """Show pictures to a target.

    Args:
        target: the model asked.
        own: the pairs at the target's own size.
        source: the same pairs at the size the pictures were made at.
        made: the adversarial pictures.
        files: the same as 8-bit files.
    """
    assert own.references is not None, "games are made with their references"
    references = embed_all(target, own.references)

    def similarity(pictures: Images) -> NDArray[np.float32]:
        values: NDArray[np.float32] = np.einsum("nd,nd->n", embed_all(target, pictures), references)
        return values

    clean = similarity(own.images)
    moved = own.images.shape != source.images.shape
    return Answers(
        clean=clean,
        passed=similarity(source.images) if moved else clean,
        float32=similarity(made),
        rounded=similarity(files),
    )


def embed_all(model: FRModel, images: Images) -> Embeddings:
    """Embed pictures block by block, which bounds the memory."""
    blocks = [
        model.embed(np.ascontiguousarray(images[k : k + _BLOCK]))
        for k in range(0, len(images), _BLOCK)
    ]
    empty = np.zeros((0, model.card.embedding_dim), dtype=np.float32)
    return np.concatenate(blocks) if blocks else empty


def fooled(similarity: NDArray[np.float32], threshold: float, goal: Goal) -> NDArray[np.bool_]:
    """Tell which answers are what the attacker wants."""
    accepted: NDArray[np.bool_] = similarity > threshold
    return ~accepted if goal is Goal.DODGE else accepted


def tell_unplayable(games: Games, goal: Goal) -> None:
    """Warn of pairs that a suite has to do without; raise where none is left."""
    if not games.unplayable:
        return
    lost, reason = len(games.unplayable), next(iter(games.unplayable.values()))
    if not len(games.probe):
        raise DataError(f"none of the {lost} pairs to {goal} with can be used; the first: {reason}")
    warnings.warn(
        f"{lost} pairs to {goal} with are left out of the suite; the first: {reason}",
        OnnxfrWarning,
        stacklevel=3,
    )


def widest(cards: Iterable[Card]) -> int:
    """Return which of some models decides the crops that are attacked: the one that sees most.

    Narrower models cut columns from its crops; wider ones would see black borders beside theirs.
    The order in which models are named decides nothing, unless all they take is the same.
    """
    sizes = [(card.input_width / card.input_height, card.input_height) for card in cards]
    return sizes.index(max(sizes))


def check_frames(
    context: Context, models: Iterable[ModelRef], data: DataRef, *, align: str = "auto"
) -> None:
    """Raise where raw pictures would be cut for some models in another frame than for others."""
    if not needs_alignment(context.pairs(data), align):
        return
    frames: dict[tuple[object, ...], str] = {}
    for card in map(context.card, models):
        size = f"{card.input_height}x{card.input_width}"
        frame = TEMPLATES.get(card.template).frame(card.input_size)
        frames.setdefault(frame, f"{card.template} at {size}")
    if len(frames) > 1:
        raise SpecError(
            f"these models want faces aligned to {' and '.join(sorted(frames.values()))}, and a "
            "crop attacked in one frame is no crop of another; align the pictures once "
            "(onnxfr align) and give aligned=yes"
        )


def check_budget(norm: Norm, eps: float) -> None:
    """Raise where no 8-bit file keeps a budget and differs from the clean one."""
    if not Threat(norm=norm, eps=eps).in_levels().eps:
        least = "1/255" if norm == "linf" else "0.3/255"
        raise SpecError(
            f"a file holds no change within {norm} {write_eps(eps)}, and "
            f"pictures are sent as files; choose a budget of at least {least}"
        )


def parse_budget(text: str) -> tuple[Norm, float]:
    """Return norm and eps of ``linf:8/255`` or ``l2:0.0157``."""
    norm, _, size = text.partition(":")
    if norm not in get_args(Norm):
        raise SpecError(f"a budget is written like linf:8/255 or l2:4/255; got {text!r}")
    return ("linf" if norm == "linf" else "l2"), read_eps(size)
