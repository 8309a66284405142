from __future__ import annotations

import re
import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from toy_faces import make_faces, make_plan_spec, write_picture

from onnxfr.alignment.aligner import Outcome
from onnxfr.data.images import load_pixels, to_images
from onnxfr.data.pairs import open_pairs
from onnxfr.errors import DataError, SpecError
from onnxfr.evaluators.faces import embed_faces, needs_alignment
from onnxfr.evaluators.planning import Plan, make_evaluator, plan_run
from onnxfr.evaluators.verification import Verification, hardest
from onnxfr.models.wrapper import OnnxModel, load_model
from onnxfr.runs.cells import ModelRef
from onnxfr.runs.context import Context
from onnxfr.runs.records import to_table
from onnxfr.runs.spec import EvaluatorSpec


def _plan(context: Context, model: Path, faces: Path, **params: Any) -> Plan:
    return plan_run(make_plan_spec([model], f"folder:{faces}", params), context)


def _records(context: Context, model: Path, faces: Path, **params: Any) -> pa.Table:
    (cell,) = _plan(context, model, faces, **params).cells
    return to_table(cell, Verification().run(cell, context))


def _count_embedded(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """Count the pictures that really go through the model."""
    seen: list[int] = []
    embed = OnnxModel.embed

    def counting(self: OnnxModel, images: Any) -> Any:
        seen.append(len(images))
        return embed(self, images)

    monkeypatch.setattr(OnnxModel, "embed", counting)
    return seen


def test_one_record_per_pair_with_the_cosine_of_its_pictures(
    tmp_path: Path, toy_model: Path, toy_faces: Path
) -> None:
    table = _records(Context(tmp_path), toy_model, toy_faces)
    pairs = open_pairs(f"folder:{toy_faces}")
    assert table["pair"].to_pylist() == pairs.pair_ids()
    assert table["same"].to_pylist() == pairs.same.tolist()
    assert set(table["outcome"].to_pylist()) == {"scored"}
    assert table["fold"].null_count == 0
    model = load_model(toy_model)
    left = to_images([load_pixels(pairs.images[i]) for i in pairs.left])
    right = to_images([load_pixels(pairs.images[i]) for i in pairs.right])
    np.testing.assert_allclose(table["score"].to_numpy(), model.similarity(left, right), atol=1e-5)


def test_no_picture_passes_through_the_model_twice(
    tmp_path: Path, toy_model: Path, toy_faces: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    seen = _count_embedded(monkeypatch)
    first = _records(Context(tmp_path), toy_model, toy_faces)
    assert sum(seen) == len(open_pairs(f"folder:{toy_faces}").images)
    seen.clear()
    again = _records(Context(tmp_path), toy_model, toy_faces)
    assert seen == []
    assert again.equals(first)


def test_copies_of_a_picture_are_embedded_once(
    tmp_path: Path, toy_model: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    faces = make_faces(tmp_path / "faces", people=3, pictures=3)
    shutil.copy(faces / "p0" / "0.png", faces / "p1" / "9.png")
    images = len(open_pairs(f"folder:{faces}").images)
    seen = _count_embedded(monkeypatch)
    _records(Context(tmp_path / "cache"), toy_model, faces)
    assert sum(seen) == images - 1


def test_an_unusable_cache_costs_speed_not_correctness(
    tmp_path: Path, toy_model: Path, toy_faces: Path
) -> None:
    (tmp_path / "cache").write_text("a file where a folder should be")
    broken = _records(Context(tmp_path / "cache"), toy_model, toy_faces)
    good = _records(Context(tmp_path / "good"), toy_model, toy_faces)
    np.testing.assert_allclose(broken["score"].to_numpy(), good["score"].to_numpy(), atol=1e-6)


def test_an_unreadable_picture_is_left_out_and_named(tmp_path: Path, toy_model: Path) -> None:
    faces = make_faces(tmp_path / "faces", people=4)
    broken = faces / "p0" / "0.png"
    broken.write_bytes(broken.read_bytes()[:200])
    table = _records(Context(tmp_path / "cache"), toy_model, faces)
    hit = [row for row in table.to_pylist() if "p0/0.png" in (row["left"], row["right"])]
    assert hit
    assert all(r["outcome"] == "unreadable" and r["score"] is None for r in hit)
    assert all(not row["rejected"] and row["reason"] for row in hit)
    numbers = {r.metric: r.value for r in Verification().summarise(table)}
    assert numbers["unreadable_pairs"] == len(hit)
    assert numbers["pairs"] == table.num_rows - len(hit)


def test_strict_stops_at_an_unreadable_picture(tmp_path: Path, toy_model: Path) -> None:
    faces = make_faces(tmp_path / "faces", people=4)
    (faces / "p1" / "2.png").write_bytes(b"\x89PNG\r\n\x1a\nnothing")
    with pytest.raises(DataError, match=r"p1/2\.png"):
        _records(Context(tmp_path / "cache"), toy_model, faces, strict=True)


def test_flip_adds_the_mirrored_embedding(tmp_path: Path, toy_model: Path, toy_faces: Path) -> None:
    table = _records(Context(tmp_path), toy_model, toy_faces, flip=True)
    assert set(table["method"].to_pylist()) == {"flip"}
    model, pairs = load_model(toy_model), open_pairs(f"folder:{toy_faces}")
    images = to_images([load_pixels(source) for source in pairs.images])
    both = model.embed(images) + model.embed(np.ascontiguousarray(images[..., ::-1]))
    both /= np.linalg.norm(both, axis=1, keepdims=True)
    expected = (both[pairs.left] * both[pairs.right]).sum(axis=1)
    np.testing.assert_allclose(table["score"].to_numpy(), expected, atol=1e-5)


def test_pictures_of_mixed_sizes_are_fitted(tmp_path: Path, toy_model: Path) -> None:
    faces = make_faces(tmp_path / "faces", people=3)
    write_picture(faces / "p0" / "large.png", np.random.default_rng(3).random((5, 5, 3)), 160)
    pairs = open_pairs(f"folder:{faces}")
    context = Context(tmp_path / "cache")
    ref = context.identify(str(toy_model))
    found = embed_faces(context, ref, pairs)
    assert found.usable.all()
    np.testing.assert_allclose(np.linalg.norm(found.embeddings, axis=1), 1, atol=1e-4)


def test_the_hardest_pairs_carry_faces(tmp_path: Path, toy_model: Path, toy_faces: Path) -> None:
    table = _records(Context(tmp_path), toy_model, toy_faces, examples=2)
    rows = [row for row in table.to_pylist() if row["left_face"] is not None]
    assert [row["same"] for row in rows].count(True) == 2
    assert len(rows) == 4
    assert all(row["left_face"].startswith(b"\xff\xd8") for row in rows)
    lowest = min(r["score"] for r in table.to_pylist() if r["same"])
    assert min(row["score"] for row in rows if row["same"]) == lowest
    none = _records(Context(tmp_path), toy_model, toy_faces, examples=0)
    assert none["left_face"].null_count == none.num_rows


def test_hardest_leaves_out_pairs_without_a_score() -> None:
    scores = np.array([0.9, np.nan, 0.2, 0.7, 0.1])
    same = np.array([True, True, True, False, False])
    assert hardest(scores, same, 1) == [2, 3]


def test_the_plan_is_deterministic_and_its_key_follows_what_decides_the_records(
    tmp_path: Path, toy_model: Path, toy_faces: Path
) -> None:
    context = Context(tmp_path)
    first, again = (_plan(context, toy_model, toy_faces).cells for _ in range(2))
    assert [cell.key for cell in first] == [cell.key for cell in again]
    keys = {
        _plan(context, toy_model, toy_faces, **params).cells[0].key
        for params in ({}, {"flip": True}, {"align": "no"}, {"examples": 1})
    }
    assert len(keys) == 4
    judged_elsewhere = _plan(context, toy_model, toy_faces, thresholds=[0.3]).cells[0].key
    assert judged_elsewhere == first[0].key


def test_a_card_that_changed_is_another_cell_though_the_network_is_the_same(
    tmp_path: Path, toy_model: Path, toy_faces: Path
) -> None:
    keys = []
    for name, template in (("toy", "arcface"), ("renamed", "arcface"), ("toy", "dlib")):
        folder = tmp_path / f"{name}-{template}"
        shutil.copytree(toy_model, folder)
        card = (folder / "card.toml").read_text(encoding="utf-8")
        card = re.sub(r"^name = .*$", f'name = "{name}"', card, flags=re.MULTILINE)
        card = re.sub(r"^template = .*$", f'template = "{template}"', card, flags=re.MULTILINE)
        (folder / "card.toml").write_text(card, encoding="utf-8")
        keys.append(_plan(Context(tmp_path / "cache"), folder, toy_faces).cells[0].key)
    assert len(set(keys)) == 3


def test_two_data_sets_of_one_name_are_refused_and_can_be_named(
    tmp_path: Path, toy_model: Path
) -> None:
    for place in ("one", "two"):
        make_faces(tmp_path / place / "people", people=3)
    texts = [f"folder:{tmp_path / place / 'people'}" for place in ("one", "two")]
    spec = make_plan_spec([toy_model], texts[0], {})
    with pytest.raises(SpecError, match=r"two data sets are called 'people'.*name="):
        plan_run(spec.model_copy(update={"data": tuple(texts)}), Context(tmp_path / "cache"))
    named = (texts[0], f"{texts[1]},name=others")
    plan = plan_run(spec.model_copy(update={"data": named}), Context(tmp_path / "cache"))
    assert [entry.name for entry in plan.data] == ["people", "others"]
    with pytest.raises(DataError, match="name= a text"):
        open_pairs(f"{texts[0]},name= ")


def test_pictures_that_change_after_planning_are_not_filed_under_the_old_ones(
    tmp_path: Path, toy_model: Path
) -> None:
    faces = make_faces(tmp_path / "faces", people=3)
    (cell,) = _plan(Context(tmp_path / "cache"), toy_model, faces).cells
    shutil.copy(faces / "p1" / "0.png", faces / "p0" / "0.png")
    with pytest.raises(DataError, match="changed after the run was planned"):
        Verification().run(cell, Context(tmp_path / "cache"))


def test_fewer_examples_than_none_are_refused() -> None:
    with pytest.raises(SpecError, match="examples"):
        make_evaluator(EvaluatorSpec(name="verification", params={"examples": -1}))


def test_the_evaluator_survives_its_own_manifest() -> None:
    params = {"flip": True, "thresholds": [0.25], "align": "no"}
    made = make_evaluator(EvaluatorSpec(name="verification", params=params))
    assert made == Verification(flip=True, thresholds=(0.25,), align="no")


@pytest.mark.parametrize(
    ("aligned", "align", "expected"),
    [
        (True, "auto", False),
        (None, "auto", True),
        (False, "auto", True),
        (True, "yes", True),
        (False, "no", False),
    ],
)
def test_alignment_is_done_unless_the_data_says_it_is_aligned(
    toy_faces: Path, aligned: bool | None, align: str, expected: bool
) -> None:
    from dataclasses import replace

    pairs = replace(open_pairs(f"folder:{toy_faces}"), aligned=aligned)
    assert needs_alignment(pairs, align) is expected


def test_a_file_that_vanishes_is_unreadable_not_a_crash(tmp_path: Path, toy_model: Path) -> None:
    faces = make_faces(tmp_path / "faces", people=3)
    pairs = open_pairs(f"folder:{faces}")
    (faces / "p0" / "1.png").unlink()
    context = Context(tmp_path / "cache")
    ref: ModelRef = context.identify(str(toy_model))
    found = embed_faces(context, ref, pairs)
    gone = [source.id for source in pairs.images].index("p0/1.png")
    assert found.outcome[gone] is Outcome.UNREADABLE
    assert found.usable.sum() == len(pairs.images) - 1
