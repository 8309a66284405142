"""What an attack is, the registry of all of them, and the one call that judges what they bring.

An attack object is its hyper-parameters and nothing else; model, goal, pictures and budget come
with the call. The call is final: it checks, sets aside pairs that are lost without an attack, runs,
projects, and believes onnxruntime only, on the float picture and on its 8-bit rounding.
"""

from __future__ import annotations

import dataclasses
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, ClassVar, Literal, TypeVar, final

import numpy as np
from numpy.typing import NDArray

from onnxfr.attacks._settings import check_settings, checked_first
from onnxfr.errors import AccessDenied, AttackError, SpecError, naming
from onnxfr.oracle import BudgetExhausted, Improvement, Oracle
from onnxfr.probe import Probe, round8
from onnxfr.registry import Registry
from onnxfr.rng import RowRng
from onnxfr.threat import Threat
from onnxfr.types import Access, Images, Norm

_ROUNDING = 1e-6
_PAST_LUCK = (1.05,) * 20
_PAST_DISAGREEMENT = tuple(1 + 0.001 * 2**k for k in range(9))

Flags = NDArray[np.bool_]
Kind = TypeVar("Kind", bound="type[Attack]")


@dataclass(frozen=True)
class AttackResult:
    """What an attack achieved, one entry per pair, as onnxruntime sees it.

    ``won`` means: within the threat, accepted or rejected as the attacker wished, and not so before
    the attack. ``won_8bit`` says the same of the picture rounded to 8 bits. ``distance`` is that of
    ``images``, successful or not.
    """

    images: Images
    won: Flags
    won_clean: Flags
    won_8bit: Flags
    margin: NDArray[np.float32]
    margin_8bit: NDArray[np.float32]
    distance: NDArray[np.float64]
    queries: NDArray[np.int64]
    gradients: NDArray[np.int64]
    bad_gradients: NDArray[np.int64]
    trace: list[Improvement]

    @property
    def cost(self) -> NDArray[np.float64]:
        """The distance of each win: 0 where no attack was needed, infinite where it failed."""
        return np.where(self.won_clean, 0.0, np.where(self.won, self.distance, np.inf))


@dataclass(frozen=True)
class Attack(ABC):
    """Base of all attacks; subclasses are frozen dataclasses that write ``run``.

    ``seeks`` is ``any`` for attacks that use up a given budget and ``smallest`` for those that look
    for the closest win.
    """

    name: ClassVar[str] = ""
    access: ClassVar[Access] = Access.GRADIENT
    norms: ClassVar[tuple[Norm, ...]] = ("linf", "l2")
    seeks: ClassVar[Literal["any", "smallest"]] = "any"
    paper: ClassVar[str] = ""
    needs: ClassVar[tuple[str, ...]] = ()
    """Optional fields of the probe that this attack cannot do without."""

    def __init_subclass__(cls, **more: Any) -> None:
        """Have the settings checked also where a subclass prepares itself in its own way."""
        super().__init_subclass__(**more)
        own = vars(cls).get("__post_init__")
        if own is not None:
            cls.__post_init__ = checked_first(own)  # type: ignore[assignment, method-assign]

    def __post_init__(self) -> None:
        """Refuse settings with which nothing could be won, see ``_settings``."""
        check_settings(self)

    @property
    def label(self) -> str:
        """What ``make_attack`` calls this attack."""
        return self.name

    @abstractmethod
    def run(self, oracle: Oracle, probe: Probe, threat: Threat, rng: RowRng) -> Images:
        """Return one picture per row; may end early by ``BudgetExhausted``."""

    @final
    def __call__(
        self, oracle: Oracle, probe: Probe, threat: Threat, *, seed: int = 0
    ) -> AttackResult:
        """Attack every pair of a probe and measure what came out."""
        self.check(oracle, probe, threat)
        if oracle.quantise:
            probe = replace(probe, images=round8(probe.images))
        images, margin = probe.images.copy(), oracle.verify(probe.images)
        won_clean = margin > 0
        rows = np.flatnonzero(~won_clean)
        if rows.size:
            window = oracle.part(rows, access=self.access)
            games, rules = probe.take(rows), threat.take(rows)
            played = rules.in_levels() if oracle.quantise else rules
            rng = RowRng(seed, games.ids, self.label)
            with naming(f"attack {self.label}", type(self).__module__):
                try:
                    made = np.asarray(self.run(window, games, played, rng))
                except BudgetExhausted:
                    made = window.best
            if made.shape != games.images.shape:
                raise AttackError(
                    f"attack {self.label} must return one picture per row, an array of shape "
                    f"{games.images.shape}; got {made.shape or made.item()}"
                )
            # Taken afresh: an attack that worked in place has changed its own copy.
            images[rows], margin[rows] = self._choose(window, probe.take(rows), rules, made)
        return _judge(oracle, probe, threat, images, margin, won_clean)

    def check(self, oracle: Oracle, probe: Probe, threat: Threat) -> None:
        """Raise unless this attack can be run so."""
        if len(oracle) != len(probe):
            raise SpecError(f"the oracle has {len(oracle)} games, the probe {len(probe)}")
        if threat.norm not in self.norms:
            raise AttackError(
                f"{self.label} works in {' or '.join(self.norms)}, not in {threat.norm}"
            )
        if oracle.access < self.access or (
            self.access == Access.GRADIENT and not oracle.differentiable
        ):
            raise AccessDenied(
                f"{self.label} needs {self.access.name.lower()}s, which this oracle does not give; "
                "choose an attack that asks for less"
            )
        if self.seeks == "any" and threat.eps is None:
            raise AttackError(
                f"{self.label} needs a budget (eps); wrap it in smallest_budget to minimise"
            )
        for field in self.needs:
            if getattr(probe, field) is None:
                raise AttackError(f"{self.label} needs the probe's {field}; there are none")

    def parameters(self) -> dict[str, Any]:
        """Return the hyper-parameters as JSON values; ``make_attack`` takes them back."""
        return {field.name: _plain(getattr(self, field.name)) for field in dataclasses.fields(self)}

    def _choose(
        self, oracle: Oracle, probe: Probe, threat: Threat, made: Images
    ) -> tuple[Images, NDArray[np.float32]]:
        """Return the run's own picture, or the closest win where that is better; its margin too."""
        made = np.where(np.isfinite(made), made, probe.images).astype(np.float32)
        images = _placed(oracle, threat, probe.images, made)
        found = np.isfinite(oracle.best_distance)
        best = np.zeros(len(images), dtype=np.bool_)
        if self.seeks == "smallest":
            # Projecting moves pixels by a rounding error; the win as it was asked is preferred.
            farther = threat.distance(probe.images, images) > oracle.best_distance - _ROUNDING
            best = found & farther
            images[best] = oracle.best[best]
        margin = oracle.verify(images)
        lost = np.flatnonzero(found & ~best & ~(margin > 0))
        if lost.size:
            closest = oracle.best[lost]
            judged = oracle.part(lost).verify(closest)
            better = judged > margin[lost]
            images[lost[better]], margin[lost[better]] = closest[better], judged[better]
        if oracle.looks > 1 and self.seeks == "smallest":
            _carry_outwards(oracle, probe, threat, images, margin, found, _PAST_LUCK)
        elif self.access == Access.GRADIENT:
            _carry_outwards(oracle, probe, threat, images, margin, found, _PAST_DISAGREEMENT)
        return images, margin


def _placed(oracle: Oracle, threat: Threat, clean: Images, made: Images) -> Images:
    """Return pictures the threat allows, as files where the verifier takes nothing else."""
    images = threat.project(clean, made)
    return threat.as_file(clean, images) if oracle.quantise else images


def _carry_outwards(
    oracle: Oracle,
    probe: Probe,
    threat: Threat,
    images: Images,
    margin: NDArray[np.float32],
    found: Flags,
    growths: Sequence[float],
) -> None:
    """Enlarge changes that somebody said had won until the judge says so, too.

    The closest of many random wins is the luckiest: judged by its mean it would be a failure. And
    where an engine computes in 16 or 8 bits, gradients see the boundary elsewhere than the judge.
    """
    larger = oracle.best - probe.images
    for growth in growths:
        rows = np.flatnonzero(found & ~(margin > 0))
        if not rows.size:
            return
        clean = probe.images[rows]
        larger[rows] *= np.float32(growth)
        placed = _placed(oracle, threat.take(rows), clean, clean + larger[rows])
        judged = oracle.part(rows).verify(placed)
        won = judged > 0
        images[rows[won]], margin[rows[won]] = placed[won], judged[won]


def _judge(
    oracle: Oracle,
    probe: Probe,
    threat: Threat,
    images: Images,
    margin: NDArray[np.float32],
    won_clean: Flags,
) -> AttackResult:
    # An oracle that rounds whatever it is shown has seen the 8-bit picture already.
    files = threat.as_file(probe.images, images)
    margin_8bit = margin if oracle.quantise else oracle.verify(files)
    distance = threat.distance(probe.images, images).astype(np.float64)
    allowed = threat.allows(probe.images, images)
    return AttackResult(
        images=images,
        won=(margin > 0) & allowed & ~won_clean,
        won_clean=won_clean,
        won_8bit=(margin_8bit > 0) & allowed & ~won_clean,
        margin=margin,
        margin_8bit=margin_8bit,
        distance=distance,
        queries=oracle.queries,
        gradients=oracle.gradients,
        bad_gradients=oracle.bad_gradients,
        trace=oracle.trace,
    )


ATTACKS: Registry[type[Attack]] = Registry("attack", "onnxfr.attacks")


def register(name: str) -> Callable[[Kind], Kind]:
    """Return a decorator that names an attack class and files it in ``ATTACKS``."""

    def decorate(kind: Kind) -> Kind:
        kind.name = name
        ATTACKS.register(name)(kind)
        return kind

    return decorate


def build(kind: type[Attack], parameters: Mapping[str, Any]) -> Attack:
    """Return an attack of a kind with some hyper-parameters set, from JSON values."""
    fields = {field.name: field for field in dataclasses.fields(kind)}
    unknown = sorted(set(parameters) - set(fields))
    if unknown:
        known = ", ".join(fields) or "none"
        raise SpecError(f"{kind.name} has no parameter {', '.join(unknown)}; it has: {known}")
    values = {k: tuple(v) if isinstance(v, list) else v for k, v in parameters.items()}
    return kind(**values)


def _plain(value: Any) -> Any:
    if isinstance(value, tuple):
        return [_plain(entry) for entry in value]
    return value
