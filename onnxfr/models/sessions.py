"""Plain onnxruntime sessions for looking at a graph, apart from the tuned engine that serves it."""

from __future__ import annotations

from typing import Any

import numpy as np
import onnx
from numpy.typing import NDArray

from onnxfr.errors import EngineError
from onnxfr.models.ort_session import load_onnxruntime


def open_session(model: onnx.ModelProto, *, threads: int = 0, optimise: bool = True) -> Any:
    """Open a CPU session; ``threads=0`` lets onnxruntime use every core."""
    ort = load_onnxruntime()
    options = ort.SessionOptions()
    options.log_severity_level = 4
    options.intra_op_num_threads = threads
    options.add_session_config_entry("session.intra_op.allow_spinning", "0")
    if not optimise:
        options.graph_optimization_level = ort.GraphOptimizationLevel.ORT_DISABLE_ALL
    try:
        return ort.InferenceSession(
            model.SerializeToString(), options, providers=["CPUExecutionProvider"]
        )
    except Exception as error:
        raise EngineError(f"onnxruntime cannot load the graph: {_first_line(error)}") from None


def run_session(session: Any, images: NDArray[Any], output: str | None = None) -> NDArray[Any]:
    """Run one batch and return one output (the first unless named)."""
    name = session.get_inputs()[0].name
    try:
        answer = session.run([output] if output else None, {name: images})[0]
    except Exception as error:
        raise EngineError(f"onnxruntime failed on a batch: {_first_line(error)}") from None
    return np.asarray(answer)


def unit_rows(raw: NDArray[Any]) -> NDArray[np.float32]:
    """Flatten each answer to a row and scale it to unit length."""
    rows = np.asarray(raw, dtype=np.float32).reshape(len(raw), -1)
    norms = np.linalg.norm(rows, axis=1, keepdims=True) + np.float32(1e-12)
    unit: NDArray[np.float32] = rows / norms
    return unit


def _first_line(error: Exception) -> str:
    return " ".join(str(error).split())[:300]
