from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest
from toy_faces import with_columns, with_records

from onnxfr.errors import SpecError
from onnxfr.evaluators.report.comparison import (
    as_results,
    asked_differently,
    compare_paired,
    compare_results,
)
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


def test_settings_that_decide_numbers_are_told_where_they_differ(
    contents: tuple[Content, Content],
) -> None:
    a, b = contents
    assert asked_differently(a, b) == []
    (verification,) = b.manifest["evaluators"]
    params = verification["params"] | {"flip": True, "examples": 0, "thresholds": [0.2, 0.3]}
    manifest = {**b.manifest, "fmr": 0.01, "evaluators": [{**verification, "params": params}]}
    assert asked_differently(a, replace(b, manifest=manifest)) == [
        "fmr is 0.05 in A and 0.01 in B",
        "flip of verification is False in A and True in B",
        "thresholds of verification is none in A and 0.2, 0.3 in B",
    ]


def test_other_pairs_and_another_seed_are_told(contents: tuple[Content, Content]) -> None:
    a, b = contents
    (data,) = b.manifest["data"]
    other = data | {"fingerprint": "0123", "seed": 4, "pairs": 500}
    manifest = {**b.manifest, "seed": 4, "data": [other]}
    told = asked_differently(a, replace(b, manifest=manifest))
    assert told[0] == f"seed is {a.manifest['seed']} in A and 4 in B"
    assert told[1].startswith(f"the pairs of {data['name']} are others: ")
    assert told[1].endswith("500 drawn with seed 4 in B")


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


def _quoted(content: Content, protocol: str) -> float:
    (result,) = [
        r for r in content.results() if r.metric == "accuracy" and r.protocol.startswith(protocol)
    ]
    assert result.value is not None
    return result.value


def test_folds_of_unequal_size_are_compared_as_the_report_quotes_them(
    contents: tuple[Content, Content],
) -> None:
    run = contents[0]
    same = np.array(run.views["verification"].records["same"].to_pylist())
    genuine, impostor = np.flatnonzero(same), np.flatnonzero(~same)
    fold = np.ones(same.size, dtype=int)
    fold[genuine[:6]] = fold[impostor[:6]] = 0
    scores = [np.where(same, 0.8, 0.1) for _ in range(2)]
    scores[0][genuine[:3]] = -0.5  # three errors in the small fold
    scores[1][genuine[10:18]] = -0.5  # eight in the large one
    a, b = (with_columns(run, score=each, fold=fold) for each in scores)
    (found,) = compare_paired(a, b)
    accuracy = found.differences[0]
    quoted = _quoted(a, "kfold"), _quoted(b, "kfold")
    assert accuracy.protocol == "kfold2"
    assert (accuracy.a, accuracy.b) == pytest.approx(quoted)
    assert accuracy.difference == pytest.approx(quoted[1] - quoted[0])
    assert accuracy.difference > 0  # over all pairs it would be negative
    assert accuracy.low is not None and accuracy.high is not None
    assert accuracy.low <= accuracy.difference <= accuracy.high
    assert (found.duels["all"].only_a, found.duels["all"].only_b) == (8, 3)


@pytest.mark.parametrize(
    ("fmr", "protocol", "condition"), [(0.1, "fmr", "fmr=1e-1"), (0.05, "oracle", "")]
)
def test_without_folds_the_paired_interval_reaches_the_results(
    contents: tuple[Content, Content], fmr: float, protocol: str, condition: str
) -> None:
    pairs = contents[0].views["verification"].records.num_rows
    a, b = (with_columns(each, fold=[None] * pairs, fmr=[fmr] * pairs) for each in contents)
    (found,) = compare_paired(a, b)
    accuracy = found.differences[0]
    assert (accuracy.protocol, accuracy.condition) == (protocol, condition)
    assert (accuracy.a, accuracy.b) == pytest.approx((_quoted(a, protocol), _quoted(b, protocol)))
    (delta,) = [
        r
        for r in as_results(compare_results(a, b), [found])
        if (r.metric, r.protocol, r.condition) == ("accuracy", protocol, condition)
    ]
    assert accuracy.interval == "identity-bootstrap-percentile"
    assert (delta.value, delta.low, delta.high) == (
        accuracy.difference,
        accuracy.low,
        accuracy.high,
    )


def test_data_of_one_class_are_left_out_of_the_paired_part_and_said_so(
    contents: tuple[Content, Content],
) -> None:
    ones = []
    for each in contents:
        records = each.views["verification"].records
        genuine = with_records(each, records.filter(records["same"]))
        named = with_columns(genuine, data=["ones"] * records.filter(records["same"]).num_rows)
        both = pa.concat_tables([named.views["verification"].records, records])
        ones.append(with_records(each, both))
    first, second = compare_paired(ones[0], ones[1])
    assert (first.data, first.differences, first.duels) == ("ones", (), {})
    assert "genuine and impostor pairs" in first.note
    assert second.differences and not second.note
