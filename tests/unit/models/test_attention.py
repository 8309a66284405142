from __future__ import annotations

from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

from onnxfr.errors import UnsupportedModel
from onnxfr.models.admission import admit
from onnxfr.models.attention import attention
from onnxfr.models.ensemble import Ensemble
from onnxfr.models.wrapper import OnnxModel, load_model

SIDE = 32


def write_model(folder: Path, *, layers_behind: int) -> OnnxModel:
    """A convolution whose upper left quarter alone reaches the embedding, and layers behind it."""
    random = np.random.default_rng(0)
    quarter = np.zeros((1, 1, 8, 8), dtype=np.float32)
    quarter[..., :4, :4] = 1.0
    weights = {
        "kernel": random.standard_normal((6, 3, 4, 4)).astype(np.float32),
        "quarter": quarter,
        "dense": random.standard_normal((384, 32)).astype(np.float32),
        "more": np.linalg.qr(random.standard_normal((32, 32)))[0].astype(np.float32),
    }
    nodes = [
        helper.make_node("Conv", ["x", "kernel"], ["c"], strides=[4, 4]),
        helper.make_node("Relu", ["c"], ["r"]),
        helper.make_node("Mul", ["r", "quarter"], ["m"]),
        helper.make_node("Flatten", ["m"], ["f"]),
        helper.make_node("MatMul", ["f", "dense"], ["y0"]),
    ]
    for k in range(layers_behind):
        nodes.append(helper.make_node("MatMul", [f"y{k}", "more"], [f"y{k + 1}"]))
    graph = helper.make_graph(
        nodes,
        "corner",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, ["n", 3, SIDE, SIDE])],
        [helper.make_tensor_value_info(f"y{layers_behind}", TensorProto.FLOAT, ["n", 32])],
        [numpy_helper.from_array(value, name) for name, value in weights.items()],
    )
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 13)], ir_version=8)
    vendor = folder.with_suffix(".onnx")
    onnx.save(model, vendor)
    admit(vendor, folder, preprocess="rgb,pm1")
    return load_model(folder, threads=1)


@pytest.fixture(scope="module")
def corner(tmp_path_factory: pytest.TempPathFactory) -> OnnxModel:
    return write_model(tmp_path_factory.mktemp("attention") / "corner", layers_behind=0)


def faces(count: int, side: int = SIDE) -> np.ndarray:
    return np.random.default_rng(1).random((count, 3, side, side)).astype(np.float32)


def test_the_map_shows_the_only_places_that_matter(corner: OnnxModel) -> None:
    left, right = faces(6)[:3], faces(6)[3:]
    found = attention(corner, left, corner.embed(right))
    assert found.maps.shape == (3, SIDE, SIDE) and found.grid == (8, 8)
    np.testing.assert_allclose(found.similarity, corner.similarity(left, right), atol=1e-5)
    assert found.maps.max(axis=(1, 2)) == pytest.approx(1.0)
    # Bicubic enlargement blurs the border by two places of the map.
    assert found.maps[:, 24:, :].max() == 0.0 and found.maps[:, :, 24:].max() == 0.0


def test_a_row_is_the_same_alone_and_pictures_of_other_sizes_keep_theirs(corner: OnnxModel) -> None:
    left, references = faces(4), corner.embed(faces(4)[::-1].copy())
    together = attention(corner, left, references)
    alone = attention(corner, left[2:3], references[2:3])
    np.testing.assert_allclose(together.maps[2:3], alone.maps, atol=1e-5)
    assert attention(corner, faces(4, 48), references).maps.shape == (4, 48, 48)
    assert attention(corner, left[:0], references[:0]).maps.shape == (0, SIDE, SIDE)


def test_models_without_a_last_spatial_map_say_so(corner: OnnxModel, tmp_path: Path) -> None:
    deep = write_model(tmp_path / "deep", layers_behind=9)
    pictures = faces(1)
    with pytest.raises(UnsupportedModel, match="not available"):
        attention(deep, pictures, deep.embed(pictures))
    joined = Ensemble([corner, corner], [0.1, 0.1])
    with pytest.raises(UnsupportedModel, match="made of"):
        attention(joined, pictures, joined.embed(pictures))
