"""What can an attacker do who knows the network? Success at budgets, and the smallest changes.

Cells are one attack, goal, norm and budget on one block of a seeded draw; a larger draw begins with
the blocks of a smaller one, so growing a run only computes what is new. The evaluation-failure
checks are cells of their own. Nothing but the cell decides a record: block size, order, workers and
interruptions change float rounding at most.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Annotated, Any, ClassVar, Literal

import pyarrow as pa
from pydantic import BeforeValidator, Field

from onnxfr.attacks import Attack, make_attack
from onnxfr.attacks._iterative import IterativeGradient
from onnxfr.budgets import read_eps
from onnxfr.checks import examine
from onnxfr.errors import SpecError
from onnxfr.evaluators.attacked import (
    EOT_SAMPLES,
    Fought,
    Precision,
    Rules,
    answered,
    check_needs,
    fight,
    games_for,
    is_randomised,
    needs_of,
    records_of,
    unplayed,
)
from onnxfr.evaluators.attention_pictures import attention_columns
from onnxfr.evaluators.base import EVALUATORS, Evaluator, PlanContext, Records, Result
from onnxfr.evaluators.games import Games, block_rows, blocks_of, clean_threshold, planned_rule
from onnxfr.evaluators.white_box_results import results_of
from onnxfr.models.wrapper import FRModel
from onnxfr.runs.cells import Cell, Cost, DataRef, ModelRef
from onnxfr.runs.context import Context
from onnxfr.threat import Threat
from onnxfr.types import Access, Goal, Norm

Budget = Annotated[float, BeforeValidator(read_eps)]
"""A number in [0, 1], or text such as ``8/255``."""

CHECKS = "checks"
"""The method of the cells that hold flags instead of pairs."""

_LOOKS = dict.fromkeys(("clean_attention", "adversarial_attention", "attention_note"))
"""Columns of the attention maps, empty for all but the first pair shown."""
_PRIORITY = 50.0
_RUNS_OF_A_SEARCH = {"ours": 3, "robfr": 13}
_RUNS_OF_A_SCAN = {"ours": 20, "robfr": 37}
_GRADIENTS_OF_CHECKS = 100
_STEPS_OF_OTHERS = 300


@EVALUATORS.register("white_box")
@dataclass(frozen=True)
class WhiteBox(Evaluator):
    """Gradient attacks on verification.

    Args:
        attacks: names as ``make_attack`` takes them; attacks that need a budget run at each one,
            those that seek the smallest change once.
        norms: ``linf``, ``l2`` (normalised); an attack is skipped in a norm it does not work in.
        linf: budgets in linf; the first is also that of the checks.
        l2: budgets in l2.
        goals: ``dodge`` (from genuine pairs), ``impersonate`` (from impostor pairs).
        pairs: how many pairs a goal, drawn by the run's seed; None for all.
        threshold: a rule of ``clean_threshold``; empty for the run's FMR.
        samples: gradients averaged per step; 0 for 1, or 20 on a randomised model.
        precision: number type of gradients; float64 makes records independent of block size.
        align: whether pictures are aligned here.
        landmarks: for LGC, where the dense-landmark network comes from.
        examples: pairs a goal whose pictures are kept for the report.
        checks: pairs a goal on which the evaluation-failure checks run; 0 for none.
    """

    name: ClassVar[str] = "white_box"
    version: ClassVar[int] = 1

    attacks: tuple[str, ...] = ("smallest:fgsm", "smallest:bim", "fmn", "aa_fr")
    norms: tuple[Norm, ...] = ("linf", "l2")
    linf: tuple[Budget, ...] = (2 / 255, 4 / 255, 8 / 255)
    l2: tuple[Budget, ...] = (1 / 255, 2 / 255, 4 / 255)
    goals: tuple[Goal, ...] = (Goal.DODGE, Goal.IMPERSONATE)
    pairs: Annotated[int, Field(ge=1)] | None = 100
    threshold: str = ""
    samples: Annotated[int, Field(ge=0)] = 0
    precision: Precision = "float32"
    align: Literal["auto", "yes", "no"] = "auto"
    landmarks: str = ""
    examples: Annotated[int, Field(ge=0)] = 1
    checks: Annotated[int, Field(ge=0)] = 20

    def plan(self, context: PlanContext) -> list[Cell]:
        """Return the cells: checks first, then every attack, norm and budget by blocks."""
        made = {text: make_attack(text) for text in self.attacks}
        check_needs(made.values(), self.landmarks)
        cells = []
        for model in context.models:
            for data in context.data:
                for goal in self.goals:
                    cells.extend(self._cells(context, model, data, goal, made))
        if not cells:
            raise SpecError(
                "white_box has nothing to do: give an attack that works in the norms chosen "
                f"({', '.join(self.norms) or 'none'}), budgets for it, and data with genuine pairs "
                "to dodge or impostor pairs to impersonate; got attacks "
                f"{list(self.attacks)}, goals {[str(goal) for goal in self.goals]}"
            )
        return cells

    def _cells(
        self,
        context: PlanContext,
        model: ModelRef,
        data: DataRef,
        goal: Goal,
        made: dict[str, Attack],
    ) -> list[Cell]:
        pairs = context.context.pairs(data)
        size = block_rows(context.rows_per_cell)
        blocks = blocks_of(pairs, goal, self.pairs, context.seed, size)
        drawn = [name for block in blocks for name in block]
        shared: dict[str, Any] = {
            "threshold": planned_rule(self.threshold, context, [model]),
            "samples": self.samples,
            "precision": self.precision,
            "align": self.align,
            "protocol": context.protocol,
        }
        cells = []
        for norm in self.norms:
            budgets = self.linf if norm == "linf" else self.l2
            if self.checks and budgets and drawn:
                rows = tuple(drawn[: self.checks])
                cells.append(
                    context.cell(
                        self,
                        model,
                        data,
                        method=CHECKS,
                        params=shared,
                        condition={"goal": str(goal), "norm": norm, "eps": budgets[0]},
                        rows=rows,
                        priority=_PRIORITY,
                        cost=Cost(gradients=_GRADIENTS_OF_CHECKS * len(rows)),
                    )
                )
            for text, attack in made.items():
                if norm not in attack.norms:
                    continue
                for eps in budgets if attack.seeks == "any" else (None,):
                    for number, block in enumerate(blocks):
                        shown = [name for name in drawn[: self.examples] if name in block]
                        own = {"attack": attack.parameters(), "shown": shown}
                        if "landmarks" in needs_of(attack):
                            own["landmarks"] = self.landmarks
                        cells.append(
                            context.cell(
                                self,
                                model,
                                data,
                                method=text,
                                params=shared | own,
                                condition={"goal": str(goal), "norm": norm, "eps": eps},
                                rows=block,
                                priority=_PRIORITY - 1 - number,
                                cost=Cost(gradients=expected_gradients(attack) * len(block)),
                            )
                        )
        return cells

    def run(self, cell: Cell, context: Context) -> Records:
        """Return one record per pair, or one per flag."""
        checking = cell.method == CHECKS
        attack = make_attack("bim" if checking else cell.method)
        model, pairs = context.model(cell.model), context.pairs(cell.data)
        rules = _rules(cell, context)
        games = games_for(
            context,
            cell.model,
            cell.data,
            cell.rows,
            attack,
            align=cell.params["align"],
            seed=cell.seed,
            landmarks=cell.params.get("landmarks", ""),
        )
        common, games = {"protocol": cell.params["protocol"]}, answered(model, games)
        if attack.access == Access.GRADIENT and not model.differentiable:
            games = games.refused("the model has no differentiable form: attack it by queries")
        if checking:
            return [record | common for record in _flags(context, cell, games, rules)]
        if not len(games.probe):
            records = unplayed(pairs, games, rules)
        else:
            fought = fight(model, games.probe, attack, rules)
            records = records_of(pairs, games, fought, cell.params["shown"])
            records = [
                _LOOKS | record | _looks(model, games, fought, record["pair"], cell.params["shown"])
                for record in records
            ]
        context.report(len(records), len(records))
        return [{"seeks": attack.seeks} | record | common for record in records]

    def summarise(self, records: pa.Table) -> list[Result]:
        """Return success rates, smallest changes, optimality and flags."""
        return results_of(records, {"linf": self.linf, "l2": self.l2})


def expected_gradients(attack: Attack) -> int:
    """Return about how many gradients an attack asks per pair, for estimates of time."""
    inner = getattr(attack, "attack", attack)
    once = int(getattr(inner, "steps", _STEPS_OF_OTHERS))
    if isinstance(inner, IterativeGradient):
        once *= inner.restarts * (1 + inner.neighbours)
        once *= math.prod(view.copies for view in inner.views())
    if attack is not inner:
        runs = _RUNS_OF_A_SCAN if once == 1 else _RUNS_OF_A_SEARCH
        once *= runs[attack.parameters()["schedule"]]
    return int(once * (1 + getattr(attack, "bisections", 0)))


def _rules(cell: Cell, context: Context) -> Rules:
    threshold = clean_threshold(
        context, cell.model, cell.data, cell.params["threshold"], align=cell.params["align"]
    )
    return Rules(
        goal=Goal(cell.condition["goal"]),
        threat=Threat(norm=cell.condition["norm"], eps=cell.condition["eps"]),
        threshold=threshold,
        seed=cell.seed,
        samples=cell.params["samples"],
        precision=cell.params["precision"],
    )


def _looks(
    model: FRModel, games: Games, fought: Fought, pair: str, shown: Sequence[str]
) -> dict[str, Any]:
    """Return where the model looks in the first pair shown, clean and attacked."""
    if pair not in shown[:1] or pair not in games.probe.ids:
        return {}
    k, references = games.probe.ids.index(pair), games.probe.references
    assert references is not None, "games are made with their references"
    return attention_columns(model, games.probe.images[k], fought.result.images[k], references[k])


def _flags(context: Context, cell: Cell, games: Games, rules: Rules) -> list[dict[str, Any]]:
    """Return one record per flag of the checks that need the model."""
    model, probe = context.model(cell.model), games.probe
    shared = {
        "goal": str(rules.goal),
        "norm": rules.threat.norm,
        "eps": cell.condition["eps"],
        "threshold": rules.threshold.value,
        "threshold_origin": rules.threshold.origin,
        "outcome": "checked" if len(probe) else "unplayable",
        "reason": None if len(probe) else next(iter(games.unplayable.values()), None),
        "flag_pairs": len(probe),
    }
    if not len(probe):
        return [shared]
    if rules.samples == 0 and is_randomised(model, probe):
        rules = replace(rules, samples=EOT_SAMPLES)
    found = examine(
        lambda threat: rules.oracle(model, probe, threat),
        probe,
        norm=rules.threat.norm,
        eps=float(cell.condition["eps"]),
        seed=cell.seed,
    )
    context.report(len(probe), len(probe))
    return [
        shared
        | {
            "flag": flag.name,
            "light": flag.light,
            "flag_value": flag.value,
            "flag_message": flag.message,
        }
        for flag in found
    ]
