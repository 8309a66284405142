"""From Keras's description of layers and their calls to nodes of the TensorFlow family."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from onnxfr.errors import UnreadableModel, UnsafeFile, UnsupportedModel
from onnxfr.exporters import _keras_shaping  # noqa: F401
from onnxfr.exporters._keras_layers import LAYERS
from onnxfr.exporters._keras_values import Argument, Builder, Layer
from onnxfr.exporters._keras_weights import Arrays

_MODELS = ("Functional", "Model", "Sequential")
_DEEPEST = 20
_MOST_LAYERS = 20_000


@dataclass(frozen=True)
class Call:
    """One use of a layer: what it is given."""

    layer: str
    index: int
    arguments: tuple[Argument | tuple[str, int], ...]
    settings: Mapping[str, Any]


def build_model(
    builder: Builder,
    description: Mapping[str, Any],
    arrays: Arrays,
    entry: str,
    prefix: str = "",
    depth: int = 0,
) -> str:
    """Add a model's nodes behind ``entry`` and return the name of its answer."""
    if depth > _DEEPEST:
        raise UnsafeFile("the Keras models are nested too deeply")
    kind, config = description.get("class_name"), description.get("config")
    if kind not in _MODELS or not isinstance(config, dict | list):
        raise UnsupportedModel(f"the Keras file holds a {kind}, expected a model made of layers")
    if isinstance(config, list):  # a Sequential of the first Keras versions
        config = {"layers": config}
    layers = config.get("layers") or []
    if not layers or len(layers) > _MOST_LAYERS:
        raise UnreadableModel(f"the Keras model has {len(layers)} layers")
    step = _Step(builder, arrays, prefix, depth)
    if kind == "Sequential":
        last = entry
        for layer in layers:
            last = step.apply(layer, (last,), {})
        return last
    return _functional(step, config, layers, entry)


def _functional(step: _Step, config: Mapping[str, Any], layers: list[Any], entry: str) -> str:
    by_name = {str(layer.get("name") or layer["config"]["name"]): layer for layer in layers}
    pictures = _references(config.get("input_layers"))
    answers = _references(config.get("output_layers"))
    if len(pictures) != 1 or len(answers) != 1:
        raise UnsupportedModel(
            f"expected one picture and one answer, the Keras model has {len(pictures)} and "
            f"{len(answers)}"
        )
    values: dict[tuple[str, int], str] = {pictures[0]: entry}
    waiting = [call for name, layer in by_name.items() for call in calls(name, layer)]
    first = _first_indices(waiting, answers)
    while waiting:
        left: list[Call] = []
        for call in waiting:
            if not all(a in values for a in call.arguments if isinstance(a, tuple)):
                left.append(call)
                continue
            given = tuple(values[a] if isinstance(a, tuple) else a for a in call.arguments)
            made = step.apply(by_name[call.layer], given, call.settings)
            values[(call.layer, call.index + first.get(call.layer, 0))] = made
        if len(left) == len(waiting):
            break
        waiting = left
    if answers[0] not in values:
        raise UnreadableModel(f"the answer {answers[0][0]!r} of the Keras model is never computed")
    return values[answers[0]]


def _first_indices(found: Sequence[Call], answers: Sequence[tuple[str, int]]) -> dict[str, int]:
    """Return how the first use of each layer is counted: Keras 2 starts models inside at one."""
    count: dict[str, int] = {}
    for call in found:
        count[call.layer] = count.get(call.layer, 0) + 1
    asked = [a for call in found for a in call.arguments if isinstance(a, tuple)] + list(answers)
    first: dict[str, int] = {}
    for name, index in asked:
        first[name] = max(first.get(name, 0), index + 1 - count.get(name, 1))
    return first


def _references(raw: Any) -> list[tuple[str, int]]:
    """Return layers and calls that begin or end a model, however deep the list is nested."""
    if isinstance(raw, dict):
        return [r for part in raw.values() for r in _references(part)]
    if not isinstance(raw, list):
        return []
    if len(raw) == 3 and isinstance(raw[0], str):
        return [_reference(raw)]
    return [reference for part in raw for reference in _references(part)]


def _reference(raw: Sequence[Any]) -> tuple[str, int]:
    if int(raw[2]) != 0:
        raise UnsupportedModel(f"the Keras model uses a further answer of the layer {raw[0]!r}")
    return str(raw[0]), int(raw[1])


def calls(name: str, layer: Mapping[str, Any]) -> list[Call]:
    """Return the uses of a layer in the notation of Keras 2 or of Keras 3."""
    found = []
    for index, raw in enumerate(layer.get("inbound_nodes") or ()):
        arguments: list[Argument | tuple[str, int]] = []
        settings: dict[str, Any] = {}
        if isinstance(raw, dict):
            _collect(raw.get("args", ()), arguments)
            settings = raw.get("kwargs") or {}
        else:
            single = bool(raw) and isinstance(raw[0], str)
            for entry in [raw] if single else raw:
                arguments.append(_reference(entry))
                settings = {**settings, **(entry[3] if len(entry) > 3 else {})}
        found.append(Call(name, index, tuple(arguments), settings))
    return found


def _collect(raw: Any, into: list[Argument | tuple[str, int]]) -> None:
    if isinstance(raw, list | tuple):
        for part in raw:
            _collect(part, into)
    elif isinstance(raw, dict):
        history = (raw.get("config") or {}).get("keras_history")
        if history is None:
            raise UnsupportedModel(f"a Keras layer is given a {raw.get('class_name')}")
        into.append(_reference(history))
    elif isinstance(raw, int | float) and not isinstance(raw, bool):
        into.append(float(raw))


@dataclass(frozen=True)
class _Step:
    """Applies layers, models among them, inside one model."""

    builder: Builder
    arrays: Arrays
    prefix: str
    depth: int

    def apply(
        self, raw: Mapping[str, Any], given: tuple[Argument, ...], settings: Mapping[str, Any]
    ) -> str:
        kind, config = str(raw["class_name"]), raw["config"]
        own = str(config.get("name") or raw.get("name")) if isinstance(config, dict) else ""
        name = f"{self.prefix}{own}"
        if kind in _MODELS:
            if len(given) != 1 or not isinstance(given[0], str):
                raise UnsupportedModel(f"the model {name!r} inside the Keras model has many inputs")
            inner = self.arrays.inside(own, raw)
            return build_model(self.builder, raw, inner, given[0], f"{name}/", self.depth + 1)
        if kind not in LAYERS:
            raise UnsupportedModel(
                f"the Keras layer {name!r} is a {kind}, which has no ONNX form here; known are: "
                f"{', '.join(sorted(LAYERS))}"
            )
        if config.get("data_format") == "channels_first":
            raise UnsupportedModel(f"the Keras layer {name!r} keeps channels first")
        layer = Layer(kind, name, config, self.arrays, own)
        return LAYERS[kind](self.builder, layer, given, settings)
