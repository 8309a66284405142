"""The first contact of a vendor's graph with onnxruntime, in a process that may die.

A hostile or damaged graph can crash native code, loop for ever or ask for all memory. So the first
load and run happen in a child with a time and memory limit; the parent only reads its answer.
"""

from __future__ import annotations

import json
import subprocess
import sys
import tempfile
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import onnx

from onnxfr.errors import UnsupportedModel

SECONDS = 120
MEMORY_BYTES = 16 << 30

_CHILD = """
import json, resource, sys
path, shape, kind, memory = sys.argv[1], json.loads(sys.argv[2]), sys.argv[3], int(sys.argv[4])
resource.setrlimit(resource.RLIMIT_AS, (memory, memory))
resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
import numpy as np, onnxruntime as ort
options = ort.SessionOptions()
options.log_severity_level = 4
options.intra_op_num_threads = 1
try:
    session = ort.InferenceSession(path, options, providers=["CPUExecutionProvider"])
    ramp = np.linspace(0, 255, int(np.prod(shape))).reshape(shape)
    name = session.get_inputs()[0].name
    answers = session.run(None, {name: ramp.astype(kind)})
    outputs = [
        {"name": o.name, "shape": list(np.shape(a)), "dtype": str(np.asarray(a).dtype)}
        for o, a in zip(session.get_outputs(), answers)
    ]
    print(json.dumps({"outputs": outputs}))
except BaseException as error:
    print(json.dumps({"error": str(error)[:600]}))
"""


@dataclass(frozen=True)
class FirstRun:
    """What the graph answered to one picture: the true shape of each output."""

    outputs: dict[str, tuple[int, ...]]
    dtypes: dict[str, str]


def first_run(model: onnx.ModelProto, shape: tuple[int, ...], dtype: str) -> FirstRun:
    """Run the graph once in a child process and return its output shapes."""
    answer = _ask_child(model, shape, dtype)
    if "error" in answer:
        raise UnsupportedModel(f"onnxruntime cannot run this model: {_one_line(answer['error'])}")
    return FirstRun(
        outputs={o["name"]: tuple(o["shape"]) for o in answer["outputs"]},
        dtypes={o["name"]: o["dtype"] for o in answer["outputs"]},
    )


def _ask_child(model: onnx.ModelProto, shape: tuple[int, ...], dtype: str) -> dict[str, Any]:
    with tempfile.TemporaryDirectory(prefix="onnxfr-") as folder:
        path = Path(folder) / "model.onnx"
        path.write_bytes(model.SerializeToString())
        # -P: what lies in the working folder, perhaps beside the vendor's file, is no library.
        command = [sys.executable, "-P", "-c", _CHILD, str(path), json.dumps(shape), dtype]
        try:
            done = subprocess.run(
                [*command, str(MEMORY_BYTES)],
                capture_output=True,
                timeout=SECONDS,
                check=False,
                cwd=folder,
            )
        except subprocess.TimeoutExpired:
            raise UnsupportedModel(
                f"the model did not answer one picture within {SECONDS} s; it was stopped"
            ) from None
    lines = done.stdout.decode(errors="replace").strip().splitlines()
    if not lines:
        raise UnsupportedModel(
            f"onnxruntime crashed on this model (signal or exit code {done.returncode}): "
            "the file is damaged or hostile"
        )
    answer: dict[str, Any] = json.loads(lines[-1])
    return answer


def _one_line(text: str) -> str:
    return " ".join(text.split())[:300]
