"""PaddlePaddle's combined weight file: tensors one after another, in the order of their names."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from onnxfr.errors import UnreadableModel, UnsupportedModel
from onnxfr.exporters._binary import BinaryReader
from onnxfr.exporters._paddle_program import element_type
from onnxfr.exporters._wire import fields, numbers, signed

Array = NDArray[Any]
_MAX_DESCRIPTION = 1024


def read_params(content: bytes, names: Sequence[str], file: str) -> Mapping[str, Array]:
    """Return the tensors by name; a file that holds more or fewer bytes is refused."""
    reader = BinaryReader(content, file)
    found = {name: _tensor(reader, name, file) for name in names}
    if reader.left:
        raise UnreadableModel(
            f"{file} has {reader.left} bytes more than the {len(found)} tensors of the program"
        )
    return found


def _tensor(reader: BinaryReader, name: str, file: str) -> Array:
    version, levels, inner = reader.number("I"), reader.number("Q"), reader.number("I")
    if version or inner:
        raise UnsupportedModel(
            f"{file}: {name!r} is stored in format {version}.{inner}; known is 0"
        )
    if levels:
        raise UnsupportedModel(f"{file}: {name!r} is a list of sequences, not a weight")
    length = reader.number("i")
    if not 0 < length <= _MAX_DESCRIPTION:
        raise UnreadableModel(f"{file} is damaged: a description of {length} bytes for {name!r}")
    kind: Any = None
    shape: list[int] = []
    for number, value in fields(bytes(reader.take(length))):
        if number == 1:
            kind = value
        elif number == 2:
            shape += [signed(side) for side in numbers(value)]
    stored = element_type(kind)
    if stored == "bfloat16":
        wide = reader.array(tuple(shape), "<u2").astype(np.uint32) << 16
        floats: Array = wide.view(np.float32)
        return floats
    return reader.array(tuple(shape), np.dtype(stored).newbyteorder("<"))
