"""Bad vendor files: each gives one typed error and exit code 2, and nothing is written."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import onnxruntime
import pytest
from onnx import TensorProto, helper, numpy_helper

from onnxfr.errors import OnnxfrError, UnreadableModel, UnsafeFile, UnsupportedModel
from onnxfr.models.admission import admit
from onnxfr.models.vendor import read_vendor


def write(model: onnx.ModelProto, path: Path) -> Path:
    path.write_bytes(model.SerializeToString())
    return path


def with_external_data(model: onnx.ModelProto, location: str, length: int | None = None) -> None:
    tensor = model.graph.initializer[0]
    size = len(tensor.raw_data) if length is None else length
    tensor.ClearField("raw_data")
    tensor.data_location = TensorProto.EXTERNAL
    for key, value in (("location", location), ("offset", "0"), ("length", str(size))):
        tensor.external_data.add(key=key, value=value)


def truncated(make: Callable[..., onnx.ModelProto], path: Path) -> type[OnnxfrError]:
    path.write_bytes(make().SerializeToString()[:-700])
    return UnreadableModel


def random_bytes(make: Callable[..., onnx.ModelProto], path: Path) -> type[OnnxfrError]:
    path.write_bytes(np.random.default_rng(0).bytes(5000))
    return UnreadableModel


def text_file(make: Callable[..., onnx.ModelProto], path: Path) -> type[OnnxfrError]:
    path.write_text("this is not a model\n" * 50)
    return UnreadableModel


def empty_file(make: Callable[..., onnx.ModelProto], path: Path) -> type[OnnxfrError]:
    path.write_bytes(b"")
    return UnreadableModel


def no_image_input(make: Callable[..., onnx.ModelProto], path: Path) -> type[OnnxfrError]:
    values = [helper.make_tensor_value_info(n, TensorProto.FLOAT, ["N", 10]) for n in "xy"]
    graph = helper.make_graph([helper.make_node("Relu", ["x"], ["y"])], "g", values[:1], values[1:])
    write(helper.make_model(graph), path)
    return UnsupportedModel


def control_flow_loop(make: Callable[..., onnx.ModelProto], path: Path) -> type[OnnxfrError]:
    model = make()
    model.graph.node.append(helper.make_node("Loop", ["", ""], ["looped"], body=model.graph))
    write(model, path)
    return UnsupportedModel


def custom_operator(make: Callable[..., onnx.ModelProto], path: Path) -> type[OnnxfrError]:
    model = make()
    model.graph.node[1].domain = "acme.secret"
    write(model, path)
    return UnsupportedModel


def declared_two_gigabytes(make: Callable[..., onnx.ModelProto], path: Path) -> type[OnnxfrError]:
    model = make()
    tensor = model.graph.initializer[0]
    del tensor.dims[:]
    tensor.dims.extend([2**15, 2**14, 2])
    write(model, path)
    return UnsafeFile


def lying_about_size(make: Callable[..., onnx.ModelProto], path: Path) -> type[OnnxfrError]:
    model = make()
    model.graph.initializer[0].dims[0] = 9
    write(model, path)
    return UnreadableModel


def negative_dimension(make: Callable[..., onnx.ModelProto], path: Path) -> type[OnnxfrError]:
    model = make()
    model.graph.initializer[0].dims[0] = -8
    write(model, path)
    return UnreadableModel


def parent_folder(make: Callable[..., onnx.ModelProto], path: Path) -> type[OnnxfrError]:
    model = make()
    with_external_data(model, "../../etc/passwd")
    write(model, path)
    return UnsafeFile


def absolute_path(make: Callable[..., onnx.ModelProto], path: Path) -> type[OnnxfrError]:
    model = make()
    with_external_data(model, "/etc/passwd")
    write(model, path)
    return UnsafeFile


def symbolic_link(make: Callable[..., onnx.ModelProto], path: Path) -> type[OnnxfrError]:
    model = make()
    outside = path.parent.parent / "outside.bin"
    outside.write_bytes(model.graph.initializer[0].raw_data)
    (path.parent / "weights.bin").symlink_to(outside)
    with_external_data(model, "weights.bin")
    write(model, path)
    return UnsafeFile


def external_data_too_short(make: Callable[..., onnx.ModelProto], path: Path) -> type[OnnxfrError]:
    model = make()
    (path.parent / "weights.bin").write_bytes(b"1234")
    with_external_data(model, "weights.bin")
    write(model, path)
    return UnreadableModel


def nan_weights(make: Callable[..., onnx.ModelProto], path: Path) -> type[OnnxfrError]:
    model = make()
    values = numpy_helper.to_array(model.graph.initializer[0]).copy()
    values[0, 0, 0, 0] = np.nan
    model.graph.initializer[0].CopyFrom(numpy_helper.from_array(values, "w1"))
    write(model, path)
    return UnsupportedModel


def class_scores(make: Callable[..., onnx.ModelProto], path: Path) -> type[OnnxfrError]:
    write(make(width=1000, output="scores"), path)
    return UnsupportedModel


def softmax_tail(make: Callable[..., onnx.ModelProto], path: Path) -> type[OnnxfrError]:
    write(make(width=512, tail="Softmax"), path)
    return UnsupportedModel


def broken_graph(make: Callable[..., onnx.ModelProto], path: Path) -> type[OnnxfrError]:
    model = make()
    model.graph.node[3].input[0] = "nowhere"
    write(model, path)
    return UnsupportedModel


def crashing_native_code(make: Callable[..., onnx.ModelProto], path: Path) -> type[OnnxfrError]:
    """A deviation of zero aborts onnxruntime 1.31 itself: only a child process survives that."""
    model = make(opset=15)
    model.graph.node[-1].output[0] = "raw"
    noise = helper.make_node("RandomNormalLike", ["raw"], ["noise"], scale=0.0)
    model.graph.node.extend([noise, helper.make_node("Add", ["raw", "noise"], ["feature"])])
    write(model, path)
    return UnsupportedModel


BAD = [
    truncated,
    random_bytes,
    text_file,
    empty_file,
    no_image_input,
    control_flow_loop,
    custom_operator,
    declared_two_gigabytes,
    lying_about_size,
    negative_dimension,
    parent_folder,
    absolute_path,
    symbolic_link,
    external_data_too_short,
    nan_weights,
    class_scores,
    softmax_tail,
    broken_graph,
    crashing_native_code,
]


@pytest.mark.parametrize("spoil", BAD, ids=lambda f: f.__name__)
def test_bad_file_is_one_error_and_nothing_written(
    spoil: Callable[..., type[OnnxfrError]],
    make_vendor_net: Callable[..., onnx.ModelProto],
    onnxfr: Callable[..., Any],
    tmp_path: Path,
) -> None:
    folder = tmp_path / "vendor"
    folder.mkdir()
    expected = spoil(make_vendor_net, folder / "bad.onnx")
    if spoil is crashing_native_code and onnxruntime.__version__ != "1.31.1":
        pytest.skip("another onnxruntime may not crash on this graph")
    seen = onnxfr("import", folder / "bad.onnx", "-o", tmp_path / "out", "--preprocess", "rgb,pm1")
    assert seen.code == 2
    assert seen.err.startswith("error: ")
    assert len(seen.err.splitlines()) == 1
    assert "Traceback" not in seen.err + seen.out
    assert sorted(p.name for p in tmp_path.iterdir() if p.name != "outside.bin") == ["vendor"]
    assert issubclass(expected, OnnxfrError)


@pytest.mark.parametrize("spoil", BAD[:15], ids=lambda f: f.__name__)
def test_reader_raises_the_type_that_fits(
    spoil: Callable[..., type[OnnxfrError]],
    make_vendor_net: Callable[..., onnx.ModelProto],
    tmp_path: Path,
) -> None:
    folder = tmp_path / "vendor"
    folder.mkdir()
    expected = spoil(make_vendor_net, folder / "bad.onnx")
    if spoil in (no_image_input, nan_weights):
        pytest.skip("a readable file: only admission can tell")
    with pytest.raises(expected):
        read_vendor(folder / "bad.onnx")


def test_missing_file(onnxfr: Callable[..., Any], tmp_path: Path) -> None:
    seen = onnxfr("import", tmp_path / "none.onnx", "-o", tmp_path / "out")
    assert seen.code == 2 and "none.onnx" in seen.err


def test_external_data_inside_the_folder_is_read(
    make_vendor_net: Callable[..., onnx.ModelProto], tmp_path: Path
) -> None:
    model = make_vendor_net()
    (tmp_path / "weights.bin").write_bytes(model.graph.initializer[0].raw_data)
    expected = numpy_helper.to_array(model.graph.initializer[0])
    with_external_data(model, "weights.bin", expected.nbytes)
    read = read_vendor(write(model, tmp_path / "good.onnx"))
    np.testing.assert_array_equal(numpy_helper.to_array(read.model.graph.initializer[0]), expected)


def test_class_scores_are_accepted_when_asked_for(
    make_vendor_net: Callable[..., onnx.ModelProto], onnxfr: Callable[..., Any], tmp_path: Path
) -> None:
    path = write(make_vendor_net(width=1000, tail="Softmax"), tmp_path / "classifier.onnx")
    asked = ("import", path, "--preprocess", "rgb,pm1", "-o")
    assert onnxfr(*asked, tmp_path / "closed", "--closed-set").code == 0
    assert 'head = "logits"' in (tmp_path / "closed" / "card.toml").read_text()
    assert onnxfr(*asked, tmp_path / "inside", "--output", "flat").code == 0
    assert "embedding_dim = 16" in (tmp_path / "inside" / "card.toml").read_text()


def test_mutated_files_never_crash_or_hang(
    make_vendor_net: Callable[..., onnx.ModelProto], tmp_path: Path
) -> None:
    """Flip, cut and repeat bytes of a valid file: the reader answers or refuses, nothing else."""
    rng = np.random.default_rng(1)
    whole = np.frombuffer(make_vendor_net().SerializeToString(), np.uint8)
    read = 0
    for trial in range(400):
        bytes_ = whole.copy()
        places = rng.integers(0, len(bytes_), rng.integers(1, 8))
        bytes_[places] = rng.integers(0, 256, len(places))
        if trial % 3 == 1:
            bytes_ = bytes_[: rng.integers(1, len(bytes_))]
        elif trial % 3 == 2:
            cut = int(rng.integers(0, len(bytes_)))
            bytes_ = np.concatenate([bytes_[:cut], bytes_[cut // 2 :]])
        path = tmp_path / "mutated.onnx"
        path.write_bytes(bytes_.tobytes())
        try:
            read_vendor(path)
            read += 1
        except OnnxfrError:
            continue
    assert read < 400


def test_mutated_real_files_are_admitted_or_refused(shared_data: Path, tmp_path: Path) -> None:
    """Damage the structure of a real network: admission answers or refuses, within its limits."""
    rng = np.random.default_rng(2)
    whole = onnx.load(shared_data / "models" / "onnx" / "mobilefacenet_y1_from_mxnet.onnx")
    refused = 0
    for trial in range(8):
        model = onnx.ModelProto()
        model.CopyFrom(whole)
        node = model.graph.node[int(rng.integers(len(model.graph.node)))]
        if trial % 2 and node.attribute:
            node.attribute[0].ints[:] = [int(rng.integers(-3, 2**31))] * 2
        else:
            node.input[0] = model.graph.node[int(rng.integers(len(model.graph.node)))].output[0]
        path = write(model, tmp_path / "mutated.onnx")
        try:
            admit(path, tmp_path / "out", preprocess="rgb,0-255", overwrite=True)
        except OnnxfrError:
            refused += 1
    assert refused > 0
