"""Which memory layout a differentiable graph runs fastest in, measured once and remembered.

Channels-last helps residual networks and hurts depthwise ones on the same processor, so there is no
rule to write down; a gradient step on four pictures tells.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import time
from pathlib import Path

import torch

from onnxfr.models.hardware import cpu_model
from onnxfr.paths import cache_dir

_PICTURES = 4
_ROUNDS = 3
_CLEAR_GAIN = 0.95
_LAYOUTS = {"planes": torch.contiguous_format, "channels-last": torch.channels_last}


def fastest_layout(
    module: torch.nn.Module, sha256: str, size: tuple[int, int], device: torch.device
) -> torch.memory_format:
    """Return the layout for this model, machine and torch version."""
    record = _record(sha256, device)
    with contextlib.suppress(OSError, ValueError, KeyError):
        return _LAYOUTS[json.loads(record.read_text(encoding="utf-8"))["layout"]]
    name = _measure(module, size, device)
    with contextlib.suppress(OSError):
        record.parent.mkdir(parents=True, exist_ok=True)
        temporary = record.with_suffix(f".{time.monotonic_ns()}.part")
        temporary.write_text(json.dumps({"layout": name}), encoding="utf-8")
        temporary.replace(record)
    return _LAYOUTS[name]


def lay_out(module: torch.nn.Module, layout: torch.memory_format) -> None:
    """Store a frozen network's weights in a layout, in place; ``Module.to`` fails on rank 5."""
    for weight in module.buffers():
        if weight.dim() == 4:
            weight.data = weight.data.contiguous(memory_format=layout)


def _record(sha256: str, device: torch.device) -> Path:
    where = cpu_model() if device.type == "cpu" else torch.cuda.get_device_name(device)
    key = f"{sha256} {where} {torch.__version__} {torch.get_num_threads()}"
    return cache_dir() / "torch" / f"{hashlib.sha256(key.encode()).hexdigest()[:32]}.json"


def _measure(module: torch.nn.Module, size: tuple[int, int], device: torch.device) -> str:
    seconds = dict.fromkeys(_LAYOUTS, float("inf"))
    pictures = torch.full((_PICTURES, 3, *size), 0.5, device=device)
    for _ in range(_ROUNDS):
        for name, layout in _LAYOUTS.items():
            lay_out(module, layout)
            variable = pictures.clone(memory_format=layout).requires_grad_(True)
            begin = _clock(device)
            with torch.enable_grad():
                torch.autograd.grad(module(variable)[:, 0].sum(), variable)
            seconds[name] = min(seconds[name], _clock(device) - begin)
    lay_out(module, torch.contiguous_format)
    gains = seconds["channels-last"] < _CLEAR_GAIN * seconds["planes"]
    return "channels-last" if gains else "planes"


def _clock(device: torch.device) -> float:
    if device.type == "cuda":
        torch.cuda.synchronize(device)
    # On one thread, processor time is blind to whatever else the machine is doing.
    alone = device.type == "cpu" and torch.get_num_threads() == 1
    return time.thread_time() if alone else time.perf_counter()
