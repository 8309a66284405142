from __future__ import annotations

from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from toy_faces import make_model

from onnxfr.errors import SpecError
from onnxfr.evaluators.planning import RunCell, plan_run
from onnxfr.evaluators.transfer import Transfer
from onnxfr.runs.context import Context
from onnxfr.runs.records import join
from onnxfr.runs.spec import make_spec

CHEAP: dict[str, Any] = {"attacks": ["mim"], "steps": 5, "pairs": 6, "align": "no", "examples": 1}


@pytest.fixture(scope="session")
def small_model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return make_model(tmp_path_factory.mktemp("model") / "small", seed=2, size=80)


@pytest.fixture
def models(toy_model: Path, other_model: Path, small_model: Path) -> list[Path]:
    return [toy_model, other_model, small_model]


def records(
    place: Path, models: list[Path], faces: Path, *, rows: int = 50, **params: Any
) -> pa.Table:
    asked = {
        "models": [str(model) for model in models],
        "data": [f"folder:{faces}"],
        "fmr": 0.1,
        "rows_per_cell": rows,
        "evaluators": [{"name": "transfer", "params": CHEAP | params}],
    }
    plan = plan_run(make_spec(asked, Path.cwd()), Context(place))
    work = RunCell(place)
    return join([work(cell, lambda done, total: None) for cell in plan.cells])


def test_every_source_meets_every_target_whatever_their_sizes(
    tmp_path: Path, models: list[Path], toy_faces: Path
) -> None:
    table = records(tmp_path, models, toy_faces)
    rows = table.to_pylist()
    assert len(rows) == 3 * 3 * 2 * 6
    for row in rows:
        accepted = row["score_8bit"] > row["threshold"]
        assert row["won_8bit"] == (accepted if row["goal"] == "impersonate" else not accepted)
        assert row["inside"] == (row["source"] == row["target"])
        assert row["linf"] <= 8 / 255 + 1e-6
        size = 80 if row["source"] == "small" else 112
        assert row["l2"] == pytest.approx(row["l2n"] * (3 * size * size) ** 0.5)
        assert row["threshold_origin"].endswith("fmr=1e-1")
    own = [row["won_8bit"] for row in rows if row["inside"]]
    before = [row["won_clean"] for row in rows if row["inside"]]
    assert sum(own) > sum(before)
    shown = [row for row in rows if row["adversarial_picture"] is not None]
    assert len(shown) == 3 * 2 and len({row["pair"] for row in shown}) == 2
    assert all("not available" in row["attention_note"] for row in rows if row["attention_note"])


def test_a_model_without_gradients_is_a_target_like_any_other(
    tmp_path: Path, toy_model: Path, other_model: Path, toy_faces: Path
) -> None:
    blind = make_model(tmp_path / "blind", seed=3, whole_numbers=True)
    rows = records(tmp_path, [toy_model, blind], toy_faces).to_pylist()
    assert {row["source"] for row in rows} == {"toy"}
    # An ensemble of all others does without it, too.
    others = records(tmp_path, [toy_model, other_model, blind], toy_faces, sources=["others"])
    meetings = set(zip(*(others[name].to_pylist() for name in ("members", "target")), strict=True))
    assert meetings == {("other", "toy"), ("toy", "other"), ("toy + other", "blind")}
    with pytest.raises(SpecError, match="with a differentiable form is called 'blind'"):
        records(tmp_path, [toy_model, blind], toy_faces, sources=["toy+blind"])
    shown = [row for row in rows if row["target"] == "blind" and row["attention_note"]]
    assert shown and all("no gradient" in row["attention_note"] for row in shown)
    assert {row["outcome"] for row in rows} == {"played"}


def test_a_plan_tells_what_views_cost(tmp_path: Path, models: list[Path], toy_faces: Path) -> None:
    asked = {
        "models": [str(model) for model in models],
        "data": [f"folder:{toy_faces}"],
        "evaluators": [{"name": "transfer", "params": CHEAP | {"attacks": ["si+ni+dim"]}}],
    }
    plan = plan_run(make_spec(asked, Path.cwd()), Context(tmp_path))
    assert {cell.cost.gradients for cell in plan.cells} == {5 * 5 * 6}


def test_cutting_the_run_differently_changes_nothing(
    tmp_path: Path, models: list[Path], toy_faces: Path
) -> None:
    def key(row: dict[str, Any]) -> tuple[str, ...]:
        return row["pair"], row["goal"], row["source"], row["target"]

    whole, pieces = (
        sorted(records(tmp_path / str(n), models[1:], toy_faces, rows=n).to_pylist(), key=key)
        for n in (50, 2)
    )
    assert len(whole) == len(pieces)
    for a, b in zip(whole, pieces, strict=True):
        assert key(a) == key(b) and a["won_8bit"] == b["won_8bit"]
        assert a["score_float"] == pytest.approx(b["score_float"], abs=1e-4)
        assert (a["adversarial_picture"] is None) == (b["adversarial_picture"] is None)


def test_pairs_the_source_gets_wrong_by_itself_are_attacked_all_the_same(
    tmp_path: Path, models: list[Path], toy_faces: Path
) -> None:
    table = records(
        tmp_path, models[:2], toy_faces, goals=["dodge"], threshold="fixed=0.999", sources=["toy"]
    )
    rows = table.to_pylist()
    assert all(row["won_clean"] for row in rows if row["inside"])
    assert all(row["linf"] > 4 / 255 for row in rows)


def test_ensembles_and_levels_are_sources(
    tmp_path: Path, models: list[Path], toy_faces: Path
) -> None:
    table = records(
        tmp_path, models, toy_faces, goals=["dodge"], sources=["others"], targets=["toy"]
    )
    rows = table.to_pylist()
    assert {row["source"] for row in rows} == {"all others (margin)"}
    assert {row["members"] for row in rows} == {"other + small"}
    assert {row["target"] for row in rows} == {"toy"} and not any(row["inside"] for row in rows)
    metrics = {result.metric for result in Transfer().summarise(table)}
    assert {"source_strength", "target_weakness", "transfer_mean", "asr_all_float"} <= metrics


def test_a_target_named_twice_is_shown_each_picture_once(
    tmp_path: Path, models: list[Path], toy_faces: Path
) -> None:
    table = records(tmp_path, models[:2], toy_faces, goals=["dodge"], targets=["toy", "toy"])
    assert table.num_rows == 2 * 6 and set(table["target"].to_pylist()) == {"toy"}


@pytest.mark.parametrize(
    ("params", "words"),
    [
        ({"attacks": ["lgc"]}, "accept-licence"),
        ({"attacks": ["cw"]}, "uses up a budget"),
        ({"targets": ["nobody"]}, "no model of this run is called 'nobody'"),
        ({"linf": ["9/0"]}, "such as 8/255"),
        ({"sources": ["levels:worst"]}, "ensemble mode"),
        ({"pairs": 0}, "pairs: .*greater than or equal to 1"),
        ({"pairs": -1}, "pairs: .*greater than or equal to 1"),
        ({"steps": 0}, "steps: .*greater than or equal to 1"),
        ({"linf": []}, "nothing to do"),
        ({"goals": []}, "nothing to do"),
        ({"threshold": "orcale"}, "threshold rule"),
        ({"linf": ["0.5/255"]}, "a file holds no change within linf 0.5/255"),
    ],
)
def test_what_cannot_be_planned_is_refused_before_any_work(
    tmp_path: Path, toy_model: Path, toy_faces: Path, params: dict[str, Any], words: str
) -> None:
    with pytest.raises(SpecError, match=words):
        records(tmp_path, [toy_model], toy_faces, **params)


def test_raw_pictures_are_refused_where_crops_of_one_model_are_none_of_another(
    tmp_path: Path, toy_model: Path, toy_faces: Path
) -> None:
    wider = make_model(tmp_path / "wider", size=128)
    words = r"aligned to arcface at 112x112 and arcface at 128x128.*aligned=yes"
    with pytest.raises(SpecError, match=words):
        records(tmp_path, [toy_model, wider], toy_faces, align="yes")
    assert len(records(tmp_path, [toy_model, wider], toy_faces, align="no"))


def row(attack: str, source: str, target: str, pair: int, won: bool) -> dict[str, Any]:
    return {
        "data": "d",
        "method": attack,
        "norm": "linf",
        "eps": 8 / 255,
        "goal": "dodge",
        "source": source,
        "members": source,
        "target": target,
        "level": "F" if source == target else "Z",
        "inside": source == target,
        "threshold": 0.3,
        "threshold_origin": "d@fmr=1e-3",
        "pair": f"p{pair}",
        "left_identity": f"person {pair}",
        "right_identity": f"person {pair}",
        "outcome": "played",
        "won_clean": False,
        "won_passed": False,
        "won_float": won,
        "won_8bit": won,
    }


def test_means_leave_out_the_diagonal_and_attacks_are_compared_pair_by_pair() -> None:
    rows = [
        row(attack, source, target, pair, source == target or pair < reach)
        for attack, reach in (("lgc", 12), ("mim", 4))
        for source in "ab"
        for target in "abc"
        for pair in range(20)
    ]
    found = {
        (r.metric, r.model, r.method, r.condition): r
        for r in Transfer().summarise(pa.Table.from_pylist(rows))
    }
    assert found["asr_all", "a", "lgc", "from a"].value == 1.0
    assert found["source_strength", "a", "lgc", ""].value == pytest.approx(0.6)
    assert found["target_weakness", "c", "mim", ""].value == pytest.approx(0.2)
    mean = found["transfer_mean", "all models", "lgc", ""]
    assert mean.value == pytest.approx(0.6) and mean.low < 0.6 < mean.high
    gain = found["transfer_gain", "all models", "lgc - mim", ""]
    assert gain.value == pytest.approx(0.4) and gain.low > 0
    assert found["transfer_gain_p", "all models", "lgc - mim", ""].value < 0.05
    assert found["asr_level", "c", "mim", "level=Z"].value == pytest.approx(0.2)


def test_attacks_are_compared_where_both_have_been_so_far() -> None:
    rows = [
        row(attack, source, "c", pair, source == "a")
        for attack in ("lgc", "mim")
        for source in "ab"
        for pair in range(20)
        if (attack, source) == ("lgc", "b") or source == "a" or pair < 10
    ]
    found = {r.metric: r for r in Transfer().summarise(pa.Table.from_pylist(rows))}
    assert (found["transfer_gain"].value, found["transfer_gain"].n) == (0.0, 20)
    assert found["transfer_gain_p"].value == 1.0
    apart = [
        each for each in rows if (each["method"], each["source"]) in (("lgc", "a"), ("mim", "b"))
    ]
    metrics = {r.metric for r in Transfer().summarise(pa.Table.from_pylist(apart))}
    assert "transfer_mean" in metrics and "transfer_gain" not in metrics


def test_full_knowledge_is_that_of_the_target_alone() -> None:
    alone = [row("mim", "a", "a", pair, pair < 9) for pair in range(10)]
    both = {"source": "a + b (margin)", "members": "a + b"}
    rows = alone + [each | both | {"won_8bit": False} for each in alone]
    (level,) = (
        r for r in Transfer().summarise(pa.Table.from_pylist(rows)) if r.metric == "asr_level"
    )
    assert (level.condition, level.value) == ("level=F", pytest.approx(0.9))


@pytest.mark.parametrize("order", ["ab", "ba"])
def test_a_level_is_its_strongest_single_source_whatever_their_order(order: str) -> None:
    reach = {"a": 2, "b": 7}
    rows = [row("mim", s, "c", pair, pair < reach[s]) for s in order for pair in range(10)]
    (level,) = (
        r for r in Transfer().summarise(pa.Table.from_pylist(rows)) if r.metric == "asr_level"
    )
    assert (level.condition, level.value) == ("level=Z", pytest.approx(0.7))


@pytest.mark.parametrize("order", [("small", "toy"), ("toy", "small")])
def test_an_ensemble_attacks_the_crop_that_shows_most(
    tmp_path: Path, toy_model: Path, toy_faces: Path, order: tuple[str, str], small_model: Path
) -> None:
    place = {"small": small_model, "toy": toy_model}
    rows = records(
        tmp_path,
        [place[name] for name in order],
        toy_faces,
        sources=("+".join(order),),
        targets=("small",),
        goals=("dodge",),
    ).to_pylist()
    for each in rows:
        assert each["l2"] == pytest.approx(each["l2n"] * (3 * 112 * 112) ** 0.5)
        assert each["score_clean"] != each["score_8bit"]


def test_a_handful_of_people_gives_a_wide_interval_instead_of_an_error() -> None:
    rows = [
        row("mim", source, target, pair, source == target or pair == 0)
        | {"left_identity": f"left {pair}", "right_identity": f"right {pair}"}
        for source in "ab"
        for target in "ab"
        for pair in range(3)
    ]
    found = {(r.metric, r.model): r for r in Transfer().summarise(pa.Table.from_pylist(rows))}
    mean = found["transfer_mean", "all models"]
    assert mean.value == pytest.approx(1 / 3)
    assert (mean.low, mean.high) == (0.0, 1.0)
