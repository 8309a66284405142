"""The report's part on clean verification."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from markupsafe import Markup

from onnxfr.evaluators.base import Result
from onnxfr.evaluators.report.example_pairs import example_pairs, unscored_pairs
from onnxfr.evaluators.report.rendering import render
from onnxfr.evaluators.report.score_charts import det, folds, histogram, roc
from onnxfr.evaluators.report.section import SECTIONS, Headline, Section, Verdict, View
from onnxfr.evaluators.report.wording import count, one_in, percent, span, value_text
from onnxfr.evaluators.scored import Scored, split
from onnxfr.evaluators.verification_results import accuracy_by_folds
from onnxfr.metrics.thresholds import Resolution, impostors_needed, rate_label

_WEAK_AUC = 0.9
_COARSE = (
    "a coarse figure: {have} impostor pairs measure such a rate to worse than ±30 % "
    "({need} would do better)"
)


@dataclass(frozen=True)
class _Numbers:
    """The results of one model on one data set, found by metric, protocol and condition."""

    results: tuple[Result, ...]

    def find(self, metric: str, protocol: str = "", condition: str | None = None) -> Result | None:
        for result in self.results:
            fits = result.metric == metric and result.protocol.startswith(protocol)
            if fits and condition in (None, result.condition):
                return result
        return None


@SECTIONS.register("verification")
class VerificationSection(Section):
    """Accuracy, error rates, curves and the hardest pairs."""

    title = "Verification of clean pairs"
    order = 10

    def verdicts(self, view: View) -> list[Verdict]:
        """Say what the numbers mean for somebody who wants to use the model."""
        runs = split(view.records)
        return [
            verdict
            for scored in runs
            for verdict in _verdicts(scored, _numbers(view, scored), _place(scored, runs))
        ]

    def headlines(self, view: View) -> list[Headline]:
        """Return accuracy, equal error rate and the quoted operating points."""
        return [
            row
            for scored in split(view.records)
            for row in _headlines(scored, _numbers(view, scored))
        ]

    def body(self, view: View) -> Markup:
        """Return charts, operating points, groups and example pairs."""
        runs = [scored for scored in split(view.records) if scored.complete]
        blocks = [_block(view, scored, _numbers(view, scored)) for scored in runs]
        shared: list[Markup] = []
        by_data: dict[str, list[Scored]] = {}
        for scored in runs:
            by_data.setdefault(scored.data, []).append(scored)
        for data, members in by_data.items():
            if len(members) > 1:
                names = [_name(each) for each in members]
                shared.append(
                    render(
                        "together.html",
                        data=data,
                        charts=[roc(members, names), det(members, names)],
                    )
                )
        return render("verification.html", blocks=blocks, shared=shared)


def _name(scored: Scored) -> str:
    return f"{scored.model} (flip)" if scored.method == "flip" else scored.model


def _numbers(view: View, scored: Scored) -> _Numbers:
    wanted = (scored.model, scored.method, scored.data)
    return _Numbers(tuple(r for r in view.results if (r.model, r.method, r.data) == wanted))


def _place(scored: Scored, runs: Sequence[Scored]) -> str:
    """Return whose pairs a sentence speaks of, as far as a page of these runs leaves it open."""
    shown = f" shown to {_name(scored)}" if len({_name(each) for each in runs}) > 1 else ""
    data = f" of {scored.data}" if len({each.data for each in runs}) > 1 else ""
    return f"{data}{shown}"


def _verdicts(scored: Scored, numbers: _Numbers, place: str) -> list[Verdict]:
    name = _name(scored)
    if not scored.complete:
        sentence = (
            f"{name} could not be judged on {scored.data}: both genuine and impostor pairs with a "
            "score are needed."
        )
        return [Verdict("problem", sentence, scored.model)]
    found = []
    auc = numbers.find("auc")
    if auc is not None and auc.value is not None and auc.value < _WEAK_AUC:
        sentence = (
            f"{name} hardly tells people apart on {scored.data} (AUC {auc.value:.3f}). Wrong "
            "preprocessing or wrong crops are the usual cause: check both before reading on."
        )
        found.append(Verdict("problem", sentence, scored.model))
    accuracy = numbers.find("accuracy", "kfold")
    if accuracy is not None:
        sentence = (
            f"{name} decides {percent(accuracy.value)} of {count(accuracy.n)} pairs of "
            f"{scored.data} correctly (95 % interval {span(accuracy.low, accuracy.high)}), with "
            "thresholds cross-validated over the folds."
        )
        found.append(Verdict("info", sentence, scored.model))
    found.append(_operating_verdict(scored, name))
    found.extend(_limits(scored, place))
    return found


def _operating_verdict(scored: Scored, name: str) -> Verdict:
    point = scored.operating_point()
    have, need = count(scored.impostors), count(impostors_needed(point.target, 30))
    if point.resolution is Resolution.UNRESOLVED:
        sentence = (
            f"{scored.data} has only {have} impostor pairs, too few to set {name}'s threshold by a "
            f"false-match rate of {one_in(point.target)}: read every rate here as a rough sketch."
        )
        return Verdict("caution", sentence, scored.model)
    sentence = (
        f"Set so that at most {one_in(point.target)} strangers pass, {name} refuses "
        f"{percent(point.fnmr.value)} of genuine pairs of {scored.data} "
        f"({span(point.fnmr.low, point.fnmr.high)}) at threshold {point.threshold.value:.3f}"
    )
    coarse = point.resolution is Resolution.COARSE
    tail = f"; {_COARSE.format(have=have, need=need)}." if coarse else "."
    return Verdict("caution" if coarse else "info", sentence + tail, scored.model)


def _limits(scored: Scored, place: str) -> list[Verdict]:
    found = []
    beyond = [target for target in scored.targets if not scored.resolves(target)]
    if beyond and len(beyond) < len(scored.targets):
        sentence = (
            f"Rates of {one_in(max(beyond))} and rarer cannot be judged on {scored.data}: "
            f"{count(impostors_needed(max(beyond)))} impostor pairs are the least for that, "
            f"{count(scored.impostors)} are there."
        )
        # It holds for the data, whatever the model: said once.
        found.append(Verdict("caution", sentence))
    refused = int(scored.rejected.sum())
    if refused:
        sentence = (
            f"{count(refused)} of {count(scored.pair.size)} pairs{place} were rejected because no "
            "usable face was found; they count as not matching."
        )
        found.append(Verdict("caution", sentence, scored.model))
    if scored.unreadable:
        sentence = (
            f"{count(scored.unreadable)} pairs{place} were left out because a picture could not be "
            "read; they are listed below."
        )
        found.append(Verdict("caution", sentence, scored.model))
    return found


def _headlines(scored: Scored, numbers: _Numbers) -> list[Headline]:
    name = _name(scored)
    rows = []

    def add(result: Result | None, measure: str, note: str, unit: str = "pairs") -> None:
        if result is None:
            return
        shown = span(result.low, result.high) if result.value is not None else "–"
        observed = f"{count(result.n)} {unit}"
        rows.append(Headline(name, scored.data, measure, value_text(result), shown, observed, note))

    kfold = numbers.find("accuracy", "kfold")
    if kfold is not None:
        spread = numbers.find("accuracy_std", "kfold")
        note = f"{spread.n} folds, ± {percent(spread.value)} between them" if spread else ""
        add(kfold, "Accuracy, cross-validated", note)
    else:
        add(
            numbers.find("accuracy", "oracle"),
            "Accuracy at the best threshold",
            "optimistic: threshold chosen on these pairs",
        )
    add(numbers.find("eer"), "Equal error rate", "strangers in = genuine out", "per class")
    for target in scored.targets:
        result = numbers.find("tar", condition=f"fmr={rate_label(target)}")
        if result is None:
            continue
        note = (
            f"needs {count(impostors_needed(target))} impostor pairs"
            if result.value is None
            else f"threshold {result.threshold:.3f}"
        )
        unit = "impostor" if result.value is None else "genuine"
        add(result, f"Genuine accepted at FMR {one_in(target)}", note, unit)
    if scored.rejected.any():
        add(numbers.find("rr"), "Rejected, no usable face", "count as not matching")
    for threshold in scored.card_thresholds:
        fixed = numbers.find("accuracy", "fixed", f"threshold={threshold.value:g}")
        add(fixed, f"Accuracy at the card's threshold {threshold.value:g}", threshold.origin)
    return rows


def _block(view: View, scored: Scored, numbers: _Numbers) -> dict[str, Any]:
    point = scored.operating_point()
    charts = [
        histogram(scored, point.threshold),
        roc([scored], [_name(scored)]),
        det([scored], [_name(scored)]),
    ]
    cross = accuracy_by_folds(scored)
    if cross is not None:
        charts.append(folds(cross))
    group_rows = [r for r in numbers.results if r.condition.startswith("group=")]
    return {
        "name": _name(scored),
        "data": scored.data,
        "charts": charts,
        "points": _operating_rows(scored, numbers),
        "groups": _group_rows(group_rows),
        "threshold": f"{point.threshold.value:.3f}",
        "target": one_in(point.target),
        "unscored": unscored_pairs(view.records, scored),
        "examples": example_pairs(scored, point.threshold),
    }


def _operating_rows(scored: Scored, numbers: _Numbers) -> list[dict[str, str]]:
    rows = []
    for result in numbers.results:
        if result.metric != "fnmr":
            continue
        fmr = numbers.find("fmr", result.protocol, result.condition)
        people = numbers.find("tar_by_identity", result.protocol, result.condition)
        by_people = "–"
        if people is not None and people.low is not None and people.high is not None:
            by_people = span(1 - people.high, 1 - people.low)
        rows.append(
            {
                "threshold": f"{result.threshold:.3f}",
                "origin": result.threshold_origin,
                "fmr": f"{percent(fmr.value)} ({span(fmr.low, fmr.high)})" if fmr else "–",
                "fnmr": f"{percent(result.value)} ({span(result.low, result.high)})",
                "people": by_people,
            }
        )
    return rows


def _group_rows(results: Sequence[Result]) -> list[dict[str, str]]:
    rows: dict[str, dict[str, str]] = {}
    for result in results:
        row = rows.setdefault(result.condition, {"group": result.condition.removeprefix("group=")})
        row[result.metric] = f"{percent(result.value)} ({span(result.low, result.high)})"
        row[f"{result.metric}_n"] = count(result.n)
    return list(rows.values())
