"""Examine the installation: which engines really work here, and what to do about the others."""

from __future__ import annotations

import importlib.metadata
import importlib.util
import os
import platform
import re
import shutil
import tempfile
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np
import onnx
from onnx import TensorProto, helper

from onnxfr.errors import OnnxfrError
from onnxfr.models.hardware import (
    available_cores,
    cpu_model,
    instruction_set,
    int8_products_saturate,
    thread_budget,
)
from onnxfr.models.ort_session import CPU, CUDA, installed_wheels, load_onnxruntime
from onnxfr.paths import cache_dir

_GIGABYTE = 2**30
_MIN_FREE_GIGABYTES = 1.0
_PACKAGES = ("onnxfr", "onnx", "torch", "numpy", "scipy", "opencv-python-headless", "protobuf")
_THREAD_VARIABLES = ("ONNXFR_THREADS", "OMP_NUM_THREADS", "MKL_NUM_THREADS")
_EXTRA = re.compile(r"^\s*([A-Za-z0-9._-]+).*;.*\bextra\s*==\s*['\"]([^'\"]+)['\"]")


@dataclass(frozen=True)
class Problem:
    """Something that is wrong, and what to do about it."""

    what: str
    remedy: str


@dataclass(frozen=True)
class Provider:
    """One execution provider that onnxruntime lists, after a tiny network was run on it."""

    name: str
    works: bool
    detail: str


@dataclass(frozen=True)
class Diagnosis:
    """All that ``onnxfr doctor`` found."""

    python: str
    system: str
    wheels: dict[str, str]
    packages: dict[str, str | None]
    providers: tuple[Provider, ...]
    cuda_devices: tuple[str, ...]
    cpu: str
    instruction_set: str
    cores: int
    threads: int | None
    thread_variables: dict[str, str]
    cache: str
    cache_writable: bool
    free_gigabytes: float | None
    extras: dict[str, bool]
    notes: tuple[str, ...]
    problems: tuple[Problem, ...]

    @property
    def healthy(self) -> bool:
        """Whether nothing is wrong."""
        return not self.problems

    def to_dict(self) -> dict[str, Any]:
        """Return plain values for JSON."""
        return {"healthy": self.healthy, **asdict(self)}


def diagnose() -> Diagnosis:
    """Examine this machine and installation; never raises for what it finds."""
    problems: list[Problem] = []
    notes: list[str] = []
    wheels = dict(installed_wheels())
    problems += wheel_problems(wheels)
    providers = _try_providers(problems)
    devices = _cuda_devices(notes)
    _judge_cuda(wheels, providers, devices, problems, notes)
    threads = _threads(problems)
    folder = cache_dir()
    writable, free = _examine_folder(folder, problems)
    if int8_products_saturate():
        notes.append(
            f"no VNNI on this processor ({instruction_set()}): int8 models run in onnxruntime's "
            "exact mode, and their results name the instruction set"
        )
    return Diagnosis(
        python=platform.python_version(),
        system=f"{platform.system()} {platform.machine()}",
        wheels=wheels,
        packages={name: _version(name) for name in _PACKAGES},
        providers=providers,
        cuda_devices=devices,
        cpu=cpu_model(),
        instruction_set=instruction_set(),
        cores=available_cores(),
        threads=threads,
        thread_variables={n: os.environ[n] for n in _THREAD_VARIABLES if n in os.environ},
        cache=str(folder),
        cache_writable=writable,
        free_gigabytes=free,
        extras=_extras(),
        notes=tuple(notes),
        problems=tuple(problems),
    )


def wheel_problems(wheels: dict[str, str]) -> list[Problem]:
    """Judge the installed onnxruntime wheels: there must be exactly one."""
    if len(wheels) > 1:
        return [
            Problem(
                f"{' and '.join(wheels)} are installed together: they overwrite each other, "
                "and onnxruntime silently runs on the processor only",
                f"pip uninstall -y {' '.join(wheels)} and then one of: "
                "pip install 'onnxfr[cpu]', pip install 'onnxfr[gpu]'",
            )
        ]
    if not wheels and importlib.util.find_spec("onnxruntime") is None:
        return [
            Problem(
                "no onnxruntime is installed: models cannot be served",
                "pip install 'onnxfr[cpu]', or 'onnxfr[gpu]' on a machine with an NVIDIA GPU",
            )
        ]
    return []


def _try_providers(problems: list[Problem]) -> tuple[Provider, ...]:
    try:
        ort = load_onnxruntime()
    except OnnxfrError as error:
        if not any("onnxruntime" in problem.what for problem in problems):
            problems.append(Problem(str(error), "pip install --force-reinstall 'onnxfr[cpu]'"))
        return ()
    found = tuple(_try_provider(ort, name) for name in ort.get_available_providers())
    if not any(provider.works for provider in found if provider.name == CPU):
        problems.append(
            Problem(
                "onnxruntime cannot run a one-node network on the processor",
                "pip install --force-reinstall --no-deps onnxruntime",
            )
        )
    return found


def _try_provider(ort: Any, name: str) -> Provider:
    """Run a Relu there: the list of available providers is a promise of the build, not a fact."""
    options = ort.SessionOptions()
    options.log_severity_level = 4
    if name != CPU:
        options.add_session_config_entry("session.disable_cpu_ep_fallback", "1")
    try:
        session = ort.InferenceSession(_tiny_model(), options, providers=[name])
        got = session.get_providers()
        answer = session.run(None, {"x": np.array([-1, 2], np.float32)})[0]
    except Exception as error:
        text = " ".join(str(error).split())
        return Provider(name, False, "nothing runs on it" if "fallback" in text else text[:200])
    if name not in got:
        return Provider(name, False, f"fell back to {', '.join(got)}")
    right = answer.tolist() == [0.0, 2.0]
    return Provider(name, right, "" if right else f"wrong answer {answer.tolist()}")


def _tiny_model() -> bytes:
    sizes = [2]
    graph = helper.make_graph(
        [helper.make_node("Relu", ["x"], ["y"])],
        "tiny",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, sizes)],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, sizes)],
    )
    opsets = [helper.make_opsetid("", 13)]
    model: onnx.ModelProto = helper.make_model(graph, opset_imports=opsets, ir_version=8)
    return bytes(model.SerializeToString())


def _cuda_devices(notes: list[str]) -> tuple[str, ...]:
    try:
        import torch

        return tuple(torch.cuda.get_device_name(i) for i in range(torch.cuda.device_count()))
    except (ImportError, OSError, RuntimeError) as error:
        notes.append(f"torch could not be asked for GPUs: {error}")
        return ()


def _judge_cuda(
    wheels: dict[str, str],
    providers: tuple[Provider, ...],
    devices: tuple[str, ...],
    problems: list[Problem],
    notes: list[str],
) -> None:
    cuda = next((provider for provider in providers if provider.name == CUDA), None)
    if cuda and not cuda.works and devices:
        problems.append(
            Problem(
                f"a GPU is present but onnxruntime's CUDA provider does not work: {cuda.detail}",
                "install the CUDA and cuDNN versions that this onnxruntime-gpu release names",
            )
        )
    elif cuda and not cuda.works:
        problems.append(
            Problem(
                "onnxruntime-gpu is installed but there is no usable GPU: everything runs on the "
                "processor",
                "check the driver with nvidia-smi, or: pip uninstall -y onnxruntime-gpu and "
                "pip install 'onnxfr[cpu]'",
            )
        )
    elif devices and not cuda and len(wheels) == 1:
        notes.append(
            f"{len(devices)} GPU(s) present but onnxruntime serves from the processor; to use "
            "them: pip uninstall -y onnxruntime and pip install 'onnxfr[gpu]'"
        )


def _threads(problems: list[Problem]) -> int | None:
    try:
        return thread_budget()
    except OnnxfrError as error:
        problems.append(Problem(str(error), "set it to a number or unset it"))
        return None


def _examine_folder(folder: Path, problems: list[Problem]) -> tuple[bool, float | None]:
    try:
        folder.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryFile(dir=folder):
            pass
        free = shutil.disk_usage(folder).free / _GIGABYTE
    except OSError as error:
        problems.append(
            Problem(
                f"the cache folder {folder} cannot be written: {error.strerror or error}",
                "make it writable, or set ONNXFR_CACHE to a folder that is",
            )
        )
        return False, None
    if free < _MIN_FREE_GIGABYTES:
        problems.append(
            Problem(
                f"only {free:.1f} GB are free where the cache is ({folder})",
                "free some space, or set ONNXFR_CACHE to a folder on another disk",
            )
        )
    return True, round(free, 1)


def _extras() -> dict[str, bool]:
    """Tell for each extra of this package whether all that it asks for is installed."""
    try:
        lines = importlib.metadata.requires("onnxfr") or []
    except importlib.metadata.PackageNotFoundError:
        return {}
    present: dict[str, bool] = {}
    for line in lines:
        match = _EXTRA.match(line)
        if match:
            package, extra = match.groups()
            present[extra] = present.get(extra, True) and _version(package) is not None
    return present


def _version(package: str) -> str | None:
    try:
        return importlib.metadata.version(package)
    except importlib.metadata.PackageNotFoundError:
        return None
