"""Corruption results arranged the way the page needs them."""

from __future__ import annotations

import json
from collections.abc import Collection, Sequence
from dataclasses import dataclass
from functools import cached_property

import pyarrow.compute as pc

from onnxfr.corruptions import CORRUPTIONS, oodface_names
from onnxfr.evaluators.base import Result
from onnxfr.evaluators.corruption_results import ALL_SEVERITIES
from onnxfr.evaluators.corruption_table import CHAINS
from onnxfr.evaluators.report.section import View
from onnxfr.evaluators.treatment import CLEAN, is_chain

CATEGORIES = (
    ("lighting_weather", "Lighting and weather"),
    ("sensor", "Sensor"),
    ("movement", "Movement"),
    ("data_processing", "Data and processing"),
    ("occlusion", "Occlusion"),
    ("appearance", "Worn things"),
    (CHAINS, "Chains"),
)
"""OODFace's five families, then ours."""

_SIDES = {
    "both": "both pictures",
    "probe": "the probe",
    "reference": "the reference",
}
_RULES = {
    "fmr": "threshold frozen on clean pairs",
    "oracle": "best threshold of each condition (optimistic)",
    "kfold": "threshold cross-validated within each condition",
}


@dataclass(frozen=True)
class Setting:
    """What was corrupted, and by which tables."""

    apply_to: str
    preset: str

    @property
    def side(self) -> str:
        """What was corrupted, in words."""
        return _SIDES[self.apply_to]


@dataclass(frozen=True)
class Sheet:
    """The results of one model on one data set under one threshold rule."""

    model: str
    data: str
    protocol: str
    results: tuple[Result, ...]

    @cached_property
    def _known(self) -> dict[tuple[str, str, str], Result]:
        return {(r.metric, r.method, r.condition): r for r in self.results}

    @cached_property
    def whole(self) -> str:
        """The word that stands for all conditions in the column ``method``."""
        return next(r.method for r in self.results if r.metric == "worst_accuracy")

    @cached_property
    def methods(self) -> list[str]:
        """Corruptions and chains in the order of their categories."""
        return _in_order({r.method for r in self.results if r.condition == ALL_SEVERITIES})

    @property
    def averaged(self) -> list[str]:
        """The corruptions behind the mean: OODFace's where any of them was run."""
        theirs = [name for name in self.methods if name in oodface_names()]
        return theirs or [name for name in self.methods if not is_chain(name)] or self.methods

    @property
    def only_chains(self) -> bool:
        """Whether no corruption with severities was run."""
        return all(map(is_chain, self.methods))

    @cached_property
    def severities(self) -> list[int]:
        """The severities that were run; a chain's only counts where there is nothing but chains."""
        return sorted(
            {
                level
                for method in self.methods
                if self.only_chains or not is_chain(method)
                for level in self.levels(method)
            }
        )

    def levels(self, method: str) -> list[int]:
        """Return the severities one method was run at; a chain is stored under 1."""
        return self._levels.get(method, [])

    @cached_property
    def _levels(self) -> dict[str, list[int]]:
        found: dict[str, set[int]] = {}
        for r in self.results:
            if r.metric == "accuracy" and r.condition != CLEAN:
                level = int(r.condition.removeprefix("severity="))
                found.setdefault(r.method, set()).add(level)
        return {method: sorted(levels) for method, levels in found.items()}

    @property
    def complete(self) -> bool:
        """Whether the mean is OODFace's Acc_cor over twenty corruptions and five severities."""
        return self.find("acc_cor") is not None

    @property
    def clean(self) -> Result:
        """Accuracy of untouched pairs."""
        return self._known["accuracy", CLEAN, CLEAN]

    @property
    def mean(self) -> Result | None:
        """The mean over all conditions, whatever was run."""
        return self.find("acc_cor") or self.find("acc_cor_part")

    def find(self, metric: str, method: str = "", condition: str = "") -> Result | None:
        """Return one result; without a method, the one for all conditions."""
        return self._known.get((metric, method or self.whole, condition))

    def value(self, metric: str, method: str = "", condition: str = "") -> float | None:
        """Return one value, None where it was not measured."""
        found = self.find(metric, method, condition)
        return None if found is None else found.value

    def mean_of(self, method: str) -> float:
        """Return the accuracy of a corruption averaged over its severities."""
        return self.value("acc_cor", method, ALL_SEVERITIES) or 0.0

    def hardest(self, count: int) -> list[str]:
        """Return the corruptions with the lowest mean accuracy, worst first."""
        named = [name for name in self.methods if not is_chain(name)]
        return sorted(named or self.methods, key=self.mean_of)[:count]

    def category_values(self, metric: str) -> dict[str, Result]:
        """Return the results of the categories that have a value, by title."""
        found = {
            title: self.find(metric, condition=f"category={name}") for name, title in CATEGORIES
        }
        return {
            title: result
            for title, result in found.items()
            if result is not None and result.value is not None
        }


def _in_order(methods: Collection[str]) -> list[str]:
    """Return methods by category, then by name."""
    order = [name for name, _ in CATEGORIES]
    return sorted(methods, key=lambda name: (order.index(category_of(name)), name))


def category_of(method: str) -> str:
    """Return the category of a corruption or chain."""
    return CHAINS if is_chain(method) else CORRUPTIONS.get(method).category


def sheets(view: View) -> list[Sheet]:
    """Return one sheet per model, data set and threshold rule, the headline rule first."""
    found: dict[tuple[str, str, str], list[Result]] = {}
    for result in view.results:
        found.setdefault((result.data, result.model, result.protocol), []).append(result)
    return [
        Sheet(model, data, protocol, tuple(results))
        for (data, model, protocol), results in found.items()
    ]


def headline_sheets(view: View) -> list[Sheet]:
    """Return the sheets of the rule that was named first, one per model and data set."""
    first: dict[tuple[str, str], Sheet] = {}
    for sheet in sheets(view):
        first.setdefault((sheet.data, sheet.model), sheet)
    return list(first.values())


def setting_of(view: View, sheet: Sheet) -> Setting:
    """Return what the records say was done."""
    wanted = (pc.field("model") == sheet.model) & (pc.field("data") == sheet.data)
    content = json.loads(view.records.filter(wanted)["condition"][0].as_py())
    return Setting(content["apply_to"], content["preset"])


def rule_words(protocol: str) -> str:
    """Say in words how the threshold was chosen."""
    return _RULES[protocol.rstrip("0123456789")]


def title_of(method: str) -> str:
    """Return the name of a corruption as people read it."""
    return method if is_chain(method) else method.replace("_", " ")


def condition_words(method: str, condition: str) -> str:
    """Return a condition as people read it: ``fog at severity 5``; a chain has no severity."""
    severity = "" if is_chain(method) else f" at {condition.replace('=', ' ')}"
    return f"{title_of(method)}{severity}"


def methods_of(found: Sequence[Sheet]) -> list[str]:
    """Return every corruption and chain that any of the sheets has; half a run differs in them."""
    return _in_order({method for sheet in found for method in sheet.methods})


def models_of(found: Sequence[Sheet], data: str) -> list[Sheet]:
    """Return the sheets of one data set."""
    return [sheet for sheet in found if sheet.data == data]
