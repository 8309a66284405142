"""Opening and asking single onnxruntime sessions: the part that talks to the library."""

from __future__ import annotations

import importlib
import importlib.metadata
from dataclasses import dataclass
from functools import cache
from types import ModuleType
from typing import Any, Literal

import numpy as np

from onnxfr.errors import EngineError, MissingExtra
from onnxfr.types import Embeddings, Images

Device = Literal["auto", "cpu", "cuda"]

CUDA = "CUDAExecutionProvider"
CPU = "CPUExecutionProvider"
WHEELS = (
    "onnxruntime",
    "onnxruntime-gpu",
    "onnxruntime-directml",
    "onnxruntime-openvino",
    "onnxruntime-training",
    "onnxruntime-rocm",
    "onnxruntime-silicon",
)
_QUIET = 4


@dataclass(frozen=True)
class Signature:
    """Names and declared sizes of the one image input and the one embedding output."""

    image: str
    image_shape: tuple[int | None, ...]
    embedding: str


def load_onnxruntime() -> ModuleType:
    """Import onnxruntime, or say how to get it."""
    try:
        onnxruntime = importlib.import_module("onnxruntime")
    except ImportError as error:
        raise MissingExtra("onnxruntime", "cpu") from error
    if not hasattr(onnxruntime, "InferenceSession"):
        raise EngineError(
            "the onnxruntime package is damaged (two of its wheels met, one was removed); "
            "reinstall it: pip install --force-reinstall --no-deps onnxruntime"
        )
    return onnxruntime


@cache
def installed_wheels() -> tuple[tuple[str, str], ...]:
    """List name and version of the distributions that own the one ``onnxruntime`` folder."""
    found = []
    for name in WHEELS:
        try:
            found.append((name, importlib.metadata.version(name)))
        except importlib.metadata.PackageNotFoundError:
            continue
    return tuple(found)


def open_session(
    contents: bytes, *, device: Device, threads: int, spin: bool, config: dict[str, str]
) -> Any:
    """Open a session; the caller asks ``session.get_providers()`` what it really got.

    Args:
        contents: a serialised model.
        device: ``"cuda"`` and ``"auto"`` prefer CUDA where the library lists it.
        threads: threads inside one run.
        spin: whether idle threads may wait busily during a run; only good for a lone session.
        config: further session configuration entries.
    """
    ort = load_onnxruntime()
    options = ort.SessionOptions()
    options.log_severity_level = _QUIET
    options.graph_optimization_level = ort.GraphOptimizationLevel.ORT_ENABLE_ALL
    options.execution_mode = ort.ExecutionMode.ORT_SEQUENTIAL
    options.intra_op_num_threads = threads
    entries = {
        "session.intra_op.allow_spinning": "1" if spin else "0",
        "session.force_spinning_stop": "1",
        **config,
    }
    for name, value in entries.items():
        options.add_session_config_entry(name, value)
    providers: list[Any] = [CPU]
    if device != "cpu" and CUDA in ort.get_available_providers():
        # TF32 keeps 10 bits of mantissa: too few for answers that must match the processor's.
        providers.insert(0, (CUDA, {"use_tf32": "0", "cudnn_conv_algo_search": "HEURISTIC"}))
    try:
        return ort.InferenceSession(contents, options, providers=providers)
    # onnxruntime raises a dozen unrelated classes here, most of them straight below Exception.
    except Exception as error:
        raise EngineError(f"onnxruntime cannot open the model: {_one_line(error)}") from error


def signature_of(session: Any) -> Signature:
    """Find the image input and the embedding output of an open session."""
    inputs, outputs = session.get_inputs(), session.get_outputs()
    if len(inputs) != 1 or len(inputs[0].shape) != 4 or inputs[0].type != "tensor(float)":
        came = ", ".join(f"{i.name}: {i.type} {i.shape}" for i in inputs) or "no input"
        raise EngineError(f"expected one float32 input (N, 3, H, W), came {came}; import it first")
    named = [output.name for output in outputs if output.name == "embedding"]
    if len(outputs) != 1 and not named:
        came = ", ".join(output.name for output in outputs)
        raise EngineError(f"expected one output or one called 'embedding', came {came}")
    shape = tuple(size if isinstance(size, int) and size > 0 else None for size in inputs[0].shape)
    return Signature(inputs[0].name, shape, named[0] if named else outputs[0].name)


def ask(session: Any, signature: Signature, images: Images, *, bind: str | None) -> Embeddings:
    """Answer one chunk; ``bind`` names the device whose memory holds input and output meanwhile."""
    chunk = np.ascontiguousarray(images)
    try:
        if bind is None:
            answer = session.run([signature.embedding], {signature.image: chunk})[0]
        else:
            answer = _ask_bound(session, signature, chunk, bind)
    except Exception as error:
        raise EngineError(
            f"onnxruntime failed on a batch of shape {chunk.shape}: {_one_line(error)}"
        ) from error
    if answer.ndim != 2 or len(answer) != len(chunk):
        raise EngineError(
            f"expected an embedding of shape ({len(chunk)}, D), came {answer.shape}; "
            "if the model takes only one image at a time, open it with fixed_batch=1"
        )
    embeddings: Embeddings = answer.astype(np.float32, copy=False)
    return embeddings


def _ask_bound(session: Any, signature: Signature, chunk: Images, device: str) -> Any:
    """Run with input and output bound to device memory: one copy in, one copy out."""
    value = load_onnxruntime().OrtValue.ortvalue_from_numpy(chunk, device, 0)
    binding = session.io_binding()
    binding.bind_ortvalue_input(signature.image, value)
    binding.bind_output(signature.embedding, device)
    session.run_with_iobinding(binding)
    return binding.copy_outputs_to_cpu()[0]


def _one_line(error: Exception) -> str:
    return " ".join(str(error).split())[:300]
