"""PaddlePaddle inference models: ``.pdmodel`` or ``.json`` (since version 3) with ``.pdiparams``.

PaddlePaddle is not needed. Shapes and settings that the graph computes are computed while reading.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import Path

import numpy as np
import onnx

from onnxfr.errors import UnreadableModel, UnsupportedModel
from onnxfr.exporters import _paddle_activations, _paddle_shaping  # noqa: F401
from onnxfr.exporters._graph_writer import GraphWriter
from onnxfr.exporters._operands import Array, Operand, fold
from onnxfr.exporters._paddle_operators import OPERATORS
from onnxfr.exporters._paddle_params import read_params
from onnxfr.exporters._paddle_program import Program, Step, read_pir, read_program
from onnxfr.exporters._wire import fields, top_fields
from onnxfr.exporters.base import (
    Exported,
    Size,
    companion,
    exporter,
    fit_size,
    head_of,
    read_source,
)

_MAX_GRAPH = 256 << 20
_MAX_RECOGNISED = 16 << 20
_LEAST_FOLDED = 1 << 16
_MOVING = {"concat", "combine", "reshape", "slice", "squeeze", "stack", "unsqueeze", "assign"}
"""Operators that may carry the size of a free batch, since they do not compute with it."""


def _is_pir(path: Path) -> bool:
    if not head_of(path, 64).lstrip().startswith(b"{"):
        return False
    raw = json.loads(read_source(path, _MAX_GRAPH))
    return isinstance(raw, dict) and raw.get("base_code", {}).get("magic") == "pir"


def _is_program(path: Path) -> bool:
    if head_of(path, 1) != b"\x0a":
        return False
    content = read_source(path, _MAX_RECOGNISED)
    if not {1} <= top_fields(content).keys() <= {1, 4, 5}:
        return False
    block = next(value for number, value in fields(content) if number == 1)
    return top_fields(bytes(block)).keys() >= {1, 2, 3, 4} and b"\x1a\x04feed" in content


def _is_graph(path: Path) -> bool:
    return _is_pir(path) or _is_program(path)


def _recognises(path: Path) -> bool:
    if path.suffix == ".pdiparams":
        return any(_is_graph(path.with_suffix(end)) for end in (".pdmodel", ".json"))
    return _is_graph(path)


@exporter(
    "paddle",
    _recognises,
    "NAME.pdmodel or NAME.json with NAME.pdiparams beside it",
    "PaddlePaddle 2.6.2 and 3.3.1 with one MobileFaceNet: 24 faces, unit embeddings within 3.3e-7",
)
def export_paddle(
    source: Path, arch: str | None = None, input_size: Size | None = None
) -> Exported:
    """Export a PaddlePaddle inference model; either of its two files may be named."""
    graph_file = source if source.suffix != ".pdiparams" else _graph_of(source)
    content = read_source(graph_file, _MAX_GRAPH)
    program = read_pir(content) if content.lstrip()[:1] == b"{" else read_program(content)
    weights_file = _weights_of(graph_file)
    weights = read_params(read_source(weights_file), program.weights, weights_file.name)
    model, notes = fit_size(
        lambda size: _build(program, weights, size), input_size, _told_size(program)
    )
    return Exported(model, "paddle", arch, notes=(*notes, f"weights of {weights_file.name}"))


def _graph_of(weights_file: Path) -> Path:
    for end in (".pdmodel", ".json"):
        if weights_file.with_suffix(end).is_file():
            return weights_file.with_suffix(end)
    return companion(weights_file, _is_graph, "its .pdmodel or .json file")


def _weights_of(graph_file: Path) -> Path:
    same_name = graph_file.with_suffix(".pdiparams")
    if same_name.is_file():
        return same_name
    return companion(graph_file, lambda p: p.suffix == ".pdiparams", "its .pdiparams file")


def _entry(program: Program) -> Step:
    found = [step for step in program.steps if step.kind in ("feed", "data")]
    if len(found) != 1 or len(found[0].outputs) != 1:
        raise UnsupportedModel(f"expected one input, the Paddle program has {len(found)}")
    return found[0]


def _told_size(program: Program) -> Size | None:
    shape: list[int] = _entry(program).settings.get("shape") or []
    if len(shape) == 4 and min(shape[2:]) > 0:
        return int(shape[2]), int(shape[3])
    return None


def _build(program: Program, weights: Mapping[str, Array], size: Size) -> onnx.ModelProto:
    graph = GraphWriter("paddle")
    values: dict[str, Operand] = dict(weights)
    most = max(_LEAST_FOLDED, 2 * sum(each.size for each in weights.values()))
    lists: dict[str, tuple[str, ...]] = {}
    answers: dict[str, str] = {}
    for step in program.steps:
        if step.kind in ("feed", "data"):
            name = str(step.settings.get("name") or step.outputs[0])
            values[step.outputs[0]] = graph.input(name, (3, *size))
        elif step.kind == "parameter":
            values[step.outputs[0]] = weights[step.settings["name"]]
        elif step.kind == "combine":
            lists[step.outputs[0]] = step.inputs
        elif step.kind == "unpack":
            values.update(
                (place, values[name])
                for place, name in zip(step.outputs, lists[step.inputs[0]], strict=True)
            )
        elif step.kind in ("fetch", "shadow_output"):
            value = values.get(step.inputs[0])
            if not isinstance(value, str):
                raise UnreadableModel("an answer is stored or never computed")
            answers[f"embedding{len(answers) or ''}"] = value
        else:
            names = [n for each in step.inputs for n in lists.get(each, (each,)) if n]
            missing = [name for name in names if name not in values]
            if missing:
                raise UnreadableModel(f"{step} uses {missing} before it is computed")
            found = _compute(graph, step, [values[name] for name in names], most)
            if step.kind in ("split", "split_with_num") and len(step.outputs) == 1:
                lists[step.outputs[0]] = tuple(f"{step.outputs[0]}.{k}" for k in range(len(found)))
                values.update(zip(lists[step.outputs[0]], found, strict=True))
            else:
                values.update(zip(step.outputs, found, strict=False))
    return graph.build(answers)


def _compute(
    graph: GraphWriter, step: Step, operands: Sequence[Operand], most: int
) -> Sequence[Operand]:
    write = OPERATORS.get(step.kind)
    if write is None:
        raise UnsupportedModel(
            f"Paddle operator {step.kind} has no ONNX form here; "
            f"known are: {', '.join(sorted(OPERATORS))}"
        )

    def written(target: GraphWriter) -> Sequence[Operand]:
        found = write(target, step, operands)
        return found if isinstance(found, list) else [found]  # type: ignore[list-item]

    arrays = [np.asarray(operand) for operand in operands if not isinstance(operand, str)]
    if len(arrays) < len(operands):
        return written(graph)
    return fold(written, arrays, most, str(step), moves_only=step.kind in _MOVING)
