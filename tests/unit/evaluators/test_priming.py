"""Starts that a surrogate gives: on crops, on whole photographs, and in the api evaluator."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest
from toy_faces import Dice, make_model

from onnxfr.alignment.aligner import AlignedFace, Aligner
from onnxfr.alignment.detector import Detector
from onnxfr.attacks.decision._base import Game, candidates
from onnxfr.attacks.white_box.bim import BIM
from onnxfr.data.images import decode, to_images
from onnxfr.errors import SpecError
from onnxfr.evaluators.api import Api
from onnxfr.evaluators.attacked import EOT_SAMPLES
from onnxfr.evaluators.crafting import Surrogate, craft
from onnxfr.evaluators.pictures import to_pixels
from onnxfr.evaluators.planning import Plan, plan_run
from onnxfr.evaluators.priming import primed_photographs
from onnxfr.metrics.thresholds import Threshold
from onnxfr.models.wrapper import load_model
from onnxfr.oracle import Oracle
from onnxfr.probe import Probe, round8
from onnxfr.runs.context import Context
from onnxfr.runs.records import join, to_table
from onnxfr.runs.spec import make_spec
from onnxfr.threat import Threat
from onnxfr.types import Goal, Images


def surrogate_from(model: Path, threshold: float = 0.5) -> Surrogate:
    return Surrogate((load_model(model),), (Threshold(threshold),))


def photographs_of(folder: Path, count: int) -> Images:
    paths = sorted(folder.rglob("*.jpg"))[::70][:count]
    return to_images([decode(path.read_bytes(), path.name) for path in paths])


@pytest.fixture(scope="module")
def aligner(shared_data: Path) -> Aligner:
    detector = Detector(shared_data / "models" / "detectors" / "yunet_n_dynamic.onnx")
    return Aligner("arcface", (112, 112), detector=detector)


def crops_of(pictures: Images, aligner: Aligner) -> Images:
    cut = [aligner.align(to_pixels(picture)) for picture in pictures]
    return to_images([face.pixels for face in cut if isinstance(face, AlignedFace)])


def test_the_change_of_a_crop_goes_back_to_where_its_face_is(
    shared_data: Path, toy_model: Path, aligner: Aligner
) -> None:
    photographs = photographs_of(shared_data / "lfw_250_fold1", 6)
    probe = Probe(photographs[:3], ("a", "b", "c"), photographs[3:])
    surrogate = surrogate_from(toy_model)
    starts = primed_photographs(surrogate, probe, Goal.IMPERSONATE, 0, aligner)
    change = np.abs(starts - probe.images).max(axis=1)
    assert (change.max(axis=(1, 2)) > 8 / 255).all() and change.max() <= 16.5 / 255
    assert np.array_equal(starts, round8(starts)), "a start is a file"
    assert not change[:, :20].any() and not change[:, -20:].any(), "nothing around the face changes"
    references = crops_of(photographs[3:], aligner)
    before, after = (
        surrogate.members[0].similarity(crops_of(pictures, aligner), references)
        for pictures in (probe.images, starts)
    )
    assert (after > before + 0.05).all()


def test_a_randomised_surrogate_is_attacked_on_average(toy_model: Path) -> None:
    surrogate = Surrogate((Dice(load_model(toy_model)),), (Threshold(0.5),))
    rng = np.random.default_rng(0)
    pictures = rng.random((4, 3, 112, 112), dtype=np.float32)
    probe = Probe(pictures[:2], ("a", "b"), pictures[2:])
    calls: list[int] = []

    class Counting(BIM):
        def run(self, oracle: Oracle, *rest: object) -> Images:
            made = super().run(oracle, *rest)  # type: ignore[arg-type]
            calls.append(oracle._samples)
            return made

    threat = Threat(norm="linf", eps=8 / 255)
    craft(surrogate, probe, Counting(steps=2), threat, Goal.IMPERSONATE, seed=0)
    steady = surrogate_from(toy_model)
    craft(steady, probe, Counting(steps=2), threat, Goal.IMPERSONATE, seed=0)
    assert calls == [EOT_SAMPLES, 1]


def test_a_photograph_without_a_face_is_its_own_start(
    shared_data: Path, toy_model: Path, aligner: Aligner
) -> None:
    photographs = photographs_of(shared_data / "lfw_250_fold1", 4)
    faceless = np.full_like(photographs[0], 0.5)
    probe = Probe(np.stack([photographs[0], faceless]), ("face", "none"), photographs[2:])
    starts = primed_photographs(surrogate_from(toy_model), probe, Goal.DODGE, 0, aligner)
    assert not np.array_equal(starts[0], probe.images[0])
    assert np.array_equal(starts[1], probe.images[1])
    nobody = probe.take(np.array([1]))
    starts = primed_photographs(surrogate_from(toy_model), nobody, Goal.DODGE, 0, aligner)
    assert np.array_equal(starts, nobody.images)


def test_nobody_asks_about_a_start_that_is_the_clean_picture() -> None:
    rng = np.random.default_rng(0)
    clean, reference = rng.random((2, 3, 8, 8), dtype=np.float32)
    game = Game(clean, "l2", rng, start=clean.copy(), reference=reference)
    assert np.array_equal(next(iter(candidates(game))), reference)


def planned(model: Path, faces: Path, cache: Path, **changes: object) -> tuple[Plan, Context]:
    params = {"attacks": ["surfree"], "max_queries": 40, "attacked_pairs": 4, "align": "no"}
    params |= {"goals": ["impersonate"], "threshold": "fixed=0.1"}
    content = {
        "models": [str(model)],
        "data": [f"folder:{faces}"],
        "max_pairs": 24,
        "evaluators": [{"name": "api", "params": params | changes}],
    }
    context = Context(cache)
    return plan_run(make_spec(content, faces), context), context


def attacked(plan: Plan, context: Context) -> pa.Table:
    cells = [cell for cell in plan.cells if cell.method == "surfree"]
    return join([to_table(cell, Api().run(cell, context)) for cell in cells])


def test_with_a_surrogate_an_api_is_attacked_from_closer_by(
    tmp_path: Path, toy_model: Path, toy_faces: Path
) -> None:
    cold = attacked(*planned(toy_model, toy_faces, tmp_path))
    warm = attacked(*planned(toy_model, toy_faces, tmp_path, surrogate=str(toy_model)))
    assert "surrogate" not in cold.column_names and set(warm["surrogate"].to_pylist()) == {"toy"}
    far, near = (
        {r["pair"]: r["distance_at_10"] for r in table.to_pylist() if not r["won_clean"]}
        for table in (cold, warm)
    )
    assert len(far) >= 3 and all(near[pair] < 0.7 * far[pair] for pair in far)
    results = Api().summarise(warm)
    assert {result.method for result in results} == {"surfree (primed by toy)"}


def test_a_surrogate_of_an_api_must_give_gradients(
    tmp_path: Path, toy_model: Path, toy_faces: Path
) -> None:
    counting = make_model(tmp_path / "counting", whole_numbers=True)
    with pytest.raises(SpecError, match="no differentiable form"):
        planned(toy_model, toy_faces, tmp_path, surrogate=str(counting))
