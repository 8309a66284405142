from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any

import cv2
import numpy as np
import pyarrow as pa
import pytest
from toy_faces import make_plan_spec, write_picture

from onnxfr.corruptions import apply_chain, corrupt, oodface_names
from onnxfr.data.images import load_pixels, to_images
from onnxfr.data.pairs import open_pairs
from onnxfr.errors import SpecError, UnknownName
from onnxfr.evaluators import corrupted_faces
from onnxfr.evaluators.corruption import CorruptedVerification
from onnxfr.evaluators.planning import Plan, make_evaluator, plan_run
from onnxfr.models.wrapper import OnnxModel, load_model
from onnxfr.runs.cells import Cell
from onnxfr.runs.context import Context
from onnxfr.runs.records import join, to_table
from onnxfr.runs.spec import EvaluatorSpec

FEW: dict[str, Any] = {"corruptions": ["shot_noise"], "severities": [2, 5], "examples": 1}


def _plan(context: Context, model: Path, data: str, **params: Any) -> Plan:
    entry = {"name": "corruption", "params": params}
    return plan_run(make_plan_spec([model], data, evaluators=[entry], fmr=0.05), context)


def _run(cell: Cell, context: Context) -> pa.Table:
    return to_table(cell, CorruptedVerification().run(cell, context))


def _records(context: Context, model: Path, data: str, **params: Any) -> pa.Table:
    return join([_run(cell, context) for cell in _plan(context, model, data, **params).cells])


def _scores(table: pa.Table, method: str, severity: int) -> Any:
    rows = table.filter(pa.compute.equal(table["method"], method))
    rows = rows.filter(pa.compute.equal(rows["severity"], severity))
    return rows["score"].to_numpy()


def test_the_plan_has_a_clean_cell_and_one_for_each_corruption_and_chain(
    tmp_path: Path, toy_model: Path, toy_faces: Path
) -> None:
    data = f"folder:{toy_faces}"
    plan = _plan(Context(tmp_path), toy_model, data, chains=["jpeg:30>webp:20"])
    assert [cell.method for cell in plan.cells] == [
        "clean",
        *oodface_names(),
        "jpeg:30 > webp:20",
    ]
    images = len(set(open_pairs(data).left.tolist()))
    assert [cell.cost.images for cell in plan.cells[1:3]] == [5 * images, 5 * images]
    assert plan.cells[0].priority > plan.cells[1].priority


def test_groups_of_corruptions_can_be_named_and_mixed() -> None:
    every = CorruptedVerification(corruptions=("fog", "extended", "fog"))
    assert (
        make_evaluator(
            EvaluatorSpec(name="corruption", params={"corruptions": ["fog", "extended", "fog"]})
        )
        == every
    )


@pytest.mark.parametrize(
    "params",
    [
        {"corruptions": ["fogg"]},
        {"severities": [6]},
        {"chains": ["sparkle:3"]},
        {"apply_to": "nobody"},
        {"thresholds": []},
        {"preset": "mine"},
        {"corruptions": []},
        {"examples": -1},
    ],
    ids=str,
)
def test_wrong_parameters_are_refused_before_any_work(params: dict[str, Any]) -> None:
    with pytest.raises((SpecError, UnknownName)):
        make_evaluator(EvaluatorSpec(name="corruption", params=params))


@pytest.mark.parametrize("apply_to", ["probe", "reference", "both"])
def test_scores_are_those_of_the_corrupted_pictures(
    tmp_path: Path, toy_model: Path, toy_faces: Path, apply_to: str
) -> None:
    data = f"folder:{toy_faces}"
    table = _records(Context(tmp_path), toy_model, data, apply_to=apply_to, **FEW)
    pairs, model = open_pairs(data), load_model(toy_model)
    ids = [image.id for image in pairs.images]
    clean = np.stack([load_pixels(image) for image in pairs.images])
    noisy = corrupt(clean, "shot_noise", 5, ids=ids)
    left = noisy if apply_to != "reference" else clean
    right = noisy if apply_to != "probe" else clean
    expected = model.similarity(
        to_images(list(left[pairs.left])), to_images(list(right[pairs.right]))
    )
    np.testing.assert_allclose(_scores(table, "shot_noise", 5), expected, atol=1e-5)
    untouched = model.similarity(
        to_images(list(clean[pairs.left])), to_images(list(clean[pairs.right]))
    )
    np.testing.assert_allclose(_scores(table, "clean", 0), untouched, atol=1e-5)


def test_a_chain_is_applied_with_the_seed_of_the_run(
    tmp_path: Path, toy_model: Path, toy_faces: Path
) -> None:
    data, chain = f"folder:{toy_faces}", "resize:0.6 > noise:0.05 > jpeg:40"
    params = {**FEW, "corruptions": [], "chains": [chain], "apply_to": "both"}
    table = _records(Context(tmp_path), toy_model, data, **params)
    pairs = open_pairs(data)
    ids = [image.id for image in pairs.images]
    sent = apply_chain(
        np.stack([load_pixels(image) for image in pairs.images]), chain, ids=ids, seed=0
    )
    expected = load_model(toy_model).similarity(
        to_images(list(sent[pairs.left])), to_images(list(sent[pairs.right]))
    )
    np.testing.assert_allclose(_scores(table, chain, 1), expected, atol=1e-5)


def test_blocks_change_nothing_and_each_picture_is_embedded_once_per_severity(
    tmp_path: Path, toy_model: Path, toy_faces: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    data = f"folder:{toy_faces}"
    whole = _records(Context(tmp_path / "a"), toy_model, data, apply_to="both", **FEW)
    monkeypatch.setattr(corrupted_faces, "_BLOCK", 3)
    seen: list[int] = []
    embed = OnnxModel.embed

    def counting(self: OnnxModel, images: Any) -> Any:
        seen.append(len(images))
        return embed(self, images)

    monkeypatch.setattr(OnnxModel, "embed", counting)
    cut = _records(Context(tmp_path / "b"), toy_model, data, apply_to="both", **FEW)
    assert sum(seen) == len(open_pairs(data).images) * (1 + 2)
    np.testing.assert_allclose(
        cut["score"].to_numpy(), whole["score"].to_numpy(), atol=1e-5, equal_nan=True
    )
    assert cut["example"].to_pylist() == whole["example"].to_pylist()


def test_examples_show_the_picture_at_every_severity(
    tmp_path: Path, toy_model: Path, toy_faces: Path
) -> None:
    table = _records(Context(tmp_path), toy_model, f"folder:{toy_faces}", **{**FEW, "examples": 2})
    kept = table.filter(table["example"].is_valid())
    assert sorted(kept["severity"].to_pylist()) == [0, 0, 2, 2, 5, 5]
    blob = np.frombuffer(kept["example"][0].as_py(), np.uint8)
    assert cv2.imdecode(blob, cv2.IMREAD_COLOR).shape == (112, 112, 3)


def test_photographs_of_frost_are_part_of_the_cell_and_of_the_picture(
    tmp_path: Path, toy_model: Path, toy_faces: Path
) -> None:
    data, photos = f"folder:{toy_faces}", tmp_path / "frost"
    photos.mkdir()
    params = {**FEW, "corruptions": ["frost"], "examples": 0}
    with pytest.raises(SpecError, match="frost_photographs"):
        _plan(Context(tmp_path), toy_model, data, frost_photographs=str(photos), **params)
    write_picture(photos / "ice.png", np.random.default_rng(0).random((9, 9, 3)), size=300)
    own = _plan(Context(tmp_path), toy_model, data, frost_photographs=str(photos), **params)
    plain = _plan(Context(tmp_path), toy_model, data, **params)
    assert own.cells[1].key != plain.cells[1].key
    tables = [_run(plan.cells[1], Context(tmp_path)) for plan in (own, plain)]
    assert tables[0]["score"].to_pylist() != tables[1]["score"].to_pylist()


def test_unreadable_and_small_pictures_are_left_out_by_name(
    tmp_path: Path, toy_model: Path, toy_faces: Path
) -> None:
    faces = tmp_path / "faces"
    shutil.copytree(toy_faces, faces)
    (faces / "p0" / "0.png").write_bytes(b"no picture")
    data = f"folder:{faces},aligned=yes"
    table = _records(Context(tmp_path), toy_model, data, **FEW)
    bad = [pair for pair in table["pair"].to_pylist() if "p0/0.png" in pair]
    left_out = table.filter(pa.compute.equal(table["outcome"], "unreadable"))
    assert left_out.num_rows == len(bad) > 0
    assert not any(left_out["rejected"].to_pylist())


def test_rejections_are_real_on_pictures_that_are_aligned_here(
    shared_data: Path, toy_model: Path, tmp_path: Path
) -> None:
    photos = sorted((shared_data / "lfw_250_fold1").rglob("*.jpg"))
    people: dict[str, list[Path]] = {}
    for path in photos:
        people.setdefault(path.parent.name, []).append(path)
    for name, paths in [entry for entry in people.items() if len(entry[1]) > 1][:3]:
        for path in paths[:2]:
            target = tmp_path / "faces" / name / path.name
            target.parent.mkdir(parents=True, exist_ok=True)
            shutil.copy(path, target)
    table = _records(
        Context(tmp_path / "cache"),
        toy_model,
        f"folder:{tmp_path / 'faces'},aligned=no",
        corruptions=["contrast", "sunglasses", "defocus_blur"],
        severities=[1, 5],
        examples=1,
    )
    refused = {
        (method, severity): rejected
        for method, severity, rejected in zip(
            *(table[name].to_pylist() for name in ("method", "severity", "rejected")), strict=True
        )
        if rejected
    }
    assert ("clean", 0) not in refused
    assert ("defocus_blur", 5) in refused or ("contrast", 5) in refused
    assert set(table["outcome"].to_pylist()) >= {"scored", "no_face"}


def test_the_detector_can_watch_ready_made_crops(
    shared_data: Path, toy_model: Path, tmp_path: Path
) -> None:
    data = f"lfw:{shared_data / 'lfw_112'}"
    context = Context(tmp_path)
    entry = {
        "name": "corruption",
        "params": {"detect": True, "corruptions": ["salt_pepper"], "severities": [5]},
    }
    plan = plan_run(
        make_plan_spec([toy_model], data, evaluators=[entry], max_pairs=6, fmr=0.5), context
    )
    table = join([_run(cell, context) for cell in plan.cells])
    refused = table.filter(table["rejected"])["method"].to_pylist()
    assert "clean" not in refused
    assert "salt_pepper" in refused
    metrics = {result.metric for result in CorruptedVerification().summarise(table)}
    assert metrics >= {"rr", "asa", "aa"}
