"""OpenVINO's intermediate representation: the XML graph, and constants cut out of its ``.bin``.

The XML is read with expat and nothing else: a document type, and with it every entity, is refused
before it is looked at, and depth and number of elements are bounded.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any
from xml.parsers import expat

import numpy as np
from numpy.typing import NDArray

from onnxfr.errors import UnreadableModel, UnsafeFile, UnsupportedModel
from onnxfr.exporters._binary import checked_count

Array = NDArray[Any]
Port = tuple[int, int]
"""A layer's number and the number of one of its ports."""

_MAX_DEPTH = 12
_MOST_ELEMENTS = 1_000_000
_MOST_LAYERS = 50_000

DTYPES = {
    "f64": "<f8", "f32": "<f4", "f16": "<f2", "i64": "<i8", "i32": "<i4", "i16": "<i2",
    "i8": "i1", "u64": "<u8", "u32": "<u4", "u16": "<u2", "u8": "u1", "boolean": "?",
}  # fmt: skip


class Element:
    """One XML element; text matters nowhere in this format and is dropped."""

    def __init__(self, tag: str, attributes: Mapping[str, str]) -> None:
        self.tag = tag
        self.attributes = attributes
        self.children: list[Element] = []

    def child(self, tag: str) -> Element | None:
        """Return the first child of a name."""
        return next((each for each in self.children if each.tag == tag), None)

    def each(self, path: str) -> list[Element]:
        """Return the grandchildren at ``outer/inner``."""
        outer, inner = path.split("/")
        found = self.child(outer)
        return [each for each in found.children if each.tag == inner] if found else []


@dataclass(frozen=True)
class Layer:
    """One operation: its kind, settings, and who fills its inputs, in order."""

    number: int
    name: str
    kind: str
    version: str
    settings: Mapping[str, str]
    inputs: tuple[Port, ...]
    outputs: tuple[int, ...]
    told: str
    """The name its framework gave the first output."""

    def text(self, key: str, default: str = "") -> str:
        """Return a setting."""
        return self.settings.get(key, default)

    def flag(self, key: str, default: bool = False) -> bool:
        """Return a boolean setting."""
        word = self.text(key).lower()
        return default if not word else word in ("true", "1")

    def number_of(self, key: str, default: float | None = None) -> float:
        """Return a numeric setting."""
        word = self.text(key)
        if not word and default is not None:
            return default
        try:
            return float(word)
        except ValueError:
            raise UnreadableModel(f"{self}: the setting {key} is no number: {word!r}") from None

    def numbers(self, key: str, default: tuple[int, ...] = ()) -> tuple[int, ...]:
        """Return a setting that lists whole numbers."""
        word = self.text(key)
        try:
            return tuple(int(part) for part in word.split(",")) if word else default
        except ValueError:
            raise UnreadableModel(f"{self}: {key} lists no whole numbers: {word!r}") from None

    def free_shape(self) -> tuple[int, ...]:
        """Return the shape an input states, -1 for each side that is free."""
        words = [word.strip() for word in self.text("shape").split(",") if word.strip()]
        return tuple(int(word) if word.isdigit() else -1 for word in words)

    def __str__(self) -> str:
        return f"{self.kind} {self.name!r}"


def parse_xml(content: bytes) -> Element:
    """Parse an XML document without document types, entities or unbounded nesting."""
    root = Element("", {})
    stack = [root]
    count = 0

    def start(tag: str, attributes: dict[str, str]) -> None:
        nonlocal count
        count += 1
        if len(stack) > _MAX_DEPTH or count > _MOST_ELEMENTS:
            raise UnsafeFile("the XML is nested or long beyond any network's description")
        element = Element(tag, attributes)
        stack[-1].children.append(element)
        stack.append(element)

    def end(tag: str) -> None:
        stack.pop()

    def refuse(*_: object) -> None:
        raise UnsafeFile("the XML declares a document type or entities, which no network needs")

    parser = expat.ParserCreate()
    parser.StartElementHandler = start
    parser.EndElementHandler = end
    parser.StartDoctypeDeclHandler = refuse
    parser.EntityDeclHandler = refuse
    try:
        parser.Parse(content, True)
    except expat.ExpatError as error:
        raise UnreadableModel(f"the XML is damaged: {error}") from None
    return root.children[0]


def read_layers(root: Element) -> tuple[Layer, ...]:
    """Return the layers in the file's order, each with its inputs resolved."""
    if root.tag != "net" or root.attributes.get("version") not in ("10", "11"):
        version = root.attributes.get("version", "none")
        raise UnsupportedModel(
            f"expected an OpenVINO graph of version 10 or 11, got <{root.tag}> of version {version}"
        )
    found = root.each("layers/layer")
    if len(found) > _MOST_LAYERS:
        raise UnsafeFile(f"the XML has {len(found)} layers, more than a network needs")
    sources: dict[Port, Port] = {}
    for edge in root.each("edges/edge"):
        ends = [_whole(edge, key) for key in ("from-layer", "from-port", "to-layer", "to-port")]
        sources[ends[2], ends[3]] = (ends[0], ends[1])
    layers = tuple(_layer(element, sources) for element in found)
    if len({layer.number for layer in layers}) != len(layers):
        raise UnreadableModel("two layers have the same number")
    return layers


def _layer(element: Element, sources: Mapping[Port, Port]) -> Layer:
    number = _whole(element, "id")
    kind, name = element.attributes.get("type", ""), element.attributes.get("name", "")
    inputs = []
    for port in element.each("input/port"):
        place = (number, _whole(port, "id"))
        if place not in sources:
            raise UnreadableModel(f"input {place[1]} of {kind} {name!r} is connected to nothing")
        inputs.append(sources[place])
    ports = element.each("output/port")
    data = element.child("data")
    return Layer(
        number,
        name,
        kind,
        element.attributes.get("version", "opset1"),
        data.attributes if data else {},
        tuple(inputs),
        tuple(_whole(port, "id") for port in ports),
        ports[0].attributes.get("names", "").split(",")[0] if ports else "",
    )


def _whole(element: Element, key: str) -> int:
    try:
        return int(element.attributes[key])
    except (KeyError, ValueError):
        raise UnreadableModel(f"<{element.tag}> has no number {key!r}") from None


def constant_of(layer: Layer, weights: memoryview) -> Array:
    """Return a constant's numbers, cut out of the weight file and never beyond its end."""
    offset, size = int(layer.number_of("offset")), int(layer.number_of("size"))
    kind, shape = layer.text("element_type"), layer.numbers("shape")
    count = checked_count(shape, str(layer))
    if offset < 0 or size < 0 or offset + size > len(weights):
        raise UnreadableModel(
            f"{layer}: {size} bytes at {offset} are promised, the .bin file has {len(weights)}"
        )
    piece = weights[offset : offset + size]
    if kind == "bf16":
        _fits(layer, size, 2 * count)
        wide = np.frombuffer(piece, "<u2").astype("<u4") << 16
        floats: Array = wide.view("<f4").reshape(shape)
        return floats
    if kind in ("u4", "i4"):
        _fits(layer, size, math.ceil(count / 2))
        return _nibbles(np.frombuffer(piece, "u1"), count, kind == "i4").reshape(shape)
    if kind not in DTYPES:
        raise UnsupportedModel(f"{layer}: numbers of the type {kind!r} are not read here")
    dtype = np.dtype(DTYPES[kind])
    _fits(layer, size, count * dtype.itemsize)
    if kind == "boolean":
        return np.frombuffer(piece, "u1").reshape(shape).astype(np.bool_)
    return np.frombuffer(piece, dtype).reshape(shape)


def _fits(layer: Layer, size: int, needed: int) -> None:
    if size != needed:
        raise UnreadableModel(f"{layer}: {size} bytes are stored for {needed} bytes of numbers")


def _nibbles(raw: NDArray[np.uint8], count: int, negative: bool) -> Array:
    """Unpack two numbers a byte, the lower half first."""
    both = np.stack([raw & 15, raw >> 4], axis=1).reshape(-1)[:count]
    if negative:
        return ((both ^ 8).astype(np.int8) - 8).astype(np.int8)
    return both
