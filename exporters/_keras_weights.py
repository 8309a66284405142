"""Keras files: a description of layers in JSON, and each layer's arrays.

``.h5`` holds both; arrays are named after their layer. ``.keras`` is a zip archive whose arrays
lie under the classes of the layers, numbered in the order of the description.
"""

from __future__ import annotations

import io
import json
import re
import zipfile
from collections.abc import Mapping, Sequence
from pathlib import PurePosixPath
from typing import Any, Protocol

from onnxfr.errors import UnreadableModel, UnsafeFile, UnsupportedModel
from onnxfr.exporters._hdf5 import MARK, Hdf5, Item
from onnxfr.exporters._tf_values import Array
from onnxfr.exporters.base import MAX_BYTES

ZIP_MARK = b"PK\x03\x04"
_CONFIG, _WEIGHTS = "config.json", "model.weights.h5"
_MAX_CONFIG = 64 << 20
_MOST_MEMBERS = 1000


class Arrays(Protocol):
    """The arrays of one model's layers."""

    def take(self, layer: str, names: Sequence[str]) -> list[Array]:
        """Return the arrays of a layer, which are called ``names`` and kept in that order."""

    def inside(self, layer: str, description: Mapping[str, Any]) -> Arrays:
        """Return the arrays of the model that is used as a layer."""


def read_keras(content: bytes) -> tuple[dict[str, Any], Arrays]:
    """Return the description of a model and its arrays."""
    if content[:8] == MARK:
        return _legacy(Hdf5(content).root)
    members = _members(content)
    described = _json(members[_CONFIG].decode("utf-8"))
    weights = Hdf5(members[_WEIGHTS]).root
    return described, _Numbered(weights, described)


def _members(content: bytes) -> dict[str, bytes]:
    """Return the two members that matter; nothing is ever written to disk."""
    try:
        archive = zipfile.ZipFile(io.BytesIO(content))
    except (zipfile.BadZipFile, OSError, ValueError) as error:
        raise UnreadableModel(f"the .keras archive is truncated or damaged: {error}") from None
    names = archive.namelist()
    outside = [n for n in names if PurePosixPath(n).is_absolute() or ".." in n.split("/")]
    if outside or len(names) > _MOST_MEMBERS:
        raise UnsafeFile(f"the .keras archive holds paths out of it: {outside[:3]}")
    found: dict[str, bytes] = {}
    for name, most in ((_CONFIG, _MAX_CONFIG), (_WEIGHTS, MAX_BYTES)):
        if names.count(name) != 1:
            raise UnreadableModel(f"the .keras archive should hold {name} once")
        info = archive.getinfo(name)
        if info.file_size > min(most, 200 * len(content)):
            raise UnsafeFile(f"{name} in the .keras archive claims {info.file_size} bytes")
        with archive.open(info) as opened:
            found[name] = opened.read(info.file_size + 1)
    return found


def _json(text: str) -> dict[str, Any]:
    try:
        found = json.loads(text)
    except (ValueError, RecursionError):
        raise UnreadableModel("the description of the Keras model is no JSON") from None
    if not isinstance(found, dict):
        raise UnreadableModel("the description of the Keras model is no JSON object")
    return found


def _legacy(root: Item) -> tuple[dict[str, Any], Arrays]:
    described = root.attributes.get("model_config")
    if not isinstance(described, str):
        raise UnsupportedModel(
            "the HDF5 file holds no Keras model, or its weights alone: save the whole model with "
            "model.save"
        )
    if "model_weights" not in root:
        raise UnreadableModel("the Keras file holds no weights")
    return _json(described), _Named(root["model_weights"])


class _Named:
    """Arrays of ``.h5``: one group per layer, which lists the names of its arrays."""

    def __init__(self, root: Item, outer: str = "") -> None:
        self._root = root
        self._outer = outer
        self._found: dict[str, list[tuple[list[str], Item]]] = {}

    def _arrays(self, layer: str) -> list[tuple[list[str], Item]]:
        outer = self._outer or layer
        if outer not in self._found:
            if outer not in self._root:
                raise UnreadableModel(f"the Keras file has no weights of the layer {outer!r}")
            group = self._root[outer]
            names = _listed(group, "weight_names")
            self._found[outer] = [(name.split(":")[0].split("/"), group[name]) for name in names]
        mine = self._found[outer]
        return [(n, i) for n, i in mine if layer in n[:-1]] if self._outer else mine

    def take(self, layer: str, names: Sequence[str]) -> list[Array]:
        found = self._arrays(layer)
        by_name = {name[-1]: item for name, item in found}
        if len(by_name) == len(found) and set(names) <= by_name.keys():
            return [by_name[name].array() for name in names]
        if len(found) != len(names):
            told = ", ".join("/".join(name) for name, _ in found) or "none"
            raise UnreadableModel(
                f"the layer {layer!r} should have {list(names)}, there are: {told}"
            )
        return [item.array() for _, item in found]

    def inside(self, layer: str, description: Mapping[str, Any]) -> Arrays:
        return _Named(self._root, self._outer or layer)


def _listed(group: Item, key: str) -> list[str]:
    """Return a list of names, which Keras cuts into pieces where it is long."""
    attributes = group.attributes
    pieces = [key] if key in attributes else []
    while not (pieces and pieces[0] == key) and f"{key}{len(pieces)}" in attributes:
        pieces.append(f"{key}{len(pieces)}")
    found = [attributes[piece] for piece in pieces]
    texts = [name for piece in found if isinstance(piece, list) for name in piece]
    if not all(isinstance(name, str) for name in texts):
        raise UnreadableModel(f"the Keras file lists {key} that are no names")
    return texts


class _Numbered:
    """Arrays of ``.keras``: one group per layer, called by its class and a running number."""

    def __init__(self, group: Item, description: Mapping[str, Any]) -> None:
        self._layers: Item | None = None
        if "layers" in group:
            self._layers = group["layers"]
        self._groups: dict[str, str] = {}
        counts: dict[str, int] = {}
        for layer in description.get("config", {}).get("layers", ()):
            name = snake_case(str(layer["class_name"]))
            count = counts[name] = counts.get(name, -1) + 1
            self._groups[str(layer["config"]["name"])] = f"{name}_{count}" if count else name

    def _group(self, layer: str) -> Item:
        name = self._groups.get(layer, "")
        if self._layers is None or name not in self._layers:
            raise UnreadableModel(f"the Keras file has no weights of the layer {layer!r}")
        return self._layers[name]

    def take(self, layer: str, names: Sequence[str]) -> list[Array]:
        group = self._group(layer)["vars"]
        told = group.attributes.get("name")
        if isinstance(told, str) and told != layer:
            raise UnreadableModel(f"the weights of the layer {layer!r} are those of {told!r}")
        found = group.names()
        if len(found) < len(names):
            raise UnreadableModel(
                f"the layer {layer!r} should have {list(names)}, has {len(found)}"
            )
        return [group[str(place)].array() for place in range(len(names))]

    def inside(self, layer: str, description: Mapping[str, Any]) -> Arrays:
        return _Numbered(self._group(layer), description)


def snake_case(name: str) -> str:
    """Return a class name the way Keras writes it into its archives."""
    plain = re.sub(r"\W+", "", name)
    parted = re.sub("(.)([A-Z][a-z]+)", r"\1_\2", plain)
    return re.sub("([a-z])([A-Z])", r"\1_\2", parted).lower()
