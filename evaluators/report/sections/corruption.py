"""The report's part on corrupted pictures, in the layout of OODFace's tables."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pyarrow.compute as pc
from markupsafe import Markup

from onnxfr.evaluators.base import Result
from onnxfr.evaluators.corruption_results import ALL_SEVERITIES
from onnxfr.evaluators.report.corruption_charts import (
    category_bars,
    model_lines,
    radar,
    severity_lines,
)
from onnxfr.evaluators.report.corruption_numbers import (
    CATEGORIES,
    Sheet,
    category_of,
    condition_words,
    headline_sheets,
    methods_of,
    models_of,
    rule_words,
    setting_of,
    sheets,
    title_of,
)
from onnxfr.evaluators.report.corruption_verdicts import (
    headlines_of,
    left_out,
    silences,
    verdicts_of,
)
from onnxfr.evaluators.report.example_pairs import data_uri
from onnxfr.evaluators.report.rendering import render
from onnxfr.evaluators.report.section import SECTIONS, Headline, Section, Verdict, View
from onnxfr.evaluators.report.wording import percent, span
from onnxfr.evaluators.treatment import CLEAN, is_chain

_SIGNIFICANT = 0.05
_IN_DETAIL = 3
"""Models that the first screen can describe one by one without drowning its reader."""


@SECTIONS.register("corruption")
class CorruptionSection(Section):
    """Accuracy by corruption, severity and category; examples; models side by side."""

    title = "Corrupted pictures"
    order = 20

    def verdicts(self, view: View) -> list[Verdict]:
        """Say how much is lost, where, and what that does to security."""
        found = headline_sheets(view)
        brief = len(found) > _IN_DETAIL
        told = [
            verdict
            for sheet in found
            for verdict in (
                *verdicts_of(sheet, _others(view, sheet), setting_of(view, sheet), brief=brief),
                *silences(view, sheet),
            )
        ]
        return [*told, *left_out(view)]

    def headlines(self, view: View) -> list[Headline]:
        """Return the mean under corruption and what it means."""
        return [
            row
            for sheet in headline_sheets(view)
            for row in headlines_of(sheet, setting_of(view, sheet))
        ]

    def body(self, view: View) -> Markup:
        """Return tables, charts and example strips."""
        found = headline_sheets(view)
        data = list(dict.fromkeys(sheet.data for sheet in found))
        return render(
            "corruption.html",
            together=[_together(models_of(found, name)) for name in data if _several(found, name)],
            blocks=[_block(view, sheet) for sheet in found],
            strips=[_strips(view, models_of(found, name)[0]) for name in data],
        )


def _several(found: list[Sheet], data: str) -> bool:
    return len(models_of(found, data)) > 1


def _others(view: View, sheet: Sheet) -> list[Sheet]:
    """Return the sheets of the same model and data under every threshold rule."""
    return [s for s in sheets(view) if (s.model, s.data) == (sheet.model, sheet.data)]


def _together(models: list[Sheet]) -> dict[str, Any]:
    first = models[0]
    groups = [
        {
            "title": title,
            "rows": [
                {
                    "name": title_of(method),
                    "cells": [
                        {
                            "value": _plain(sheet.value("acc_cor", method, ALL_SEVERITIES)),
                            "note": _differs(sheet, first, method),
                        }
                        for sheet in models
                    ],
                }
                for method in methods_of(models)
                if category_of(method) == name
            ],
        }
        for name, title in CATEGORIES
    ]
    means = [sheet.mean for sheet in models]
    return {
        "data": first.data,
        "rule": rule_words(first.protocol),
        "names": [sheet.model for sheet in models],
        "clean": [_plain(sheet.clean.value) for sheet in models],
        "groups": [group for group in groups if group["rows"]],
        "average": [_plain(mean.value if mean else None) for mean in means],
        "averaged": len(first.averaged),
        "ratios": [_ratio(sheet, first) for sheet in models],
        "charts": [radar(models, "All models"), category_bars(models)],
        "lines": model_lines(models),
    }


def _differs(sheet: Sheet, first: Sheet, method: str) -> str:
    """Say at how many severities a model differs from the first one after Holm's correction."""
    against = f"against={first.model}"
    levels = [f"severity={severity},{against}" for severity in sheet.levels(method)]
    values = [sheet.value("p_holm", method, level) for level in levels]
    count = sum(value is not None and value < _SIGNIFICANT for value in values)
    return f"*{count}" if count else ""


def _ratio(sheet: Sheet, first: Sheet) -> str:
    """Return a model's errors as a multiple of the first one's (mCE)."""
    value = sheet.value("mce", condition=f"against={first.model}")
    return "1" if sheet is first else "–" if value is None else f"{value:.2f}"


def _block(view: View, sheet: Sheet) -> dict[str, Any]:
    setting = setting_of(view, sheet)
    groups = [
        {
            "title": title,
            "rows": [
                _row(sheet, method) for method in sheet.methods if category_of(method) == name
            ],
        }
        for name, title in CATEGORIES
    ]
    mean = sheet.mean
    frozen = next((each for each in _others(view, sheet) if each.protocol == "fmr"), None)
    charts = [radar([sheet], "Accuracy by corruption, %"), category_bars([sheet])]
    return {
        "name": sheet.model,
        "data": sheet.data,
        "side": setting.side,
        "preset": setting.preset,
        "rule": rule_words(sheet.protocol),
        "charts": [chart for chart in charts if chart],
        "lines": severity_lines(sheet),
        "severities": sheet.severities,
        "clean": _plain(sheet.clean.value),
        "groups": [group for group in groups if group["rows"]],
        "averaged": len(sheet.averaged),
        "average": _plain(mean.value if mean else None),
        "averages": [_severity_mean(sheet, severity) for severity in sheet.severities],
        "lost": _plain(sheet.value("rce")),
        "rules": [_rule_row(each) for each in _others(view, sheet)],
        "frozen": _frozen_rows(frozen) if frozen else [],
        "answers": _answer_rows(frozen) if frozen else [],
    }


def _row(sheet: Sheet, method: str) -> dict[str, Any]:
    conditions = [f"severity={severity}" for severity in sheet.severities]
    cells = [_plain(sheet.value("accuracy", method, each)) for each in conditions]
    # A chain belongs in no severity's column; its number is the mean beside them.
    apart = is_chain(method) and not sheet.only_chains
    return {
        "name": title_of(method),
        "cells": [""] * len(cells) if apart else cells,
        "mean": _plain(sheet.value("acc_cor", method, ALL_SEVERITIES)),
        "lost": _plain(sheet.value("rce", method, ALL_SEVERITIES)),
    }


def _severity_mean(sheet: Sheet, severity: int) -> str:
    condition = f"severity={severity}"
    metric = "acc_cor" if sheet.complete else "acc_cor_part"
    return _plain(sheet.value(metric, condition=condition))


def _rule_row(sheet: Sheet) -> dict[str, str]:
    return {
        "rule": rule_words(sheet.protocol),
        "clean": percent(sheet.clean.value),
        "mean": _told(sheet.mean),
        "lost": _told(sheet.find("rce")),
        "left": _told(sheet.find("above_chance")),
        "worst": _told(sheet.find("worst_accuracy")),
    }


def _frozen_rows(frozen: Sheet) -> list[dict[str, str]]:
    """Return both errors at the frozen threshold, averaged over severities and at worst."""
    return [
        {"name": name}
        | {metric: _average(values) for metric, values in rates.items()}
        | {
            f"{metric}_worst": percent(max(values, default=None))
            for metric, values in rates.items()
        }
        for name, rates in _by_corruption(frozen, ("fmr", "fnmr"))
    ]


def _answer_rows(frozen: Sheet) -> list[dict[str, str]]:
    """Return RR, ASA and AA in OODFace's layout; none where no detector could refuse a face."""
    metrics = ("rr", "asa", "aa")
    if frozen.find("rr") is None:
        return []
    rows = [
        {"name": name} | {metric: _average(values) for metric, values in rates.items()}
        for name, rates in _by_corruption(frozen, metrics)
    ]
    overall = {metric: _told(frozen.find(metric)) for metric in metrics}
    return [*rows, {"name": f"Average of {len(frozen.averaged)}"} | overall]


def _by_corruption(
    sheet: Sheet, metrics: tuple[str, ...]
) -> Iterator[tuple[str, dict[str, list[float]]]]:
    """Yield the known values of every corruption over its severities; clean first."""
    for method in [CLEAN, *sheet.methods]:
        levels = [CLEAN] if method == CLEAN else [f"severity={s}" for s in sheet.levels(method)]
        found = {name: [sheet.value(name, method, level) for level in levels] for name in metrics}
        known = {name: [v for v in values if v is not None] for name, values in found.items()}
        yield title_of(method), known


def _average(values: list[float]) -> str:
    return percent(sum(values) / len(values)) if values else "–"


def _told(result: Result | None) -> str:
    if result is None or result.value is None:
        return "–"
    return f"{percent(result.value)} ({span(result.low, result.high)})"


def _strips(view: View, sheet: Sheet) -> dict[str, Any]:
    """Return one face clean and under every condition, as the first model saw it."""
    mine = (pc.field("model") == sheet.model) & (pc.field("data") == sheet.data)
    kept = view.records.filter(mine & pc.field("example").is_valid())
    pictures: dict[tuple[str, int], str] = {}
    for row in kept.select(["method", "severity", "pair", "example"]).to_pylist():
        pictures.setdefault((row["method"], row["severity"]), data_uri(row["example"]))
    rows = [
        {
            "name": title_of(method),
            "faces": [
                {
                    "words": condition_words(method, f"severity={severity}"),
                    "uri": pictures[method, severity],
                }
                for severity in sheet.levels(method)
                if (method, severity) in pictures
            ],
        }
        for method in sheet.methods
    ]
    return {
        "data": sheet.data,
        "clean": pictures.get((CLEAN, 0), ""),
        "columns": max(1, len(sheet.severities)),
        "rows": [row for row in rows if row["faces"]],
    }


def _plain(value: float | None) -> str:
    return "–" if value is None else f"{100 * value:.1f}"
