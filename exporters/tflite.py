"""TFLite: float32, float16 and 8-bit networks, read without TensorFlow or its interpreter.

Quantised values become QuantizeLinear and DequantizeLinear, so both engines compute what the
integer kernels compute, up to a step of the grid here and there. Where only weights are stored in
8 bits, they are widened: the interpreter may round activations of such files on the fly, which
depends on the processor's kernels and is not reproduced.
"""

from __future__ import annotations

from pathlib import Path

import numpy as np
import onnx

from onnxfr.errors import UnreadableModel, UnsupportedModel
from onnxfr.exporters import _tflite_operators  # noqa: F401
from onnxfr.exporters._tf_graph import build_graph, by_name
from onnxfr.exporters._tf_values import Node
from onnxfr.exporters._tflite_nodes import Translator, grid_of
from onnxfr.exporters._tflite_schema import MARK, Network, Tensor, read_network
from onnxfr.exporters.base import Exported, Size, exporter, fit_size, head_of, read_source

_PICTURE = "pictures"


def _recognises(path: Path) -> bool:
    return head_of(path, 8)[4:8] == MARK


@exporter(
    "tflite",
    _recognises,
    "a .tflite file, float32, float16 or 8 bits",
    "LiteRT 2.3 on LFW faces: two 32-bit networks within 6.4e-7, an 8-bit one equal, one with "
    "8-bit weights at cosine 0.9998",
)
def export_tflite(
    source: Path, arch: str | None = None, input_size: Size | None = None
) -> Exported:
    """Export a TFLite file."""
    network = read_network(read_source(source))
    picture = _picture(network)
    translated = Translator(network)
    nodes = [*_entry(picture), *translated.nodes]
    outputs = [network.tensors[k].name for k in network.outputs if k >= 0]
    if not outputs:
        raise UnreadableModel("the TFLite file names no answer")

    def build(size: Size) -> onnx.ModelProto:
        return build_graph("tflite", by_name(nodes), translated.weights, _PICTURE, outputs, size)

    shape = picture.shape
    told = (shape[1], shape[2]) if min(shape[1:3]) > 1 else None
    model, notes = fit_size(build, input_size, told)
    return Exported(model, "tflite", arch, notes=(*notes, _precision(network)))


def _picture(network: Network) -> Tensor:
    found = [network.tensors[k] for k in network.inputs if k >= 0]
    if len(found) != 1 or len(found[0].shape) != 4:
        told = ", ".join(f"{t.name} {t.shape}" for t in found) or "none"
        raise UnsupportedModel(f"expected one picture as input, the TFLite file takes: {told}")
    return found[0]


def _entry(picture: Tensor) -> list[Node]:
    """Return the nodes between real pictures and the network's own, perhaps quantised, input."""
    start = Node("Placeholder", _PICTURE, (), {})
    if picture.quantised:
        return [start, Node("QUANTIZE", picture.name, (_PICTURE,), grid_of(picture))]
    return [start, Node("Identity", picture.name, (_PICTURE,), {})]


def _precision(network: Network) -> str:
    computed = [t for t in network.tensors if t.stored is None]
    stored = [t for t in network.tensors if t.stored is not None]
    if any(t.quantised for t in computed):
        return "8-bit network"
    if any(t.quantised for t in stored):
        return "weights stored in 8 bits, widened to reals"
    half = any(t.dtype == np.dtype("<f2") for t in stored)
    return "weights stored in 16 bits" if half else "32-bit network"
