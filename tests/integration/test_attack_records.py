"""White-box and transfer records of real models do not depend on how the work was done.

Workers, cells of one pair or of all, and being killed on the way change rounding at most. Gradients
of the white box are in float64; transfer works in float32, where the sign of a gradient near zero
may flip a pixel.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest

from onnxfr.models.admission import admit
from onnxfr.runs.store import RunStore

WHITE_BOX = {
    "attacks": '["pgd(steps=3)", "smallest:bim(steps=3)", "fmn(steps=6)", "apgd(steps=4)"]',
    "linf": '["1/255"]',
    "l2": '["0.5/255"]',
    "precision": '"float64"',
    "checks": "0",
}
TRANSFER = {"attacks": '["mim", "dim"]', "steps": "3", "linf": '["8/255"]'}
SHARED = {"pairs": "3", "threshold": '"fixed=0.25"', "align": '"no"', "examples": "1"}
TOLERANCE = {"white_box": 1e-5, "transfer": 5e-3}
KEYS = ("evaluator", "method", "goal", "norm", "eps", "model", "source", "target", "pair")


@pytest.fixture(scope="module")
def models(shared_data: Path, tmp_path_factory: pytest.TempPathFactory) -> list[Path]:
    folder, vendors = tmp_path_factory.mktemp("models"), shared_data / "models" / "onnx"
    wanted = {
        "edgeface_xxs_dequant": "rgb,0-255",
        "mobilefacenet_xiaoccer_112x96": "rgb,0-255",
    }
    for name, preprocess in wanted.items():
        admit(vendors / f"{name}.onnx", folder / name, preprocess=preprocess)
    return [folder / name for name in wanted]


def write_spec(place: Path, models: list[Path], data: Path, rows: int) -> Path:
    lines = [
        f"models = {[str(model) for model in models]}",
        f'data = ["lfw:{data}"]',
        "max_pairs = 40",
        f"rows_per_cell = {rows}",
    ]
    for name, params in (("white_box", WHITE_BOX), ("transfer", TRANSFER)):
        lines += ["[[evaluators]]", f'name = "{name}"', "[evaluators.params]"]
        lines += [f"{key} = {value}" for key, value in (SHARED | params).items()]
    place.mkdir()
    spec = place / "spec.toml"
    spec.write_text("\n".join(lines), encoding="utf-8")
    return spec


def start(spec: Path, workers: int, cache: Path) -> subprocess.Popen[bytes]:
    script = Path(sys.executable).with_name("onnxfr")
    command = [str(script), "run", str(spec), "--workers", str(workers)]
    command += ["-o", str(spec.parent / "run")]
    environment = os.environ | {"ONNXFR_CACHE": str(cache), "OMP_NUM_THREADS": "1"}
    output = (spec.parent / "output.txt").open("ab")
    return subprocess.Popen(command, env=environment, stdout=output, stderr=output)


def finish(process: subprocess.Popen[bytes], spec: Path) -> None:
    assert process.wait(timeout=900) == 0, (spec.parent / "output.txt").read_text()


def kill_at_work(spec: Path, cache: Path) -> int:
    """Start a run, kill it when it has some cells; return how many it left."""
    process, cells = start(spec, 1, cache), spec.parent / "run" / "cells"
    while process.poll() is None and len(list(cells.glob("*.parquet"))) < 5:
        time.sleep(0.05)
    process.send_signal(signal.SIGKILL)
    process.wait()
    return len(list(cells.glob("*.parquet")))


def records(spec: Path) -> list[dict[str, Any]]:
    rows: list[dict[str, Any]] = []
    store = RunStore.open(spec.parent / "run")
    for name in store.evaluators():
        rows += [{"evaluator": name} | row for row in store.records(name).to_pylist()]
    return sorted(rows, key=lambda row: tuple(str(row.get(key)) for key in KEYS))


@pytest.mark.slow
def test_records_are_the_same_however_the_work_is_done(
    tmp_path: Path, models: list[Path], shared_data: Path
) -> None:
    faces, cache = shared_data / "lfw_112", tmp_path / "cache"
    whole = write_spec(tmp_path / "whole", models, faces, rows=64)
    finish(start(whole, 1, cache), whole)
    cut = write_spec(tmp_path / "cut", models, faces, rows=1)
    finish(start(cut, 2, cache), cut)
    torn = write_spec(tmp_path / "torn", models, faces, rows=2)
    assert kill_at_work(torn, cache) >= 5
    finish(start(torn, 2, cache), torn)
    wanted = records(whole)
    # Pairs by goals and models: two norms of four attacks; two attacks of each source and target.
    assert len(wanted) == 3 * 2 * (2 * 2 * 4 + 2 * 2 * 2)
    for other in (cut, torn):
        found = records(other)
        assert len(found) == len(wanted)
        for row, twin in zip(wanted, found, strict=True):
            compare(row, twin)


def compare(row: dict[str, Any], twin: dict[str, Any]) -> None:
    tolerance = TOLERANCE[row["evaluator"]]
    assert row.keys() == twin.keys()
    for name in row.keys() - {"cell"}:
        if isinstance(row[name], bytes):
            assert (row[name] is None) == (twin[name] is None), name
        elif isinstance(row[name], float) and name not in ("psnr", "difference_gain"):
            assert twin[name] == pytest.approx(row[name], abs=tolerance), (name, row, twin)
        elif not isinstance(row[name], float):
            assert twin[name] == row[name], (name, row, twin)
