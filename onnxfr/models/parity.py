"""The parity certificate: proof, in numbers, that both engines are the same function.

Embeddings are compared directly; the input gradient is compared with central differences of
*onnxruntime's* scores along random directions, so that a conversion mistake which breaks gradients
only (dropout left on, a detached clip) cannot hide.
"""

from __future__ import annotations

import math
import resource
import time
from collections.abc import Callable
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from onnxfr.errors import NotDifferentiable
from onnxfr.models.certificate import Certificate, Flag, Level
from onnxfr.models.geometry import fit_array
from onnxfr.models.gradient_check import gradient_error
from onnxfr.models.normal_form import takes_bytes
from onnxfr.models.second_opinion import second_opinion
from onnxfr.models.wrapper import OnnxModel
from onnxfr.rng import stream
from onnxfr.types import Embeddings, Images

Compared = tuple[dict[str, float | None], dict[str, Any], dict[str, Any]]
"""Parity, gradient and second opinion, as the certificate holds them."""
_LIMITS = {  # precision: (largest difference, smallest cosine) allowed between the engines
    "fp32": (1e-4, 0.99999),
    "fp16": (1e-2, 0.999),
    "int8": (5e-2, 0.99),
    "mixed": (5e-2, 0.99),
}
_GRADIENT_ERROR = 1e-2
_IMAGES = 32


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
    singles, again = (
        np.concatenate(
            [
                model.engine.run(batch[k : k + step], allow_nonfinite=True)
                for k in range(0, len(batch), step)
            ]
        )
        for step in (1, len(batch))
    )
    # What is not finite has its flag; the rest is judged by the pictures that got an answer.
    sound = np.isfinite(embeddings).all(axis=1)
    across = float(np.abs(singles - embeddings)[sound].max(initial=0.0))
    deterministic = bool(np.array_equal(embeddings, again, equal_nan=True))
    norms = np.linalg.norm(embeddings[sound], axis=1) if sound.any() else np.zeros(1, np.float32)
    if sound.all():
        parity, gradient, opinion = _differentiable_part(model, batch, embeddings, flags)
    else:
        parity, gradient, opinion = _not_compared()
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
        latency_ms=_latencies(model, batch) if sound.all() else {},
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


def _not_compared() -> Compared:
    nothing: dict[str, float | None] = {"max_abs": None, "min_cosine": None}
    return nothing, {"differentiable": False, "max_rel_err": None}, {"available": False}


def _differentiable_part(
    model: OnnxModel, batch: Images, embeddings: Embeddings, flags: list[Flag]
) -> Compared:
    try:
        with torch.no_grad():
            torch_rows = model.embed_grad(torch.from_numpy(batch)).numpy()
    except NotDifferentiable as refusal:
        flags.append(Flag("differentiable", "yellow", f"{refusal}."))
        return _not_compared()
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
    gradient = {"differentiable": True, "max_rel_err": error if _is_number(error) else None}
    return (
        {"max_abs": max_abs, "min_cosine": min_cosine},
        gradient,
        _ask_second(model, batch, flags),
    )


def _is_number(error: float | None) -> bool:
    return error is not None and math.isfinite(error)


def _judge_gradient(model: OnnxModel, error: float | None, flags: list[Flag]) -> None:
    if error == math.inf:
        sentence = "Gradients are NaN or infinite: attacks that follow them prove nothing."
        flags.append(Flag("gradient", "red", sentence))
        return
    if error is None:
        sentence = "Gradients could not be held against anything: no answer moves with the picture."
        flags.append(Flag("gradient", "yellow", sentence))
        return
    if model.card.precision in ("int8", "mixed") or takes_bytes(model.graph()):
        sentence = "Gradients pass straight through the quantisation: approximate by design."
        flags.append(Flag("gradient", "yellow", sentence))
        return
    good = error < _GRADIENT_ERROR
    if not good and model.card.precision == "fp16":
        sentence = (
            "Gradients are those of the network in 32 bits; its answers in 16 bits are too coarse "
            f"to confirm them by finite differences (relative error {error:.1e})."
        )
        flags.append(Flag("gradient", "yellow", sentence))
        return
    level: Level = "green" if good else "red"
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
    some = torch.from_numpy(batch[: 1 if model.card.batch == "loop" else 2].copy())
    ours, our_slope = _slope_of(model.embed_grad, some)
    try:
        theirs, their_slope = _slope_of(opinion.module, some)
    except Exception as error:  # whatever another project's code may raise
        reason = " ".join(str(error).split())[:200]
        return {"available": False, "why": f"onnx2torch's graph cannot be run: {reason}"}
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


def _slope_of(
    forward: Callable[[torch.Tensor], torch.Tensor], images: torch.Tensor
) -> tuple[Embeddings, NDArray[np.float64]]:
    variable = images.clone().requires_grad_(True)
    rows = forward(variable)
    (slope,) = torch.autograd.grad(rows[:, 0].sum(), variable)
    return rows.detach().numpy(), slope.numpy().ravel().astype(np.float64)


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
