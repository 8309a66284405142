"""What corruption does to a model, in sentences and in the rows of the first screen."""

from __future__ import annotations

from collections.abc import Sequence

import pyarrow.compute as pc

from onnxfr.corruptions.base import SMALLEST_SIDE
from onnxfr.evaluators.base import Result
from onnxfr.evaluators.corruption_table import NO_SCORE
from onnxfr.evaluators.report.corruption_numbers import (
    Setting,
    Sheet,
    condition_words,
    rule_words,
    title_of,
)
from onnxfr.evaluators.report.section import Headline, Verdict, View
from onnxfr.evaluators.report.wording import count, percent, span
from onnxfr.evaluators.treatment import CLEAN

_SIGNIFICANT = 0.05


def verdicts_of(
    sheet: Sheet, rules: Sequence[Sheet], setting: Setting, *, brief: bool
) -> list[Verdict]:
    """Return the findings for one model on one data set; ``brief`` keeps what decides."""
    found = [_loss(sheet, setting), None if brief else _hardest(sheet)]
    frozen = next((each for each in rules if each.protocol == "fmr"), None)
    if frozen is not None:
        found.extend([*_strangers(frozen), *_rejections(frozen)])
        found.extend([] if brief else _refused(frozen))
    found.extend(_against(sheet))
    return [verdict for verdict in found if verdict is not None]


def headlines_of(sheet: Sheet, setting: Setting) -> list[Headline]:
    """Return the rows of the first screen."""
    name = "Accuracy under corruption" + (" (Acc_cor)" if sheet.complete else "")
    extent = f"{_extent(sheet)}, {setting.side}; {rule_words(sheet.protocol)}"
    rows = [
        _headline(sheet, result, measure, note)
        for result, measure, note in (
            (sheet.mean, name, extent),
            (sheet.find("rce"), "Clean accuracy lost (RCE)", "0 % = nothing lost"),
            (
                sheet.find("above_chance"),
                "Left above a coin toss",
                "100 % = nothing lost, 0 % = all",
            ),
            (
                sheet.find("worst_accuracy"),
                "Right under every corruption",
                "worst of all, per pair",
            ),
            (sheet.find("rr"), "Rejected under corruption", "no usable face found"),
        )
    ]
    return [row for row in rows if row is not None]


def _headline(sheet: Sheet, result: Result | None, measure: str, note: str) -> Headline | None:
    if result is None or result.value is None:
        return None
    return Headline(
        sheet.model,
        sheet.data,
        measure,
        percent(result.value),
        span(result.low, result.high),
        f"{count(result.n)} pairs",
        note,
    )


def _extent(sheet: Sheet) -> str:
    """Say how much the mean stands for."""
    if sheet.complete:
        return "20 corruptions × 5 severities"
    if sheet.only_chains:
        return "1 chain" if len(sheet.methods) == 1 else f"{len(sheet.methods)} chains"
    levels = ", ".join(map(str, sheet.severities))
    word = "severity" if len(sheet.severities) == 1 else "severities"
    return f"{len(sheet.averaged)} corruptions at {word} {levels}"


def _loss(sheet: Sheet, setting: Setting) -> Verdict | None:
    mean = sheet.mean
    if mean is None or mean.value is None:
        return None
    sentence = (
        f"With {setting.side} corrupted ({_extent(sheet)}), {sheet.model} decides "
        f"{percent(mean.value, 1)} of pairs of {sheet.data} correctly (95 % interval "
        f"{span(mean.low, mean.high, 1)}), {percent(sheet.clean.value, 1)} when clean; "
        f"{rule_words(sheet.protocol)}."
    )
    return Verdict("info", sentence, sheet.model)


def _hardest(sheet: Sheet) -> Verdict | None:
    names = sheet.hardest(3)
    worst, level = names[0], f"severity={max(sheet.levels(names[0]))}"
    deepest = sheet.value("accuracy", worst, level)
    if deepest is None:
        return None
    told = ", ".join(f"{title_of(name)} {percent(sheet.mean_of(name), 1)}" for name in names)
    guess, guesser = _guessing(sheet)
    sentence = (
        f"Hardest for {sheet.model}: {told}. Under {condition_words(worst, level)} it is right "
        f"on {percent(deepest, 1)} of pairs; {guesser}."
    )
    return Verdict("caution" if deepest < (1 + guess) / 2 else "info", sentence, sheet.model)


def _guessing(sheet: Sheet) -> tuple[float, str]:
    """Return how often somebody is right who never looks, and who that is.

    Where one kind of pairs is commoner, that is more often than a coin toss.
    """
    strangers, genuine = (sheet.find(metric, CLEAN, CLEAN) for metric in ("fmr", "fnmr"))
    if strangers is None or genuine is None or strangers.n == genuine.n:
        return 0.5, "a coin toss is right on 50 %"
    share = max(strangers.n, genuine.n) / (strangers.n + genuine.n)
    verb = "refuse" if strangers.n > genuine.n else "accept"
    return share, f"to {verb} everybody is right on {percent(share, 1)}"


def _extreme(frozen: Sheet, metric: str) -> Result | None:
    """Return the condition with the highest value of a rate."""
    found = [
        result
        for result in frozen.results
        if result.metric == metric
        and result.method != CLEAN
        and result.condition.startswith("severity=")
        and result.value is not None
    ]
    return max(found, key=lambda result: result.value or 0.0, default=None)


def _strangers(frozen: Sheet) -> list[Verdict]:
    """Warn where corruption lets clearly more strangers in than the threshold was set for."""
    clean, worst = frozen.find("fmr", CLEAN, CLEAN), _extreme(frozen, "fmr")
    if clean is None or worst is None or clean.high is None or worst.low is None:
        return []
    if worst.low <= clean.high:
        return []
    sentence = (
        f"Security: at the threshold frozen on clean pairs, "
        f"{condition_words(worst.method, worst.condition)} makes {frozen.model} accept "
        f"{percent(worst.value, 1)} of strangers ({span(worst.low, worst.high, 1)}) instead of "
        f"{percent(clean.value, 1)}: bad pictures look alike to it."
    )
    return [Verdict("caution", sentence, frozen.model)]


def _refused(frozen: Sheet) -> list[Verdict]:
    clean, worst = frozen.find("fnmr", CLEAN, CLEAN), _extreme(frozen, "fnmr")
    if clean is None or worst is None:
        return []
    faceless = _extreme(frozen, "rr")
    beside = " without those in which no face is found" if faceless and faceless.value else ""
    sentence = (
        f"Convenience: at that threshold {frozen.model} refuses {percent(clean.value, 1)} of "
        f"genuine pairs when clean and up to {percent(worst.value, 1)} "
        f"({condition_words(worst.method, worst.condition)}){beside}."
    )
    return [Verdict("info", sentence, frozen.model)]


def _rejections(frozen: Sheet) -> list[Verdict]:
    mean, worst = frozen.find("rr"), _extreme(frozen, "rr")
    if mean is None or worst is None or not worst.value:
        return []
    sentence = (
        f"No usable face for {frozen.model} is found in {percent(mean.value, 1)} of corrupted "
        f"pairs of {frozen.data} on average, {percent(worst.value, 1)} at worst "
        f"({condition_words(worst.method, worst.condition)}); they count as not matching."
    )
    return [Verdict("caution", sentence, frozen.model)]


def silences(view: View, sheet: Sheet) -> list[Verdict]:
    """Warn where the model answered NaN: such pairs are rejected without a detector's doing."""
    mine = (pc.field("model") == sheet.model) & (pc.field("data") == sheet.data)
    asked = view.records.filter(mine & (pc.field("method") != CLEAN))
    silent = asked.filter(pc.field("outcome") == NO_SCORE).num_rows
    if not silent:
        return []
    sentence = (
        f"{sheet.model} has no finite answer (NaN) to a corrupted picture of {sheet.data} in "
        f"{count(silent)} of {count(asked.num_rows)} judgements; such pairs are rejected: they "
        "count as not matching, and FMR and FNMR leave them out."
    )
    return [Verdict("caution", sentence, sheet.model)]


def left_out(view: View) -> list[Verdict]:
    """Warn of pairs that no number here speaks of, since one of their pictures is no good."""
    found = []
    for data in pc.unique(view.records["data"]).to_pylist():
        mine = view.records.filter(pc.field("data") == data)
        lost = mine.filter(pc.field("outcome") == "unreadable")
        if lost.num_rows:
            pairs, gone = (len(pc.unique(table["pair"])) for table in (mine, lost))
            sentence = (
                f"{count(gone)} of {count(pairs)} pairs of {data} were left out of all numbers "
                "under corruption, clean ones too, because a picture could not be read or has a "
                f"side below {SMALLEST_SIDE} pixels, which is too small to be corrupted."
            )
            # It holds for the data, whatever the model: said once.
            found.append(Verdict("caution", sentence))
    return found


def _against(sheet: Sheet) -> list[Verdict]:
    """Say whether a further model differs from the first one, after Holm's correction."""
    found = []
    for result in sheet.results:
        if result.metric != "acc_cor_difference" or result.value is None:
            continue
        first = result.condition.removeprefix("against=")
        cells = [
            each.value
            for each in sheet.results
            if each.metric == "p_holm" and each.condition.endswith(result.condition)
        ]
        apart = sum(value is not None and value < _SIGNIFICANT for value in cells)
        sentence = (
            f"Under corruption {sheet.model} is {_standing(result.value, first)} on the same pairs "
            f"(95 % interval of the difference {span(result.low, result.high, 1)}); {apart} of "
            f"{len(cells)} conditions tell them apart after Holm's correction."
        )
        found.append(Verdict("info", sentence, sheet.model))
    return found


def _standing(difference: float, first: str) -> str:
    """Say how far a model is from the first; what rounds to nothing is neither better nor worse."""
    points = f"{100 * abs(difference):.1f}"
    if float(points) == 0:
        return f"as good as {first} (to a tenth of a point)"
    return f"{points} points {'better' if difference > 0 else 'worse'} than {first}"
