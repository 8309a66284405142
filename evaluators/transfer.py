"""Do pictures made against one model fool another? The source x target matrix of RobFR, and beyond.

Pictures are made at the source's size with its gradients only, rounded to 8 bits, fitted to each
target's size and judged at the target's own threshold, frozen on clean data. RobFR scores the
unrounded pictures; those are kept beside. Sources may be ensembles, and FACESEC's knowledge levels
choose them by the cards' tags.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Annotated, ClassVar, Literal

import pyarrow as pa
from pydantic import Field

from onnxfr.attacks import Attack
from onnxfr.budgets import write_eps
from onnxfr.errors import DataError, SpecError
from onnxfr.evaluators.attacked import check_needs, games_for, needs_of
from onnxfr.evaluators.base import EVALUATORS, Evaluator, PlanContext, Records, Result
from onnxfr.evaluators.crafting import (
    check_budget,
    check_frames,
    craft,
    make_surrogate,
    transfer_attack,
    widest,
)
from onnxfr.evaluators.games import block_rows, blocks_of, planned_rule
from onnxfr.evaluators.surrogates import Source, make_sources
from onnxfr.evaluators.transfer_records import COLUMNS, Batch
from onnxfr.evaluators.transfer_results import results_of
from onnxfr.evaluators.white_box import Budget, expected_gradients
from onnxfr.runs.cells import Cell, Cost, DataRef, ModelRef
from onnxfr.runs.context import Context
from onnxfr.threat import Threat
from onnxfr.types import Goal, Norm


@EVALUATORS.register("transfer")
@dataclass(frozen=True)
class Transfer(Evaluator):
    """The success of pictures made against sources on targets.

    ``linf`` and ``l2`` are budgets such as ``8/255``; ``pairs`` is the number per goal; ``sources``
    are those of ``make_sources``; ``targets`` are names of models, all by default; ``threshold`` is
    a rule of ``clean_threshold``, the run's FMR by default; ``landmarks`` says where LGC's landmark
    network comes from. ``examples`` pairs of each goal keep pictures, the first of them attention
    maps too.
    """

    name: ClassVar[str] = "transfer"
    version: ClassVar[int] = 2

    attacks: tuple[str, ...] = ("mim", "dim")
    linf: tuple[Budget, ...] = (8 / 255,)
    l2: tuple[Budget, ...] = ()
    goals: tuple[Goal, ...] = (Goal.DODGE, Goal.IMPERSONATE)
    steps: Annotated[int, Field(ge=1)] = 100
    pairs: Annotated[int, Field(ge=1)] | None = 100
    sources: tuple[str, ...] = ("each",)
    targets: tuple[str, ...] = ()
    threshold: str = ""
    align: Literal["auto", "yes", "no"] = "auto"
    landmarks: str = ""
    examples: Annotated[int, Field(ge=0)] = 2

    def plan(self, context: PlanContext) -> list[Cell]:
        """Return one cell per source, attack, budget, goal and block of pairs."""
        for norm, eps in self._budgets():
            check_budget(norm, eps)
        targets = self._targets(context.models)
        cards = {model.sha256: context.context.card(model) for model in context.models}
        able = self._differentiable(context)
        sources = make_sources(self.sources, able, targets, cards)
        attacks = {name: transfer_attack(name, self.steps) for name in self.attacks}
        check_needs(attacks.values(), self.landmarks)
        cells: list[Cell] = []
        for data in context.data:
            involved = dict.fromkeys(m for s in sources for m in (*s.members, *s.targets))
            check_frames(context.context, involved, data, align=self.align)
            for source in sources:
                for name, attack in attacks.items():
                    cells.extend(self._cells(context, data, source, name, attack))
        if not cells:
            raise SpecError(
                "transfer has nothing to do: give at least one attack, a budget (linf or l2), a "
                "goal, and data with genuine pairs to dodge or impostor pairs to impersonate; got "
                f"attacks {list(self.attacks)}, linf {list(self.linf)}, l2 {list(self.l2)}, "
                f"goals {[str(goal) for goal in self.goals]}"
            )
        return cells

    def run(self, cell: Cell, context: Context) -> Records:
        """Return one record per pair and target."""
        given, goal = cell.params, Goal(cell.condition["goal"])
        known = {model.sha256: model for model in (cell.model, *cell.others)}
        members = [known[sha] for sha in given["members"]]
        attack = transfer_attack(cell.method, given["steps"])
        frame = members[widest(map(context.card, members))]
        games = games_for(
            context,
            frame,
            cell.data,
            cell.rows,
            attack,
            align=given["align"],
            seed=cell.seed,
            landmarks=given["landmarks"],
        )
        if games.unplayable and given["strict"]:
            raise DataError(next(iter(games.unplayable.values())))
        rule, align = given["threshold"], given["align"]
        surrogate = make_surrogate(context, members, given["mode"], cell.data, rule, align=align)
        threat = Threat(norm=cell.condition["norm"], eps=given["eps"])
        made = craft(
            surrogate, games.probe, attack, threat, goal, seed=cell.seed, report=context.report
        )
        batch = Batch(cell, context, frame, games, made, threat, goal)
        records = [
            record
            for number, sha in enumerate(given["targets"])
            for record in batch.records(known[sha], number)
        ]
        return pa.Table.from_pylist(records, schema=COLUMNS)

    def summarise(self, records: pa.Table) -> list[Result]:
        """Return success rates of every source and target, their means, and attacks compared."""
        return results_of(records)

    def _cells(
        self, plan: PlanContext, data: DataRef, source: Source, name: str, attack: Attack
    ) -> Iterator[Cell]:
        others = dict.fromkeys((*source.members[1:], *source.targets))
        work = expected_gradients(attack) * len(source.members)
        for norm, eps in self._budgets():
            for goal in self.goals:
                size = block_rows(plan.rows_per_cell)
                blocks = blocks_of(plan.context.pairs(data), goal, self.pairs, plan.seed, size)
                params = {
                    "members": [member.sha256 for member in source.members],
                    "mode": source.mode,
                    "source": source.name,
                    "targets": [target.sha256 for target in source.targets],
                    "eps": eps,
                    "steps": self.steps,
                    "threshold": planned_rule(self.threshold, plan, plan.models),
                    "align": self.align,
                    "strict": plan.strict,
                    "landmarks": self.landmarks if "landmarks" in needs_of(attack) else "",
                    "shown": [name for rows in blocks for name in rows][: self.examples],
                }
                for rows in blocks:
                    yield plan.cell(
                        self,
                        source.members[0],
                        data,
                        method=name,
                        params=params,
                        condition={
                            "goal": str(goal),
                            "norm": norm,
                            "eps": write_eps(eps),
                            "source": source.name,
                        },
                        rows=rows,
                        others=tuple(others),
                        cost=Cost(
                            images=4 * len(rows) * len(source.targets),
                            gradients=len(rows) * work,
                        ),
                    )

    def _budgets(self) -> list[tuple[Norm, float]]:
        return [("linf", eps) for eps in self.linf] + [("l2", eps) for eps in self.l2]

    def _targets(self, models: Sequence[ModelRef]) -> tuple[ModelRef, ...]:
        known = {model.name: model for model in models}
        missing = [name for name in self.targets if name not in known]
        if missing:
            raise SpecError(
                f"no model of this run is called {missing[0]!r}; targets are {', '.join(known)}"
            )
        return tuple(known[name] for name in dict.fromkeys(self.targets)) or tuple(models)

    def _differentiable(self, plan: PlanContext) -> list[ModelRef]:
        """Return the models that have gradients; those without stay targets."""
        able = [model for model in plan.models if plan.context.model(model).differentiable]
        if not able:
            raise SpecError(
                "no model of this run has a differentiable form, so none can be a source of "
                "transfer attacks; add a surrogate that has one"
            )
        return able
