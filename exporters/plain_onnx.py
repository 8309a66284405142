"""ONNX itself: the source is read without trust and passed on."""

from __future__ import annotations

from pathlib import Path

from onnxfr.errors import UnreadableModel
from onnxfr.exporters._wire import top_fields
from onnxfr.exporters.base import Exported, Size, exporter, read_source
from onnxfr.models.vendor import read_vendor

_IR_VERSION, _PRODUCER, _GRAPH, _OPSETS = 1, 2, 7, 8


def _recognises(path: Path) -> bool:
    fields = top_fields(read_source(path))
    return (
        fields.get(_IR_VERSION, "") == "number"
        and fields.get(_PRODUCER, "bytes") == "bytes"
        and fields.get(_GRAPH, "") == "bytes"
        and fields.get(_OPSETS, "bytes") == "bytes"
    )


@exporter("onnx", _recognises, "an .onnx file")
def export_onnx(source: Path, arch: str | None = None, input_size: Size | None = None) -> Exported:
    """Read a vendor's ONNX file; its picture size cannot be changed here."""
    model = read_vendor(source).model
    if input_size is not None:
        raise UnreadableModel(
            "an ONNX file tells its own picture size; leave the size out, or export it anew"
        )
    return Exported(model, model.producer_name or "onnx", arch)
