from __future__ import annotations

from pathlib import Path

import cv2
import numpy as np
import pytest

from onnxfr.alignment.aligner import Aligner, Outcome, Rejection
from onnxfr.alignment.detector import Detector
from onnxfr.data.images import image_sha
from onnxfr.data.pairs import ImageSource, open_pairs
from onnxfr.evaluators.crops import CropStore
from onnxfr.evaluators.faces import embed_faces
from onnxfr.runs.context import Context


@pytest.fixture(scope="module")
def aligner(shared_data: Path) -> Aligner:
    detector = Detector(shared_data / "models" / "detectors" / "yunet_n_dynamic.onnx")
    return Aligner("arcface", (112, 112), detector=detector)


@pytest.fixture
def photograph(shared_data: Path, tmp_path: Path) -> Path:
    """One real, unaligned photograph in a place of its own."""
    source = next(iter(sorted((shared_data / "lfw_250_fold1").glob("*/*.jpg"))))
    target = tmp_path / "photo.jpg"
    target.write_bytes(source.read_bytes())
    return target


def test_a_face_is_cut_once_and_found_again(
    aligner: Aligner, photograph: Path, tmp_path: Path
) -> None:
    store = CropStore(tmp_path / "crops", aligner)
    source = ImageSource("photo", path=photograph)
    key = store.key(source, image_sha(source))
    crop = store.crop(source, key)
    assert isinstance(crop, np.ndarray)
    assert crop.shape == (112, 112, 3)
    photograph.unlink()
    again = CropStore(tmp_path / "crops", aligner).crop(source, key)
    assert np.array_equal(crop, again)


def test_a_rejection_is_kept_too(aligner: Aligner, tmp_path: Path) -> None:
    blank = tmp_path / "blank.png"
    cv2.imwrite(str(blank), np.full((200, 200, 3), 128, dtype=np.uint8))
    store, source = CropStore(tmp_path / "crops", aligner), ImageSource("blank", path=blank)
    key = store.key(source, image_sha(source))
    first = store.crop(source, key)
    assert isinstance(first, Rejection)
    assert first.outcome is Outcome.NO_FACE
    blank.unlink()
    again = store.crop(source, key)
    assert isinstance(again, Rejection)
    assert (again.outcome, again.reason) == (first.outcome, first.reason)


def test_a_damaged_crop_is_cut_again(aligner: Aligner, photograph: Path, tmp_path: Path) -> None:
    store, source = CropStore(tmp_path / "crops", aligner), ImageSource("photo", path=photograph)
    key = store.key(source, image_sha(source))
    crop = store.crop(source, key)
    (stored,) = (tmp_path / "crops").rglob("*.png")
    stored.write_bytes(stored.read_bytes()[:500])
    assert np.array_equal(store.crop(source, key), crop)


def test_given_landmarks_are_used_and_are_part_of_the_key(
    aligner: Aligner, photograph: Path, tmp_path: Path
) -> None:
    store = CropStore(tmp_path / "crops", aligner)
    points = np.array([[100, 110], [150, 110], [125, 140], [105, 165], [145, 165]], np.float32)
    plain = ImageSource("photo", path=photograph)
    marked = ImageSource("photo", path=photograph, landmarks=points)
    digest = image_sha(plain)
    assert store.key(plain, digest) != store.key(marked, digest)
    assert not np.array_equal(
        store.crop(plain, store.key(plain, digest)), store.crop(marked, store.key(marked, digest))
    )


def test_pictures_without_a_face_reach_the_records_as_rejections(
    aligner: Aligner, photograph: Path, toy_model: Path, tmp_path: Path
) -> None:
    folder = tmp_path / "people"
    for person in ("a", "b"):
        (folder / person).mkdir(parents=True)
        for number in range(2):
            blank = np.full((150, 150, 3), 40 * number + len(person), dtype=np.uint8)
            cv2.imwrite(str(folder / person / f"{number}.png"), blank)
    (folder / "a" / "0.png").unlink()
    (folder / "a" / "real.jpg").write_bytes(photograph.read_bytes())
    pairs = open_pairs(f"folder:{folder}")
    context = Context(tmp_path / "cache")
    crops = CropStore(tmp_path / "crops", aligner)
    found = embed_faces(context, context.identify(str(toy_model)), pairs, crops=crops)
    outcome = dict(zip((source.id for source in pairs.images), found.outcome, strict=True))
    assert outcome["a/real.jpg"] is Outcome.ALIGNED
    assert outcome["b/0.png"] is Outcome.NO_FACE
    assert found.usable.sum() == 1
