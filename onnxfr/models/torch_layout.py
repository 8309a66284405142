"""Which memory layout a differentiable graph runs fastest in, measured once and remembered.

Channels-last helps residual networks and hurts depthwise ones on the same processor, so there is no
rule to write down; a gradient step on four pictures tells. On a single thread it also tells whether
convolutions of one pixel are better off with oneDNN (``graph.pointwise``).
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import time
from pathlib import Path

import torch
from torch import fx

from onnxfr.models.card import Card
from onnxfr.models.graph.pointwise import spread_pointwise
from onnxfr.models.hardware import cpu_model
from onnxfr.paths import cache_dir

_PICTURES = 4
_ROUNDS = 3
_CLEAR_GAIN = 0.95
_SPREAD = " spread"
_LAYOUTS = {"planes": torch.contiguous_format, "channels-last": torch.channels_last}


def lay_out_fastest(
    module: fx.GraphModule, card: Card, device: torch.device
) -> torch.memory_format:
    """Lay a frozen network out as this model, machine and torch version run it fastest, in place.

    Returns:
        The layout its pictures should come in.
    """
    record = _record(card.sha256, device)
    with contextlib.suppress(OSError, ValueError, KeyError):
        return lay_out(module, json.loads(record.read_text(encoding="utf-8"))["layout"])
    name = _measure(module, card, device)
    with contextlib.suppress(OSError):
        record.parent.mkdir(parents=True, exist_ok=True)
        temporary = record.with_suffix(f".{time.monotonic_ns()}.part")
        temporary.write_text(json.dumps({"layout": name}), encoding="utf-8")
        temporary.replace(record)
    return lay_out(module, name)


def lay_out(module: fx.GraphModule, name: str) -> torch.memory_format:
    """Store the weights in a layout; ``Module.to`` fails on rank 5."""
    layout = _LAYOUTS[name.removesuffix(_SPREAD)]
    spread_pointwise(module, 2 if name.endswith(_SPREAD) else 1)
    for weight in module.buffers():
        if weight.dim() == 4:
            weight.data = weight.data.contiguous(memory_format=layout)
    return layout


def _record(sha256: str, device: torch.device) -> Path:
    where = cpu_model() if device.type == "cpu" else torch.cuda.get_device_name(device)
    key = f"{sha256} {where} {torch.__version__} {torch.get_num_threads()}{_SPREAD}"
    return cache_dir() / "torch" / f"{hashlib.sha256(key.encode()).hexdigest()[:32]}.json"


def _measure(module: fx.GraphModule, card: Card, device: torch.device) -> str:
    names = list(_LAYOUTS)
    if device.type == "cpu" and torch.get_num_threads() == 1 and spread_pointwise(module, 1):
        names += [name + _SPREAD for name in _LAYOUTS]
    seconds = dict.fromkeys(names, float("inf"))
    at_once = _PICTURES if card.batch == "dynamic" else 1
    pictures = torch.full((at_once, 3, *card.input_size), 0.5, device=device)
    for _ in range(_ROUNDS):
        for name in names:
            layout = lay_out(module, name)
            variable = pictures.clone(memory_format=layout).requires_grad_(True)
            begin = _clock(device)
            with torch.enable_grad():
                torch.autograd.grad(module(variable)[:, 0].sum(), variable)
            seconds[name] = min(seconds[name], _clock(device) - begin)
    # What torch does by itself gives way to a clear gain only.
    best = min(names, key=seconds.__getitem__)
    return best if seconds[best] < _CLEAR_GAIN * seconds["planes"] else "planes"


def _clock(device: torch.device) -> float:
    if device.type == "cuda":
        torch.cuda.synchronize(device)
    # On one thread, processor time is blind to whatever else the machine is doing.
    alone = device.type == "cpu" and torch.get_num_threads() == 1
    return time.thread_time() if alone else time.perf_counter()
