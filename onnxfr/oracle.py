"""The attacker's only window on a verifier: decisions, scores, gradients, all of them counted.

Margin > 0 means that the attacker has won, whatever his goal: ``threshold - similarity`` when
dodging, ``similarity - threshold`` when impersonating. Decisions and scores come from onnxruntime,
gradients from the torch graph; the margin beside a gradient is lowered by ``SLACK``, more than
float32 engines differ, so that what wins there also wins in the engine that counts. Networks served
in fewer bits differ by more: the judge carries their wins to where both agree.
"""

from __future__ import annotations

import copy
from collections.abc import Callable
from functools import partial
from typing import Literal

import numpy as np
import torch
from numpy.typing import NDArray

from onnxfr.errors import AccessDenied, DataError, SpecError
from onnxfr.ledger import BudgetExhausted, Counts, Improvement, Ledger, Standing, Starts, places
from onnxfr.models.answers import EmbeddedAnswers, answers_of, chunks
from onnxfr.models.comparer import UNASKED, CallsSpent, Comparer
from onnxfr.models.ensemble import Ensemble, Margins, joined_gradient
from onnxfr.models.features import FeatureHook, embed_hooked
from onnxfr.models.wrapper import FRModel
from onnxfr.probe import Probe, as_jpeg, round8, to_array
from onnxfr.threat import Threat
from onnxfr.types import Access, Goal, Images

__all__ = ["LOST", "SLACK", "BudgetExhausted", "FeatureHook", "Improvement", "Oracle", "Starts"]

Rows = NDArray[np.intp]
View = Callable[[torch.Tensor, Rows], torch.Tensor]
"""``(points, their rows) -> pictures``: what the network sees instead of what was asked."""
Hook = Callable[[int, torch.Tensor, Rows], torch.Tensor]

SLACK = 1e-5
_AT_ONCE = 16  # a gradient keeps every activation; more pictures need memory and gain no time
LOST = -2.0
"""The margin of rows over their cap and of pictures without a verdict: lower than any other."""


class Oracle(Standing):
    """One game per row of a probe, bound to a model, a goal and a threshold.

    Args:
        model: the verifier; an ``Ensemble`` or a ``Comparer`` brings its own thresholds.
        probe: the pictures and references, one game per row.
        threat: norm, budget and caps; wins outside the budget are answered but not recorded.
        goal: what counts as winning.
        threshold: the cosine above which the verifier accepts.
        access: the most that may be asked.
        quantise: round every picture asked to 8 bits first, as a service that takes files does.
        jpeg: quality of the JPEG the service makes of what it is sent; implies ``quantise``.
        samples: gradients are averaged over this many calls (for randomised models).
        looks: the judge's margins are the mean of this many looks (for randomised models).
        dtype: number type of gradients; float64 makes results independent of the batch size.
        device: where gradients are computed; ``auto`` takes CUDA if there is one.
        batch_size: most pictures per call of an engine; gradients on a processor take fewer.
    """

    def __init__(
        self,
        model: FRModel,
        probe: Probe,
        threat: Threat,
        *,
        goal: Goal,
        threshold: float | None = None,
        access: Access = Access.GRADIENT,
        quantise: bool = False,
        jpeg: int | None = None,
        samples: int = 1,
        looks: int = 1,
        dtype: torch.dtype = torch.float32,
        device: str | Literal["auto"] = "auto",
        batch_size: int = 64,
    ) -> None:
        if isinstance(model, Comparer):
            access, quantise = min(access, model.access), True
        self.goal, self.access, self.threat = Goal(goal), access, threat
        if jpeg is not None and not 1 <= jpeg <= 100:
            raise SpecError(f"a JPEG quality lies in 1..100; got {jpeg}")
        self.dtype, self.quantise, self.jpeg = dtype, quantise or jpeg is not None, jpeg
        self.differentiable = model.differentiable
        if device == "auto":
            device = "cuda" if torch.cuda.is_available() else "cpu"
        self.device = torch.device(device)
        self._mode = model.mode if isinstance(model, Ensemble) else "margin"
        self._sign = -1.0 if self.goal is Goal.DODGE else 1.0
        self._samples, self.looks, self.batch_size = samples, looks, batch_size
        self._at_once = min(batch_size, _AT_ONCE) if self.device.type == "cpu" else batch_size
        self.decoder: View | None = None
        self._starts: Starts | None = None
        clean = round8(probe.images) if self.quantise else probe.images
        self._ledger, self._recording = Ledger(clean, threat), True
        self._rows: Rows = np.arange(len(probe))
        self._answers = answers_of(model, threshold, probe, batch_size)
        self._torch_references: list[torch.Tensor] = []
        if isinstance(self._answers, EmbeddedAnswers):
            self._members, self._thresholds = self._answers.members, self._answers.thresholds
            self._torch_references = [self.tensor(each) for each in self._answers.references]

    def part(
        self, rows: Rows, *, access: Access | None = None, recording: bool | None = None
    ) -> Oracle:
        """Return a window on some of the games; counters and best are shared with this one."""
        some = copy.copy(self)
        some._rows = self._rows[rows]
        some._answers = self._answers.take(rows)
        some._torch_references = [each[torch.as_tensor(rows)] for each in self._torch_references]
        some.access = self.access if access is None else min(access, self.access)
        some._recording = self._recording if recording is None else recording
        return some

    def attempt(self, rows: Rows, rules: Threat, starts: Starts | None = None) -> Oracle:
        """Return a window on some games in which nobody has won yet, under other rules.

        Questions asked there are charged here, and wins count here if this window records.
        ``starts`` holds what earlier attempts asked where they began.
        """
        some = self.part(rows, recording=True)
        some._starts = starts
        some._ledger = self._ledger.fork(some._rows, rules, reports=self._recording)
        return some

    def through(self, decoder: View) -> Oracle:
        """Return the same game played in another space; ``decoder`` makes pictures of points."""
        inner, outer = self.decoder, copy.copy(self)
        outer._starts = None
        outer.decoder = (
            decoder if inner is None else lambda points, rows: inner(decoder(points, rows), rows)
        )
        return outer

    def tensor(self, array: NDArray[np.floating]) -> torch.Tensor:
        """Return a copy of an array in the number type and place of gradients."""
        return torch.tensor(array, dtype=self.dtype, device=self.device)

    def decide(self, x: Images | torch.Tensor, rows: Rows | None = None) -> NDArray[np.bool_]:
        """Ask for yes or no: whether the attacker has won with each picture."""
        return self._ask(x, rows) > 0

    def score(self, x: Images | torch.Tensor, rows: Rows | None = None) -> NDArray[np.float32]:
        """Ask for the margin of each picture."""
        self._require(Access.SCORE)
        return self._ask(x, rows)

    def gradient(
        self,
        x: torch.Tensor,
        rows: Rows | None = None,
        view: View | None = None,
        hook: Hook | None = None,
        turn: int | None = None,
    ) -> tuple[torch.Tensor, torch.Tensor]:
        """Return the margin of each point and its gradient.

        Args:
            x: the points, in this oracle's number type and place.
            rows: the game of each point.
            view: a differentiable change made before the model sees the picture.
            hook: a change of the features behind each convolution of the model.
            turn: the number of the step, for ensembles whose members take turns; without it
                nobody's turn is known and all members are asked.
        """
        self._require(Access.GRADIENT)
        if not self.differentiable:
            raise AccessDenied("the model has no differentiable form; ask for scores or decisions")
        asked = self._asked(x, rows)
        served = self._ledger.charge_gradients(self._rows[asked])
        if len(x) <= self._at_once and bool(served.all()):
            return self._look(x, asked, view, hook, turn)
        margins = x.new_full((len(x),), LOST)
        gradient = torch.zeros_like(x)
        for chunk in chunks(np.flatnonzero(served), self._at_once):
            where = places(chunk)
            margins[where], gradient[where] = self._look(x[where], asked[chunk], view, hook, turn)
        return margins, gradient

    def start_gradient(self, x: torch.Tensor, turn: int) -> tuple[torch.Tensor, torch.Tensor]:
        """Return ``gradient`` where an attempt starts; later ones from there compute none."""
        if self._starts is None or self._samples > 1:  # a randomised model is looked at anew
            return self.gradient(x, turn=turn)
        return self._starts.gradients(
            self._rows, lambda new: self.gradient(x[torch.as_tensor(new)], new, turn=turn)
        )

    def _look(
        self,
        points: torch.Tensor,
        rows: Rows,
        view: View | None,
        hook: Hook | None,
        turn: int | None,
    ) -> tuple[torch.Tensor, torch.Tensor]:
        point = points.detach().requires_grad_()
        margins, slope, seen = self._differentiate(point, rows, view, hook, turn)
        margins = margins.nan_to_num(nan=LOST)
        if view is None and hook is None:
            self._record(seen, rows, np.flatnonzero(margins.cpu().numpy() > 0), None)
        return margins, self._ledger.clean_gradient(self._rows[rows], slope)

    def verify(self, images: Images) -> NDArray[np.float32]:
        """Return the margins of one picture per row, uncharged: for judges, not for attacks."""
        images, rows = round8(images) if self.quantise else images, np.arange(len(self._rows))
        looks = [self._margins(images, rows) for _ in range(self.looks)]
        found = looks[0] if self.looks == 1 else np.mean(looks, axis=0, dtype=np.float32)
        self._ledger.unasked[self._rows] += found == UNASKED
        return np.where(found == UNASKED, np.float32(LOST), found)

    def _differentiate(
        self,
        point: torch.Tensor,
        rows: Rows,
        view: View | None,
        hook: Hook | None,
        turn: int | None,
    ) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
        total, mean = point.new_zeros(()), point.new_zeros(len(point))
        for _ in range(self._samples):
            picture = point if self.decoder is None else self.decoder(point, rows)
            if self.quantise:
                picture = picture + (round8(picture) - picture).detach()
            seen = picture
            if self.jpeg is not None:
                seen = seen + (as_jpeg(seen, self.jpeg) - seen).detach()
            if view is not None:
                seen = view(seen, rows)
            each: list[Margins] = [
                partial(self._member_margin, k, seen, rows, hook) for k in range(len(self._members))
            ]
            value, slope = joined_gradient(self._mode, each, point, turn)
            # One look, the usual case, costs no pass over the gradient.
            total = slope if self._samples == 1 else total + slope / self._samples
            mean += value / self._samples
        return mean - SLACK, total, picture.detach()

    def _member_margin(
        self, k: int, seen: torch.Tensor, rows: Rows, hook: Hook | None
    ) -> torch.Tensor:
        model = self._members[k]
        if hook is None:
            embeddings = model.embed_grad(seen)
        else:
            inside = hook
            embeddings = embed_hooked(
                model, seen, lambda at, value, which: inside(at, value, rows[which])
            )
        reference = self._torch_references[k][torch.as_tensor(rows)]
        return self._sign * ((embeddings * reference).sum(1) - self._thresholds[k])

    def _ask(self, x: Images | torch.Tensor, rows: Rows | None) -> NDArray[np.float32]:
        asked = self._asked(x, rows)
        served, numbers = self._ledger.charge_queries(self._rows[asked])
        margins = np.full(len(asked), LOST, dtype=np.float32)
        for chunk in chunks(served, self.batch_size):
            images = self._pictures(x[places(chunk)], asked[chunk])
            margins[chunk] = self._margins(images, asked[chunk])
            self._record(images, asked[chunk], np.flatnonzero(margins[chunk] > 0), numbers[chunk])
        refused, unasked = margins[served] == LOST, margins[served] == UNASKED
        self._ledger.settle(self._rows[asked[served]], refused, unasked)
        return np.where(margins == UNASKED, np.float32(LOST), margins)

    def _pictures(self, points: Images | torch.Tensor, rows: Rows) -> Images:
        if self.decoder is not None:
            with torch.no_grad():
                points = self.decoder(torch.as_tensor(points), rows)
        return round8(to_array(points)) if self.quantise else to_array(points)

    def _margins(self, images: Images, rows: Rows) -> NDArray[np.float32]:
        """Return signed margins; no verdict (a picture refused, NaN) is never a win."""
        seen = images if self.jpeg is None else as_jpeg(images, self.jpeg)
        try:
            found = self._answers.margins(seen, rows)
        except CallsSpent:
            return np.full(len(images), UNASKED, dtype=np.float32)
        signed = np.where(np.isnan(found), LOST, self._sign * found)
        return np.where(found == UNASKED, UNASKED, signed).astype(np.float32)

    def _record(
        self, images: Images | torch.Tensor, rows: Rows, won: Rows, numbers: Counts | None
    ) -> None:
        if self._recording and won.size:
            at = None if numbers is None else numbers[won]
            self._ledger.record([to_array(images[k]) for k in won], self._rows[rows[won]], at)

    def _asked(self, x: Images | torch.Tensor, rows: Rows | None) -> Rows:
        asked = np.arange(len(self._rows)) if rows is None else np.asarray(rows, dtype=np.intp)
        if len(asked) != len(x):
            raise DataError(f"asked {len(x)} pictures for {len(asked)} rows; they must be as many")
        return asked

    def _require(self, level: Access) -> None:
        if self.access < level:
            raise AccessDenied(f"a {level.name} was asked for, {self.access.name} is allowed")
