"""What can an attacker do who may only ask? Success and closeness against the number of questions.

Score attacks work within a budget and stop at their first win; decision attacks come closer as long
as they may ask. Both leave a trace of (questions, distance), from which every curve is read: one
run at the largest cap answers for all smaller ones.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, replace
from itertools import product
from typing import Annotated, Any, ClassVar, Literal

import numpy as np
import pyarrow as pa
from pydantic import Field

from onnxfr.attacks import Attack, AttackResult, make_attack
from onnxfr.attacks.decision.qeba import surrogate_basis
from onnxfr.errors import SpecError
from onnxfr.evaluators.attacked import Rules, answered, fight, needs_of, records_of
from onnxfr.evaluators.base import EVALUATORS, Evaluator, PlanContext, Records, Result
from onnxfr.evaluators.crafting import check_budget, check_frames
from onnxfr.evaluators.games import (
    Games,
    block_rows,
    blocks_of,
    clean_threshold,
    load_games,
    planned_rule,
    rows_of,
)
from onnxfr.evaluators.priming import identify_surrogate, primed, surrogate_of
from onnxfr.evaluators.query_results import QUOTED, results_of
from onnxfr.evaluators.white_box import Budget
from onnxfr.runs.cells import Cell, Cost, DataRef, ModelRef
from onnxfr.runs.context import Context
from onnxfr.threat import Threat
from onnxfr.types import Access, Goal, Norm

_PRIORITY = 30.0
_TRACE = 400
"""Most improvements kept per pair; a longer trace is thinned evenly over log(questions), but never
of what stood at a quoted number of them."""
_BASIS_PAIRS = 16
"""Pairs at which a surrogate's gradients are taken, several times each."""


@EVALUATORS.register("query")
@dataclass(frozen=True)
class Query(Evaluator):
    """Attacks through scores and decisions, with every question counted.

    Args:
        attacks: names of score or decision attacks.
        norms: an attack is skipped in a norm it does not work in.
        linf: budgets of score attacks and distances to reach for decision attacks, in linf.
        l2: the same in (normalised) l2.
        goals: ``dodge`` (from genuine pairs), ``impersonate`` (from impostor pairs).
        pairs: how many pairs a goal, drawn by the run's seed; None for all.
        max_queries: the hard cap per pair.
        threshold: a rule of ``clean_threshold``; empty for the run's FMR.
        quantise: answer as a service does that takes 8-bit pictures.
        jpeg: answer as a service does that stores what it is sent at this JPEG quality.
        surrogate: a model whose transfer example decision attacks start from, and whose gradients
            ``qeba(space=surrogate)`` follows; empty for none.
        align: whether pictures are aligned here.
        examples: pairs a goal whose pictures are kept for the report.
    """

    name: ClassVar[str] = "query"
    version: ClassVar[int] = 3

    attacks: tuple[str, ...] = ("square", "nes", "evolutionary", "hopskipjump", "surfree")
    norms: tuple[Norm, ...] = ("linf", "l2")
    linf: tuple[Budget, ...] = (8 / 255,)
    l2: tuple[Budget, ...] = (4 / 255,)
    goals: tuple[Goal, ...] = (Goal.DODGE, Goal.IMPERSONATE)
    pairs: Annotated[int, Field(ge=1)] | None = 50
    max_queries: Annotated[int, Field(ge=1)] = 5000
    threshold: str = ""
    quantise: bool = False
    jpeg: Annotated[int, Field(ge=1, le=100)] | None = None
    surrogate: str = ""
    align: Literal["auto", "yes", "no"] = "auto"
    examples: Annotated[int, Field(ge=0)] = 1

    def plan(self, context: PlanContext) -> list[Cell]:
        """Return one cell per attack, goal, norm, budget and block of pairs."""
        made = {text: make_attack(text) for text in self.attacks}
        wrong = [text for text, attack in made.items() if attack.access == Access.GRADIENT]
        if wrong:
            raise SpecError(f"{wrong[0]} asks for gradients; it belongs to white_box, not to query")
        others = self._surrogates(context.context, made)
        primes = others and any(each.access == Access.DECISION for each in made.values())
        for model, data in product(context.models, context.data) if primes else ():
            check_frames(context.context, (model, *others), data, align=self.align)
        cells = [
            cell
            for model in context.models
            for data in context.data
            for goal in self.goals
            for text, attack in made.items()
            for cell in self._cells(context, model, data, goal, text, attack, others)
        ]
        if not cells:
            raise SpecError("query has nothing to do: no attack works in the norms chosen")
        return cells

    def _surrogates(self, context: Context, made: Mapping[str, Attack]) -> tuple[ModelRef, ...]:
        if self.surrogate:
            return (identify_surrogate(context, self.surrogate),)
        for text, attack in made.items():
            if "basis" in needs_of(attack):
                raise SpecError(
                    f"{text} asks where a surrogate is sensitive, and none is given: set surrogate "
                    "to a model of the attacker's own, or choose space=spatial or space=cosine"
                )
        return ()

    def _cells(
        self,
        context: PlanContext,
        model: ModelRef,
        data: DataRef,
        goal: Goal,
        text: str,
        attack: Attack,
        others: tuple[ModelRef, ...],
    ) -> list[Cell]:
        size = block_rows(context.rows_per_cell, self.max_queries)
        pairs = context.context.pairs(data)
        blocks = blocks_of(pairs, goal, self.pairs, context.seed, size)
        drawn = [name for block in blocks for name in block]
        cells = []
        for norm in (each for each in self.norms if each in attack.norms):
            budgets = self.linf if norm == "linf" else self.l2
            for eps in budgets if attack.seeks == "any" else (None,):
                if eps is not None and (self.quantise or self.jpeg is not None):
                    check_budget(norm, eps)
                for number, block in enumerate(blocks):
                    params: dict[str, Any] = {
                        "attack": attack.parameters(),
                        "shown": [name for name in drawn[: self.examples] if name in block],
                        "threshold": planned_rule(self.threshold, context, [model]),
                        "max_queries": self.max_queries,
                        "quantise": self.quantise,
                        "jpeg": self.jpeg,
                        "align": self.align,
                        "protocol": context.protocol,
                    }
                    cells.append(
                        context.cell(
                            self,
                            model,
                            data,
                            method=text,
                            params=params,
                            condition={"goal": str(goal), "norm": norm, "eps": eps},
                            rows=block,
                            others=others if attack.access == Access.DECISION else (),
                            priority=_PRIORITY - number,
                            cost=Cost(images=self.max_queries * len(block)),
                        )
                    )
        return cells

    def run(self, cell: Cell, context: Context) -> Records:
        """Return one record per pair, its trace included."""
        attack = make_attack(cell.method)
        rules, model = _rules(cell, context), context.model(cell.model)
        games = load_games(
            context,
            cell.model,
            cell.data,
            cell.rows,
            align=cell.params["align"],
            pool_seed=cell.seed,
        )
        games = answered(model, games)
        if cell.others and len(games.probe):
            games = _armed(cell, context, games, attack, rules)
        fought = fight(model, games.probe, attack, rules)
        context.report(len(games.rows), len(games.rows))
        records = records_of(context.pairs(cell.data), games, fought, cell.params["shown"])
        traces = traces_of(fought.result)
        common = {
            "seeks": attack.seeks,
            "access": attack.access.name.lower(),
            "max_queries": cell.params["max_queries"],
            "quantise": cell.params["quantise"],
            "jpeg": cell.params["jpeg"],
            "primed": bool(cell.others),
            "protocol": cell.params["protocol"],
        }
        if cell.others:
            common["surrogate"] = cell.others[0].name
        return [
            record | common | {"trace": traces[k] if k < len(traces) else None}
            for k, record in enumerate(records)
        ]

    def summarise(self, records: pa.Table) -> list[Result]:
        """Return success and closeness at every quoted number of questions."""
        return results_of(records, {"linf": self.linf, "l2": self.l2})


def traces_of(result: AttackResult) -> list[str]:
    """Return each pair's improvements as JSON: ``[[questions, distance], ...]``."""
    found: list[list[tuple[int, float]]] = [[] for _ in result.won]
    for entry in result.trace:
        found[entry.row].append((entry.queries, round(entry.distance, 8)))
    return [json.dumps(_thinned(entries), separators=(",", ":")) for entries in found]


def _thinned(entries: list[tuple[int, float]]) -> list[tuple[int, float]]:
    if len(entries) <= _TRACE:
        return entries
    asked = np.log([entry[0] for entry in entries])
    quoted = [place for place in np.log(QUOTED) if asked[0] <= place <= asked[-1]]
    wanted = np.append(np.linspace(asked[0], asked[-1], _TRACE - len(quoted)), quoted)
    # The last improvement at or before each place, so that a thinned trace never looks better.
    places = np.unique(np.searchsorted(asked, wanted + 1e-12, side="right") - 1)
    return [entries[place] for place in places]


def _rules(cell: Cell, context: Context) -> Rules:
    threshold = clean_threshold(
        context, cell.model, cell.data, cell.params["threshold"], align=cell.params["align"]
    )
    threat = Threat(
        norm=cell.condition["norm"],
        eps=cell.condition["eps"],
        max_queries=cell.params["max_queries"],
    )
    return Rules(
        goal=Goal(cell.condition["goal"]),
        threat=threat,
        threshold=threshold,
        seed=cell.seed,
        quantise=cell.params["quantise"],
        jpeg=cell.params["jpeg"],
    )


def _armed(cell: Cell, context: Context, games: Games, attack: Attack, rules: Rules) -> Games:
    """Return the games with what the surrogate tells: starts, and directions where asked for."""
    surrogate = surrogate_of(cell, context)
    starts = primed(surrogate, games.probe, rules.goal, rules.seed)
    probe = replace(games.probe, starts=starts)
    if "basis" in needs_of(attack):
        # Pairs that hang on the seed alone: those of the cell would make its records hang on them.
        rows = rows_of(context.pairs(cell.data), rules.goal, _BASIS_PAIRS, cell.seed)
        align = cell.params["align"]
        seen = load_games(context, cell.model, cell.data, rows, align=align).probe
        oracle = surrogate.oracle(seen, Threat(norm="l2"), rules.goal)
        probe = replace(probe, basis=surrogate_basis(oracle, seen, seed=cell.seed))
    return replace(games, probe=probe)
