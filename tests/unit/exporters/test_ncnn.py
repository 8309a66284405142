"""The ncnn reader: against ncnn's own answers on a tiny net, and on a real one."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import cv2
import numpy as np
import onnx
import onnxruntime
import pytest
from numpy.typing import NDArray

from onnxfr.errors import OnnxfrError, UnreadableModel, UnsupportedModel
from onnxfr.exporters.ncnn import export_ncnn, read_param

GOLDEN = Path(__file__).parents[2] / "golden" / "exporters"
PARAM = GOLDEN / "ncnn" / "tiny.param"


def pictures() -> NDArray[np.float32]:
    count = np.arange(2 * 3 * 16 * 16)
    return ((count * count * 7 + count * 37) % 251).astype(np.float32).reshape(2, 3, 16, 16)


def run(model: onnx.ModelProto, images: NDArray[np.float32]) -> NDArray[np.float32]:
    session = onnxruntime.InferenceSession(model.SerializeToString())
    answer: NDArray[np.float32] = session.run(None, {session.get_inputs()[0].name: images})[0]
    return answer


def read_faces(paths: list[Path]) -> NDArray[np.float32]:
    """Return RGB pictures from 0 to 255, NCHW."""
    pixels = [cv2.cvtColor(cv2.imread(str(path)), cv2.COLOR_BGR2RGB) for path in paths]
    return np.stack(pixels).transpose(0, 3, 1, 2).astype(np.float32)


def unit(rows: NDArray[np.float32]) -> NDArray[np.float32]:
    return rows / np.linalg.norm(rows, axis=1, keepdims=True)


def changed(folder: Path, old: str, new: str) -> Path:
    shutil.copy(PARAM.with_suffix(".bin"), folder)
    text = PARAM.read_text()
    assert old in text
    (folder / PARAM.name).write_text(text.replace(old, new))
    return folder / PARAM.name


def test_a_tiny_net_answers_as_ncnn_does() -> None:
    expected = np.array(json.loads((GOLDEN / "answers.json").read_text())["ncnn"])
    made = export_ncnn(PARAM)
    assert np.abs(unit(run(made.model, pictures())) - unit(expected)).max() < 1e-5
    assert export_ncnn(PARAM.with_suffix(".bin")).model == made.model


def test_a_real_model_equals_the_mxnet_one_it_was_made_from(shared_data: Path) -> None:
    models = shared_data / "models"
    made = export_ncnn(models / "ncnn" / "honghu_mobilefacenet.param")
    faces = sorted((shared_data / "lfw_112").glob("B*/*_0001.jpg"))[:8]
    images = read_faces(faces)
    original = onnx.load(models / "onnx" / "mobilefacenet_y1_from_mxnet.onnx")
    difference = unit(run(made.model, images)) - unit(run(original, images))
    assert np.abs(difference).max() <= 1e-3


@pytest.mark.parametrize(
    ("old", "new", "error"),
    [
        ("6=216", "6=21600000000", "truncated"),
        ("6=216", "6=-216", "stored values"),
        ("2=3200", "2=3100", "more than the layers"),
        ("0=8 1=3 3=2 4=1 5=0", "0=8 1=3 3=0 4=1 5=0", "absurd"),
        ("0=8 1=3 3=2 4=1 5=0", "0=8 1=3 3=2 4=99999999 5=0", "absurd"),
        ("dw act_b sum", "dw nothing sum", "before it is computed"),
        ("11 12", "7 12", "promises"),
        ("PReLU act", "Magic act", "more than the layers"),
        ("BinaryOp sum", "Magic sum", "no ONNX form"),
        ("1 1 conv bn 0=8", "1 99 conv bn 0=8", "no ncnn layer"),
        ("7=8 9=1", "7=8 8=1 9=1", "int8"),
    ],
)
def test_lying_graphs_are_refused(old: str, new: str, error: str, tmp_path: Path) -> None:
    with pytest.raises(OnnxfrError, match=error):
        export_ncnn(changed(tmp_path, old, new))


def test_a_binary_graph_is_named(tmp_path: Path) -> None:
    (tmp_path / "tiny.param").write_bytes((7767517).to_bytes(4, "little") + bytes(50))
    with pytest.raises(UnsupportedModel, match="binary"):
        export_ncnn(tmp_path / "tiny.param")


def test_weights_must_lie_beside_the_graph(tmp_path: Path) -> None:
    shutil.copy(PARAM, tmp_path)
    with pytest.raises(UnreadableModel, match="half a model"):
        export_ncnn(tmp_path / PARAM.name)


def test_settings_with_lists_are_read() -> None:
    content = b"7767517\n1 1\nEltwise e 0 1 e 0=1 -23301=2,0.5,1.5\n"
    (layer,) = read_param(content)
    assert layer.settings == {0: (1.0,), 1: (0.5, 1.5)}


GATES = {
    "BinaryOp": ("InnerProduct fc 1 1 p fc 0=8 2=64", "BinaryOp y 2 1 c2 g y 0=2"),
    "gate first": ("InnerProduct fc 1 1 p fc 0=8 2=64", "BinaryOp y 2 1 g c2 y 0=2"),
    "Scale": ("InnerProduct fc 1 1 p fc 0=8 2=64", "Scale y 2 1 c2 g y 0=-233"),
    "Convolution": ("Convolution fc 1 1 p fc 0=8 1=1 6=64", "BinaryOp y 2 1 c2 g y 0=2"),
}


@pytest.mark.parametrize("side", [16, 8])
@pytest.mark.parametrize("kind", GATES)
def test_a_gate_of_one_number_per_channel_scales_channels(
    kind: str, side: int, tmp_path: Path
) -> None:
    """Squeeze and excitation; with as many channels as columns a wrong axis would fit too."""
    inner, product = GATES[kind]
    rows = [
        f"Input data 0 1 data 0={side} 1={side} 2=3",
        "Convolution c 1 1 data c 0=8 1=1 6=24",
        "Split s 1 2 c c1 c2",
        "Pooling p 1 1 c1 p 0=1 4=1",
        inner,
        "Sigmoid g 1 1 fc g",
        product,
    ]
    rng = np.random.default_rng(0)
    first, second = rng.normal(size=(8, 3)), rng.normal(size=(8, 8))
    (tmp_path / "m.param").write_text(f"7767517\n{len(rows)} 8\n" + "\n".join(rows) + "\n")
    parts = [bytes(4) + weight.astype("<f4").tobytes() for weight in (first, second)]
    (tmp_path / "m.bin").write_bytes(b"".join(parts))
    images = rng.normal(size=(1, 3, side, side)).astype(np.float32)
    maps = np.einsum("oc,nchw->nohw", first, images)
    gate = 1 / (1 + np.exp(-(maps.mean((2, 3)) @ second.T)))
    answer = run(export_ncnn(tmp_path / "m.param").model, images)
    np.testing.assert_allclose(answer, maps * gate[:, :, None, None], atol=1e-5)


def test_a_stored_vector_is_one_number_per_channel(tmp_path: Path) -> None:
    rows = [
        "Input data 0 1 data 0=8 1=8 2=3",
        "Convolution c 1 1 data c 0=8 1=1 6=24",
        "MemoryData m 0 1 m 0=8",
        "BinaryOp y 2 1 c m y 0=0",
    ]
    rng = np.random.default_rng(0)
    weight, shift = rng.normal(size=(8, 3)), rng.normal(size=8)
    (tmp_path / "m.param").write_text("7767517\n4 4\n" + "\n".join(rows) + "\n")
    numbers = [part.astype("<f4").tobytes() for part in (weight, shift)]
    (tmp_path / "m.bin").write_bytes(bytes(4) + b"".join(numbers))
    images = rng.normal(size=(2, 3, 8, 8)).astype(np.float32)
    answer = run(export_ncnn(tmp_path / "m.param").model, images)
    maps = np.einsum("oc,nchw->nohw", weight, images)
    np.testing.assert_allclose(answer, maps + shift[:, None, None], atol=1e-5)
