"""Attacks of one evaluation compared with each other, in runs that are whole and in broken ones."""

from __future__ import annotations

from typing import Any

import pyarrow as pa
import pytest

from onnxfr.checks import Flag
from onnxfr.evaluators.outcomes import attacked_groups
from onnxfr.evaluators.report.section import SECTIONS, View
from onnxfr.evaluators.white_box_lights import lights_of
from onnxfr.evaluators.white_box_results import results_of

EPS = 8 / 255


def record(method: str, pair: int, **more: Any) -> dict[str, Any]:
    won = more.pop("won", True)
    return {
        "model": "m",
        "data": "d",
        "method": method,
        "goal": "dodge",
        "norm": "linf",
        "eps": EPS,
        "outcome": "played",
        "reason": None,
        "pair": f"p{pair}",
        "left": "a",
        "right": "b",
        "left_identity": f"person {pair}",
        "right_identity": f"person {pair}",
        "won": won,
        "won_clean": False,
        "won_8bit": won,
        "distance": EPS,
        "seeks": "any",
        "gradients": 20,
        "gradients_to_win": 5 if won else None,
        "linf": EPS,
        "l2": 4.0,
        "l2n": 0.02,
        "psnr": 40.0,
        "ssim": 0.9,
        "protocol": "ours",
        "threshold": 0.3,
        "threshold_origin": "d@fmr=1e-3",
        "clean_picture": None,
        **dict.fromkeys(("flag", "light", "flag_value", "flag_message", "flag_pairs")),
        **more,
    }


def smallest(method: str, pair: int, distance: float | None) -> dict[str, Any]:
    found = {"won": distance is not None, "distance": distance or 0.0}
    return record(method, pair, eps=None, seeks="smallest", **found)


def compared(rows: list[dict[str, Any]]) -> list[Flag]:
    table = pa.Table.from_pylist(rows)
    flags = [flag for each in lights_of(table, attacked_groups(table)) for flag in each.flags]
    return [flag for flag in flags if flag.name == "black_box_beats_white_box"]


def test_an_unfinished_run_is_judged_on_the_pairs_that_all_attacks_have_played() -> None:
    rows = [record("bim", k, won=k > 0) for k in range(6)]
    rows += [record("square", k) for k in range(4)]
    (flag,) = compared(rows)
    assert flag.message.startswith("1 of 4 pairs")
    assert not compared([record("bim", 0), record("square", 1)])


@pytest.mark.parametrize("make", [record, lambda name, k: smallest(f"smallest:{name}", k, EPS)])
def test_attacks_that_share_no_pair_leave_a_report_without_a_worst_case(make: Any) -> None:
    rows = [make("bim", k) for k in range(4)] + [make("fgsm", k) for k in range(4, 8)]
    table = pa.Table.from_pylist(rows)
    view = View(table, tuple(results_of(table, {"linf": (EPS,)})), {})
    section = SECTIONS.get("white_box")()
    assert section.verdicts(view) == [] and section.headlines(view) == []
    assert "fgsm" in section.body(view)


def test_a_median_of_one_goal_is_not_read_as_the_other() -> None:
    rows = [smallest("fmn", k, (1 + k) / 255) | {"goal": "impersonate"} for k in range(3)]
    table = pa.Table.from_pylist(rows)
    view = View(table, tuple(results_of(table, {"linf": (EPS,)})), {})
    assert "– / 2.00" in SECTIONS.get("white_box")().body(view)


def test_curves_of_robfrs_suite_can_be_told_apart() -> None:
    names = ("fgsm", "bim", "mim")
    rows = [smallest(f"smallest(schedule=robfr):{name}", k, EPS) for name in names for k in (0, 1)]
    table = pa.Table.from_pylist(rows)
    body = SECTIONS.get("white_box")().body(View(table, tuple(results_of(table, {})), {}))
    assert all(f"robfr):{name}</text>" in body for name in names)


@pytest.mark.parametrize("light", ["green", "red"])
def test_checks_are_told_before_any_attack_is_done(light: str) -> None:
    flag = {"flag": "more_steps", "light": light, "flag_value": 0.2, "flag_message": "it gains"}
    table = pa.Table.from_pylist(
        [record("checks", 0, outcome="checked", flag_pairs=4, **flag)]
        + [record("bim", k, model="other") for k in range(3)]
    )
    view = View(table, tuple(results_of(table, {"linf": (EPS,)})), {})
    section = SECTIONS.get("white_box")()
    problems = [v.model for v in section.verdicts(view) if v.level == "problem"]
    assert problems == (["m"] if light == "red" else [])
    assert "m on d" in section.body(view) and "it gains" in section.body(view)


def test_attacks_that_seek_the_smallest_change_are_compared_at_every_budget() -> None:
    blind = [smallest("hopskipjump", k, (1 + k) / 255) for k in range(6)]
    seeing = [smallest("smallest:bim", k, None if k else 1 / 255) for k in range(6)]
    fixed = [record("bim", k, won=False, eps=eps) for k in range(6) for eps in (EPS, 2.5 / 255)]
    near, far = compared(blind + seeing + fixed)
    assert near.message.startswith("1 of 6 pairs") and far.message.startswith("5 of 6 pairs")
    assert near.light == far.light == "red"
    # Without an attack at a fixed budget, that of the checks decides.
    check = record("checks", 0, outcome="checked", eps=3 / 255, flag_pairs=4)
    (at,) = compared([check, *blind, *seeing])
    assert at.message.startswith("2 of 6 pairs")


def test_wins_of_an_attack_that_also_asks_for_scores_do_not_speak_for_gradients() -> None:
    rows = [record("bim", k, won=False) for k in range(6)]
    rows += [record(name, k) for name in ("square", "aa_fr") for k in range(6)]
    (flag,) = compared(rows)
    assert flag.light == "red" and flag.message.startswith("6 of 6 pairs")
    assert not compared([row for row in rows if row["method"] != "bim"])


def test_pairs_that_only_some_have_played_are_not_compared() -> None:
    """An interrupted run is no reason for red flags: one attack has played the hard pairs only."""
    searched = [smallest("smallest:fgsm", k, (1 + k) / 255) for k in range(20)]
    searched += [smallest("smallest:bim", k, 0.8 * (1 + k) / 255) for k in range(10, 20)]
    fixed = [record("bim", k, eps=2 / 255) for k in range(10)]
    fixed += [record("bim", k, eps=4 / 255, won=k < 10) for k in range(30)]
    for rows in (searched, fixed):
        table = pa.Table.from_pylist(rows)
        (lights,) = lights_of(table, attacked_groups(table))
        assert lights.worst == "green"
    apart = [smallest("smallest:fgsm", 0, 0.1), smallest("smallest:bim", 1, 0.2)]
    table = pa.Table.from_pylist(apart)
    assert lights_of(table, attacked_groups(table)) == []


@pytest.mark.parametrize("last", ["cw", "cw(steps=3)"])
def test_of_several_settings_of_one_attack_the_best_is_held_to_the_order(last: str) -> None:
    """A weak setting beside a strong one is an experiment, no masked gradient."""
    needed = {"cw": 0.01, "cw(steps=3)": 0.05, "smallest:bim": 0.011, "smallest:fgsm": 0.02}
    methods = [*(name for name in needed if name != last), last]
    rows = [smallest(name, k, needed[name]) for name in methods for k in range(5)]
    table = pa.Table.from_pylist(rows)
    (lights,) = lights_of(table, attacked_groups(table))
    (flag,) = [flag for flag in lights.flags if flag.name == "order_of_medians"]
    assert flag.light == "green", flag.message
