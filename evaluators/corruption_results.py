"""Every number that follows from scores under corruption, with its interval.

A single condition has Wilson's interval under its plain name and the one that resamples people
under ``_by_identity``. Aggregates (Acc_cor, RCE, what is left above chance, the worst of all
conditions) are means over the same pairs, so only resampling people tells their uncertainty. All
thresholds stay where they were chosen while people are resampled.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import partial

import numpy as np
import pyarrow as pa

from onnxfr.evaluators.base import Result
from onnxfr.evaluators.corruption_comparison import comparisons
from onnxfr.evaluators.corruption_sheet import Sheet
from onnxfr.evaluators.corruption_table import Bools, Floats, Rule, judge, resampled, tables
from onnxfr.evaluators.treatment import CLEAN
from onnxfr.metrics.api import api_rates
from onnxfr.metrics.corruption import CHANCE
from onnxfr.metrics.intervals import Estimate, rate
from onnxfr.metrics.verification import error_rates

ALL_SEVERITIES = "all severities"
_MOST_GUESSING = 0.1
"""Share of the draws that may be left out because the clean model guesses in them."""


def results_of(records: pa.Table, rules: Sequence[Rule]) -> list[Result]:
    """Return the results of every model and data set under every threshold rule."""
    found = tables(records)
    results: list[Result] = []
    for rule in rules:
        judged = [(each, judge(each, rule)) for each in found]
        whole = [Sheet.make(each, answer) for each, answer in judged if answer is not None]
        for sheet in whole:
            results.extend(_conditions(sheet, frozen=rule == "frozen"))
            results.extend(_aggregates(sheet))
        if rule == rules[0]:
            results.extend(comparisons(whole))
    return results


def _conditions(sheet: Sheet, *, frozen: bool) -> Iterator[Result]:
    """Yield the results of clean pairs and of each condition by itself."""
    degraded, correct = sheet.degraded, sheet.judged.correct
    names = [(CLEAN, CLEAN)]
    names += [(each.method, f"severity={each.severity}") for each in degraded.conditions]
    for row, (method, condition) in enumerate(names):
        threshold = sheet.judged.thresholds[row]
        quote = partial(sheet.result, method=method, condition=condition, threshold=threshold)
        yield quote("accuracy", rate(correct[row]))
        by_people = sheet.share(float(sheet.accuracy[row]), sheet.replicates[:, row])
        yield quote("accuracy_by_identity", by_people)
        if row:
            yield quote("rce", _lost(sheet, [row]))
        if frozen:
            yield from _rates(sheet, row, quote)


def _rates(sheet: Sheet, row: int, quote: partial[Result]) -> Iterator[Result]:
    clean = sheet.degraded.clean
    scores = clean.scores if row == 0 else sheet.degraded.scores[row - 1]
    refused = clean.rejected if row == 0 else sheet.degraded.rejected[row - 1]
    rates = error_rates(scores, clean.same, sheet.judged.thresholds[row], refused)
    yield quote("fmr", rates.fmr)
    yield quote("fnmr", rates.fnmr)
    if sheet.degraded.watched:
        answers = api_rates(sheet.judged.correct[row] & ~refused, refused)
        yield quote("rr", answers.rr)
        yield quote("asa", answers.asa)
        yield quote("aa", answers.aa)


def _aggregates(sheet: Sheet) -> Iterator[Result]:
    """Yield Acc_cor, RCE and what is left above chance: by corruption, severity, category, all."""
    degraded = sheet.degraded
    for method in degraded.methods:
        rows = [1 + at for at in degraded.where([method])]
        yield from _means(sheet, rows, method, ALL_SEVERITIES)
    averaged = degraded.averaged
    for severity in sorted({degraded.conditions[at].severity for at in degraded.where(averaged)}):
        rows = [1 + at for at in degraded.where(averaged, severity)]
        yield from _means(sheet, rows, "", f"severity={severity}")
        yield from _worst(sheet, rows, f"severity={severity}")
    for category, methods in degraded.categories().items():
        rows = [1 + at for at in degraded.where(methods)]
        yield from _means(sheet, rows, "", f"category={category}")
    rows = [1 + at for at in degraded.where(averaged)]
    yield from _means(sheet, rows, "", "")
    yield from _worst(sheet, rows, "")
    if degraded.watched and sheet.judged.protocol == "fmr":
        yield from _api_means(sheet, rows)


def _means(sheet: Sheet, rows: list[int], method: str, condition: str) -> Iterator[Result]:
    quote = partial(sheet.result, method=method, condition=condition)
    # Acc_cor is the mean over corruptions of means over severities; with the same severities
    # everywhere that is the mean over all conditions.
    metric = "acc_cor" if sheet.degraded.whole or method else "acc_cor_part"
    mean = sheet.share(float(sheet.accuracy[rows].mean()), _mean(sheet, rows))
    yield quote(metric, mean)
    yield quote("rce", _lost(sheet, rows))
    yield quote("above_chance", _left(sheet, rows))


def _mean(sheet: Sheet, rows: list[int]) -> Floats:
    means: Floats = sheet.replicates[:, rows].mean(axis=1)
    return means


def _lost(sheet: Sheet, rows: list[int]) -> Estimate | None:
    clean, draws = sheet.accuracy[0], sheet.replicates[:, 0]
    if clean <= 0 or (draws <= 0).any():
        return None
    value = 1.0 - float(sheet.accuracy[rows].mean() / clean)
    return sheet.estimate(value, 1.0 - _mean(sheet, rows) / draws)


def _left(sheet: Sheet, rows: list[int]) -> Estimate | None:
    accuracy, draws = sheet.balanced
    # A draw of people among whom the model guesses when clean has nothing that could be left.
    if accuracy[0] <= CHANCE or (draws[:, 0] <= CHANCE).mean() > _MOST_GUESSING:
        return None
    value = float((accuracy[rows].mean() - CHANCE) / (accuracy[0] - CHANCE))
    known = draws[draws[:, 0] > CHANCE]
    return sheet.estimate(value, (known[:, rows].mean(axis=1) - CHANCE) / (known[:, 0] - CHANCE))


def _worst(sheet: Sheet, rows: list[int], condition: str) -> Iterator[Result]:
    """Yield how many pairs are decided correctly under every one of the conditions."""
    always: Bools = np.logical_and.reduce(sheet.judged.correct[rows], axis=0)
    yield sheet.result("worst_accuracy", rate(always), condition=condition)
    draws = resampled(sheet.degraded, always[None])[:, 0]
    by_people = sheet.share(float(always.mean()), draws)
    yield sheet.result("worst_accuracy_by_identity", by_people, condition=condition)


def _api_means(sheet: Sheet, rows: list[int]) -> Iterator[Result]:
    """Yield RR, ASA and AA averaged over conditions; no rejection counts as correct.

    A condition that refuses every pair has no ASA and stays out of its mean.
    """
    refused = sheet.degraded.rejected[[row - 1 for row in rows]]
    right = sheet.judged.correct[rows] & ~refused
    refused_draws, right_draws = (resampled(sheet.degraded, hits) for hits in (refused, right))
    yield sheet.result("rr", sheet.share(float(refused.mean()), refused_draws.mean(axis=1)))
    yield sheet.result("aa", sheet.share(float(right.mean()), right_draws.mean(axis=1)))
    some = ~refused.all(axis=1)
    if not some.any():
        yield sheet.result("asa", None, n=sheet.degraded.clean.pair.size)
        return
    value = float((right[some].sum(axis=1) / (~refused[some]).sum(axis=1)).mean())
    answered = np.maximum(1.0 - refused_draws[:, some], 1e-12)
    draws: Floats = (right_draws[:, some] / answered).mean(axis=1)
    yield sheet.result("asa", sheet.share(value, draws))
