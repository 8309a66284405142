"""What does it look like from outside? A model or a remote service as a verifier over an API.

Clean pairs give OODFace's rates: how many are rejected, how many of the others are right, how many
of all. Decision attacks then ask for yes or no only, every question counted. Pictures are sent as
the data set holds them, 8 bits a channel; a local model stands behind the detector unless the data
set is aligned. A rejected picture is never a win of the attacker.

Where the budget of calls ends before the questions, a cell is kept as unfinished; a later run with
more calls replays the answers that the journal holds and goes on.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated, Any, ClassVar, Literal

import pyarrow as pa
from pydantic import Field

from onnxfr.alignment.aligner import Aligner
from onnxfr.attacks import make_attack
from onnxfr.errors import SpecError
from onnxfr.evaluators.api_games import Judge, Primer, Row, attack_pairs, compare_pairs
from onnxfr.evaluators.api_pictures import read_portions
from onnxfr.evaluators.api_results import results_of
from onnxfr.evaluators.attacked import check_needs
from onnxfr.evaluators.base import EVALUATORS, Evaluator, PlanContext, Records, Result
from onnxfr.evaluators.faces import needs_alignment
from onnxfr.evaluators.games import blocks_of, clean_threshold, planned_rule
from onnxfr.evaluators.priming import identify_surrogate, primed_photographs, surrogate_of
from onnxfr.evaluators.white_box import Budget
from onnxfr.metrics.thresholds import Threshold
from onnxfr.models.remote.model import RemoteModel
from onnxfr.models.remote.reference import is_remote
from onnxfr.runs.cells import Cell, Cost, ModelRef, chunks, take_rows
from onnxfr.runs.context import Context
from onnxfr.runs.records import unfinished
from onnxfr.service.local import LocalVerifier
from onnxfr.service.verifier import Verifier
from onnxfr.types import Access, Goal, Norm

CLEAN, RECHECK = "clean", "recheck"
_PRIORITY = {CLEAN: 60.0, RECHECK: -100.0}
_ATTACK_PRIORITY = 20.0
_AT_ONCE = 64
_JUDGED = 3
"""Looks of the judge at a pair's clean and final picture, at most, besides the attack's own."""
_OWN = "the service's own"
_WANTING = (
    "no call was left for all questions about {} of {} pairs; raise --max-calls, known answers are "
    "not paid for again"
)


@EVALUATORS.register("api")
@dataclass(frozen=True)
class Api(Evaluator):
    """Verdicts on clean pairs, and decision attacks on some of them.

    ``threshold`` is a rule for local models (``fmr=1e-3``, ``card``, ``fixed=0.3``; empty takes the
    run's FMR target). ``eps`` (l2: root mean square) says how far a win may be from the clean
    picture to count as a success. ``jpeg`` makes a JPEG of that quality of every probe first.
    ``recheck`` pairs are asked again at the end, to see whether a service keeps its word.
    ``surrogate`` is a model of the attacker's own, whose transfer examples the attacks start from.
    """

    name: ClassVar[str] = "api"
    version: ClassVar[int] = 6
    asks_services: ClassVar[bool] = True

    attacks: tuple[str, ...] = ("evolutionary",)
    goals: tuple[Goal, ...] = (Goal.DODGE, Goal.IMPERSONATE)
    norm: Norm = "l2"
    eps: Budget = 8 / 255
    max_queries: Annotated[int, Field(ge=1)] = 200
    attacked_pairs: Annotated[int, Field(ge=0)] = 10
    threshold: str = ""
    align: Literal["auto", "yes", "no"] = "auto"
    jpeg: Annotated[int, Field(ge=1, le=100)] | None = None
    recheck: Annotated[int, Field(ge=0)] = 10
    surrogate: str = ""

    def plan(self, context: PlanContext) -> list[Cell]:
        """Return cells for the clean pairs, for each attack and goal, and for asking again."""
        for name in self.attacks:
            attack = make_attack(name)
            if attack.access > Access.DECISION:
                raise SpecError(f"{name} asks for more than decisions; an API gives no more")
            if self.norm not in attack.norms:
                raise SpecError(
                    f"{name} works in {' or '.join(attack.norms)}, not in {self.norm}; choose "
                    "another attack or norm"
                )
            check_needs((attack,))
        local = [model for model in context.models if not is_remote(model.ref)]
        shared = {
            "align": self.align,
            "threshold": planned_rule(self.threshold, context, local),
            "jpeg": self.jpeg,
        }
        others: tuple[ModelRef, ...] = ()
        if self.surrogate:
            others = (identify_surrogate(context.context, self.surrogate),)
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
                    cells.extend(self._attacks(context, model, data, goal, shared, others))
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
        others: tuple[ModelRef, ...],
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
                others=others,
                priority=_ATTACK_PRIORITY,
                cost=Cost(images=len(rows) * (self.max_queries + _JUDGED)),
            )
            for name in self.attacks
            for rows in blocks
        ]

    def run(self, cell: Cell, context: Context) -> Records:
        """Ask, and return one record per pair; ``short`` ones got less than was to be asked."""
        judge, threshold = _judge(cell, context)
        pairs = context.pairs(cell.data)
        rows = take_rows(pairs.pair_ids(), cell.rows)
        prime = _primer(cell, context) if cell.others else None
        base = {
            "threshold": None if threshold is None else threshold.value,
            "threshold_origin": _OWN if threshold is None else threshold.origin,
            "files": _files(judge, cell.params["jpeg"]),
        }
        records: list[Row] = []
        for asked in read_portions(pairs, rows):
            if cell.method in (CLEAN, RECHECK):
                again = cell.method == RECHECK
                records.extend(compare_pairs(judge, asked, cell.params["jpeg"], again=again))
            else:
                records.extend(attack_pairs(judge, pairs, asked, cell, prime))
            context.report(len(records), len(rows))
        # The first row decides which columns a table has.
        blank = dict.fromkeys(name for record in records for name in record)
        records = [blank | record | base for record in records]
        short = sum(record["short"] for record in records)
        if not short:
            return records
        return unfinished(records, _WANTING.format(short, len(records)))

    def summarise(self, records: pa.Table) -> list[Result]:
        """Return rates of the clean pairs and curves of the attacks, with intervals."""
        return results_of(records)


def _primer(cell: Cell, context: Context) -> Primer:
    """Return what makes starts for whole photographs with the cell's surrogate."""
    surrogate = surrogate_of(cell, context)
    card = surrogate.members[0].card
    align = needs_alignment(context.pairs(cell.data), cell.params["align"])
    aligner = Aligner(card.template if align else "whole", card.input_size)
    goal = Goal(cell.condition["goal"])
    return lambda probe: primed_photographs(surrogate, probe, goal, cell.seed, aligner)


def _files(judge: Judge, jpeg: int | None) -> str:
    """Say what became of a picture on its way to the network, for the report."""
    ways = [] if jpeg is None else [f"stored as a JPEG of quality {jpeg} first"]
    if isinstance(judge, RemoteModel):
        sent = judge.adapter.picture
        lossy = f"JPEG files of quality {sent.quality}"
        ways.append(f"sent as {lossy if sent.format == 'jpeg' else 'PNG files'}")
        if sent.enlarge > 1:
            ways.append(f"each pixel repeated {sent.enlarge} x {sent.enlarge}")
    return ", ".join(("8 bits a channel", *ways))


def _judge(cell: Cell, context: Context) -> tuple[Judge, Threshold | None]:
    model = context.model(cell.model)
    if isinstance(model, RemoteModel):
        return model, None
    align = needs_alignment(context.pairs(cell.data), cell.params["align"])
    threshold = clean_threshold(
        context, cell.model, cell.data, cell.params["threshold"], align=cell.params["align"]
    )
    aligner = Aligner(model.card.template, model.card.input_size) if align else None
    return LocalVerifier(Verifier(model, threshold.value, aligner=aligner)), threshold
