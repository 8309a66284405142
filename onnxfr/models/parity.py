"""The parity certificate: proof, in numbers, that both engines are the same function.

Embeddings are compared directly; the input gradient is compared with central differences of
*onnxruntime's* scores along random directions, so that a conversion mistake which breaks gradients
only (dropout left on, a detached clip) cannot hide.
"""

from __future__ import annotations

import json
import resource
import time
from collections.abc import Callable
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any, Literal

import numpy as np
import torch
from numpy.typing import NDArray

from onnxfr.errors import EngineError, UnsupportedOperator
from onnxfr.models.card import CERTIFICATE_FILE
from onnxfr.models.geometry import fit_array
from onnxfr.models.gradient_check import gradient_error
from onnxfr.models.second_opinion import second_opinion
from onnxfr.models.wrapper import OnnxModel
from onnxfr.rng import stream
from onnxfr.types import Embeddings, Images

Level = Literal["green", "yellow", "red"]
VERSION = 1
_LIMITS = {  # precision: (largest difference, smallest cosine) allowed between the engines
    "fp32": (1e-4, 0.99999),
    "fp16": (1e-2, 0.999),
    "int8": (5e-2, 0.99),
    "mixed": (5e-2, 0.99),
}
_GRADIENT_ERROR = 1e-2
_IMAGES = 32


@dataclass(frozen=True)
class Flag:
    """One finding with its traffic light and a sentence a buyer can read."""

    name: str
    level: Level
    sentence: str


@dataclass(frozen=True)
class Certificate:
    """Everything measured about one model's two engines."""

    model: str
    sha256: str
    status: Level
    parity: dict[str, float | None]
    gradient: dict[str, Any]
    batch: dict[str, float]
    deterministic: bool
    norm: dict[str, float]
    second_opinion: dict[str, Any]
    latency_ms: dict[str, float]
    peak_memory_mb: float
    precision: str
    instruction_set: str
    pictures: str
    flags: tuple[Flag, ...] = field(default=())
    version: int = VERSION

    def to_json(self) -> dict[str, Any]:
        """Return the certificate with plain values only."""
        return asdict(self)


def certify(model: OnnxModel, images: Images | None = None) -> Certificate:
    """Measure a model; ``images`` are real faces, synthetic pictures stand in for them."""
    pictures = "real faces" if images is not None else "synthetic pictures"
    batch = _pictures(model, images)
    flags: list[Flag] = []
    embeddings = model.engine.run(batch, allow_nonfinite=True)
    if not np.isfinite(embeddings).all():
        bad = int((~np.isfinite(embeddings).all(axis=1)).sum())
        flags.append(
            Flag("finite", "red", f"{bad} of {len(batch)} embeddings are NaN or infinite.")
        )
    singles = np.concatenate([model.engine.run(batch[k : k + 1]) for k in range(len(batch))])
    across = float(np.abs(singles - embeddings).max())
    deterministic = bool(np.array_equal(embeddings, model.engine.run(batch)))
    norms = np.linalg.norm(embeddings, axis=1)
    parity, gradient, opinion = _differentiable_part(model, batch, embeddings, flags)
    _judge_engine(model, across, deterministic, norms, flags)
    levels = {flag.level for flag in flags}
    status: Level = "red" if "red" in levels else "yellow" if "yellow" in levels else "green"
    return Certificate(
        model=model.name,
        sha256=model.card.sha256,
        status=status,
        parity=parity,
        gradient=gradient,
        batch={"max_abs": across, "sizes": float(len(batch))},
        deterministic=deterministic,
        norm={"min": float(norms.min()), "max": float(norms.max())},
        second_opinion=opinion,
        latency_ms=_latencies(model, batch),
        peak_memory_mb=resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024,
        precision=model.card.precision,
        instruction_set=model.engine.instruction_set,
        pictures=pictures,
        flags=tuple(flags),
    )


def _pictures(model: OnnxModel, images: Images | None) -> Images:
    size = model.card.input_size
    if images is not None and len(images):
        return fit_array(np.resize(images, (_IMAGES, *images.shape[1:])), size)
    rng = stream(0, "certificate")
    coarse = torch.from_numpy(rng.random((_IMAGES, 3, 9, 9), dtype=np.float32))
    smooth = torch.nn.functional.interpolate(coarse, size=size, mode="bicubic").clamp(0, 1)
    pictures: Images = smooth.numpy()
    return pictures


def _differentiable_part(
    model: OnnxModel, batch: Images, embeddings: Embeddings, flags: list[Flag]
) -> tuple[dict[str, float | None], dict[str, Any], dict[str, Any]]:
    try:
        with torch.no_grad():
            torch_rows = model.embed_grad(torch.from_numpy(batch)).numpy()
    except UnsupportedOperator as refusal:
        flags.append(Flag("differentiable", "yellow", f"{refusal}."))
        nothing: dict[str, float | None] = {"max_abs": None, "min_cosine": None}
        return nothing, {"differentiable": False, "max_rel_err": None}, {"available": False}
    max_abs = float(np.abs(torch_rows - embeddings).max())
    cosines = np.einsum("nd,nd->n", torch_rows.astype(np.float64), embeddings.astype(np.float64))
    min_cosine = float(cosines.min())
    largest, smallest = _LIMITS[model.card.precision]
    agree = max_abs <= largest and min_cosine >= smallest
    level: Level = "green" if agree else "yellow" if model.card.precision == "int8" else "red"
    flags.append(
        Flag(
            "parity",
            level,
            f"onnxruntime and torch {'agree' if agree else 'DISAGREE'}: largest difference "
            f"{max_abs:.1e}, smallest cosine {min_cosine:.7f} ({model.card.precision}).",
        )
    )
    error = gradient_error(model, batch)
    _judge_gradient(model, error, flags)
    gradient = {"differentiable": True, "max_rel_err": error}
    return (
        {"max_abs": max_abs, "min_cosine": min_cosine},
        gradient,
        _ask_second(model, batch, flags),
    )


def _judge_gradient(model: OnnxModel, error: float, flags: list[Flag]) -> None:
    if model.card.precision in ("int8", "mixed"):
        sentence = "Gradients pass straight through the quantisation: approximate by design."
        flags.append(Flag("gradient", "yellow", sentence))
        return
    good = error < _GRADIENT_ERROR
    level: Level = "green" if good else "yellow" if model.card.precision == "fp16" else "red"
    verdict = "match" if good else "DO NOT match"
    flags.append(
        Flag(
            "gradient",
            level,
            f"Gradients {verdict} finite differences of onnxruntime: relative error {error:.1e}.",
        )
    )


def _judge_engine(
    model: OnnxModel,
    across: float,
    deterministic: bool,
    norms: NDArray[np.float32],
    flags: list[Flag],
) -> None:
    limit = _LIMITS[model.card.precision][0]
    sentence = f"One picture at a time and {_IMAGES} at once differ by at most {across:.1e}."
    flags.append(Flag("batch", "green" if across <= limit else "red", sentence))
    if not deterministic:
        sentence = "The same batch gives different answers twice: treat it as a randomised model."
        flags.append(Flag("deterministic", "yellow", sentence))
    if not np.allclose(norms, 1, atol=1e-3):
        sentence = f"Embeddings are not of unit length ({norms.min():.4f} to {norms.max():.4f})."
        flags.append(Flag("norm", "red", sentence))
    if model.card.batch == "loop":
        sentence = "The graph takes one picture at a time, so both engines loop: correct but slow."
        flags.append(Flag("loop", "yellow", sentence))
    flags.extend(Flag("engine", "yellow", warning) for warning in model.engine.warnings)


def _ask_second(model: OnnxModel, batch: Images, flags: list[Flag]) -> dict[str, Any]:
    """Compare embeddings and gradients with onnx2torch wherever it converts the file."""
    opinion = second_opinion(model.graph())
    if opinion.module is None:
        return {"available": False, "why": opinion.why}
    some = torch.from_numpy(batch[:2].copy())
    answers = []
    for forward in (model.embed_grad, opinion.module):
        variable = some.clone().requires_grad_(True)
        rows = forward(variable)
        (slope,) = torch.autograd.grad(rows[:, 0].sum(), variable)
        answers.append((rows.detach().numpy(), slope.numpy().ravel().astype(np.float64)))
    (ours, our_slope), (theirs, their_slope) = answers
    max_abs = float(np.abs(ours - theirs).max())
    lengths = float(np.linalg.norm(our_slope) * np.linalg.norm(their_slope))
    cosine = float(our_slope @ their_slope) / max(lengths, 1e-12)
    agree = max_abs <= 1e-4 and cosine > 0.999
    sentence = (
        f"An independent converter (onnx2torch) {'agrees' if agree else 'DISAGREES'}: embeddings "
        f"within {max_abs:.1e}, gradient cosine {cosine:.6f}."
    )
    flags.append(Flag("second-opinion", "green" if agree else "yellow", sentence))
    return {"available": True, "max_abs": max_abs, "gradient_cosine": cosine}


def _latencies(model: OnnxModel, batch: Images) -> dict[str, float]:
    one = batch[:1]
    timed: dict[str, float] = {
        "onnxruntime_batch1": _milliseconds(lambda: model.engine.run(one)),
        f"onnxruntime_batch{len(batch)}": _milliseconds(lambda: model.engine.run(batch))
        / len(batch),
    }
    if model.differentiable:
        eight = torch.from_numpy(batch[:8].copy())

        def step() -> None:
            variable = eight.clone().requires_grad_(True)
            torch.autograd.grad(model.embed_grad(variable)[:, 0].sum(), variable)

        timed["torch_gradient_batch8"] = _milliseconds(step) / 8
    return {name: round(value, 3) for name, value in timed.items()}


def _milliseconds(call: Callable[[], object], repeats: int = 3) -> float:
    call()
    seconds = []
    for _ in range(repeats):
        begin = time.perf_counter()
        call()
        seconds.append(time.perf_counter() - begin)
    return 1000 * float(np.median(seconds))


def write_certificate(certificate: Certificate, folder: Path) -> Path:
    """Store the certificate beside the model, whole or not at all."""
    path = folder / CERTIFICATE_FILE
    temporary = path.with_name(path.name + ".part")
    text = json.dumps(certificate.to_json(), indent=2)
    temporary.write_text(text + "\n", encoding="utf-8")
    temporary.replace(path)
    return path


def read_certificate(folder: Path) -> dict[str, Any] | None:
    """Return the stored certificate, or None where the model was never checked."""
    try:
        stored: dict[str, Any] = json.loads((folder / CERTIFICATE_FILE).read_text("utf-8"))
    except FileNotFoundError:
        return None
    except (OSError, ValueError) as error:
        raise EngineError(f"{folder / CERTIFICATE_FILE} is damaged: {error}; check again") from None
    return stored
