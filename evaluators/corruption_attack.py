"""Does an attack survive what happens to pictures on their way, and are bad pictures easier prey?

``attacks`` are made on the clean picture, saved as 8-bit files, and then corrupted before the
verifier sees them: a messenger's pipeline between the attacker and the gate. The same corruption of
the untouched picture stands beside, because what it breaks by itself is not the attacker's doing.
``attacks_through`` are made by an attacker who knows the corruption and aims through it.
``attacks_on_corrupted`` are made on pictures that are corrupted already. Pixels are corrupted after
alignment, at the model's input size, where attacks work; only the probe is touched.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Annotated, ClassVar, Literal

import pyarrow as pa
from pydantic import Field

from onnxfr.attacks import Attack, make_attack
from onnxfr.corruptions.base import check_severity
from onnxfr.errors import SpecError
from onnxfr.evaluators.attacked import Precision, check_needs, needs_of
from onnxfr.evaluators.base import EVALUATORS, Evaluator, PlanContext, Records, Result
from onnxfr.evaluators.corruption_attack_records import (
    AIMED,
    ATTACK_FIRST,
    COLUMNS,
    CORRUPTION_FIRST,
    aimed,
    attack_first,
    channels_of,
    corrupted_first,
    duel_of,
)
from onnxfr.evaluators.corruption_attack_results import results_of
from onnxfr.evaluators.crafting import check_budget
from onnxfr.evaluators.games import block_rows, blocks_of, planned_rule
from onnxfr.evaluators.treatment import (
    CLEAN,
    canonical_chains,
    chosen_corruptions,
    settings_of,
)
from onnxfr.evaluators.white_box import Budget, expected_gradients
from onnxfr.runs.cells import Cell, Cost, DataRef, ModelRef
from onnxfr.runs.context import Context
from onnxfr.types import Access, Goal, Norm

_PRIORITY = 40.0

Levels = list[tuple[str, list[int]]]
"""Corruptions and chains with their severities."""


@EVALUATORS.register("corruption_attack")
@dataclass(frozen=True)
class CorruptionAttack(Evaluator):
    """Attacks and corruptions together, in both orders.

    Args:
        attacks: made on the clean picture, corrupted afterwards; they must use up a budget.
        attacks_through: made on the clean picture by somebody who knows the corruption (gradients
            through it, its random draws unknown to him); they must use up a budget.
        attacks_on_corrupted: made on the corrupted picture, at the budgets or for the smallest
            change; each also runs on the clean picture for comparison.
        linf: budgets in linf; empty to leave the norm out.
        l2: budgets in (normalised) l2.
        goals: ``dodge`` (from genuine pairs), ``impersonate`` (from impostor pairs).
        corruptions: names or groups, as for the evaluator ``corruption``.
        severities: of every corruption.
        chains: processing chains such as ``resize:0.5 > jpeg:30 > webp:20``.
        preset: whose strengths.
        frost_photographs: a folder of pictures instead of procedural frost.
        pairs: how many pairs a goal, drawn by the run's seed; None for all.
        max_queries: the cap per pair for attacks that only ask.
        threshold: a rule of ``clean_threshold``; empty for the run's FMR, on clean pairs.
        precision: number type of gradients; float64 makes records independent of block size.
        align: whether pictures are aligned here.
        landmarks: for LGC, where the dense-landmark network comes from.
        examples: pairs a goal whose pictures are kept for the report.
    """

    name: ClassVar[str] = "corruption_attack"
    version: ClassVar[int] = 1

    attacks: tuple[str, ...] = ("bim",)
    attacks_through: tuple[str, ...] = ()
    attacks_on_corrupted: tuple[str, ...] = ()
    linf: tuple[Budget, ...] = (8 / 255,)
    l2: tuple[Budget, ...] = ()
    goals: tuple[Goal, ...] = (Goal.DODGE, Goal.IMPERSONATE)
    corruptions: tuple[str, ...] = (
        "jpeg",
        "messenger",
        "resolution",
        "defocus_blur",
        "gaussian_noise",
    )
    severities: tuple[int, ...] = (1, 3, 5)
    chains: tuple[str, ...] = ()
    preset: Literal["oodface-code", "oodface-paper", "imagecorruptions"] = "oodface-code"
    frost_photographs: str = ""
    pairs: Annotated[int, Field(ge=1)] | None = 50
    max_queries: Annotated[int, Field(ge=1)] = 5000
    threshold: str = ""
    precision: Precision = "float32"
    align: Literal["auto", "yes", "no"] = "auto"
    landmarks: str = ""
    examples: Annotated[int, Field(ge=0)] = 1

    def __post_init__(self) -> None:
        """Refuse what cannot be run before any work is planned."""
        chosen_corruptions(self.corruptions)
        canonical_chains(self.chains)
        for severity in self.severities:
            check_severity(severity)
        if not self._treatments():
            raise SpecError("corruption_attack needs a corruption with a severity, or a chain")
        sent = (*self.attacks, *self.attacks_through)
        every = [make_attack(text) for text in (*sent, *self.attacks_on_corrupted)]
        for text, attack in zip(sent, every, strict=False):
            if attack.seeks != "any":
                raise SpecError(
                    f"{text} looks for the smallest change, which no channel lets through; give "
                    "attacks that use up a budget, such as bim or pgd, or put it under "
                    "attacks_on_corrupted"
                )
        check_needs(every, self.landmarks)
        for norm, sizes in self._budgets() if sent else ():
            for eps in sizes:
                check_budget(norm, eps)

    def plan(self, context: PlanContext) -> list[Cell]:
        """Return one cell per attack, budget, goal and block; per corruption if it comes first."""
        cells = [
            cell
            for model in context.models
            for data in context.data
            for goal in self.goals
            for cell in self._cells(context, model, data, goal)
        ]
        if not cells:
            raise SpecError("corruption_attack has nothing to do: no attack, norm or pair is left")
        return cells

    def run(self, cell: Cell, context: Context) -> Records:
        """Return one record per pair and condition."""
        attack = make_attack(cell.method)
        duel = duel_of(cell, context, attack)
        play = {ATTACK_FIRST: attack_first, AIMED: aimed}.get(
            cell.condition["order"], corrupted_first
        )
        common = {
            "order": cell.condition["order"],
            "preset": cell.params["preset"],
            "seeks": attack.seeks,
            "protocol": cell.params["protocol"],
        }
        records = [record | common for record in play(duel, channels_of(cell))]
        context.report(len(records), len(records))
        return pa.Table.from_pylist(records, schema=COLUMNS)

    def summarise(self, records: pa.Table) -> list[Result]:
        """Return what survives, what corruption does alone, and what it takes on bad pictures."""
        return results_of(records)

    def _treatments(self) -> Levels:
        severities = sorted(set(self.severities))
        named = chosen_corruptions(self.corruptions) if severities else ()
        chains: Levels = [(chain, [1]) for chain in canonical_chains(self.chains)]
        return [(name, severities) for name in named] + chains

    def _cells(
        self, plan: PlanContext, model: ModelRef, data: DataRef, goal: Goal
    ) -> Iterator[Cell]:
        size = block_rows(plan.rows_per_cell)
        blocks = blocks_of(plan.context.pairs(data), goal, self.pairs, plan.seed, size)
        drawn = [name for block in blocks for name in block]
        for text, norm, eps, order, levels in self._games():
            attack = make_attack(text)
            conditions = sum(len(severities) for _, severities in levels)
            attacks = 1 if order == ATTACK_FIRST else conditions
            for number, block in enumerate(blocks):
                yield plan.cell(
                    self,
                    model,
                    data,
                    method=text,
                    params={
                        "attack": attack.parameters(),
                        "levels": [[name, severities] for name, severities in levels],
                        **settings_of(self.preset, self.frost_photographs),
                        "shown": [name for name in drawn[: self.examples] if name in block],
                        "max_queries": self.max_queries,
                        "threshold": planned_rule(self.threshold, plan, [model]),
                        "precision": self.precision,
                        "align": self.align,
                        "landmarks": self.landmarks if "landmarks" in needs_of(attack) else "",
                        "protocol": plan.protocol,
                    },
                    condition={
                        "goal": str(goal),
                        "norm": norm,
                        "eps": eps,
                        "order": order,
                        "corruptions": ", ".join(name for name, _ in levels),
                    },
                    rows=block,
                    priority=_PRIORITY - number,
                    cost=_cost(attack, len(block), attacks, conditions, self.max_queries),
                )

    def _budgets(self) -> list[tuple[Norm, Sequence[float]]]:
        every: tuple[tuple[Norm, Sequence[float]], ...] = (("linf", self.linf), ("l2", self.l2))
        return [entry for entry in every if entry[1]]

    def _games(self) -> Iterator[tuple[str, Norm, float | None, str, Levels]]:
        """Yield attack, norm, budget and order, with the corruptions that one cell covers."""
        every = self._treatments()
        for norm, sizes in self._budgets():
            for text in self.attacks:
                if norm in make_attack(text).norms:
                    yield from ((text, norm, eps, ATTACK_FIRST, every) for eps in sizes)
            for text in self.attacks_through:
                if norm in make_attack(text).norms:
                    yield from (
                        (text, norm, eps, AIMED, [entry]) for eps in sizes for entry in every
                    )
            for text in self.attacks_on_corrupted:
                attack = make_attack(text)
                if norm not in attack.norms:
                    continue
                for eps in sizes if attack.seeks == "any" else (None,):
                    for entry in [(CLEAN, [0]), *every]:
                        yield text, norm, eps, CORRUPTION_FIRST, [entry]


def _cost(attack: Attack, pairs: int, attacks: int, conditions: int, cap: int) -> Cost:
    looks = 2 * pairs * (1 + conditions)
    if attack.access == Access.GRADIENT:
        return Cost(images=looks, gradients=pairs * attacks * expected_gradients(attack))
    return Cost(images=looks + pairs * attacks * cap)
