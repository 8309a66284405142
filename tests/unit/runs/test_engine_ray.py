from __future__ import annotations

import importlib.util
import os
import sys
from pathlib import Path

import pytest
from toy_runs import records_of, toy_cells, toy_work

from onnxfr.errors import EngineError, MissingExtra
from onnxfr.runs.engines import make_engine
from onnxfr.runs.engines.local import LocalEngine
from onnxfr.runs.engines.ray import RayEngine
from onnxfr.runs.execute import Outcome, execute
from onnxfr.runs.spec import EngineSpec
from onnxfr.runs.store import RunStore
from onnxfr.runs.work import Engine, Silent

HAS_RAY = importlib.util.find_spec("ray") is not None
needs_ray = pytest.mark.skipif(not HAS_RAY, reason="ray is not installed: pip install onnxfr[ray]")


@pytest.fixture(autouse=True)
def importable_in_ray_workers(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join(sys.path))


def run_on(engine: Engine, folder: Path, methods: list[str]) -> tuple[Outcome, RunStore]:
    cells = toy_cells(rows=12, size=3, methods=methods)
    store = RunStore(folder)
    with store.working():
        store.write_manifest({}, cells)
        return execute(cells, store, engine, toy_work(folder / "cache")), store


@pytest.mark.skipif(HAS_RAY, reason="ray is installed")
def test_without_ray_the_extra_is_named(tmp_path: Path) -> None:
    engine = make_engine(EngineSpec(name="ray"), 1)
    with pytest.raises(MissingExtra, match=r"onnxfr\[ray\]"):
        list(engine.run(iter(toy_cells()), toy_work(tmp_path), Silent()))


@needs_ray
def test_ray_gives_what_local_gives_even_when_workers_are_killed(tmp_path: Path) -> None:
    marks = tmp_path / "marks"
    marks.mkdir()
    methods = ["a", f"die_once:{marks}", "b"]
    outcome, on_ray = run_on(RayEngine(workers=2), tmp_path / "ray", methods)
    assert len(list(marks.iterdir())) == 4, "every cell of one method lost its worker once"
    assert (outcome.done, outcome.failed) == (12, {})
    _, local = run_on(LocalEngine(), tmp_path / "local", methods)
    assert records_of(on_ray) == records_of(local)


@needs_ray
def test_failures_on_ray_are_noted_and_the_others_go_on(tmp_path: Path) -> None:
    methods = ["plain", "refuse", "crash", "die"]
    outcome, _ = run_on(RayEngine(workers=2), tmp_path / "ray", methods)
    assert outcome.done == 4
    assert sorted({message.split(" ")[0] for message in outcome.failed.values()}) == [
        "expected",
        "its",
        "unexpected",
    ]


@needs_ray
def test_a_gpu_that_is_not_there_and_a_cluster_that_is_not_there(tmp_path: Path) -> None:
    with pytest.raises(EngineError, match="4096 GPUs"):
        run_on(RayEngine(workers=1, gpus=4096.0), tmp_path / "gpu", ["plain"])
    with pytest.raises(EngineError, match=r"no Ray cluster answers at 127\.0\.0\.1:1 "):
        run_on(RayEngine(address="127.0.0.1:1"), tmp_path / "address", ["plain"])
