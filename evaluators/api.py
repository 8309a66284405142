"""What does it look like from outside? A model or a remote service as a verifier over an API.

Clean pairs give OODFace's rates: how many are rejected, how many of the others are right, how many
of all. Decision attacks then ask for yes or no only, every question counted. Pictures are sent as
the data set holds them, 8 bits a channel; a local model stands behind the detector unless the data
set is aligned. A rejected picture is never a win of the attacker.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, Literal

import pyarrow as pa

from onnxfr.alignment.aligner import Aligner
from onnxfr.attacks import make_attack
from onnxfr.data.pairs import PairSet
from onnxfr.errors import SpecError
from onnxfr.evaluators.api_pictures import Asked, by_size, pool_of, read_pairs, stack
from onnxfr.evaluators.api_results import checkpoints, results_of
from onnxfr.evaluators.base import EVALUATORS, Evaluator, PlanContext, Records, Result
from onnxfr.evaluators.faces import needs_alignment
from onnxfr.evaluators.games import blocks_of, clean_threshold
from onnxfr.metrics.thresholds import Threshold
from onnxfr.models.remote.model import RemoteModel
from onnxfr.models.remote.reading import Kind, Verdict
from onnxfr.oracle import Oracle
from onnxfr.probe import Probe, as_jpeg
from onnxfr.runs.cells import Cell, Cost, ModelRef, chunks, take_rows
from onnxfr.runs.context import Context
from onnxfr.service.local import LocalVerifier
from onnxfr.service.verifier import Verifier
from onnxfr.threat import Threat
from onnxfr.types import Access, Goal, Images, Norm

CLEAN, RECHECK = "clean", "recheck"
_PRIORITY = {CLEAN: 60.0, RECHECK: -100.0}
_ATTACK_PRIORITY = 20.0
_AT_ONCE = 64
_JUDGED = 3
"""Looks of the judge at a pair's clean and final picture, at most, besides the attack's own."""
_OWN = "the service's own"


@EVALUATORS.register("api")
@dataclass(frozen=True)
class Api(Evaluator):
    """Verdicts on clean pairs, and decision attacks on some of them.

    ``threshold`` is a rule for local models (``fmr=1e-3``, ``card``, ``fixed=0.3``; empty takes the
    run's FMR target). ``eps`` (l2: root mean square) says how far a win may be from the clean
    picture to count as a success. ``jpeg`` makes a JPEG of that quality of every probe first.
    ``recheck`` pairs are asked again at the end, to see whether a service keeps its word.
    """

    name: ClassVar[str] = "api"
    version: ClassVar[int] = 2

    attacks: tuple[str, ...] = ("evolutionary",)
    goals: tuple[Goal, ...] = (Goal.DODGE, Goal.IMPERSONATE)
    norm: Norm = "l2"
    eps: float = 8 / 255
    max_queries: int = 200
    attacked_pairs: int = 10
    threshold: str = ""
    align: Literal["auto", "yes", "no"] = "auto"
    jpeg: int | None = None
    recheck: int = 10

    def plan(self, context: PlanContext) -> list[Cell]:
        """Return cells for the clean pairs, for each attack and goal, and for asking again."""
        for name in self.attacks:
            if make_attack(name).access > Access.DECISION:
                raise SpecError(f"{name} asks for more than decisions; an API gives no more")
        shared = {
            "align": self.align,
            "threshold": self.threshold or f"fmr={context.fmr!r}",
            "jpeg": self.jpeg,
        }
        cells = []
        for model in context.models:
            remote = isinstance(context.context.model(model), RemoteModel)
            for data in context.data:
                for rows in chunks(data.pairs, context.rows_per_cell):
                    cells.append(
                        context.cell(
                            self,
                            model,
                            data,
                            method=CLEAN,
                            params=shared,
                            rows=rows,
                            priority=_PRIORITY[CLEAN],
                            cost=Cost(images=len(rows)),
                        )
                    )
                for goal in self.goals:
                    cells.extend(self._attacks(context, model, data, goal, shared))
                again = range(min(self.recheck, data.pairs))
                if remote and again:
                    cells.append(
                        context.cell(
                            self,
                            model,
                            data,
                            method=RECHECK,
                            params=shared,
                            rows=again,
                            priority=_PRIORITY[RECHECK],
                            cost=Cost(images=len(again)),
                        )
                    )
        return cells

    def _attacks(
        self,
        context: PlanContext,
        model: ModelRef,
        data: Any,
        goal: Goal,
        shared: dict[str, Any],
    ) -> list[Cell]:
        """Return a cell for each attack and block of pairs that fits into memory."""
        pairs, size = context.context.pairs(data), min(context.rows_per_cell, _AT_ONCE)
        blocks = blocks_of(pairs, goal, self.attacked_pairs, context.seed, size)
        rules = {"norm": self.norm, "max_queries": self.max_queries, "eps": self.eps}
        return [
            context.cell(
                self,
                model,
                data,
                method=name,
                params={**shared, **rules},
                condition={"goal": str(goal)},
                rows=rows,
                priority=_ATTACK_PRIORITY,
                cost=Cost(images=len(rows) * (self.max_queries + _JUDGED)),
            )
            for name in self.attacks
            for rows in blocks
        ]

    def run(self, cell: Cell, context: Context) -> Records:
        """Ask, and return one record per pair."""
        judge, threshold = _judge(cell, context)
        pairs = context.pairs(cell.data)
        rows = take_rows(pairs.pair_ids(), cell.rows)
        base = {
            "threshold": None if threshold is None else threshold.value,
            "threshold_origin": _OWN if threshold is None else threshold.origin,
        }
        records: list[dict[str, Any]] = []
        if cell.method in (CLEAN, RECHECK):
            for at in range(0, len(rows), _AT_ONCE):
                asked = read_pairs(pairs, rows[at : at + _AT_ONCE])
                again = cell.method == RECHECK
                records.extend(_compare(judge, asked, cell.params["jpeg"], again=again))
                context.report(len(records), len(rows))
        else:
            asked = read_pairs(pairs, rows)
            records = _attack(judge, pairs, asked, cell)
        return [record | base for record in records]

    def summarise(self, records: pa.Table) -> list[Result]:
        """Return rates of the clean pairs and curves of the attacks, with intervals."""
        return results_of(records)


def _judge(cell: Cell, context: Context) -> tuple[LocalVerifier | RemoteModel, Threshold | None]:
    model = context.model(cell.model)
    if isinstance(model, RemoteModel):
        return model, None
    align = needs_alignment(context.pairs(cell.data), cell.params["align"])
    threshold = clean_threshold(
        context, cell.model, cell.data, cell.params["threshold"], align=cell.params["align"]
    )
    aligner = Aligner(model.card.template, model.card.input_size) if align else None
    return LocalVerifier(Verifier(model, threshold.value, aligner=aligner)), threshold


def _compare(
    judge: LocalVerifier | RemoteModel, asked: list[Asked], jpeg: int | None, *, again: bool
) -> list[dict[str, Any]]:
    """Return what the verifier says of clean pairs, and of some of them when asked again."""
    told: dict[str, dict[str, Any]] = {}
    for group in by_size(asked):
        probes, references = stack(group)
        if jpeg is not None:
            probes = as_jpeg(probes, jpeg)
        first: Sequence[Verdict | None] = judge.verdicts(probes, references)
        later: Sequence[Verdict | None] = [None] * len(group)
        if again and isinstance(judge, RemoteModel):
            later = judge.verdicts(probes, references, again=True)
        for each, verdict, second in zip(group, first, later, strict=True):
            changed = None
            if verdict is not None and second is not None:
                changed = (verdict.kind, verdict.match) != (second.kind, second.match)
            calls = (verdict is not None) + (second is not None)
            told[each.pair] = _told(verdict) | {"changed": changed, "calls": calls}
    unread = {"outcome": "unreadable", "calls": 0}
    return [each.record() | (unread if each.reason else told[each.pair]) for each in asked]


def _told(verdict: Verdict | None) -> dict[str, Any]:
    if verdict is None:
        return {"outcome": "unasked", "match": None, "score": None, "reason": "no call was left"}
    outcome = {Kind.JUDGED: "judged", Kind.REJECTED: "rejected", Kind.INVALID: "invalid"}
    return {
        "outcome": outcome[verdict.kind],
        "match": verdict.match,
        "score": verdict.score,
        "reason": verdict.detail or None,
    }


def _attack(
    judge: LocalVerifier | RemoteModel, pairs: PairSet, asked: list[Asked], cell: Cell
) -> list[dict[str, Any]]:
    """Attack the pairs that can be read, those of one size at a time."""
    rules = {"goal": cell.condition["goal"], "norm": cell.params["norm"]}
    rules |= {"eps": cell.params["eps"], "max_queries": cell.params["max_queries"]}
    records = [
        each.record() | {"outcome": "unplayable", "reason": each.reason}
        for each in asked
        if each.reason
    ]
    for group in by_size(asked):
        pool = pool_of(pairs, group[0].probe.shape, cell.seed)
        records.extend(_play(judge, group, pool, cell))
    return [record | rules for record in records]


def _play(
    judge: LocalVerifier | RemoteModel, group: list[Asked], pool: Images | None, cell: Cell
) -> list[dict[str, Any]]:
    """Attack those pairs that the verifier accepts for a comparison."""
    params = cell.params
    probes, references = stack(group)
    sent = probes if params["jpeg"] is None else as_jpeg(probes, params["jpeg"])
    clean: Sequence[Verdict | None] = judge.verdicts(sent, references)
    playable = [k for k, verdict in enumerate(clean) if verdict and verdict.kind is Kind.JUDGED]
    records = [
        group[k].record() | {"outcome": "unplayable", "reason": _told(verdict)["reason"]}
        for k, verdict in enumerate(clean)
        if k not in playable
    ]
    if not playable:
        return records
    chosen = [group[k] for k in playable]
    threat = Threat(norm=params["norm"], max_queries=params["max_queries"])
    probe = Probe(
        probes[playable], tuple(each.pair for each in chosen), references[playable], pool=pool
    )
    goal, jpeg = Goal(cell.condition["goal"]), params["jpeg"]
    oracle = Oracle(judge, probe, threat, goal=goal, access=Access.DECISION, jpeg=jpeg)
    result = make_attack(cell.method)(oracle, probe, threat, seed=cell.seed)
    for k, each in enumerate(chosen):
        steps = [entry for entry in result.trace if entry.row == k]
        at = {
            f"distance_at_{q}": min((e.distance for e in steps if e.queries <= q), default=None)
            for q in checkpoints(params["max_queries"])
        }
        found = {
            "outcome": "played",
            "won": bool(result.won[k]),
            "won_clean": bool(result.won_clean[k]),
            "distance": float(result.distance[k]) if result.won[k] else None,
            "queries": int(result.queries[k]),
            "refusals": int(oracle.refusals[k]),
        }
        records.append(each.record() | found | at)
    return records
