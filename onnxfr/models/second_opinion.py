"""An independent second opinion on the differentiable graph, from onnx2torch where it converts.

Our own converter is the engine; a mistake in it would be repeated by every test that uses it. Where
the optional onnx2torch manages a file, the certificate compares embeddings and gradients with it.
"""

from __future__ import annotations

import importlib
import importlib.util
import sys
from dataclasses import dataclass
from types import ModuleType

import onnx
import torch


@dataclass(frozen=True)
class SecondOpinion:
    """The other converter's module, or why there is none."""

    module: torch.nn.Module | None
    why: str = ""


def second_opinion(model: onnx.ModelProto) -> SecondOpinion:
    """Convert with onnx2torch, frozen and in evaluation mode."""
    if importlib.util.find_spec("onnx2torch") is None:
        return SecondOpinion(None, "onnx2torch is not installed")
    try:
        convert = _import_onnx2torch().convert
        module: torch.nn.Module = convert(_anonymous(model))
    except Exception as error:
        reason = " ".join(str(error).split())[:200]
        return SecondOpinion(None, f"onnx2torch cannot convert it: {reason}")
    # It comes in training mode with trainable weights: one forward pass would alter BatchNorm.
    module.eval()
    module.requires_grad_(False)
    return SecondOpinion(module)


def _anonymous(model: onnx.ModelProto) -> onnx.ModelProto:
    """Return a copy with node names of ours.

    onnx2torch alters the model it is given, and writes node names into the Python code it generates
    without escaping them: a quotation mark in a vendor's file would run as code.
    """
    copy = onnx.ModelProto()
    copy.CopyFrom(model)
    _resolve_shared_weights(copy.graph)
    for index, node in enumerate(copy.graph.node):
        node.name = f"node_{index}"
    return copy


def _resolve_shared_weights(graph: onnx.GraphProto) -> None:
    """Let nodes read a shared weight itself.

    torch's exporter stores equal weights once and hands them on by Identity nodes, where onnx2torch
    expects the initializer and gives up.
    """
    source = {tensor.name: tensor.name for tensor in graph.initializer}
    outputs = {value.name for value in graph.output}
    kept = []
    for node in graph.node:
        for place, name in enumerate(node.input):
            node.input[place] = source.get(name, name)
        if node.op_type == "Identity" and node.input[0] in source and node.output[0] not in outputs:
            source[node.output[0]] = node.input[0]
        else:
            kept.append(node)
    del graph.node[:]
    graph.node.extend(kept)


def _import_onnx2torch() -> ModuleType:
    """Import onnx2torch even where torchvision has no build: only two operators would use it."""
    if "onnx2torch" in sys.modules or importlib.util.find_spec("torchvision") is not None:
        return importlib.import_module("onnx2torch")
    stands_in, operators = ModuleType("torchvision"), ModuleType("torchvision.ops")
    for name in ("nms", "roi_align", "batched_nms"):
        setattr(operators, name, None)
    stands_in.ops = operators  # type: ignore[attr-defined]
    sys.modules.update({"torchvision": stands_in, "torchvision.ops": operators})
    try:
        return importlib.import_module("onnx2torch")
    finally:
        del sys.modules["torchvision"], sys.modules["torchvision.ops"]
