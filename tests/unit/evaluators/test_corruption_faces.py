"""Corrupted pictures on their way to the model: portions that fit into memory, lone NaN answers."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pytest
from toy_faces import make_plan_spec

from onnxfr.corruptions import corrupt
from onnxfr.data.images import load_pixels, to_images
from onnxfr.data.pairs import ImageSource, PairSet, open_pairs
from onnxfr.errors import NonFiniteAnswer
from onnxfr.evaluators import corrupted_faces
from onnxfr.evaluators.corrupted_faces import Preparer
from onnxfr.evaluators.corruption import CorruptedVerification
from onnxfr.evaluators.planning import plan_run
from onnxfr.evaluators.report.section import SECTIONS, View
from onnxfr.evaluators.report.wording import count
from onnxfr.evaluators.treatment import Treatment
from onnxfr.models.geometry import fit_array
from onnxfr.models.wrapper import OnnxModel
from onnxfr.runs.context import Context
from onnxfr.runs.records import join, to_table

SIZE = (112, 112)
FEW: dict[str, Any] = {"corruptions": ["shot_noise"], "severities": [2, 5], "examples": 0}


def test_large_pictures_are_corrupted_a_few_at_a_time(monkeypatch: pytest.MonkeyPatch) -> None:
    shapes = [(1024, 1024)] * 5 + [(2304, 2000)] + [(112, 112)] * 4 + [(20, 20)]
    images = tuple(ImageSource(str(number)) for number in range(len(shapes)))
    rows = np.arange(len(images))
    pairs = PairSet("large", images, rows, rows, np.ones(len(images), dtype=np.bool_))

    def load(source: ImageSource) -> Any:
        number = int(source.id)
        return np.full((*shapes[number], 3), 10 * number, dtype=np.uint8)

    stacks: list[int] = []

    def apply(self: Treatment, pictures: Any, *_: Any) -> Any:
        stacks.append(pictures[..., 0].size)
        return pictures

    monkeypatch.setattr(corrupted_faces, "load_pixels", load)
    monkeypatch.setattr(Treatment, "apply", apply)
    blocks = Preparer(pairs, Treatment("contrast", (2, 4)), SIZE).blocks(range(len(images)))
    assert sorted(set(stacks)) == [4 * 112 * 112, 1024 * 1024, 4 * 1024 * 1024, 2304 * 2000]
    for severity in (2, 4):
        mine = [block for block in blocks if block.severity == severity]
        # Waiting for the model, they are as small as it wants them.
        assert all(block.images.shape[1:] == (3, *SIZE) for block in mine)
        shown: dict[int, Any] = {}
        for block in mine:
            shown.update(zip(block.indexes, block.images, strict=True))
        assert list(shown) == list(range(10))
        for number, face in shown.items():
            expected = fit_array(to_images([load(images[number])]), SIZE)[0]
            np.testing.assert_array_equal(face, expected)
        (refused,) = [block.refused for block in mine if block.refused]
        assert list(refused) == [10]


def _records(place: Path, model: Path, data: str) -> pa.Table:
    entry = {"name": "corruption", "params": FEW}
    context = Context(place)
    plan = plan_run(make_plan_spec([model], data, evaluators=[entry], fmr=0.05), context)
    run = CorruptedVerification().run
    return join([to_table(cell, run(cell, context)) for cell in plan.cells])


def test_a_picture_without_a_finite_answer_rejects_its_own_pairs_only(
    tmp_path: Path, toy_model: Path, toy_faces: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    data = f"folder:{toy_faces}"
    whole = _records(tmp_path / "a", toy_model, data)
    source = open_pairs(data).images[0]
    bad = to_images(list(corrupt(load_pixels(source)[None], "shot_noise", 5, ids=[source.id])))[0]
    embed = OnnxModel.embed

    def picky(self: OnnxModel, images: Any) -> Any:
        if any(np.array_equal(image, bad) for image in images):
            raise NonFiniteAnswer("expected finite embeddings, came NaN")
        return embed(self, images)

    monkeypatch.setattr(OnnxModel, "embed", picky)
    table = _records(tmp_path / "b", toy_model, data)
    probe = pc.starts_with(table["pair"], f"{source.id}|")
    hit = np.asarray(pc.and_(probe, pc.equal(table["severity"], 5)))
    assert hit.any() and not hit.all()
    silent = table.filter(pa.array(hit))
    assert set(silent["outcome"].to_pylist()) == {"no_score"}
    assert all(silent["rejected"].to_pylist()) and silent["score"].null_count == hit.sum()
    rest, before = (each.filter(pa.array(~hit)) for each in (table, whole))
    assert rest["outcome"].to_pylist() == before["outcome"].to_pylist()
    np.testing.assert_allclose(rest["score"].to_numpy(), before["score"].to_numpy(), atol=1e-5)


def test_pairs_without_a_finite_answer_match_nobody_and_are_told(
    tmp_path: Path, toy_model: Path, toy_faces: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    embed = corrupted_faces.embed_each

    def half(model: Any, images: Any) -> Any:
        answers = embed(model, images)
        answers[::2] = np.nan
        return answers

    monkeypatch.setattr(corrupted_faces, "embed_each", half)
    table = _records(tmp_path, toy_model, f"folder:{toy_faces}")
    results = CorruptedVerification().summarise(table)
    wanted = ("accuracy", "severity=5", "fmr")
    (right,) = [r for r in results if (r.metric, r.condition, r.protocol) == wanted]
    rows = table.filter(pc.equal(table["severity"], 5))
    scores = np.nan_to_num(rows["score"].to_numpy(), nan=-1.0)
    assert (scores == -1).any() and (scores > right.threshold).any()
    same = np.asarray(rows["same"])
    assert right.value == pytest.approx(((scores > right.threshold) == same).mean())
    view = View(table, tuple(results), {})
    sentences = [each.sentence for each in SECTIONS.get("corruption")().verdicts(view)]
    silent = pc.sum(pc.equal(table["outcome"], "no_score")).as_py()
    asked = pc.sum(pc.greater(table["severity"], 0)).as_py()
    assert any("no finite answer (NaN)" in each for each in sentences)
    assert any(f"in {count(silent)} of {count(asked)} judgements" in each for each in sentences)
