"""TensorFlow.js weight shards: joined, cut by the manifest, de-quantised."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from onnxfr.errors import UnreadableModel, UnsafeFile, UnsupportedModel
from onnxfr.exporters._binary import BinaryReader
from onnxfr.exporters.base import MAX_BYTES, read_source
from onnxfr.models.vendor import external_path

_TYPES = {"float32": "<f4", "int32": "<i4", "bool": "?", "uint8": "u1"}
_QUANTISED = {"uint8": "u1", "uint16": "<u2", "float16": "<f2"}


def read_weights(manifest: Any, folder: Path) -> dict[str, NDArray[Any]]:
    """Return the weights by name; shards must be plain files inside ``folder``."""
    weights: dict[str, NDArray[Any]] = {}
    total = 0
    for group in manifest:
        pieces = []
        for path in group["paths"]:
            place = external_path(str(path), folder.absolute(), "weights")
            total += place.stat().st_size
            if total > MAX_BYTES:
                raise UnsafeFile(f"the weight shards are larger than {MAX_BYTES >> 20} MiB")
            pieces.append(read_source(place))
        reader = BinaryReader(b"".join(pieces), "the weight shards")
        for spec in group["weights"]:
            name = str(spec["name"])
            if name in weights:
                raise UnreadableModel(f"two weights are called {name!r}")
            weights[name] = _weight(reader, name, spec)
        if reader.left:
            raise UnreadableModel(f"the weight shards have {reader.left} bytes nobody owns")
    return weights


def _weight(reader: BinaryReader, name: str, spec: Any) -> NDArray[Any]:
    shape = tuple(int(side) for side in spec["shape"])
    kind = str(spec["dtype"])
    if kind not in _TYPES:
        raise UnsupportedModel(f"weight {name!r} is of type {kind}, which no face network needs")
    packed = spec.get("quantization")
    if packed is None:
        return reader.array(shape, _TYPES[kind])
    stored = str(packed["dtype"])
    if stored not in _QUANTISED:
        raise UnsupportedModel(f"weight {name!r} is quantised to {stored}, which is not known")
    values = reader.array(shape, _QUANTISED[stored]).astype(np.float32)
    if stored != "float16":
        values = values * np.float32(packed["scale"]) + np.float32(packed["min"])
    return values if kind == "float32" else np.rint(values).astype(_TYPES[kind])
