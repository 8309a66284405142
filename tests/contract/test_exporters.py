"""What every exporter promises: recognition by content, a usable graph, typed errors only."""

from __future__ import annotations

import shutil
import time
import tracemalloc
from pathlib import Path

import numpy as np
import onnx
import onnxruntime
import pytest

from onnxfr.errors import OnnxfrError
from onnxfr.exporters.base import EXPORTERS, Options, detect

GOLDEN = Path(__file__).parents[1] / "golden" / "exporters"
SOURCES = {
    "mxnet": ("tiny-symbol.json", "tiny-0000.params"),
    "ncnn": ("tiny.param", "tiny.bin"),
    "tensorflow": ("tiny.pb",),
    "tflite": ("tiny_int8.tflite",),
    "keras": ("tiny.keras",),
    "caffe": ("tiny.caffemodel", "tiny.prototxt"),
    "tfjs": ("model.json", "group1-shard1of2.bin", "group1-shard2of2.bin"),
    "dlib": ("tiny.dat",),
    "openvino": ("tiny.xml", "tiny.bin"),
    "paddle": ("tiny.pdmodel", "tiny.pdiparams", "tiny3.json", "tiny3.pdiparams"),
}
SIZE = Options(input_size=(16, 16))
FILES = [(name, file) for name, files in SOURCES.items() for file in files]
MUTANTS = 60


def test_every_exporter_is_described() -> None:
    assert {*SOURCES, "onnx", "pytorch"} <= set(EXPORTERS.names())
    for name, item in EXPORTERS.items():
        assert item.name == name
        assert len(item.formats) > 5


@pytest.mark.parametrize("name", SOURCES)
def test_content_decides_whatever_the_files_are_called(name: str, tmp_path: Path) -> None:
    found, place = detect(GOLDEN / name)
    assert found.name == name
    assert place.parent == GOLDEN / name
    main = GOLDEN / name / SOURCES[name][0]
    shutil.copy(main, tmp_path / "weights.pth")
    assert [k for k, e in EXPORTERS.items() if e.recognises(tmp_path / "weights.pth")] == [name]


@pytest.mark.parametrize("name", EXPORTERS.names())
def test_recognition_never_raises(name: str, tmp_path: Path) -> None:
    item = EXPORTERS.get(name)
    (tmp_path / "empty").touch()
    (tmp_path / "noise").write_bytes(np.random.Generator(np.random.Philox(key=1)).bytes(4096))
    (tmp_path / "deep.json").write_text("[" * 100_000)
    (tmp_path / "text").write_text("layer layers { {")
    for path in (*tmp_path.iterdir(), tmp_path, tmp_path / "missing"):
        assert item.recognises(path) is False, path


@pytest.mark.parametrize("name", SOURCES)
def test_the_graph_is_valid_and_its_batch_is_free(name: str) -> None:
    item = EXPORTERS.get(name)
    path = GOLDEN / name / SOURCES[name][0]
    before = path.read_bytes()
    made = item.export(path, SIZE)
    assert path.read_bytes() == before
    assert made.framework == name
    onnx.checker.check_model(made.model, full_check=True)
    again = item.export(path, SIZE)
    assert again.model.SerializeToString(deterministic=True) == made.model.SerializeToString(
        deterministic=True
    )
    session = onnxruntime.InferenceSession(made.model.SerializeToString())
    entry = session.get_inputs()[0]
    assert entry.shape[1:] == [3, 16, 16]
    pictures = np.zeros((5, 3, 16, 16), np.float32)
    (answer,) = session.run(None, {entry.name: pictures})
    assert answer.shape == (5, 16)
    assert np.isfinite(answer).all()


def _mutant(content: bytes, rng: np.random.Generator) -> bytes:
    """Damage a file the way transfers and attackers do."""
    data = bytearray(content)
    kind = rng.integers(5)
    place = int(rng.integers(len(data)))
    if kind == 0:
        return bytes(data[:place])
    if kind == 1:
        for _ in range(int(rng.integers(1, 8))):
            data[int(rng.integers(len(data)))] = int(rng.integers(256))
    elif kind == 2:
        data[place : place + 8] = b"\xff" * int(rng.integers(1, 9))
    elif kind == 3:
        data[place:place] = rng.bytes(int(rng.integers(1, 30)))
    else:
        other = int(rng.integers(len(data)))
        data[place : place + 40] = data[other : other + 40]
    return bytes(data)


@pytest.mark.parametrize(("name", "file"), FILES)
def test_damaged_files_give_one_typed_error(name: str, file: str, tmp_path: Path) -> None:
    folder = tmp_path / name
    shutil.copytree(GOLDEN / name, folder)
    target = folder / file
    whole = target.read_bytes()
    item = EXPORTERS.get(name)
    main = folder / (file if name in ("caffe", "paddle") else SOURCES[name][0])
    rng = np.random.Generator(np.random.Philox(key=FILES.index((name, file))))
    refused = 0
    tracemalloc.start()
    started = time.process_time()
    for _ in range(MUTANTS):
        target.write_bytes(_mutant(whole, rng))
        item.recognises(target)
        try:
            item.export(main, SIZE)
        except OnnxfrError:
            refused += 1
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert refused > 0
    assert peak < 50e6
    assert time.process_time() - started < 60
