"""Where an admitted model is written, under which name and size, and what is never touched."""

from __future__ import annotations

import os
import subprocess
import sys
import unicodedata
from collections.abc import Callable
from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import helper, numpy_helper

from onnxfr.errors import SpecError, StoreError, UnreadableModel, UnsupportedModel
from onnxfr.models.admission import admit, safe_name
from onnxfr.models.card import Card, write_card
from onnxfr.models.wrapper import load_model

Make = Callable[..., onnx.ModelProto]


def vendor_file(net: onnx.ModelProto, folder: Path) -> Path:
    path = folder / "vendor.onnx"
    path.write_bytes(net.SerializeToString())
    return path


def test_modules_in_the_working_folder_are_not_run(make_vendor_net: Make, tmp_path: Path) -> None:
    vendor_file(make_vendor_net(), tmp_path)
    trap = (
        "from pathlib import Path\nPath(__file__).with_name('sprung').touch()\nraise SystemExit\n"
    )
    for name in ("numpy", "json", "resource", "onnxruntime"):
        (tmp_path / f"{name}.py").write_text(trap, encoding="utf-8")
    code = (
        "import sys; from pathlib import Path; from onnxfr.models.admission import admit;"
        "admit(Path('vendor.onnx'), Path('model'), preprocess='rgb,0-1')"
    )
    command = [sys.executable, "-P", "-c", code]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert not (tmp_path / "sprung").exists()


def test_overwriting_loses_nothing_but_the_old_model(make_vendor_net: Make, tmp_path: Path) -> None:
    path = vendor_file(make_vendor_net(), tmp_path)
    project = tmp_path / "project"
    project.mkdir()
    (project / "notes.txt").write_text("kept")
    for source in (path, path.rename(project / "model.onnx")):
        with pytest.raises(SpecError, match="would be lost"):
            admit(source, project, preprocess="rgb,0-1", overwrite=True)
        (project / "notes.txt").unlink(missing_ok=True)
    assert (project / "model.onnx").is_file()


def test_a_model_that_cannot_be_replaced_stays(
    make_vendor_net: Make, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = vendor_file(make_vendor_net(), tmp_path)
    old = admit(path, tmp_path / "model", preprocess="rgb,0-1").card
    honest = Path.replace

    def failing(self: Path, target: Path) -> Path:
        if self.name == "fresh":
            raise OSError(28, "No space left on device")
        return honest(self, target)

    monkeypatch.setattr(Path, "replace", failing)
    with pytest.raises(StoreError, match="No space left"):
        admit(path, tmp_path / "model", preprocess="bgr,0-1", overwrite=True)
    monkeypatch.undo()
    assert load_model(tmp_path / "model").card == old


def test_a_model_that_somebody_else_wrote_meanwhile_is_not_replaced(
    make_vendor_net: Make, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path, place = vendor_file(make_vendor_net(), tmp_path), tmp_path / "model"

    def write_card_late(card: Card, target: Path) -> None:
        place.mkdir(exist_ok=True)
        (place / "model.onnx").write_text("another's")
        write_card(card, target)

    monkeypatch.setattr("onnxfr.models.admission.write_card", write_card_late)
    with pytest.raises(StoreError, match="not empty"):
        admit(path, place, preprocess="rgb,0-1")
    assert (place / "model.onnx").read_text() == "another's"
    admit(path, place, preprocess="rgb,0-1", overwrite=True)
    monkeypatch.undo()
    load_model(place)
    (tmp_path / "empty").mkdir()
    admit(path, tmp_path / "empty", preprocess="rgb,0-1")


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (("-o", "afile"), "is a file; expected a folder"),
        (("-o", "afile/model"), "cannot write the model"),
        (("-o", "model", "--name", "bad name!"), "letters, digits"),
        (("-o", "model", "--size", "160"), "HEIGHTxWIDTH"),
        (("-o", "model", "--size", "160x160"), "takes pictures of 32x24"),
    ],
)
def test_bad_places_and_names_are_one_line(
    onnxfr: Callable[..., object],
    make_vendor_net: Make,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    words: tuple[str, ...],
    message: str,
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "afile").touch()
    path = vendor_file(make_vendor_net(), tmp_path)
    found = onnxfr("import", path, *words, "--preprocess", "rgb,0-1")
    assert (found.code, message in found.err) == (2, True), found  # type: ignore[attr-defined]


def test_an_open_size_is_noted_and_can_be_said(make_vendor_net: Make, tmp_path: Path) -> None:
    path = vendor_file(make_vendor_net(size=("H", "W")), tmp_path)  # type: ignore[arg-type]
    card = admit(path, tmp_path / "usual", preprocess="rgb,0-1").card
    assert card.input_size == (112, 112)
    assert any("--size" in note for note in card.notes)
    card = admit(path, tmp_path / "said", preprocess="rgb,0-1", size=(160, 128)).card
    assert card.input_size == (160, 128)
    assert not any("--size" in note for note in card.notes)


@pytest.mark.parametrize("opset", [onnx.defs.onnx_opset_version() + 1, 3000, 2**40])
def test_opsets_from_the_future_are_refused_at_once(
    make_vendor_net: Make, tmp_path: Path, opset: int
) -> None:
    net = make_vendor_net()
    net.opset_import[0].version = opset
    with pytest.raises(UnsupportedModel, match=f"opset {opset}"):
        admit(vendor_file(net, tmp_path), tmp_path / "model", preprocess="rgb,0-1")


def test_normal_forms_of_any_input_name_are_admitted_again(
    make_vendor_net: Make, tmp_path: Path
) -> None:
    net = make_vendor_net(output="embedding")
    net.graph.input[0].name = net.graph.node[0].input[0] = "image"
    folder = tmp_path / "0"
    admit(vendor_file(net, tmp_path), folder, preprocess="rgb,0-1")
    for k in (1, 2):
        admit(folder / "model.onnx", tmp_path / str(k), preprocess="rgb,0-1")
        folder = tmp_path / str(k)


def test_local_functions_keep_the_names_of_their_parameters(
    make_vendor_net: Make, tmp_path: Path
) -> None:
    net = make_vendor_net()
    linear = net.graph.node.pop()
    inside = helper.make_node("Gemm", ["image", "w", "b"], ["embedding"], transB=1)
    names = ["image", "w", "b"]
    imports = [helper.make_opsetid("", 13)]
    net.functions.append(
        helper.make_function("local", "Head", names, ["embedding"], [inside], imports)
    )
    call = helper.make_node("Head", list(linear.input), list(linear.output), domain="local")
    net.graph.node.append(call)
    net.opset_import.append(helper.make_opsetid("local", 1))
    admit(vendor_file(net, tmp_path), tmp_path / "model", preprocess="rgb,0-1")


def test_a_batch_baked_into_a_resize_is_freed(make_vendor_net: Make, tmp_path: Path) -> None:
    net = make_vendor_net(batch=1)
    sizes = numpy_helper.from_array(np.asarray([1, 3, 16, 12], np.int64), "sizes")
    net.graph.initializer.append(sizes)
    resize = helper.make_node("Resize", ["data", "", "", "sizes"], ["small"], mode="linear")
    net.graph.node.insert(0, resize)
    net.graph.node[1].input[0] = "small"
    card = admit(vendor_file(net, tmp_path), tmp_path / "model", preprocess="rgb,0-1").card
    assert card.batch == "dynamic" and card.repairs[-1].name == "batch-constants"
    assert load_model(tmp_path / "model").differentiable


def test_names_that_are_no_text_are_damage(make_vendor_net: Make, tmp_path: Path) -> None:
    """onnxruntime does not look at a function that nobody calls."""
    net = make_vendor_net()
    inside = helper.make_node("Abcd", ["a"], ["b"])
    imports = [helper.make_opsetid("", 13)]
    net.functions.append(helper.make_function("local", "F", ["a"], ["b"], [inside], imports))
    net.opset_import.append(helper.make_opsetid("local", 1))
    path = vendor_file(net, tmp_path)
    path.write_bytes(path.read_bytes().replace(b"Abcd", b"\xff\xfe\xff\xff"))
    with pytest.raises(UnreadableModel, match="no text"):
        admit(path, tmp_path / "model", preprocess="rgb,0-1")


def test_a_batch_normalisation_without_its_inputs_is_refused(
    make_vendor_net: Make, tmp_path: Path
) -> None:
    net = make_vendor_net()
    net.graph.node.insert(0, helper.make_node("BatchNormalization", ["data", "w1"], ["normal"]))
    net.graph.node[1].input[0] = "normal"
    with pytest.raises(UnsupportedModel):
        admit(vendor_file(net, tmp_path), tmp_path / "model", preprocess="rgb,0-1")


@pytest.mark.parametrize(
    ("stem", "name"),
    [
        ("r\u00e9sn\u00e9t_50 (copy)", "resnet_50-copy"),
        ("\uff37\uff16\uff10\uff10k", "W600k"),
        ("\u4eba\u8138", "model-5235f749"),
        ("ArcFace\uff08\u6700\u7ec8\u7248\uff09", "ArcFace-061d4dc0"),
        ("a--b.v2", "a--b.v2"),
        ("...", "model"),
    ],
)
def test_names_of_files_become_names_of_models(stem: str, name: str) -> None:
    assert safe_name(stem) == name
    assert safe_name(unicodedata.normalize("NFD", stem)) == name
    assert safe_name(name) == name


def test_a_file_whose_name_is_no_text_is_admitted(
    onnxfr: Callable[..., object], make_vendor_net: Make, tmp_path: Path
) -> None:
    path = vendor_file(make_vendor_net(), tmp_path).rename(tmp_path / os.fsdecode(b"v\xff.onnx"))
    found = onnxfr("import", path, "-o", tmp_path / "model", "--preprocess", "rgb,0-1")
    assert found.code == 0, found  # type: ignore[attr-defined]
    assert load_model(tmp_path / "model").card.source.file == "v?.onnx"
