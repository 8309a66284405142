"""The TensorFlow.js reader: against TensorFlow.js's own answers on a tiny net, and a real one."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import cv2
import numpy as np
import onnx
import onnxruntime
import pytest
from numpy.typing import NDArray

from onnxfr.errors import OnnxfrError, UnreadableModel, UnsafeFile, UnsupportedModel
from onnxfr.exporters.tfjs import export_tfjs

GOLDEN = Path(__file__).parents[2] / "golden" / "exporters"
FOLDER = GOLDEN / "tfjs"


def run(model: onnx.ModelProto, images: NDArray[np.float32]) -> NDArray[np.float32]:
    session = onnxruntime.InferenceSession(model.SerializeToString())
    answer: NDArray[np.float32] = session.run(None, {session.get_inputs()[0].name: images})[0]
    return answer


def unit(rows: NDArray[np.float32]) -> NDArray[np.float32]:
    return rows / np.linalg.norm(rows, axis=1, keepdims=True)


def changed(folder: Path, change: Callable[[Any], None]) -> Path:
    copy = folder / "model"
    shutil.copytree(FOLDER, copy)
    raw = json.loads((copy / "model.json").read_text())
    change(raw)
    (copy / "model.json").write_text(json.dumps(raw))
    return copy / "model.json"


def test_a_tiny_quantised_net_answers_as_tensorflow_js_does() -> None:
    expected = np.array(json.loads((GOLDEN / "answers.json").read_text())["tfjs"])
    count = np.arange(2 * 3 * 16 * 16)
    raw = ((count * count * 7 + count * 37) % 251).astype(np.float32).reshape(2, 3, 16, 16)
    model = export_tfjs(FOLDER / "model.json").model
    assert np.abs(unit(run(model, raw)) - unit(expected)).max() < 1e-5
    assert sum(node.op_type == "Transpose" for node in model.graph.node) == 1


def test_a_real_model_scores_the_same_person_higher(shared_data: Path) -> None:
    model = export_tfjs(shared_data / "models" / "tfjs" / "mobileface.json").model
    people = [p for p in sorted((shared_data / "lfw_112").iterdir()) if len(list(p.iterdir())) > 1]
    paths = [path for person in people[:40] for path in sorted(person.iterdir())[:2]]
    pixels = [cv2.cvtColor(cv2.imread(str(path)), cv2.COLOR_BGR2RGB) for path in paths]
    rows = unit(run(model, np.stack(pixels).transpose(0, 3, 1, 2).astype(np.float32)))
    assert rows.shape[1] == 256
    scores = rows @ rows.T
    same = np.mean([scores[k, k + 1] for k in range(0, len(rows), 2)])
    other = np.mean([scores[k, (k + 2) % len(rows)] for k in range(0, len(rows), 2)])
    assert same > other + 0.1


@pytest.mark.parametrize("path", ["../secret.bin", "/etc/hostname", "a/../../x", "", "missing.bin"])
def test_shards_stay_in_their_folder(path: str, tmp_path: Path) -> None:
    (tmp_path / "secret.bin").write_bytes(bytes(4000))

    def escape(raw: Any) -> None:
        raw["weightsManifest"][0]["paths"] = [path]

    with pytest.raises(UnsafeFile):
        export_tfjs(changed(tmp_path, escape))


def test_a_shard_that_is_a_link_to_elsewhere_is_refused(tmp_path: Path) -> None:
    source = changed(tmp_path, lambda raw: None)
    shard = source.parent / "group1-shard1of2.bin"
    outside = tmp_path / "outside.bin"
    shutil.move(shard, outside)
    shard.symlink_to(outside)
    with pytest.raises(UnsafeFile):
        export_tfjs(source)


def _huge(raw: Any) -> None:
    raw["weightsManifest"][0]["weights"][2]["shape"] = [2**40, 2**40]


def _short(raw: Any) -> None:
    raw["weightsManifest"][0]["weights"].pop()


def _text_weight(raw: Any) -> None:
    raw["weightsManifest"][0]["weights"][2]["dtype"] = "string"


def _circle(raw: Any) -> None:
    next(n for n in raw["modelTopology"]["node"] if n["name"] == "sub")["input"][0] = "fc"


def _unknown(raw: Any) -> None:
    next(n for n in raw["modelTopology"]["node"] if n["name"] == "sum")["op"] = "Magic"


def _undefined(raw: Any) -> None:
    next(n for n in raw["modelTopology"]["node"] if n["name"] == "sum")["input"][0] = "nowhere"


def _layers_model(raw: Any) -> None:
    raw["format"] = "layers-model"


@pytest.mark.parametrize(
    ("change", "kind", "error"),
    [
        (_huge, UnreadableModel, "promised"),
        (_short, UnreadableModel, "nobody owns"),
        (_text_weight, UnsupportedModel, "string"),
        (_circle, OnnxfrError, "circle|answer"),
        (_unknown, UnsupportedModel, "Magic"),
        (_undefined, UnreadableModel, "does not define"),
        (_layers_model, UnsupportedModel, "layers model"),
    ],
)
def test_lying_models_are_refused(
    change: Callable[[Any], None], kind: type[Exception], error: str, tmp_path: Path
) -> None:
    with pytest.raises(kind, match=error):
        export_tfjs(changed(tmp_path, change))


def test_a_long_chain_needs_no_recursion(tmp_path: Path) -> None:
    def lengthen(raw: Any) -> None:
        nodes = raw["modelTopology"]["node"]
        last = "fc"
        for k in range(3000):
            nodes.append({"name": f"id{k}", "op": "Identity", "input": [last]})
            last = f"id{k}"

    assert export_tfjs(changed(tmp_path, lengthen)).model.graph.output[0].name == "id2999"
