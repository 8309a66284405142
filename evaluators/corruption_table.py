"""Corruption records as arrays: one row of scores per condition, judged by a threshold rule."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from onnxfr.corruptions import CORRUPTIONS, SEVERITIES, oodface_names
from onnxfr.evaluators.scored import Scored, split
from onnxfr.evaluators.treatment import CLEAN, is_chain
from onnxfr.metrics.bootstrap import identity_weights
from onnxfr.metrics.protocols import fixed_accuracy, kfold_accuracy, oracle_accuracy
from onnxfr.metrics.thresholds import Threshold

Rule = Literal["frozen", "oracle", "kfold"]
"""Frozen on clean pairs at the FMR target; best of each condition; 10-fold in each condition."""

Bools = NDArray[np.bool_]
Floats = NDArray[np.float64]
_RESAMPLES = 1000
CHAINS = "chains"

NO_SCORE = "no_score"
"""The outcome of a pair with a corrupted picture that the model has no finite answer for."""


@dataclass(frozen=True)
class Condition:
    """A corruption at one severity, or a chain."""

    method: str
    severity: int

    @property
    def category(self) -> str:
        """OODFace's family of the corruption."""
        return CHAINS if is_chain(self.method) else CORRUPTIONS.get(self.method).category


@dataclass(frozen=True, eq=False)
class Degraded:
    """One model on one data set: clean pairs, and the same pairs under every condition."""

    clean: Scored
    apply_to: str
    preset: str
    watched: bool
    """Whether a face detector could reject corrupted pictures."""
    conditions: tuple[Condition, ...]
    scores: Floats
    rejected: Bools

    @property
    def people(self) -> tuple[NDArray[np.str_], NDArray[np.str_]]:
        """Who is shown in both pictures of each pair; pairs stand for people who are not known."""
        first, second = self.clean.first, self.clean.second
        if first is None or second is None or len({*first.tolist(), *second.tolist()}) < 2:
            first = second = np.arange(self.clean.pair.size).astype(np.str_)
        return first, second

    @property
    def methods(self) -> list[str]:
        """Corruptions and chains in order of appearance."""
        return list(dict.fromkeys(condition.method for condition in self.conditions))

    @property
    def averaged(self) -> list[str]:
        """The corruptions that Acc_cor averages: OODFace's, or all when none of them was run."""
        theirs = [name for name in self.methods if name in oodface_names()]
        return theirs or [name for name in self.methods if not is_chain(name)] or self.methods

    @property
    def whole(self) -> bool:
        """Whether all twenty corruptions were run at all five severities."""
        run = {(each.method, each.severity) for each in self.conditions}
        return all((name, level) in run for name in oodface_names() for level in SEVERITIES)

    def where(self, methods: Sequence[str], severity: int | None = None) -> list[int]:
        """Return the positions of the conditions of some methods."""
        return [
            at
            for at, condition in enumerate(self.conditions)
            if condition.method in methods and severity in (None, condition.severity)
        ]

    def categories(self) -> dict[str, list[str]]:
        """Return the averaged corruptions of each category."""
        found: dict[str, list[str]] = {}
        for name in self.averaged:
            found.setdefault(Condition(name, 1).category, []).append(name)
        return found


@dataclass(frozen=True, eq=False)
class Judged:
    """Which pairs are decided correctly; row 0 is clean, row 1 + k is condition k."""

    protocol: str
    thresholds: tuple[Threshold, ...]
    correct: Bools


def tables(records: pa.Table) -> list[Degraded]:
    """Return one table per model and data set that has clean records and corrupted ones.

    A pair that some condition cannot be applied to is left out of all; where no genuine or no
    impostor pair remains, there is nothing to judge.
    """
    clean = records.filter(pc.equal(records["method"], CLEAN))
    found = []
    for scored in split(clean):
        mine = records.filter(
            (pc.field("model") == scored.model)
            & (pc.field("data") == scored.data)
            & (pc.field("method") != CLEAN)
        )
        if mine.num_rows:
            found.append(_table(scored, mine, clean))
    return [degraded for degraded in found if degraded.clean.complete]


def judge(degraded: Degraded, rule: Rule) -> Judged | None:
    """Decide every pair under every condition; None where the data has no folds to cross."""
    clean = degraded.clean
    scores = np.vstack([clean.scores, degraded.scores])
    rejected = np.vstack([clean.rejected, degraded.rejected])
    if rule == "kfold" and (clean.fold is None or len(set(clean.fold.tolist())) < 2):
        return None
    frozen = clean.operating_point().threshold
    found = []
    for values, refused in zip(scores, rejected, strict=True):
        if rule == "frozen" or refused.all():
            found.append(fixed_accuracy(values, clean.same, frozen, rejected=refused))
        elif rule == "oracle":
            found.append(oracle_accuracy(values, clean.same, rejected=refused, data=clean.label))
        else:
            found.append(
                kfold_accuracy(
                    values, clean.same, fold=clean.fold, rejected=refused, data=clean.label
                )
            )
    protocol = {"frozen": "fmr", "oracle": "oracle"}.get(rule, found[0].protocol)
    correct = np.stack([each.correct for each in found])
    return Judged(protocol, tuple(each.threshold for each in found), correct)


def resampled(degraded: Degraded, correct: Bools, among: Bools | None = None) -> Floats:
    """Return accuracies ``(resamples, rows)`` on people drawn anew, thresholds kept.

    All rows share the draws, so differences between conditions cancel what they have in common.
    Where identities are unknown, pairs are drawn. ``among`` are the pairs that count, all unless
    told; a draw in which none of them is left is NaN.
    """
    clean = degraded.clean
    first, second = degraded.people
    counted = np.ones(clean.pair.size) if among is None else among.astype(np.float64)
    hits = correct.T * counted[:, None]
    blocks = []
    for weights in identity_weights(first, second, seed=0, resamples=_RESAMPLES):
        total = weights @ counted[:, None]
        blocks.append((weights @ hits) / np.where(total > 0, total, np.nan))
    return np.concatenate(blocks)


def _table(scored: Scored, mine: pa.Table, clean: pa.Table) -> Degraded:
    place = {pair: row for row, pair in enumerate(scored.pair.tolist())}
    columns = {name: mine[name].to_pylist() for name in ("method", "severity", "pair", "outcome")}
    rows = np.array([place.get(pair, -1) for pair in columns["pair"]], dtype=np.intp)
    names = list(zip(columns["method"], columns["severity"], strict=True))
    conditions = [Condition(*name) for name in dict.fromkeys(names)]
    at = {(each.method, each.severity): k for k, each in enumerate(conditions)}
    levels = np.array([at[name] for name in names], dtype=np.intp)
    shape = (len(conditions), scored.pair.size)
    scores, rejected = np.full(shape, np.nan), np.zeros(shape, dtype=np.bool_)
    usable = np.zeros(shape, dtype=np.bool_)
    known = rows >= 0
    spot = (levels[known], rows[known])
    scores[spot] = np.asarray(mine["score"].to_numpy(zero_copy_only=False), np.float64)[known]
    rejected[spot] = np.asarray(mine["rejected"].to_pylist(), dtype=np.bool_)[known]
    usable[spot] = np.array([each != "unreadable" for each in columns["outcome"]])[known]
    kept = np.flatnonzero(usable.all(axis=0))
    settings = json.loads(mine["condition"][0].as_py())
    watched = clean.filter((pc.field("model") == scored.model) & (pc.field("data") == scored.data))[
        "watched"
    ][0]
    return Degraded(
        scored.take(kept.tolist()),
        settings["apply_to"],
        settings["preset"],
        bool(watched.as_py()),
        tuple(conditions),
        scores[:, kept],
        rejected[:, kept],
    )
