"""PaddlePaddle's two graph formats as one list of steps.

Before version 3 the graph is a protobuf message (``.pdmodel``) whose operators name their inputs;
since then it is JSON (``.json``, called PIR) whose operators number them. Old names and orders are
brought to the new ones, so that every operator is written once.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from onnxfr.errors import UnreadableModel, UnsafeFile, UnsupportedModel
from onnxfr.exporters._wire import fields, numbers, signed, single

_MOST_STEPS = 50_000
_DENSE = 7
"""Paddle's number of ordinary tensors among the kinds of variables."""
_ELEMENT_TYPES = {
    0: "bool", 1: "int16", 2: "int32", 3: "int64", 4: "float16", 5: "float32", 6: "float64",
    20: "uint8", 21: "int8", 22: "bfloat16",
}  # fmt: skip


@dataclass(frozen=True)
class Step:
    """One operator: what it is called since version 3, what it reads, writes and is set to."""

    kind: str
    inputs: tuple[str, ...]
    outputs: tuple[str, ...]
    settings: dict[str, Any] = field(default_factory=dict)

    def __str__(self) -> str:
        return f"{self.kind} {self.outputs[0] if self.outputs else '?'}"


@dataclass(frozen=True)
class Program:
    """The steps, and the names of what they read from the weight file."""

    steps: tuple[Step, ...]
    weights: tuple[str, ...]
    """In the order of the weight file."""


_NAMES = {
    "elementwise_add": "add", "elementwise_sub": "subtract", "elementwise_mul": "multiply",
    "elementwise_div": "divide", "elementwise_max": "maximum", "elementwise_min": "minimum",
    "elementwise_pow": "elementwise_pow", "reshape2": "reshape", "transpose2": "transpose",
    "flatten_contiguous_range": "flatten", "flatten2": "flatten_to_rows", "matmul_v2": "matmul",
    "hard_swish": "hardswish", "hard_sigmoid": "hardsigmoid", "squeeze2": "squeeze",
    "unsqueeze2": "unsqueeze", "reduce_mean": "mean", "reduce_sum": "sum", "reduce_max": "max",
    "bilinear_interp_v2": "bilinear_interp", "nearest_interp_v2": "nearest_interp",
    "fill_constant": "full", "expand_v2": "expand", "sync_batch_norm": "batch_norm",
    "depthwise_conv2d": "conv2d", "mul": "matmul_rows", "fill_any_like": "full_like",
}  # fmt: skip
_INPUTS = {
    "conv2d": ("Input", "Filter"),
    "batch_norm": ("X", "Mean", "Variance", "Scale", "Bias"),
    "layer_norm": ("X", "Scale", "Bias"),
    "prelu": ("X", "Alpha"),
    "fc": ("Input", "W", "Bias"),
    "reshape": ("X", "Shape", "ShapeTensor"),
    "expand": ("X", "Shape", "expand_shapes_tensor"),
    "shape": ("Input",),
    "slice": ("Input",),
    "strided_slice": ("Input",),
}
_OUTPUTS = ("Out", "Output", "Y")
_SETTINGS = {"ksize": "kernel_size", "axes": "axis", "dim": "axis", "keep_dim": "keepdim"}
_SAME_NAME = ("slice", "strided_slice")
"""Operators whose old setting ``axes`` keeps its name."""


def read_program(content: bytes) -> Program:
    """Read a ``.pdmodel``."""
    blocks = [value for number, value in fields(content) if number == 1]
    if not blocks or not all(isinstance(block, bytes) for block in blocks):
        raise UnreadableModel("the Paddle program has no block of operators")
    if len(blocks) > 1:
        raise UnsupportedModel("the Paddle program has loops or branches; face networks have none")
    stored: list[str] = []
    shapes: dict[str, list[int]] = {}
    steps: list[Step] = []
    for number, value in fields(bytes(blocks[0])):
        if number == 3:
            name, in_file, shapes_to = _variable(_message(value))
            shapes[name] = shapes_to
            stored += [name] if in_file else []
        elif number == 4:
            steps.append(_old_step(_message(value)))
        if len(steps) > _MOST_STEPS:
            raise UnsafeFile(f"the program has more than {_MOST_STEPS} operators")
    for step in steps:
        if step.kind == "feed":
            step.settings["shape"] = shapes.get(step.outputs[0] if step.outputs else "", [])
    return Program(tuple(steps), tuple(sorted(stored)))


def _message(value: int | bytes) -> bytes:
    if not isinstance(value, bytes):
        raise UnreadableModel("the Paddle program has a number where a message is expected")
    return value


def _text(value: int | bytes) -> str:
    return _message(value).decode("utf-8", errors="replace")


def _variable(message: bytes) -> tuple[str, bool, list[int]]:
    """Return a variable's name, whether the weight file holds it, and its shape."""
    name, persistent, kind, shape = "", False, -1, []
    for number, value in fields(message):
        if number == 1:
            name = _text(value)
        elif number == 3:
            persistent = bool(value)
        elif number == 2:
            for inner, part in fields(_message(value)):
                if inner == 1 and isinstance(part, int):
                    kind = part
                elif inner == 3:
                    shape = _dense_shape(_message(part))
    return name, persistent and kind == _DENSE, shape


def _dense_shape(message: bytes) -> list[int]:
    tensors = [_message(value) for number, value in fields(message) if number == 1]
    sides = [value for tensor in tensors for number, value in fields(tensor) if number == 2]
    return _integers(sides)


def _old_step(message: bytes) -> Step:
    reads: dict[str, list[str]] = {}
    writes: dict[str, list[str]] = {}
    kind, settings = "", {}
    for number, value in fields(message):
        if number in (1, 2):
            parts = list(fields(_message(value)))
            key = next((_text(v) for n, v in parts if n == 1), "")
            (reads if number == 1 else writes)[key] = [_text(v) for n, v in parts if n == 2]
        elif number == 3:
            kind = _text(value)
        elif number == 4:
            name, setting = _setting(_message(value))
            settings[name] = setting
    return _modern(kind, reads, writes, settings)


def _modern(
    kind: str, reads: Mapping[str, list[str]], writes: Mapping[str, list[str]], raw: dict[str, Any]
) -> Step:
    name = _NAMES.get(kind, kind)
    order = _INPUTS.get(name, ("X", "Y"))
    inputs = [each for key in order for each in reads.get(key, ())]
    outputs = next((writes[key] for key in _OUTPUTS if writes.get(key)), [])
    computed = [key for key, given in reads.items() if key not in order and given]
    if computed and kind not in ("feed", "fetch"):
        raise UnsupportedModel(f"Paddle's {kind} takes {computed} from other operators")
    keep = name in _SAME_NAME
    settings = {key if keep else _SETTINGS.get(key, key): value for key, value in raw.items()}
    if name == "transpose":
        settings["perm"] = settings.get("axis")
    return Step(name, tuple(inputs), tuple(outputs), settings)


def _setting(message: bytes) -> tuple[str, Any]:
    found: dict[int, list[int | bytes]] = {}
    for number, value in fields(message):
        found.setdefault(number, []).append(value)
    name = _text(found.get(1, [b""])[0])
    kind = found.get(2, [0])[0]
    readers: dict[Any, tuple[int, Any]] = {
        0: (3, _integers), 1: (4, _floats), 2: (5, _texts), 3: (6, _integers), 4: (7, _floats),
        5: (8, _texts), 6: (10, _integers), 7: (11, _integers), 9: (13, _integers),
        11: (15, _integers),
    }  # fmt: skip
    if kind not in readers:
        return name, None
    number, read = readers[kind]
    values = read(found.get(number, []))
    many = kind in (3, 4, 5, 7, 11)
    return name, values if many else (values[0] if values else None)


def _integers(values: Sequence[int | bytes]) -> list[int]:
    return [signed(number) for value in values for number in numbers(value)]


def _floats(values: Sequence[int | bytes]) -> list[float]:
    pieces = [_message(value) for value in values]
    return [single(piece[k : k + 4]) for piece in pieces for k in range(0, len(piece), 4)]


def _texts(values: Sequence[int | bytes]) -> list[str]:
    return [_text(value) for value in values]


_NUMBERED = {"0.combine": "combine", "0.split": "unpack"}
"""The format's own operators, which make lists of values and take them apart."""


def read_pir(content: bytes) -> Program:
    """Read the JSON of version 3."""
    raw = json.loads(content)
    (region,) = raw["program"]["regions"]
    (block,) = region["blocks"]
    stored: list[str] = []
    steps: list[Step] = []
    if len(block["ops"]) > _MOST_STEPS:
        raise UnsafeFile(f"the program has more than {_MOST_STEPS} operators")
    for item in block["ops"]:
        if item["#"] == "p":
            name = str(item["A"][3])
            stored.append(name)
            steps.append(Step("parameter", (), (_place(item["O"]),), {"name": name}))
            continue
        kind = str(item["#"]).split(".", 1)[-1].removesuffix("_")
        settings = {str(each["N"]): _value(each["AT"]) for each in item.get("A", ())}
        inputs = tuple(_place(each) for each in item.get("I", ()))
        outputs = tuple(_place(each) for each in item.get("O", ()))
        kind = _NUMBERED.get(str(item["#"]), {"depthwise_conv2d": "conv2d"}.get(kind, kind))
        steps.append(Step(kind, inputs, outputs, settings))
    return Program(tuple(steps), tuple(sorted(stored)))


def _place(raw: Any) -> str:
    number = raw["%"]
    return f"%{int(number)}" if number else ""


def _value(raw: Any) -> Any:
    data = raw.get("D")
    if str(raw.get("#", "")).endswith("a_array"):
        return [_value(each) for each in data]
    return data


def element_type(number: Any) -> str:
    """Return NumPy's name of a data type, given as Paddle's number or as a word."""
    name = number if isinstance(number, str) else _ELEMENT_TYPES.get(number, "")
    if name not in _ELEMENT_TYPES.values():
        raise UnsupportedModel(f"Paddle's data type {number!r} is not read here")
    return name
