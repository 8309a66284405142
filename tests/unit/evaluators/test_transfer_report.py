from __future__ import annotations

from typing import Any

import pyarrow as pa
import pytest

from onnxfr.evaluators.report.heat_map import HeatMap, Square
from onnxfr.evaluators.report.section import View
from onnxfr.evaluators.report.sections.transfer import TransferSection
from onnxfr.evaluators.transfer import Transfer
from onnxfr.evaluators.transfer_records import COLUMNS

JPEG = b"\xff\xd8not a picture\xff\xd9"


def record(attack: str, source: str, target: str, goal: str, pair: int) -> dict[str, Any]:
    inside = source == target
    reach = {"lgc": 15, "mim": 3}[attack]
    shown = pair == 0
    return {
        "data": "faces",
        "method": attack,
        "pair": f"p{pair}",
        "left": f"p{pair}/a.jpg",
        "right": f"p{pair}/b.jpg",
        "left_identity": f"person {pair}",
        "right_identity": f"person {pair}",
        "same": goal == "dodge",
        "goal": goal,
        "norm": "linf",
        "eps": 8 / 255,
        "threshold": 0.3,
        "threshold_origin": "faces@fmr=1e-2",
        "source": source,
        "members": source,
        "target": target,
        "level": "F" if inside else "Z",
        "inside": inside,
        "steps": 20,
        "outcome": "played",
        "reason": None,
        "won_clean": False,
        "won_passed": False,
        "won_float": inside or pair < reach,
        "won_8bit": inside or pair < reach,
        "score_clean": 0.6,
        "score_float": 0.1,
        "score_8bit": 0.1,
        "linf": 8 / 255,
        "l2": 4.5,
        "l2n": 6 / 255,
        "psnr": 31.0,
        "ssim": 0.9,
        **dict.fromkeys(
            ("clean_picture", "adversarial_picture", "difference_picture", "reference_picture"),
            JPEG if shown and target == "<b>" else None,
        ),
        "difference_gain": 16.0,
        "clean_attention": JPEG if shown and target == "<b>" else None,
        "adversarial_attention": JPEG if shown and target == "<b>" else None,
        "attention_note": "maps are not available for it" if shown and target == "other" else None,
    }


def records() -> list[dict[str, Any]]:
    return [
        record(attack, source, target, goal, pair)
        for attack in ("mim", "lgc")
        for source in ("<b>", "other")
        for target in ("<b>", "other")
        for goal in ("dodge", "impersonate")
        for pair in range(20)
    ]


def view_of(rows: list[dict[str, Any]]) -> View:
    identity = [("data", pa.string()), ("method", pa.string())]
    table = pa.Table.from_pylist(rows, schema=pa.schema([*identity, *COLUMNS]))
    return View(table, tuple(Transfer().summarise(table)), {})


@pytest.fixture(scope="module")
def view() -> View:
    return view_of(records())


def test_verdicts_name_the_worst_case_the_better_attack_and_few_pairs(view: View) -> None:
    sentences = [verdict.sentence for verdict in TransferSection().verdicts(view)]
    assert any("never saw other" in text and "75.0 % of 20 pairs" in text for text in sentences)
    assert any("lgc transfers better than mim by 60.0 points" in text for text in sentences)
    assert any("rest on 20 pairs" in text for text in sentences)


def test_headlines_leave_out_the_model_attacking_itself(view: View) -> None:
    rows = TransferSection().headlines(view)
    assert {row.model for row in rows} == {"<b>", "other"}
    assert all(row.value == "75.0 %" for row in rows)


def test_an_ensemble_that_holds_the_target_is_no_attacker_who_never_saw_it() -> None:
    whole = {"source": "<b> + other (margin)", "members": "<b> + other", "inside": True}
    whole |= {"level": "", "won_float": True, "won_8bit": True}
    both = [row | whole for row in records() if row["source"] == "<b>"]
    view, section = view_of(records() + both), TransferSection()
    sentences = [verdict.sentence for verdict in section.verdicts(view)]
    assert not any("<b> + other" in text for text in sentences)
    assert any("never saw other" in text and "75.0 % of 20 pairs" in text for text in sentences)
    assert all(row.value == "75.0 %" for row in section.headlines(view))
    # Four maps of two models each; in every one the ensemble adds two white-box squares.
    alone, more = (
        str(section.body(each)).count("stroke-dasharray") for each in (view_of(records()), view)
    )
    assert more == alone + 4 * 2


def test_the_body_shows_maps_levels_pictures_and_says_what_is_missing(view: View) -> None:
    body = str(TransferSection().body(view))
    assert body == str(TransferSection().body(view))
    assert body.count("<svg") == 4 and "Dodging with lgc" in body
    assert "<b>," not in body and "&lt;b&gt;" in body
    assert "other architectures, other training data" in body
    assert body.count("data:image/jpeg") == 2 * 2 * 4 + 2 * 2
    assert "maps are not available for it" in body


def test_a_heat_map_writes_numbers_intervals_and_marks_the_diagonal() -> None:
    squares = {("a", "a"): Square(1.0, 0.8, 1.0, own=True), ("a", "b"): Square(0.25, 0.1, 0.5)}
    drawn = str(HeatMap("T", "d", ["a"], ["a", "b"], squares, {"a": Square(0.25)}, {}).render())
    assert "100 %" in drawn and "10–50" in drawn and drawn.count("stroke-dasharray") == 1


def test_rows_of_a_heat_map_that_begin_alike_can_be_told_apart() -> None:
    names = ["edgeface_xxs_dequant", "edgeface_xxs_dequant + mobilefacenet (gradient)"]
    squares = {(name, "a"): Square(0.5) for name in names}
    drawn = str(HeatMap("T", "d", names, ["a"], squares).render())
    assert "edgeface…_dequant</text>" in drawn and "edgeface…radient)</text>" in drawn
