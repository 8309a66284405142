"""The doctor finds what is wrong, names a remedy, and tells it by its exit code."""

from __future__ import annotations

import json
import shutil

import numpy as np
import pytest
import typer
from typer.testing import CliRunner

from onnxfr import doctor as examination
from onnxfr.cli.doctor import doctor
from onnxfr.doctor import Problem, Provider, diagnose, wheel_problems
from onnxfr.models.ort_session import installed_wheels


@pytest.fixture(autouse=True)
def own_cache(tmp_path, monkeypatch):
    monkeypatch.setenv("ONNXFR_CACHE", str(tmp_path / "cache"))
    monkeypatch.delenv("ONNXFR_THREADS", raising=False)


def ask(*arguments):
    app = typer.Typer()
    app.command()(doctor)
    return CliRunner().invoke(app, list(arguments))


def test_this_installation_is_described():
    found = diagnose()
    works = {provider.name: provider.works for provider in found.providers}
    assert works["CPUExecutionProvider"]
    assert not works.get("AzureExecutionProvider", False)
    assert found.packages["numpy"] == np.__version__
    assert found.cores >= 1
    assert found.threads == found.cores
    assert found.cache_writable
    assert found.free_gigabytes is not None
    assert found.extras["cpu"]


def test_json_and_text_agree_with_the_exit_code():
    report = ask("--json")
    told = json.loads(report.stdout)
    assert told["healthy"] == (not told["problems"])
    assert report.exit_code == (0 if told["healthy"] else 1)
    text = ask()
    assert text.exit_code == report.exit_code
    assert told["cpu"] in text.stdout


def test_an_unwritable_cache_is_a_problem_with_a_remedy(tmp_path, monkeypatch):
    blocked = tmp_path / "file"
    blocked.write_text("in the way")
    monkeypatch.setenv("ONNXFR_CACHE", str(blocked / "cache"))
    report = ask("--json")
    assert report.exit_code == 1
    (problem,) = json.loads(report.stdout)["problems"]
    assert "cannot be written" in problem["what"]
    assert "ONNXFR_CACHE" in problem["remedy"]
    assert "remedy" in ask().stdout


def test_a_full_disk_is_a_problem(monkeypatch):
    monkeypatch.setattr(shutil, "disk_usage", lambda _: shutil._ntuple_diskusage(10, 10, 0))
    assert any("0.0 GB" in problem.what for problem in diagnose().problems)


def test_a_senseless_thread_variable_is_a_problem(monkeypatch):
    monkeypatch.setenv("ONNXFR_THREADS", "all")
    found = diagnose()
    assert found.threads is None
    assert any("ONNXFR_THREADS" in problem.what for problem in found.problems)


def test_two_wheels_together_are_a_problem():
    (problem,) = wheel_problems({"onnxruntime": "1.20", "onnxruntime-gpu": "1.20"})
    assert "installed together" in problem.what
    assert "pip uninstall -y onnxruntime onnxruntime-gpu" in problem.remedy
    assert wheel_problems({"onnxruntime-gpu": "1.20"}) == []


@pytest.fixture
def second_wheel(tmp_path, monkeypatch):
    """Another onnxruntime distribution on the path, as pip would have left it."""
    place = tmp_path / "site" / "onnxruntime_gpu-1.20.0.dist-info"
    place.mkdir(parents=True)
    (place / "METADATA").write_text(
        "Metadata-Version: 2.1\nName: onnxruntime-gpu\nVersion: 1.20.0\n"
    )
    monkeypatch.syspath_prepend(str(place.parent))
    installed_wheels.cache_clear()
    yield
    installed_wheels.cache_clear()


@pytest.mark.usefixtures("second_wheel")
def test_a_second_wheel_is_found_where_it_is_installed():
    report = ask("--json")
    assert report.exit_code == 1
    told = json.loads(report.stdout)
    assert set(told["wheels"]) == {"onnxruntime", "onnxruntime-gpu"}
    assert any("silently" in problem["what"] for problem in told["problems"])


@pytest.mark.parametrize(
    ("provider", "devices", "wheel", "problem", "note"),
    [
        (Provider("CUDAExecutionProvider", True, ""), ("A",), "onnxruntime-gpu", "", ""),
        (
            Provider("CUDAExecutionProvider", False, "no cuDNN"),
            ("A",),
            "onnxruntime-gpu",
            "cuDNN",
            "",
        ),
        (Provider("CUDAExecutionProvider", False, ""), (), "onnxruntime-gpu", "no usable GPU", ""),
        (Provider("CPUExecutionProvider", True, ""), ("A",), "onnxruntime", "", "onnxfr[gpu]"),
        (Provider("CPUExecutionProvider", True, ""), (), "onnxruntime", "", ""),
    ],
)
def test_gpu_findings_are_judged(provider, devices, wheel, problem, note):
    problems: list[Problem] = []
    notes: list[str] = []
    examination._judge_cuda({wheel: "1.20"}, (provider,), devices, problems, notes)
    assert len(problems) == bool(problem)
    assert all(problem in found.what for found in problems)
    assert len(notes) == bool(note)
    assert all(note in found for found in notes)
