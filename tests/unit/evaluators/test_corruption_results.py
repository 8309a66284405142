"""Numbers of hand-made corruption records, whose answers are known."""

from __future__ import annotations

import json
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from onnxfr.corruptions import SEVERITIES, oodface_names
from onnxfr.evaluators.base import Result
from onnxfr.evaluators.corruption_results import results_of
from onnxfr.metrics.intervals import wilson
from onnxfr.metrics.significance import holm, mcnemar

N = 40
SAME = np.arange(N) % 2 == 0
CLEAN = np.where(SAME, 0.9, 0.1)


def rows(
    method: str,
    severity: int,
    scores: Any,
    *,
    model: str = "m",
    rejected: Any = None,
    watched: bool = False,
) -> list[dict[str, Any]]:
    refused = np.zeros(N, dtype=bool) if rejected is None else rejected
    found = []
    for k in range(N):
        row: dict[str, Any] = {
            "model": model,
            "method": method,
            "condition": json.dumps({"apply_to": "both", "preset": "oodface-code"}),
            "data": "d",
            "pair": f"pair{k}",
            "same": bool(SAME[k]),
            "severity": severity,
            "score": None if refused[k] else float(scores[k]),
            "rejected": bool(refused[k]),
            "outcome": "no_face" if refused[k] else "scored",
        }
        if method == "clean":
            row |= {
                "fold": k // 10,
                "group": None,
                "left_identity": f"a{k}",
                "right_identity": f"a{k}" if SAME[k] else f"b{k}",
                "fmr": 0.1,
                "card_thresholds": "[]",
                "aligned_here": watched,
                "watched": watched,
            }
        found.append(row)
    return found


def wrong(count: int) -> Any:
    """Scores in which the first ``count`` genuine pairs look like strangers."""
    scores = CLEAN.copy()
    scores[np.flatnonzero(SAME)[:count]] = -0.5
    return scores


def results(records: list[dict[str, Any]], *rules: Any) -> list[Result]:
    return results_of(pa.Table.from_pylist(records), rules or ("frozen",))


def find(found: list[Result], metric: str, condition: str, **filters: str) -> Result:
    (result,) = [
        each
        for each in found
        if each.metric == metric
        and each.condition == condition
        and all(getattr(each, name) == value for name, value in filters.items())
    ]
    return result


def test_means_losses_and_what_is_left_above_chance() -> None:
    records = rows("clean", 0, CLEAN)
    for severity, count in ((1, 4), (5, 12)):
        records += rows("fog", severity, wrong(count))
        records += rows("jpeg", severity, CLEAN)
    found = results(records)
    assert find(found, "accuracy", "severity=5", method="fog").value == pytest.approx(0.7)
    assert find(found, "rce", "severity=5", method="fog").value == pytest.approx(0.3)
    fog = find(found, "acc_cor", "all severities", method="fog")
    assert fog.value == pytest.approx(0.8)
    assert fog.low is not None and fog.high is not None and fog.low < 0.8 < fog.high
    assert find(found, "above_chance", "all severities", method="fog").value == pytest.approx(0.6)
    both = "oodface-code/both"
    assert find(found, "acc_cor_part", "", method=both).value == pytest.approx(0.9)
    assert find(found, "acc_cor_part", "severity=5").value == pytest.approx(0.85)
    weather = find(found, "acc_cor_part", "category=lighting_weather")
    assert weather.value == pytest.approx(0.8)
    assert find(found, "worst_accuracy", "", method=both).value == pytest.approx(0.7)
    assert find(found, "fnmr", "severity=5", method="fog").value == pytest.approx(0.6)


@pytest.mark.parametrize("strangers", [2, 20])
@pytest.mark.parametrize("answer", [1.0, -1.0])
def test_one_answer_to_all_leaves_nothing_above_chance(strangers: int, answer: float) -> None:
    kept = {f"pair{k}" for k in [*range(0, N, 2)[: 22 - strangers], *range(1, N, 2)[:strangers]]}
    records = rows("clean", 0, CLEAN) + rows("jpeg", 1, CLEAN)
    records += rows("fog", 1, np.full(N, answer))
    found = results([row for row in records if row["pair"] in kept])
    left = {
        each.method: each for each in found if each.metric == "above_chance" and each.n == len(kept)
    }
    fog, jpeg = left["fog"], left["jpeg"]
    assert (fog.value, fog.low, fog.high) == (0.0, 0.0, 0.0)
    assert (jpeg.value, jpeg.low, jpeg.high) == (1.0, 1.0, 1.0)


def test_a_draw_in_which_no_pair_is_left_counts_as_nothing_not_as_failure() -> None:
    few = {"pair0", "pair1"}
    records = rows("clean", 0, CLEAN) + rows("fog", 5, CLEAN)
    found = results([row for row in records if row["pair"] in few])
    by_people = find(found, "accuracy_by_identity", "severity=5", method="fog")
    assert (by_people.value, by_people.high) == (1.0, 1.0)
    # Three people without an error; a draw that holds none of them would pull it to zero.
    assert by_people.low == pytest.approx(wilson(3, 3).low)


def test_only_all_twenty_at_all_severities_make_acc_cor() -> None:
    records = rows("clean", 0, CLEAN)
    for name in oodface_names():
        for severity in SEVERITIES:
            records += rows(name, severity, wrong(severity if name == "fog" else 0))
    # Our own corruptions and chains stay out of the paper's average.
    records += rows("gamma", 1, wrong(20)) + rows("jpeg:10", 1, wrong(20))
    found = results(records)
    mean = find(found, "acc_cor", "", method="oodface-code/both")
    assert mean.value == pytest.approx(1 - (1 + 2 + 3 + 4 + 5) / 100 / 40)
    assert find(found, "acc_cor", "all severities", method="gamma").value == pytest.approx(0.5)
    assert find(found, "acc_cor", "all severities", method="jpeg:10").value == pytest.approx(0.5)


def test_each_rule_has_its_own_threshold() -> None:
    shifted = CLEAN - 0.85
    records = rows("clean", 0, CLEAN) + rows("fog", 1, shifted)
    found = results(records, "frozen", "oracle", "kfold")
    by_rule = {
        each.protocol: each
        for each in found
        if each.metric == "accuracy" and each.condition == "severity=1"
    }
    assert by_rule["fmr"].value == pytest.approx(0.5)
    assert by_rule["fmr"].threshold_origin == "d@fmr=1e-1~unresolved"
    assert by_rule["oracle"].value == 1.0
    assert by_rule["oracle"].threshold_origin == "d@oracle"
    assert by_rule["kfold4"].value == 1.0


def test_rejections_count_where_a_detector_watches() -> None:
    refused = np.zeros(N, dtype=bool)
    refused[:10] = True
    records = rows("clean", 0, CLEAN, watched=True)
    records += rows("fog", 3, CLEAN, rejected=refused)
    found = results(records)
    assert find(found, "rr", "severity=3").value == pytest.approx(0.25)
    assert find(found, "asa", "severity=3").value == pytest.approx(1.0)
    assert find(found, "aa", "severity=3").value == pytest.approx(0.75)
    overall = find(found, "asa", "")
    people = 20 + 2 * 20
    assert (overall.value, overall.high) == pytest.approx((1.0, 1.0))
    assert overall.low == pytest.approx(wilson(people, people).low)
    mean = find(found, "aa", "")
    assert mean.low is not None and mean.high is not None and mean.low < 0.75 < mean.high
    # As a decision a rejection is a non-match: right for the five strangers among the ten.
    assert find(found, "accuracy", "severity=3").value == pytest.approx(1 - 5 / 40)


def test_a_condition_in_which_everything_is_rejected_has_a_number() -> None:
    records = rows("clean", 0, CLEAN, watched=True)
    records += rows("fog", 5, CLEAN, rejected=np.ones(N, dtype=bool))
    found = results(records, "frozen", "oracle", "kfold")
    assert find(found, "rr", "severity=5").value == 1.0
    assert find(found, "asa", "severity=5").value is None
    accuracies = [r.value for r in found if r.metric == "accuracy" and r.method == "fog"]
    assert accuracies == [0.5, 0.5, 0.5]


def test_models_are_compared_with_holm_over_all_cells() -> None:
    records = []
    for model, counts in (("first", (2, 9)), ("second", (1, 0))):
        records += rows("clean", 0, CLEAN, model=model)
        for severity, count in zip((1, 5), counts, strict=True):
            records += rows("fog", severity, wrong(count), model=model)
    found = results(records)
    cells = [each for each in found if each.metric == "p_holm"]
    right = {
        count: np.r_[np.zeros(count, dtype=bool), np.ones(N - count, dtype=bool)]
        for count in (0, 1, 2, 9)
    }
    tests = [mcnemar(right[2], right[1]), mcnemar(right[9], right[0])]
    expected = holm([test.p_value for test in tests])
    assert [each.value for each in cells] == pytest.approx(expected.tolist())
    assert [each.n for each in cells] == [1, 9]
    assert {each.model for each in cells} == {"second"}
    gain = find(found, "acc_cor_difference", "against=first")
    assert gain.value == pytest.approx((1 + 9) / 80)
    assert gain.low is not None and gain.low > 0
    ratio = find(found, "mce", "against=first")
    assert ratio.value == pytest.approx(1 / 11)
    assert ratio.low is not None and ratio.high is not None and ratio.low < 1 / 11 < ratio.high


def test_pairs_unreadable_under_any_condition_are_left_out_of_all() -> None:
    records = rows("clean", 0, CLEAN) + rows("fog", 1, CLEAN)
    records[N + 3] |= {"outcome": "unreadable", "score": None}
    found = results(records)
    assert {each.n for each in found if each.metric == "accuracy"} == {N - 1}


def test_corrupted_records_without_clean_ones_give_no_result() -> None:
    assert results(rows("clean", 0, CLEAN)) == []
