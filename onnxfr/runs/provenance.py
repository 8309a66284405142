"""What produced a run's numbers: code, packages, processor features; never the host's name."""

from __future__ import annotations

import hashlib
import importlib
import os
import platform
from collections.abc import Sequence
from functools import cache
from importlib import metadata
from pathlib import Path
from typing import Any

import onnxfr
from onnxfr.models.hardware import available_cores, instruction_set

_PACKAGES = (
    "numpy",
    "scipy",
    "onnx",
    "onnxruntime",
    "onnxruntime-gpu",
    "torch",
    "opencv-python-headless",
    "pillow",
    "pyarrow",
    "ray",
)
_WITHOUT_NUMBERS = (
    *("onnxfr/cli/", "onnxfr/evaluators/report/"),
    # A wheel has these two inside the package; the model files they make are known by content.
    *("onnxfr/exporters/", "onnxfr/model_zoo/"),
)


@cache
def code_version(packages: Sequence[str] = ("onnxfr",)) -> str:
    """Return the version and a digest of all sources that can change a record.

    The digest is the same for a wheel and an editable install. Sources of the command line and of
    reports are left out: they only show numbers.
    """
    files: dict[str, Path] = {}
    for package in packages:
        for root in importlib.import_module(package).__path__:
            for path in Path(root).rglob("*.py"):
                name = f"{package.replace('.', '/')}/{path.relative_to(root).as_posix()}"
                if not name.startswith(_WITHOUT_NUMBERS):
                    files[name] = path
    digest = hashlib.sha256()
    for name in sorted(files):
        digest.update(name.encode() + b"\0" + hashlib.sha256(files[name].read_bytes()).digest())
    return f"{onnxfr.__version__}+{digest.hexdigest()[:12]}"


def provenance() -> dict[str, Any]:
    """Return the software and processor features of this process."""
    return {
        "onnxfr": onnxfr.__version__,
        "python": platform.python_version(),
        "system": platform.system(),
        "machine": platform.machine(),
        "instruction_set": instruction_set(),
        "packages": {name: version for name in _PACKAGES if (version := _version(name))},
        "threads": {
            "cores": available_cores(),
            "asked": os.environ.get("ONNXFR_THREADS", ""),
            "omp": os.environ.get("OMP_NUM_THREADS", ""),
        },
    }


def _version(package: str) -> str | None:
    try:
        return metadata.version(package)
    except metadata.PackageNotFoundError:
        return None
