from __future__ import annotations

import json
import os
import shutil
from pathlib import Path
from typing import Any

import pytest
import typer
from toy_runs import write_faces, write_model
from typer.testing import CliRunner, Result

from onnxfr.cli.run import read_asked, run
from onnxfr.errors import DataError, ModelError, SpecError
from onnxfr.runs.context import Context
from onnxfr.runs.store import RunStore

SPEC = """
models = ["model/toy"]
data = ["folder:faces"]
max_pairs = 12
rows_per_cell = 5
[[evaluators]]
name = "toy_score"
"""


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("made")
    write_model(folder / "model")
    write_faces(folder / "faces")
    return folder


@pytest.fixture
def work(tmp_path: Path, made: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    shutil.copytree(made, tmp_path / "w")
    monkeypatch.chdir(tmp_path / "w")
    monkeypatch.setenv("ONNXFR_CACHE", str(tmp_path / "cache"))
    (tmp_path / "w" / "spec.toml").write_text(SPEC)
    return tmp_path / "w"


def call(*arguments: str) -> Result:
    app = typer.Typer()
    app.command()(run)
    return CliRunner().invoke(app, list(arguments))


def call_json(*arguments: str) -> dict[str, Any]:
    result = call(*arguments, "--json")
    assert result.exit_code == 0, result.output + repr(result.exception)
    answer: dict[str, Any] = json.loads(result.stdout)
    return answer


def test_a_run_from_a_file_resumes_and_summarises(work: Path) -> None:
    first = call_json("spec.toml", "-o", "out")
    assert (first["ending"], first["done"], first["reused"]) == ("finished", 3, 0)
    assert first["results"][0]["metric"] == "mean"
    assert first["results"][0]["n"] == 12
    again = call_json("spec.toml", "-o", "out")
    assert (again["done"], again["reused"]) == (0, 3)
    assert again["results"] == first["results"]
    manifest = RunStore.open(work / "out").manifest()
    assert manifest["models"][0]["card"]["opset"] == 17
    assert manifest["models"][0]["device"] in ("cpu", "cuda")
    assert manifest["sessions"][0]["provenance"]["packages"]["onnxruntime"]
    assert os.uname().nodename not in json.dumps(manifest["sessions"])


def test_names_in_a_file_are_not_looked_for_where_the_command_stands(work: Path) -> None:
    spec = work / "specs" / "spec.toml"
    spec.parent.mkdir()
    spec.write_text(SPEC.replace("model/toy", "sface").replace("folder:faces", "folder:crops"))
    for name in ("sface", "crops"):
        (work / name).mkdir()
    asked = read_asked(spec, {}, {})
    beside = (f"folder:{work / 'specs' / 'crops'}",)
    assert (asked.models, asked.data) == (("sface",), beside)
    typed = read_asked(spec, {"models": ["model/toy"]}, {"workers": 2})
    assert (typed.models, typed.data) == ((str(work / "model" / "toy"),), beside)
    assert typed.engine.workers == 2


def test_two_workers_give_the_same_numbers(work: Path) -> None:
    one = call_json("spec.toml", "-o", "one")
    two = call_json("spec.toml", "-o", "two", "--workers", "2")
    assert two["done"] == 3
    assert one["results"][0]["value"] == pytest.approx(two["results"][0]["value"], abs=1e-6)


def test_changed_model_data_or_parameter_reuse_nothing(work: Path) -> None:
    call_json("spec.toml", "-o", "out")
    assert call_json("spec.toml", "-o", "out", "--seed", "1")["reused"] == 0
    probe = RunStore.open(work / "out").records()["pair"][0].as_py().split("|")[0]
    (picture,) = (path for path in (work / "faces").rglob("*.png") if str(path).endswith(probe))
    picture.write_bytes(picture.read_bytes() + b"\0")
    assert call_json("spec.toml", "-o", "out", "--seed", "1")["reused"] == 0
    assert call_json("spec.toml", "-o", "out", "--seed", "1")["reused"] == 3
    shutil.rmtree(work / "model")
    write_model(work / "model", seed=1)
    assert call_json("spec.toml", "-o", "out", "--seed", "1")["reused"] == 0


def test_moved_files_are_still_the_same_run(work: Path) -> None:
    call_json("spec.toml", "-o", "out")
    (work / "elsewhere").mkdir()
    (work / "faces").rename(work / "elsewhere" / "faces")
    (work / "spec.toml").write_text(SPEC.replace("folder:faces", "folder:elsewhere/faces"))
    assert call_json("spec.toml", "-o", "out")["reused"] == 3


def test_a_dry_run_tells_cells_and_cost_and_writes_nothing(work: Path) -> None:
    answer = call_json("spec.toml", "-o", "out", "--dry-run")
    assert (answer["cells"], answer["present"], answer["images"]) == (3, 0, 24)
    assert answer["seconds"] >= 0
    assert not (work / "out").exists()
    call_json("spec.toml", "-o", "out")
    result = call("spec.toml", "-o", "out", "--dry-run")
    assert "3 cells, 3 present, 0 to run" in result.stdout


def test_a_budget_of_nothing_stops_and_says_how_to_go_on(work: Path) -> None:
    result = call("spec.toml", "-o", "out", "--budget", "0s")
    assert result.exit_code == 0
    assert "run the same command again" in result.stdout
    assert call_json("spec.toml", "-o", "out")["done"] == 3


def test_the_default_place_is_the_same_for_the_same_question(work: Path) -> None:
    first = call_json("spec.toml")
    assert Path(first["run"]).parent == work / "runs"
    assert call_json("spec.toml")["reused"] == 3


@pytest.mark.parametrize(
    ("arguments", "error"),
    [
        ([], SpecError),
        (["spec.toml", "--budget", "soon"], SpecError),
        (["spec.toml", "--engine", "spark"], SpecError),
        (["spec.toml", "--model", "nowhere.onnx"], ModelError),
        (["spec.toml", "--data", "folder:nowhere"], DataError),
        (["missing.toml"], SpecError),
    ],
)
def test_bad_input_is_one_typed_error_and_leaves_no_folder(
    work: Path, arguments: list[str], error: type[Exception]
) -> None:
    result = call(*arguments, "-o", "out") if arguments else call()
    assert isinstance(result.exception, error)
    assert not (work / "out").exists()


def test_a_model_swapped_after_planning_is_noticed(work: Path, tmp_path: Path) -> None:
    context = Context(tmp_path / "cache")
    planned = context.identify(str(work / "model" / "toy"))
    shutil.rmtree(work / "model")
    write_model(work / "model", seed=1)
    with pytest.raises(ModelError, match="changed after the run was planned"):
        Context(tmp_path / "cache").model(planned)
    assert context.identify(planned.ref).sha256 != planned.sha256
