"""What a report says of odd runs: unfinished, collapsed, of several models and data sets."""

from __future__ import annotations

import json
import re
import shutil
from dataclasses import replace
from pathlib import Path

import jsonschema
import pyarrow as pa
import pytest
from markupsafe import Markup
from toy_faces import with_columns, with_records

from onnxfr.evaluators.base import Result
from onnxfr.evaluators.report.page import Content, page
from onnxfr.evaluators.report.section import SECTIONS, Headline, Section, Verdict, View
from onnxfr.evaluators.report.summary import summary_of, summary_schema
from onnxfr.evaluators.report.svg import Axis, linear_axis, log_axis
from onnxfr.evaluators.report.wording import one_in, percent, span
from onnxfr.evaluators.report.write import read_content, write_report
from onnxfr.runs.store import RunStore


@pytest.fixture(scope="module")
def content(toy_run: Path) -> Content:
    return read_content(RunStore.open(toy_run))


def test_the_summary_and_the_command_say_that_a_run_is_unfinished(
    toy_run: Path, tmp_path: Path
) -> None:
    folder = shutil.copytree(toy_run, tmp_path / "run")
    for shard in (folder / "cells").glob("*.parquet"):
        shard.unlink()
    written = write_report(RunStore.open(folder), tmp_path / "report")
    summary = json.loads(written.summary.read_text(encoding="utf-8"))
    jsonschema.validate(summary, summary_schema())
    counts = {name: summary["run"][name] for name in ("cells", "failed", "missing", "unfinished")}
    assert counts == {"cells": 1, "failed": 0, "missing": 1, "unfinished": 0}
    assert [gap.level for gap in written.gaps] == ["caution"]


def test_a_certificate_of_another_file_is_none_to_programs_either(content: Content) -> None:
    model = content.manifest["models"][0]

    def quoted(sha256: str) -> str | None:
        stranger = {**model, "certificate": {"status": "green", "sha256": sha256, "flags": []}}
        manifest = {**content.manifest, "models": [stranger]}
        status: str | None = summary_of(manifest, [], [], {})["models"][0]["certificate"]
        return status

    assert (quoted(model["sha256"]), quoted("f" * 64)) == ("green", None)


def test_the_table_of_all_results_tells_methods_apart(content: Content) -> None:
    view = content.views["verification"]
    attacked = replace(view.results[0], method="mim", goal="dodge", norm="linf")
    views = {"verification": replace(view, results=(attacked,))}
    html = page(replace(content, views=views))
    table = html[html.index("All 1 results") :]
    assert "<th>n</th><th>Method</th><th>Protocol</th>" in table
    assert '<td data-label="Method">mim dodge linf</td>' in table


def test_a_model_that_answers_always_the_same_gets_a_page(content: Content) -> None:
    pairs = content.views["verification"].records.num_rows
    html = page(with_columns(content, score=[1.0] * pairs))
    assert html.count('<svg class="chart"') == 4
    assert "nan" not in "".join(re.findall(r'points="[^"]*"', html))


def test_an_axis_without_width_gets_some() -> None:
    for axis in (linear_axis("x", 3, 3), Axis("x", 3, 3, ()), log_axis("x", 1000, 1000)):
        assert (axis.low, axis.high) == pytest.approx((2.5, 3.5))
    assert (linear_axis("x", 0, 1e-6).low, linear_axis("x", 0, 1e-6).high) == (0, 1e-6)


def test_rejected_and_unreadable_pairs_are_told_for_each_model_and_data(content: Content) -> None:
    tables = []
    for model, data in (("toy", "people"), ("other", "people"), ("toy", "more")):
        pairs = content.views["verification"].records.num_rows
        outcomes = ["no_face"] * 3 + ["unreadable"] * 2 + ["scored"] * (pairs - 5)
        changed = with_columns(
            content,
            model=[model] * pairs,
            data=[data] * pairs,
            outcome=outcomes,
            rejected=[outcome == "no_face" for outcome in outcomes],
        )
        tables.append(changed.views["verification"].records)
    told = [
        v
        for v in with_records(content, pa.concat_tables(tables)).verdicts()
        if "pairs of" in v.sentence
    ]
    for words in ("were rejected", "were left out"):
        found = [(v.model, v.sentence) for v in told if words in v.sentence]
        assert [model for model, _ in found] == ["toy", "other", "toy"]
        assert "pairs of people shown to other were" in found[1][1]
        assert "pairs of more shown to toy were" in found[2][1]


def test_one_model_on_one_data_set_needs_no_name(content: Content) -> None:
    pairs = content.views["verification"].records.num_rows
    refused = with_columns(content, rejected=[k < 3 for k in range(pairs)])
    (alone,) = [v.sentence for v in refused.verdicts() if "were rejected" in v.sentence]
    assert alone.startswith("3 of 96 pairs were rejected")


class _Echo(Section):
    """Finds the same of two models, and of one of them twice."""

    def verdicts(self, view: View) -> list[Verdict]:
        return [Verdict("info", "It is slow.", model) for model in ("a", "b", "a")]

    def headlines(self, view: View) -> list[Headline]:
        return []

    def body(self, view: View) -> Markup:
        return Markup("")


class _Echoing(Content):
    def sections(self) -> list[tuple[str, Section, View]]:
        return [("echo", _Echo(), View(pa.table({}), (), {}))]


def test_the_same_words_about_two_models_are_two_findings(content: Content) -> None:
    found = _Echoing(content.manifest, {}, {}, 0).verdicts()
    assert [each.model for each in found] == ["a", "b"]


@pytest.mark.parametrize(
    ("rate", "digits", "shown"),
    [
        (3e-5, 2, "0.003 %"),
        (3.6e-5, 1, "0.0036 %"),
        (-4e-4, 1, "-0.04 %"),
        (0.0, 2, "0.00 %"),
        (1e-17, 2, "0.00 %"),
        (0.5, 0, "50 %"),
    ],
)
def test_a_small_rate_is_not_written_as_zero(rate: float, digits: int, shown: str) -> None:
    assert percent(rate, digits) == shown
    assert span(rate, 1.0, digits).startswith(shown.removesuffix(" %"))


def test_each_data_set_has_its_own_verdict_and_headline() -> None:
    def won(data: str, share: float) -> Result:
        return Result(
            evaluator="query",
            model="m",
            metric="asr",
            value=share,
            low=0.0,
            high=1.0,
            n=6,
            method="square",
            goal="dodge",
            norm="l2",
            condition="eps=8/255, queries=200",
            data=data,
            threshold=0.3,
            threshold_origin="x@oracle",
        )

    section = SECTIONS.get("query")()
    view = View(pa.table({}), (won("hard", 0.9), won("easy", 0.0)), {})
    told = [(v.level, v.sentence) for v in section.verdicts(view)]
    assert [level for level, _ in told] == ["caution", "info"], "a won attack is no reason to doubt"
    assert "90.00 % of 6 pairs of hard" in told[0][1] and "6 pairs of easy" in told[1][1]
    rows = [(row.data, row.value) for row in section.headlines(view)]
    assert rows == [("hard", "90.00 %"), ("easy", "0.00 %")]
    (alone,) = section.verdicts(View(pa.table({}), (won("hard", 0.9),), {}))
    assert "of 6 pairs (" in alone.sentence


@pytest.mark.parametrize(
    ("rate", "words"),
    [(1e-3, "1 in 1,000"), (2.5e-3, "1 in 400"), (0.015, "3 in 200"), (0.3, "3 in 10")],
)
def test_a_rate_in_words_is_the_rate(rate: float, words: str) -> None:
    assert one_in(rate) == words
