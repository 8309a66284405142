"""The real PyTorch checkpoints give the embeddings of their ONNX copies on real faces."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import numpy as np
import onnxruntime as ort
import pytest
from numpy.typing import NDArray
from PIL import Image

from onnxfr.exporters.pytorch import (
    detect_architecture,
    export_pytorch,
    load_architecture,
    read_checkpoint,
)

Batch = NDArray[np.float32]


def faces(folder: Path, count: int = 8) -> Batch:
    paths = sorted((folder / "lfw_112").glob("*/*_0001.jpg"))[:count]
    stack = np.stack([np.asarray(Image.open(path).convert("RGB")) for path in paths])
    return np.ascontiguousarray(stack.transpose(0, 3, 1, 2), dtype=np.float32)


def embed(model: bytes | str, images: Batch) -> Batch:
    session = ort.InferenceSession(model, providers=["CPUExecutionProvider"])
    name = session.get_inputs()[0].name
    rows = [session.run(None, {name: images[i : i + 1]})[0][0] for i in range(len(images))]
    stacked: Batch = np.stack(rows)
    unit: Batch = stacked / np.linalg.norm(stacked, axis=1, keepdims=True)
    return unit


def whole(images: Batch) -> Batch:
    return images


def middle(images: Batch) -> Batch:
    return np.ascontiguousarray(images[:, :, :, 8:104])


@pytest.mark.parametrize(
    ("weights", "copy", "name", "crop", "copy_normalises"),
    [
        (
            "mobilefacenet_foamliu.pt",
            "mobilefacenet_foamliu",
            "mobilefacenet_foamliu",
            whole,
            False,
        ),
        (
            "xiaoccer_mobilefacenet_068.ckpt",
            "mobilefacenet_xiaoccer_112x96",
            "mobilefacenet_112x96",
            middle,
            True,
        ),
        ("edgeface_xxs_q.pt", "edgeface_xxs_dequant", "edgeface_xxs", whole, True),
    ],
)
@pytest.mark.filterwarnings("ignore")
def test_checkpoint_equals_its_onnx_copy(
    shared_data: Path,
    weights: str,
    copy: str,
    name: str,
    crop: Callable[[Batch], Batch],
    copy_normalises: bool,
) -> None:
    path = shared_data / "models" / "torch" / weights
    state = read_checkpoint(path).state_dict
    assert detect_architecture(state) == name
    _, found = load_architecture(state)
    assert found.complete
    assert not found.discarded
    assert len(found.state_dict) == len(state)

    exported = export_pytorch(path)
    hint = exported.preprocessing
    assert hint is not None
    assert exported.architecture == name
    images = crop(faces(shared_data))
    normalised = hint.apply(images / np.float32(255))
    ours = embed(exported.model.SerializeToString(), normalised)
    theirs = embed(
        str(shared_data / "models" / "onnx" / f"{copy}.onnx"),
        images if copy_normalises else normalised,
    )
    assert np.abs(ours - theirs).max() < 1e-5
    assert np.abs(ours[0] - ours[1]).max() > 0.01
