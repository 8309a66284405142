"""Reading a stranger's ONNX file without trusting a byte of it.

Nothing here runs the network. Sizes are checked before they are believed, external data may only
lie in the model's own folder, and what would need foreign code to run is refused.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path, PurePosixPath, PureWindowsPath

import numpy as np
import onnx
from google.protobuf.message import DecodeError
from onnx import TensorProto, helper, numpy_helper

from onnxfr.errors import UnreadableModel, UnsafeFile, UnsupportedModel

MAX_BYTES = 2**31 - 1
"""The protobuf limit, and our cap on all weights of one model together."""

_KNOWN_DOMAINS = {"", "ai.onnx", "ai.onnx.ml", "com.microsoft", "com.microsoft.nchwc"}
_LOOPS = {"Loop", "Scan", "SequenceMap"}
_BITS_PER_VALUE: dict[int, int] = {
    TensorProto.INT4: 4,
    TensorProto.UINT4: 4,
    TensorProto.FLOAT4E2M1: 4,
}


@dataclass(frozen=True)
class VendorFile:
    """A parsed vendor model with all weights inside, and the sha256 of the file as received."""

    model: onnx.ModelProto
    sha256: str
    file: str


def read_vendor(path: Path) -> VendorFile:
    """Read and vet one ONNX file."""
    blob = _read_bytes(path)
    model = onnx.ModelProto()
    try:
        model.ParseFromString(blob)
    except (DecodeError, RuntimeError, ValueError):
        raise UnreadableModel(
            f"{path} is not an ONNX file, or is truncated: expected an ONNX protobuf, "
            f"got {len(blob)} bytes starting with {blob[:8]!r}"
        ) from None
    _check_frame(model, path)
    _check_operators(model)
    loaded = 0
    for tensor in all_tensors(model):
        loaded += _declared_bytes(tensor)
        if loaded > MAX_BYTES:
            raise UnsafeFile(f"{path} declares more than {MAX_BYTES >> 20} MiB of weights")
        if tensor.data_location == TensorProto.EXTERNAL:
            _load_external(tensor, path.absolute().parent)
        _check_contents(tensor)
    return VendorFile(model=model, sha256=hashlib.sha256(blob).hexdigest(), file=path.name)


def _read_bytes(path: Path) -> bytes:
    try:
        if not path.is_file():
            raise UnreadableModel(f"{path}: expected an ONNX file, found none; check the path")
        if path.stat().st_size > MAX_BYTES:
            raise UnsafeFile(f"{path} is larger than an ONNX file can be ({MAX_BYTES >> 20} MiB)")
        return path.read_bytes()
    except OSError as error:
        raise UnreadableModel(f"{path} cannot be read: {error.strerror}") from None


def _check_frame(model: onnx.ModelProto, path: Path) -> None:
    if not model.graph.node or not model.graph.output or not model.opset_import:
        raise UnreadableModel(
            f"{path} is not a usable ONNX file: expected a graph with nodes, outputs and an opset, "
            f"got {len(model.graph.node)} nodes, {len(model.graph.output)} outputs"
        )


def opset_of(model: onnx.ModelProto) -> int:
    """Return the version of the standard operator set the model is written in."""
    for entry in model.opset_import:
        if entry.domain in ("", "ai.onnx"):
            return int(entry.version)
    raise UnsupportedModel("the model imports no standard ONNX operator set")


def _check_operators(model: onnx.ModelProto) -> None:
    local = {function.domain for function in model.functions}
    for graph in all_graphs(model):
        for node in graph.node:
            # Text that is no UTF-8 comes out of the file as bytes.
            if not all(isinstance(each, str) for each in (node.op_type, node.domain, node.name)):
                raise UnreadableModel(
                    f"the name of an operator is no text ({node.op_type!r}): the file is damaged"
                )
            if node.domain not in _KNOWN_DOMAINS | local:
                raise UnsupportedModel(
                    f"node {node.name!r} uses the custom operator {node.domain}.{node.op_type}; "
                    "onnxfr never loads operator libraries: export with standard operators"
                )
            if node.op_type in _LOOPS and node.domain in ("", "ai.onnx"):
                raise UnsupportedModel(
                    f"node {node.name!r} is a control-flow {node.op_type}; a face-recognition "
                    "network has none: export the network alone, without detection or batching loop"
                )


def all_graphs(model: onnx.ModelProto) -> Iterator[onnx.GraphProto | onnx.FunctionProto]:
    """Yield the main graph, local functions and every nested subgraph."""
    for top in (model.graph, *model.functions):
        yield top
        yield from inner_graphs(top)


def inner_graphs(outer: onnx.GraphProto | onnx.FunctionProto) -> Iterator[onnx.GraphProto]:
    """Yield every subgraph nested in the nodes of a graph, where its names are visible too."""
    pending: list[onnx.GraphProto | onnx.FunctionProto] = [outer]
    while pending:
        found: list[onnx.GraphProto] = []
        for node in pending.pop().node:
            for attribute in node.attribute:
                if attribute.HasField("g"):
                    found.append(attribute.g)
                found.extend(attribute.graphs)
        yield from found
        pending.extend(found)


def all_tensors(model: onnx.ModelProto) -> Iterator[TensorProto]:
    """Yield every tensor stored in the file, wherever it hides."""
    for graph in all_graphs(model):
        if isinstance(graph, onnx.GraphProto):
            yield from graph.initializer
            for sparse in graph.sparse_initializer:
                yield from (sparse.values, sparse.indices)
        for node in graph.node:
            for attribute in node.attribute:
                if attribute.HasField("t"):
                    yield attribute.t
                yield from attribute.tensors


def _declared_bytes(tensor: TensorProto) -> int:
    if any(dim < 0 for dim in tensor.dims):
        raise UnreadableModel(f"tensor {tensor.name!r} has a negative size {list(tensor.dims)}")
    count = 1
    for dim in tensor.dims:
        count *= dim
    bits = _BITS_PER_VALUE.get(tensor.data_type)
    if bits is None:
        try:
            bits = 8 * int(helper.tensor_dtype_to_np_dtype(tensor.data_type).itemsize)
        except (KeyError, ValueError, TypeError):
            raise UnreadableModel(
                f"tensor {tensor.name!r} has the unknown element type {tensor.data_type}"
            ) from None
    size = (count * bits + 7) // 8
    if size > MAX_BYTES:
        raise UnsafeFile(
            f"tensor {tensor.name!r} claims {size >> 20} MiB with shape {list(tensor.dims)}; "
            f"the limit is {MAX_BYTES >> 20} MiB"
        )
    return size


def _check_contents(tensor: TensorProto) -> None:
    if tensor.data_type == TensorProto.STRING:
        return
    if tensor.HasField("raw_data") and len(tensor.raw_data) != _declared_bytes(tensor):
        raise UnreadableModel(
            f"tensor {tensor.name!r} of shape {list(tensor.dims)} should hold "
            f"{_declared_bytes(tensor)} bytes but holds {len(tensor.raw_data)}: the file is damaged"
        )
    try:
        numpy_helper.to_array(tensor)
    except (ValueError, TypeError, RuntimeError) as error:
        raise UnreadableModel(f"tensor {tensor.name!r} cannot be read: {error}") from None


def refuse_nan_weights(model: onnx.ModelProto) -> None:
    """Raise where a weight is NaN; ask once only what the embedding needs is left of the graph."""
    for tensor in all_tensors(model):
        if tensor.data_type == TensorProto.STRING:
            continue
        values = numpy_helper.to_array(tensor)
        if values.dtype.kind == "f" and np.isnan(values).any():
            raise UnsupportedModel(
                f"weight {tensor.name!r} contains NaN: every answer of this model would be NaN"
            )


def _load_external(tensor: TensorProto, folder: Path) -> None:
    entries = {entry.key: entry.value for entry in tensor.external_data}
    place = external_path(entries.get("location", ""), folder, tensor.name)
    expected = _declared_bytes(tensor)
    try:
        offset = int(entries.get("offset", "0"))
        length = int(entries.get("length", str(expected)))
    except ValueError:
        raise UnreadableModel(f"tensor {tensor.name!r} has a bad external-data entry") from None
    if offset < 0 or length != expected or offset + length > place.stat().st_size:
        raise UnreadableModel(
            f"tensor {tensor.name!r} wants {expected} bytes at {offset} of {place.name}, which has "
            f"{place.stat().st_size} bytes and promises {length}"
        )
    with place.open("rb") as handle:
        handle.seek(offset)
        tensor.raw_data = handle.read(length)
    del tensor.external_data[:]
    tensor.data_location = TensorProto.DEFAULT


def external_path(location: str, folder: Path, name: str) -> Path:
    """Return the external-data file if it is a plain file inside the model's own folder."""
    parts = PurePosixPath(location.replace("\\", "/")).parts
    absolute = PurePosixPath(location).is_absolute() or bool(PureWindowsPath(location).anchor)
    if not location or absolute or ".." in parts or "\x00" in location:
        raise UnsafeFile(
            f"tensor {name!r} points to {location!r}: external data must be a file inside the "
            "model's own folder, given relative to it"
        )
    place = (folder / location).resolve()
    if not place.is_relative_to(folder.resolve()) or not place.is_file():
        raise UnsafeFile(
            f"tensor {name!r} points to {location!r}, which is missing or leads out of the model's "
            "folder; external data must be a file inside it"
        )
    return place
