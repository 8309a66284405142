"""What a treatment does to pictures, and where it finds what it needs."""

from __future__ import annotations

from pathlib import Path
from typing import cast

import cv2
import numpy as np
import pytest
from toy_faces import write_picture

from onnxfr.alignment.aligner import Aligner
from onnxfr.alignment.detector import Detector
from onnxfr.corruptions import apply_chain, corrupt
from onnxfr.corruptions.occluders import TEMPLATE
from onnxfr.data.images import to_images
from onnxfr.data.pairs import ImageSource, PairSet
from onnxfr.errors import SpecError
from onnxfr.evaluators.corrupted_faces import Preparer
from onnxfr.evaluators.planning import plan_run
from onnxfr.evaluators.treatment import Treatment
from onnxfr.runs.context import Context
from onnxfr.runs.spec import read_spec


@pytest.mark.parametrize(
    ("method", "needed"),
    [
        ("clean", False),
        ("fog", False),
        ("cap", True),
        ("fog@2 > jpeg:30", False),
        ("resize:0.5 > cap@2 > jpeg:30", True),
    ],
)
def test_occluders_need_landmarks_in_chains_too(method: str, needed: bool) -> None:
    assert Treatment(method).needs_landmarks is needed


def test_an_occluder_of_a_chain_lies_on_the_face_of_an_unaligned_picture() -> None:
    grey = np.full((250, 250, 3), 128, dtype=np.uint8)
    points = (np.array(TEMPLATE) * 0.6 + np.array([110, 60])).astype(np.float32)
    blob = cv2.imencode(".png", grey)[1].tobytes()
    source = ImageSource("a", blob=blob, landmarks=points)
    only = np.zeros(1, dtype=np.intp)
    pairs = PairSet("one", (source,), only, only, np.ones(1, dtype=np.bool_))

    # Landmarks are given: nobody has to be looked for.
    aligner = Aligner(detector=cast(Detector, object()))

    def seen(method: str, severity: int) -> np.ndarray:
        preparer = Preparer(pairs, Treatment(method, (severity,)), (112, 112), aligner)
        (block,) = preparer.blocks([0])
        return block.images[0]

    alone, chained = seen("sunglasses", 5), seen("sunglasses@5 > jpeg:95", 1)
    assert np.abs(alone - 0.5).max() > 0.3, "the crop shows the glasses"
    assert np.abs(alone - chained).mean() < 0.02


def test_landmarks_of_the_data_set_place_occluders_on_ready_made_crops_too() -> None:
    grey = np.full((112, 112, 3), 128, dtype=np.uint8)
    blob = cv2.imencode(".png", grey)[1].tobytes()
    lower = (np.array(TEMPLATE) + np.array([0, 20])).astype(np.float32)
    sources = (ImageSource("told", blob=blob, landmarks=lower), ImageSource("usual", blob=blob))
    rows = np.arange(2)
    pairs = PairSet("two", sources, rows, rows, np.ones(2, dtype=np.bool_))
    (block,) = Preparer(pairs, Treatment("sunglasses", (5,)), (112, 112)).blocks([0, 1])
    told, usual = (
        np.flatnonzero((face != face[0, 0, 0]).any(axis=(0, 2))) for face in block.images
    )
    assert told[0] == usual[0] + 20
    (expected,) = corrupt(grey[None], "sunglasses", 5, ids=["usual"])
    np.testing.assert_array_equal(block.images[1], to_images([expected])[0])


def test_photographs_of_frost_reach_the_steps_of_a_chain(tmp_path: Path) -> None:
    photo = write_picture(tmp_path / "ice.png", np.random.default_rng(0).random((9, 9, 3)), 300)
    faces, text = np.full((1, 112, 112, 3), 128, dtype=np.uint8), "frost@3 > gamma:1.2"
    sent = Treatment(text, (1,), frost=str(tmp_path)).apply(faces, 1, ["a"])
    assert (sent != Treatment(text, (1,)).apply(faces, 1, ["a"])).any()
    assert (sent == apply_chain(faces, text, ids=["a"], frost_photographs=[photo])).all()


@pytest.mark.parametrize("name", ["corruption", "corruption_attack"])
def test_the_folder_of_frost_is_found_from_the_specification(
    tmp_path: Path,
    toy_model: Path,
    toy_faces: Path,
    monkeypatch: pytest.MonkeyPatch,
    name: str,
) -> None:
    place, elsewhere = tmp_path / "spec", tmp_path / "elsewhere"
    for folder in (place / "ice", elsewhere / "snow"):
        folder.mkdir(parents=True)
        write_picture(folder / "1.png", np.random.default_rng(0).random((9, 9, 3)), size=80)
    path = place / "run.toml"

    def write(frost: str) -> None:
        path.write_text(
            f"""models = ["{toy_model}"]
data = ["folder:{toy_faces}"]
[[evaluators]]
name = "{name}"
[evaluators.params]
corruptions = ["frost"]
frost_photographs = "{frost}"
""",
            encoding="utf-8",
        )

    monkeypatch.chdir(elsewhere)
    write("ice")
    cells = plan_run(read_spec(path), Context(tmp_path / "cache")).cells
    assert {cell.params["frost"] for cell in cells} == {str(place / "ice")}
    write("snow")
    with pytest.raises(SpecError, match="found none in"):
        plan_run(read_spec(path), Context(tmp_path / "cache"))
    write("")
    assert read_spec(path).evaluators[0].params["frost_photographs"] == ""
