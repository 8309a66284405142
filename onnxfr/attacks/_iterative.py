"""The one loop behind FGSM, BIM, PGD, MIM, NI, VMI and every transfer attack.

A *view* changes the picture before the gradient is taken (DIM, LGC, CIM, SI, ...), a *filter*
changes the gradient afterwards (TIM), momentum joins the steps (MIM). All combinations are legal;
several views are applied from left to right, and their copies multiply.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import ClassVar

import numpy as np
import torch
from numpy.typing import NDArray

from onnxfr.attacks.base import Attack
from onnxfr.oracle import BudgetExhausted, Oracle
from onnxfr.probe import Probe, to_array
from onnxfr.rng import RowRng
from onnxfr.threat import Threat
from onnxfr.types import Images

Rows = NDArray[np.intp]
Seen = Callable[[torch.Tensor], torch.Tensor]
Filter = Callable[[torch.Tensor], torch.Tensor]


class View(ABC):
    """A differentiable change of the picture, drawn anew for every step and copy."""

    copies: int

    @abstractmethod
    def draw(self, shape: tuple[int, int], probe: Probe, rng: RowRng, copy: int) -> Seen:
        """Return the change of one copy for the rows of ``probe``, one random stream each."""


@dataclass(frozen=True)
class IterativeGradient(Attack):
    """Projected steepest ascent of the margin.

    Args:
        steps: gradient steps.
        step_ratio: the step size is ``step_ratio * eps / steps``.
        momentum: weight of the earlier steps; 0 is none.
        lookahead: take the gradient where momentum is about to go (Nesterov).
        random_start: begin at a random point of the ball.
        restarts: runs per row; rows that have won are not run again.
        neighbours: gradients of this many neighbours reduce the variance (0: none).
        neighbourhood: their largest offset as a multiple of eps.
        stop_on_win: let rows leave as soon as they have won, their 8-bit file included; the judge
            then finds the wins that all the steps would have brought, for a fraction of them.
    """

    steps: int = 20
    step_ratio: float = 1.5
    momentum: float = 0.0
    lookahead: bool = False
    random_start: bool = False
    restarts: int = 1
    neighbours: int = 0
    neighbourhood: float = 1.5
    stop_on_win: bool = False

    paper: ClassVar[str] = "Kurakin et al. 2017; Dong et al. 2018"

    def views(self) -> tuple[View, ...]:
        """Return what the model looks through at every step."""
        return ()

    def filters(self) -> tuple[Filter, ...]:
        """Return what the gradient passes through at every step."""
        return ()

    def hook(self, rng: RowRng) -> Callable[[int, torch.Tensor, Rows], torch.Tensor] | None:
        """Return a change of the model's inner features, drawn anew for every gradient."""
        return None

    def run(self, oracle: Oracle, probe: Probe, threat: Threat, rng: RowRng) -> Images:
        """Ascend, again for the rows that have not won."""
        found, spent = self._ascend(oracle, probe, threat, rng)
        images = to_array(found)
        for _ in range(self.restarts - 1):
            rows = np.flatnonzero(~np.isfinite(oracle.best_distance))
            if spent or not rows.size:
                break
            # Nobody has looked at where a run ended, nor at what views showed otherwise.
            rows = rows[~oracle.decide(images[rows], rows)]
            if not rows.size:
                break
            some = oracle.part(rows), probe.take(rows), threat.take(rows), rng.take(rows)
            found, spent = self._ascend(*some)
            images[rows] = to_array(found)
        return images

    def _ascend(
        self, oracle: Oracle, probe: Probe, threat: Threat, rng: RowRng
    ) -> tuple[torch.Tensor, bool]:
        """Return where the rows got to, and whether their cap ended it.

        What views have shown is recorded nowhere, so the last point must not be lost.
        """
        clean = oracle.tensor(probe.images)
        x = random_point(clean, threat, rng) if self.random_start else clean.clone()
        state = _State(self, oracle, probe, threat, rng, clean)
        rows = np.arange(len(x))
        stops = self.stop_on_win and state.sees_plainly
        for turn in range(self.steps):
            everybody = len(rows) == len(x)
            where = slice(None) if everybody else torch.as_tensor(rows)
            before = x[where]
            try:
                margin, after = state.step(before, turn)
            except BudgetExhausted:
                return x, True
            leave = state.lasting(before, margin) if stops else np.zeros(0, dtype=np.intp)
            after[torch.as_tensor(leave)] = before[torch.as_tensor(leave)]
            if everybody:
                x = after
            else:
                x[where] = after
            if leave.size:
                going = np.setdiff1d(np.arange(len(rows)), leave)
                rows, state = rows[going], state.take(going)
                if not rows.size:
                    break
        return x, False


@dataclass
class _State:
    """What a run carries from step to step, for the rows still in it."""

    attack: IterativeGradient
    oracle: Oracle
    probe: Probe
    threat: Threat
    rng: RowRng
    clean: torch.Tensor
    velocity: torch.Tensor | None = None
    variance: torch.Tensor | None = None

    def __post_init__(self) -> None:
        self.views, self.filters = self.attack.views(), self.attack.filters()
        self.size = self.threat.radius(self.clean) * self.attack.step_ratio / self.attack.steps
        # One clamp between fixed bounds is what projecting onto a box amounts to.
        self.box = self.threat.box(self.clean)

    @property
    def sees_plainly(self) -> bool:
        """Whether the margin beside a gradient is that of the picture itself."""
        attack = self.attack
        return not (self.views or attack.lookahead or attack.hook(self.rng))

    def take(self, rows: Rows) -> _State:
        where = torch.as_tensor(rows)
        return replace(
            self,
            oracle=self.oracle.part(rows),
            probe=self.probe.take(rows),
            threat=self.threat.take(rows),
            rng=self.rng.take(rows),
            clean=self.clean[where],
            velocity=None if self.velocity is None else self.velocity[where],
            variance=None if self.variance is None else self.variance[where],
        )

    def lasting(self, x: torch.Tensor, margin: torch.Tensor) -> Rows:
        """Return the rows whose point has won and whose 8-bit file wins as well.

        Points that are rounded before anybody sees them have won so already; points of another
        space have no file. Rows without a question left stay to the end.
        """
        won = np.flatnonzero((margin > 0).cpu().numpy())
        if not won.size or self.oracle.quantise or self.oracle.decoder is not None:
            return won
        points = to_array(x[torch.as_tensor(won)])
        files = self.threat.take(won).as_file(self.probe.images[won], points)
        try:
            return won[self.oracle.decide(files, won)]
        except BudgetExhausted:  # of these rows; others go on
            return won[:0]

    def step(self, x: torch.Tensor, turn: int) -> tuple[torch.Tensor, torch.Tensor]:
        attack = self.attack
        at = x
        if attack.lookahead and self.velocity is not None:
            at = (x + self.size * attack.momentum * self.velocity).clamp(0.0, 1.0)
        if turn == 0 and self.sees_plainly and not attack.random_start:
            margin, slope = self.oracle.start_gradient(at, turn)
        else:
            margin, slope = self._gradient(at, turn)
        if attack.neighbours:
            tuned = slope if self.variance is None else slope + self.variance
            self.variance = self._neighbours(x, turn) - slope
            slope = tuned
        for change in self.filters:
            slope = change(slope)
        slope = self.threat.restrict(slope)
        if attack.momentum:
            slope = slope / self._mean_size(slope)
            if self.velocity is not None:
                slope = slope + attack.momentum * self.velocity
            self.velocity = slope
        moved = torch.addcmul(x, self.size, self.threat.steepest(slope))
        if self.box is None:
            return margin, self.threat.project(self.clean, moved)
        return margin, torch.clamp(moved, *self.box)

    def _mean_size(self, slope: torch.Tensor) -> torch.Tensor:
        """Return the mean magnitude of what may change, where the paper has the sum.

        Steepest ascent does not see the constant, but a look ahead goes as far as it is large:
        zeros outside a region must not make it small.
        """
        sizes = slope.flatten(1).abs()
        mean = sizes.mean(1)
        if self.threat.region is not None:
            mean = sizes.sum(1) / (sizes > 0).sum(1).clamp_min(1)
        return mean.clamp_min(1e-30).reshape(-1, 1, 1, 1)

    def _gradient(self, at: torch.Tensor, turn: int) -> tuple[torch.Tensor, torch.Tensor]:
        """Return margin and gradient, averaged over the copies of all views."""
        copies = int(np.prod([view.copies for view in self.views]))
        hook = self.attack.hook(self.rng)
        if not self.views:
            return self.oracle.gradient(at, hook=hook, turn=turn)
        margins, total = at.new_zeros(len(at)), torch.zeros_like(at)
        for copy in range(copies):
            margin, slope = self.oracle.gradient(
                at, view=self._look(at, copy), hook=hook, turn=turn
            )
            margins += margin / copies
            total += slope / copies
        return margins, total

    def _look(self, at: torch.Tensor, copy: int) -> Callable[[torch.Tensor, Rows], torch.Tensor]:
        height, width = int(at.shape[2]), int(at.shape[3])

        def look(x: torch.Tensor, rows: Rows) -> torch.Tensor:
            probe, rng, left = self.probe.take(rows), self.rng.take(rows), copy
            for view in self.views:
                left, mine = divmod(left, view.copies)
                x = view.draw((height, width), probe, rng, mine)(x)
            return x

        return look

    def _neighbours(self, x: torch.Tensor, turn: int) -> torch.Tensor:
        reach = self.threat.radius(x) * self.attack.neighbourhood
        total = torch.zeros_like(x)
        for _ in range(self.attack.neighbours):
            offset = self.oracle.tensor(self.rng.uniform(-1.0, 1.0, tuple(x.shape[1:])))
            near = (x + self.threat.restrict(reach * offset)).clamp(0.0, 1.0)
            total += self._gradient(near, turn)[1]
        return total / self.attack.neighbours


def random_point(clean: torch.Tensor, threat: Threat, rng: RowRng) -> torch.Tensor:
    """Return a point of each row's ball: uniform in linf, of uniform distance in l2."""
    shape = tuple(clean.shape[1:])
    radius = threat.radius(clean)
    if threat.norm == "linf":
        offset = torch.as_tensor(rng.uniform(-1.0, 1.0, shape), dtype=clean.dtype)
    else:
        direction = torch.as_tensor(rng.normal(shape), dtype=clean.dtype)
        share = torch.as_tensor(rng.uniform(0.0, 1.0, (1, 1, 1)), dtype=clean.dtype)
        offset = threat.steepest(direction) * share
    return threat.project(clean, clean + radius * offset.to(clean.device))
