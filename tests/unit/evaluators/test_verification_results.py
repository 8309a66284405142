from __future__ import annotations

from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from onnxfr.errors import MetricError, SpecError
from onnxfr.evaluators.base import Result
from onnxfr.evaluators.report.expression import judge
from onnxfr.evaluators.scored import split
from onnxfr.evaluators.verification import Verification
from onnxfr.metrics.intervals import wilson


def _table(rows: list[dict[str, Any]], **constants: Any) -> pa.Table:
    fixed = {
        "model": "m",
        "method": "",
        "data": "my faces@home",
        "reason": None,
        "fold": None,
        "group": None,
        "left_identity": None,
        "right_identity": None,
        "left_face": None,
        "right_face": None,
        "aligned_here": False,
        "fmr": 1e-2,
        "card_thresholds": "[]",
        "rejected": False,
        "outcome": "scored",
        **constants,
    }
    full = []
    for number, row in enumerate(rows):
        pair = {"pair": f"pair{number}", "left": f"l{number}", "right": f"r{number}"}
        full.append({**fixed, **pair, **row})
    return pa.Table.from_pylist(full)


def _scores(genuine: list[float], impostor: list[float]) -> list[dict[str, Any]]:
    rows = [{"same": True, "score": score} for score in genuine]
    return rows + [{"same": False, "score": score} for score in impostor]


def _numbers(table: pa.Table, **params: Any) -> dict[tuple[str, str, str], Result]:
    found = Verification(**params).summarise(table)
    keys = [(r.metric, r.protocol, r.condition) for r in found]
    assert len(keys) == len(set(keys))
    return dict(zip(keys, found, strict=True))


def _many(genuine: int, impostor: int, seed: int = 0) -> list[dict[str, Any]]:
    rng = np.random.default_rng(seed)
    return _scores(
        np.clip(rng.normal(0.6, 0.1, genuine), -1, 1).tolist(),
        np.clip(rng.normal(0.1, 0.1, impostor), -1, 1).tolist(),
    )


def test_an_fmr_that_too_few_impostors_cannot_show_has_no_value() -> None:
    numbers = _numbers(_table(_many(300, 300)))
    assert numbers["tar", "fmr", "fmr=1e-2"].value is not None
    assert numbers["tar", "", "fmr=1e-3"].value is None
    assert numbers["tar", "", "fmr=1e-3"].n == 300
    assert ("accuracy", "fmr", "fmr=1e-3") not in numbers


def test_thresholds_at_an_fmr_are_counted_by_hand() -> None:
    impostor = [k / 1000 for k in range(300)]
    numbers = _numbers(_table(_scores([0.2, 0.2965, 0.5, 0.9], impostor)))
    tar = numbers["tar", "fmr", "fmr=1e-2"]
    assert tar.threshold == pytest.approx(0.296)
    assert tar.threshold_origin == "my-faces-home@fmr=1e-2"
    assert tar.value == pytest.approx(0.75)
    assert numbers["fmr", "fmr", "fmr=1e-2"].value == pytest.approx(0.01)
    assert numbers["fnmr", "fmr", "fmr=1e-2"].value == pytest.approx(0.25)


def test_every_rate_lies_in_its_interval() -> None:
    for result in _numbers(_table(_many(400, 400))).values():
        if result.low is not None and result.value is not None:
            assert result.high is not None
            assert result.low <= result.value <= result.high, result


def test_rejections_count_as_failures_of_the_system() -> None:
    rows = _many(300, 300)
    for row in rows[:30]:
        row.update(score=None, rejected=True, outcome="no_face")
    numbers = _numbers(_table(rows))
    condition = "fmr=1e-2"
    rr, asa, aa = (numbers[name, "fmr", condition].value for name in ("rr", "asa", "aa"))
    assert rr == pytest.approx(0.05)
    assert rr is not None and asa is not None and aa is not None
    assert aa == pytest.approx(asa * (1 - rr))
    assert numbers["frr", "fmr", condition].value == pytest.approx(
        numbers["fnmr", "fmr", condition].value
    )
    assert numbers["rejected_pairs", "", ""].value == 30


def test_folds_give_cross_validation_and_none_means_none() -> None:
    rows = _many(200, 200)
    for number, row in enumerate(rows):
        row["fold"] = number % 10
    numbers = _numbers(_table(rows))
    assert numbers["accuracy", "kfold10", ""].threshold_origin == "my-faces-home@10fold"
    assert numbers["accuracy_std", "kfold10", ""].n == 10
    without = _numbers(_table(_many(200, 200)))
    assert not any(protocol.startswith("kfold") for _, protocol, _ in without)
    assert without["accuracy", "oracle", ""].value is not None


def test_identities_give_the_wider_clustered_interval() -> None:
    rows = _many(200, 200)
    for number, row in enumerate(rows):
        row["fold"] = number // 20 % 10
        row["left_identity"] = f"p{number % 20}"
        row["right_identity"] = f"p{number % 20 if row['same'] else (number + 7) % 20}"
    numbers = _numbers(_table(rows))
    plain = numbers["accuracy", "kfold10", ""]
    people = numbers["accuracy_by_identity", "kfold10", ""]
    assert people.value == plain.value
    assert people.low is not None and people.high is not None
    assert people.low <= plain.value <= people.high  # type: ignore[operator]


def test_no_error_among_few_people_is_no_certainty() -> None:
    rows = _scores([0.9] * 40, [0.1] * 400)
    for number, row in enumerate(rows):
        row["fold"] = number % 10
        row["left_identity"] = f"p{number % 8}"
        row["right_identity"] = row["left_identity"] if row["same"] else f"q{number % 30}"
    numbers = _numbers(_table(rows), thresholds=(0.5,))
    for key, people, pairs in (
        (("accuracy_by_identity", "kfold10", ""), 38, 440),
        (("accuracy_by_identity", "fixed", "threshold=0.5"), 38, 440),
        (("tar_by_identity", "fmr", "fmr=1e-2"), 8, 40),
    ):
        found = numbers[key]
        assert (found.value, found.high, found.n) == (1.0, 1.0, pairs)
        assert found.low == pytest.approx(wilson(people, people).low)


def test_card_and_given_thresholds_are_judged_as_fixed() -> None:
    table = _table(_scores([0.3, 0.5], [0.1, 0.4]), card_thresholds='[[0.35,"lfw@10fold"]]')
    numbers = _numbers(table, thresholds=(0.2,))
    card = numbers["accuracy", "fixed", "threshold=0.35"]
    assert (card.value, card.threshold_origin) == (0.5, "lfw@10fold")
    given = numbers["accuracy", "fixed", "threshold=0.2"]
    assert (given.value, given.threshold_origin) == (0.75, "fixed")
    assert numbers["fnmr", "fixed", "threshold=0.35"].value == 0.5


def test_groups_get_their_own_rates_at_one_threshold() -> None:
    rows = _many(300, 300)
    for number, row in enumerate(rows):
        row["group"] = "north" if number % 2 else "south"
    for row in rows[:300]:
        if row["group"] == "north":
            row["score"] = 0.0
    numbers = _numbers(_table(rows))
    north, south = (numbers["frr", "fmr", f"group={name}"] for name in ("north", "south"))
    assert north.value == 1.0
    assert south.value is not None and south.value < 0.1
    assert north.threshold == south.threshold
    assert numbers["fdr", "fmr", ""].value == pytest.approx(1 - 0.5 * (1 - south.value), abs=0.02)


def test_one_class_alone_gives_counts_and_fixed_rates_only() -> None:
    numbers = _numbers(_table(_scores([0.5, 0.6], [])), thresholds=(0.55,))
    assert numbers["accuracy", "fixed", "threshold=0.55"].value == 0.5
    assert numbers["fmr", "fixed", "threshold=0.55"].value is None
    assert {metric for metric, _, _ in numbers} >= {"pairs", "genuine_pairs", "impostor_pairs"}
    assert ("eer", "", "") not in numbers


def test_everything_rejected_gives_counts() -> None:
    rows = [
        {"same": s, "score": None, "rejected": True, "outcome": "no_face"} for s in (True, False)
    ]
    numbers = _numbers(_table(rows))
    assert numbers["rejected_pairs", "", ""].value == 2
    assert ("accuracy", "oracle", "") not in numbers


def test_models_are_kept_apart() -> None:
    table = pa.concat_tables(
        [_table(_many(50, 50), model="a"), _table(_many(60, 60, seed=1), model="b")]
    )
    assert [(each.model, each.pair.size) for each in split(table)] == [("a", 100), ("b", 120)]


def test_the_operating_point_falls_back_to_what_the_data_resolve() -> None:
    (scored,) = split(_table(_many(400, 400), fmr=1e-3))
    assert scored.operating_point().target == 1e-2
    (tiny,) = split(_table(_many(20, 20), fmr=1e-3))
    assert tiny.operating_point().resolution == "unresolved"


def test_nothing_readable_gives_counts_and_no_crash() -> None:
    rows = [{"same": s, "score": None, "outcome": "unreadable"} for s in (True, False)]
    numbers = _numbers(_table(rows, card_thresholds='[[0.3,"lfw@10fold"]]'), thresholds=(0.2,))
    assert numbers["unreadable_pairs", "", ""].value == 2
    assert numbers["pairs", "", ""].value == 0


def test_a_gate_is_not_answered_by_rates_at_a_point_that_too_few_impostors_set() -> None:
    results = Verification().summarise(_table(_many(150, 150)))
    for metric in ("tar", "frr", "far", "asa"):
        with pytest.raises((SpecError, MetricError)):
            judge(f"{metric}@1e-2 > 2", {"a": [], "b": results, "delta": []})
    enough = Verification().summarise(_table(_many(150, 400)))
    assert not judge("frr@1e-2 > 2", {"a": [], "b": enough, "delta": []}).holds
