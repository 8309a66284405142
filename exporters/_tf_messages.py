"""TensorFlow's protobuf messages as far as networks need them: graphs, functions, tensors.

Field numbers are those of TensorFlow's public ``graph.proto``, ``function.proto``,
``tensor.proto`` and ``saved_model.proto``.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from onnxfr.errors import UnreadableModel, UnsafeFile, UnsupportedModel
from onnxfr.exporters._binary import BinaryReader, checked_count
from onnxfr.exporters._tf_values import Array, Node
from onnxfr.exporters._wire import fields, numbers, signed, single
from onnxfr.exporters.base import MAX_BYTES

TYPES = {
    1: "float32",
    2: "float64",
    3: "int32",
    4: "uint8",
    5: "int16",
    6: "int8",
    7: "string",
    9: "int64",
    10: "bool",
    19: "float16",
    20: "resource",
    22: "uint32",
    23: "uint64",
}
_VALUE_FIELDS = {"float32": 5, "float64": 6, "int64": 10, "bool": 11, "float16": 13}
_MOST_REPEATED = 1 << 20


@dataclass(frozen=True)
class Function:
    """A graph with named arguments and answers, called by other graphs."""

    name: str
    arguments: tuple[str, ...]
    answers: tuple[str, ...]
    nodes: tuple[Node, ...]
    returns: Mapping[str, str]


@dataclass(frozen=True)
class TensorInfo:
    """An input or output of a signature."""

    name: str
    dtype: str
    shape: list[int] | None


@dataclass
class Graph:
    """A graph, its functions and the numbers of its constants."""

    nodes: list[Node] = field(default_factory=list)
    functions: dict[str, Function] = field(default_factory=dict)


def text(value: int | bytes) -> str:
    """Return a string field."""
    if not isinstance(value, bytes):
        raise UnreadableModel("a text of the TensorFlow file is a number")
    return value.decode("utf-8", errors="replace")


def message(value: int | bytes) -> bytes:
    """Return a nested message's bytes."""
    if not isinstance(value, bytes):
        raise UnreadableModel("a part of the TensorFlow file is a number, expected a message")
    return value


def read_graph(content: bytes) -> Graph:
    """Return a ``GraphDef``."""
    graph = Graph()
    for number, value in fields(content):
        if number == 1:
            graph.nodes.append(read_node(message(value)))
        elif number == 2:
            for inner, part in fields(message(value)):
                if inner == 1:
                    function = _function(message(part))
                    graph.functions[function.name] = function
    return graph


def read_node(content: bytes) -> Node:
    """Return a ``NodeDef``; a constant keeps its numbers in the attribute ``value``."""
    name = op = ""
    inputs: list[str] = []
    attributes: dict[str, Any] = {}
    for number, value in fields(content):
        if number == 1:
            name = text(value)
        elif number == 2:
            op = text(value)
        elif number == 3:
            inputs.append(text(value))
        elif number == 5:
            key, attribute = read_entry(message(value))
            attributes[key] = _attribute(attribute)
    if not name or not op:
        raise UnreadableModel("a node of the TensorFlow graph has no name or no operator")
    data = tuple(i for i in inputs if not i.startswith("^"))
    return Node(op, name, data, attributes, tuple(i[1:] for i in inputs if i.startswith("^")))


def read_entry(content: bytes) -> tuple[str, bytes]:
    """Return key and value of a map's entry."""
    key, value = "", b""
    for number, part in fields(content):
        if number == 1:
            key = text(part)
        elif number == 2:
            value = message(part)
    return key, value


def _attribute(content: bytes) -> Any:
    for number, value in fields(content):
        if number == 1:
            return _list(message(value))
        if number in (2, 3, 4, 5, 6, 7, 8, 10):
            return _scalar(number, value)
    return None


def _scalar(number: int, value: int | bytes) -> Any:
    """Return one attribute by its field number, the same for single values and lists."""
    match number:
        case 2:
            return text(value)
        case 3:
            return signed(int(value))
        case 4:
            return single(value)
        case 5:
            return bool(value)
        case 6:
            return TYPES.get(int(value) % 100, "unknown")
        case 7:
            return read_shape(message(value))
        case 8:
            return message(value)
        case 10:
            return next((text(v) for n, v in fields(message(value)) if n == 1), "")
    return None


def _list(content: bytes) -> list[Any]:
    found: list[Any] = []
    for number, value in fields(content):
        if number in (3, 5, 6):
            found += [_scalar(number, each) for each in numbers(value)]
        elif number == 4 and isinstance(value, bytes) and len(value) % 4 == 0:
            found += np.frombuffer(value, "<f4").tolist()
        else:
            found.append(_scalar(number, value))
        if len(found) > _MOST_REPEATED:
            raise UnsafeFile("a list in the TensorFlow file is absurdly long")
    return found


def read_shape(content: bytes) -> list[int] | None:
    """Return a shape, -1 where a side is open, None where even the rank is."""
    sides: list[int] = []
    for number, value in fields(content):
        if number == 3 and value:
            return None
        if number == 2:
            found = [signed(int(v)) for n, v in fields(message(value)) if n == 1]
            sides.append(found[-1] if found else 0)
    return sides


def read_tensor(content: bytes, name: str) -> Array:
    """Return a ``TensorProto``; values stored once stand for all that follow."""
    kind, shape = "unknown", []
    packed: bytes | None = None
    listed: dict[int, list[int | bytes]] = {}
    for number, value in fields(content):
        if number == 1:
            kind = TYPES.get(int(value), "unknown")
        elif number == 2:
            shape = read_shape(message(value)) or []
        elif number == 4:
            packed = message(value)
        else:
            listed.setdefault(number, []).append(value)
    if kind in ("unknown", "string", "resource"):
        raise UnsupportedModel(f"the constant {name!r} is of type {kind}, expected numbers")
    dtype = np.dtype(kind).newbyteorder("<")
    sides = tuple(shape)
    if packed:
        return BinaryReader(packed, f"the constant {name!r}").array(sides, dtype)
    values = _listed(listed.get(_VALUE_FIELDS.get(kind, 7), []), dtype)
    count = checked_count(sides, f"the constant {name!r}")
    if count > max(_MOST_REPEATED, values.size) or values.size > count:
        raise UnsafeFile(f"the constant {name!r} of shape {sides} is given by {values.size} values")
    if count and not values.size:
        values = np.zeros(1, dtype)
    filled = np.concatenate([values, np.repeat(values[-1:], count - values.size)])
    return filled.reshape(sides)


def constants_of(nodes: Iterable[Node]) -> dict[str, Array]:
    """Return the numbers of constants; texts, which no network computes with, are left out."""
    found: dict[str, Array] = {}
    total = 0
    for node in nodes:
        raw = node.attributes.get("value")
        if node.op != "Const" or not isinstance(raw, bytes):
            continue
        try:
            found[node.name] = read_tensor(raw, node.name)
        except UnsupportedModel:
            continue
        total += found[node.name].nbytes
        if total > MAX_BYTES:
            raise UnsafeFile(f"the graph unfolds to more than {MAX_BYTES >> 20} MiB of constants")
    return found


def read_texts(content: bytes) -> list[str]:
    """Return a ``TensorProto`` of strings."""
    return [text(value) for number, value in fields(content) if number == 8]


def _listed(entries_found: list[int | bytes], dtype: np.dtype[Any]) -> Array:
    if dtype in (np.dtype("<f4"), np.dtype("<f8")):
        joined = b"".join(message(e) for e in entries_found)
        return np.frombuffer(joined[: len(joined) // dtype.itemsize * dtype.itemsize], dtype)
    found = [number for e in entries_found for number in numbers(e)]
    if dtype == np.dtype("<f2"):
        return np.asarray([n & 0xFFFF for n in found], "<u2").view("<f2")
    info_bits = 8 * dtype.itemsize
    wrapped = [signed(n) for n in found]
    if dtype.kind in "iu" and any(not -(2**info_bits) < n < 2**info_bits for n in wrapped):
        raise UnreadableModel("a constant holds a number that its type cannot")
    return np.asarray(wrapped, np.int64).astype(dtype)


def _function(content: bytes) -> Function:
    name = ""
    arguments: list[str] = []
    answers: list[str] = []
    nodes: list[Node] = []
    returns: dict[str, str] = {}
    for number, value in fields(content):
        if number == 1:
            for inner, part in fields(message(value)):
                if inner == 1:
                    name = text(part)
                elif inner in (2, 3):
                    told = next((text(v) for n, v in fields(message(part)) if n == 1), "")
                    (arguments if inner == 2 else answers).append(told)
        elif number == 3:
            nodes.append(read_node(message(value)))
        elif number == 4:
            key, target = read_entry(message(value))
            returns[key] = target.decode("utf-8", errors="replace")
    return Function(name, tuple(arguments), tuple(answers), tuple(nodes), returns)


def read_tensor_info(content: bytes) -> TensorInfo:
    """Return an input or output of a signature."""
    name, kind, shape = "", "unknown", None
    for number, value in fields(content):
        if number == 1:
            name = text(value)
        elif number == 2:
            kind = TYPES.get(int(value), "unknown")
        elif number == 3:
            shape = read_shape(message(value))
    return TensorInfo(name, kind, shape)
