from __future__ import annotations

import shutil
from dataclasses import replace
from pathlib import Path

import pyarrow.parquet as pq
import pytest
from toy_faces import make_run, with_columns

from onnxfr.errors import MetricError, SpecError
from onnxfr.evaluators.report.comparison import as_results, compare_results, unresolved
from onnxfr.evaluators.report.expression import Outcome
from onnxfr.evaluators.report.gate import judge_runs
from onnxfr.evaluators.report.page import Content
from onnxfr.evaluators.report.section import View
from onnxfr.evaluators.report.write import read_content
from onnxfr.runs.records import unfinished
from onnxfr.runs.store import RunStore

GATE = "accuracy < 0.01"


@pytest.fixture(scope="module")
def both(
    tmp_path_factory: pytest.TempPathFactory, toy_model: Path, other_model: Path, toy_faces: Path
) -> Content:
    """A run of two models."""
    folder = tmp_path_factory.mktemp("both")
    data, cache = f"folder:{toy_faces}", folder / "cache"
    return read_content(
        RunStore.open(make_run(folder / "run", [toy_model, other_model], data, cache))
    )


def _judge(text: str, a: Content, b: Content) -> Outcome:
    return judge_runs(text, a, b, [*as_results(compare_results(a, b), []), *unresolved(a, b)])


def _without(content: Content, model: str, metric: str = "") -> Content:
    """Return a run that has no result of a model, or only none of one metric."""
    view = content.views["verification"]
    kept = [r for r in view.results if r.model != model or metric not in ("", r.metric)]
    return replace(content, views={"verification": View(view.records, tuple(kept), view.manifest)})


@pytest.mark.parametrize(
    ("gap", "told"),
    [
        ({"failed": {"key": "boom"}}, "1 of 2 planned cells failed"),
        ({"missing": 1}, "1 of 2 planned cells have no records yet"),
        ({"unfinished": {"key": "no call was left"}}, "no call was left"),
    ],
)
def test_a_run_with_a_hole_is_not_judged(both: Content, gap: dict[str, object], told: str) -> None:
    holed = replace(both, **gap)  # type: ignore[arg-type]
    assert not _judge(GATE, both, both).holds
    for text, a, b in (
        (GATE, both, holed),
        ("delta.accuracy < -1", both, holed),
        ("delta.accuracy < -1", holed, both),
        ("a.accuracy < 0", holed, both),
    ):
        with pytest.raises(MetricError, match=told):
            _judge(text, a, b)
    assert not _judge(GATE, holed, both).holds  # A is not looked at


def test_a_model_that_is_gone_from_b_is_missed(both: Content) -> None:
    alone = _without(both, "other")
    manifest = {
        **both.manifest,
        "models": [m for m in both.manifest["models"] if m["name"] == "toy"],
    }
    alone = replace(alone, manifest=manifest)
    for text in (GATE, "delta.accuracy < -1"):
        with pytest.raises(MetricError, match="run B has no other"):
            _judge(text, both, alone)
    assert not _judge("accuracy[model=toy] < 0.01", both, alone).holds


def test_a_metric_that_one_of_several_models_lacks_is_missed(both: Content) -> None:
    with pytest.raises(MetricError, match="other on people"):
        _judge(GATE, both, _without(both, "other", "accuracy"))
    with pytest.raises(MetricError, match="other on people"):
        _judge("delta.accuracy < -1", both, _without(both, "other", "accuracy"))


def test_a_metric_that_could_not_be_resolved_for_one_model_is_missed(both: Content) -> None:
    view = both.views["verification"]
    blind = tuple(
        replace(r, value=None) if (r.model, r.metric) == ("other", "eer") else r
        for r in view.results
    )
    unseen = replace(both, views={"verification": View(view.records, blind, view.manifest)})
    for text in ("eer > 2", "delta.eer > 2"):
        with pytest.raises(MetricError, match=r"other on people.*could not resolve"):
            _judge(text, both, unseen)
    assert not _judge("eer[model=toy] > 2", both, unseen).holds


def test_each_data_set_is_judged_by_the_best_that_it_has(both: Content) -> None:
    pairs = both.views["verification"].records.num_rows
    plain = with_columns(both, fold=[None] * pairs, data=["unfolded"] * pairs)
    joined = [*both.views["verification"].results, *plain.views["verification"].results]
    view = replace(both.views["verification"], results=tuple(joined))
    two = replace(both, views={"verification": view})
    looked = {(m.result.data, m.result.protocol) for m in _judge(GATE, two, two).matches}
    assert looked == {("people", "kfold10"), ("unfolded", "oracle")}


def test_runs_that_share_no_number_say_in_what_they_differ(both: Content) -> None:
    pairs = both.views["verification"].records.num_rows
    flipped = with_columns(both, method=["flip"] * pairs)
    with pytest.raises(SpecError, match="method is none in A and flip in B"):
        _judge("delta.accuracy < -1", both, flipped)


def test_cells_that_hold_less_than_was_asked_for_are_counted(toy_run: Path, tmp_path: Path) -> None:
    folder = shutil.copytree(toy_run, tmp_path / "run")
    (shard,) = (folder / "cells").glob("*.parquet")
    table = pq.read_table(shard)
    short = (unfinished([], "no call was left").schema.metadata or {}) | table.schema.metadata
    pq.write_table(table.replace_schema_metadata(short), shard)
    content = read_content(RunStore.open(folder))
    assert (content.missing, list(content.unfinished.values())) == (0, ["no call was left"])
    shard.unlink()
    content = read_content(RunStore.open(folder))
    assert (content.missing, content.unfinished) == (1, {})
