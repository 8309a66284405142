from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from onnxfr.errors import SpecError
from onnxfr.evaluators.report.comparison import as_results, compare_paired, compare_results
from onnxfr.evaluators.report.page import Content
from onnxfr.evaluators.report.section import View
from onnxfr.evaluators.report.write import read_content
from onnxfr.runs.store import RunStore


@pytest.fixture(scope="module")
def contents(toy_run: Path, other_run: Path) -> tuple[Content, Content]:
    return read_content(RunStore.open(toy_run)), read_content(RunStore.open(other_run))


def test_two_models_are_compared_on_their_shared_pairs(
    contents: tuple[Content, Content],
) -> None:
    a, b = contents
    (forward,), (backward,) = compare_paired(a, b), compare_paired(b, a)
    assert forward.shared == a.views["verification"].records.num_rows
    there, back = forward.differences[0], backward.differences[0]
    assert there.metric == "accuracy"
    assert there.difference == pytest.approx(-back.difference)
    assert there.low is not None and there.high is not None
    assert there.low <= there.difference <= there.high
    assert (forward.duels["all"].only_a, forward.duels["all"].only_b) == (
        backward.duels["all"].only_b,
        backward.duels["all"].only_a,
    )
    assert forward.duels["all"].p_value == pytest.approx(backward.duels["all"].p_value)
    parts = [forward.duels[name].pairs for name in ("genuine", "impostor")]
    assert sum(parts) == forward.shared


def test_a_run_differs_in_nothing_from_itself(contents: tuple[Content, Content]) -> None:
    a, _ = contents
    (same,) = compare_paired(a, a)
    assert same.duels["all"].p_value == 1.0
    assert all(d.difference == 0 and d.low == 0 and d.high == 0 for d in same.differences)
    assert all(each.difference == 0 for _, _, each in compare_results(a, a))


def test_only_shared_pairs_enter_a_paired_comparison(
    contents: tuple[Content, Content],
) -> None:
    a, b = contents
    view = b.views["verification"]
    half = replace(view, records=view.records.slice(0, view.records.num_rows // 2))
    (found,) = compare_paired(a, replace(b, views={"verification": half}))
    assert found.shared == half.records.num_rows
    paired = as_results(compare_results(a, b), [found])
    accuracy = next(r for r in paired if r.metric == "accuracy" and r.protocol.startswith("kfold"))
    assert accuracy.value == pytest.approx(found.differences[0].difference)


def test_contradicting_labels_are_refused(contents: tuple[Content, Content]) -> None:
    a, b = contents
    view: View = b.views["verification"]
    labels = [not same for same in view.records["same"].to_pylist()]
    column = view.records.schema.get_field_index("same")
    wrong = view.records.set_column(column, "same", [labels])
    with pytest.raises(SpecError, match="different lists"):
        compare_paired(a, replace(b, views={"verification": replace(view, records=wrong)}))


def test_runs_of_several_models_need_a_common_name(contents: tuple[Content, Content]) -> None:
    a, b = contents
    model = b.manifest["models"][0]
    crowd = [{**model, "name": "x"}, {**model, "name": "y"}]
    with pytest.raises(SpecError, match="share no model name"):
        compare_results(a, replace(b, manifest={**b.manifest, "models": crowd}))
