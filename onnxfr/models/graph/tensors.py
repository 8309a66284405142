"""ONNX tensors and element types in torch's terms.

Types narrower than float32 are widened: the differentiable network computes fp16 weights in fp32,
because gradients of an fp16 graph are too coarse to attack with.
"""

from __future__ import annotations

import numpy as np
import onnx
import torch
from onnx import TensorProto, numpy_helper
from torch import Tensor

from onnxfr.errors import UnreadableModel, UnsafeFile

COMPUTE_TYPES = frozenset(
    {
        TensorProto.FLOAT,
        TensorProto.FLOAT16,
        TensorProto.BFLOAT16,
        TensorProto.FLOAT8E4M3FN,
        TensorProto.FLOAT8E4M3FNUZ,
        TensorProto.FLOAT8E5M2,
        TensorProto.FLOAT8E5M2FNUZ,
    }
)
"""Element types carried in the network's float type (float32, or float64 after ``.double()``)."""

TORCH_TYPES: dict[int, torch.dtype] = {
    TensorProto.DOUBLE: torch.float64,
    TensorProto.BOOL: torch.bool,
    TensorProto.INT4: torch.int8,
    TensorProto.INT8: torch.int8,
    TensorProto.INT16: torch.int16,
    TensorProto.INT32: torch.int32,
    TensorProto.INT64: torch.int64,
    TensorProto.UINT4: torch.uint8,
    TensorProto.UINT8: torch.uint8,
    TensorProto.UINT16: torch.int32,
    TensorProto.UINT32: torch.int64,
    TensorProto.UINT64: torch.int64,
    **dict.fromkeys(COMPUTE_TYPES, torch.float32),
}
"""The torch type of each element type; unsigned ones take the next wider type torch can use."""

INTEGER_RANGES: dict[int, tuple[int, int]] = {
    TensorProto.INT4: (-8, 7),
    TensorProto.UINT4: (0, 15),
    TensorProto.INT8: (-128, 127),
    TensorProto.UINT8: (0, 255),
    TensorProto.INT16: (-32768, 32767),
    TensorProto.UINT16: (0, 65535),
    TensorProto.INT32: (-(2**31), 2**31 - 1),
}
"""The integers a quantised type can hold."""

ELEM_TYPES: dict[torch.dtype, int] = {
    torch.float32: TensorProto.FLOAT,
    torch.float64: TensorProto.DOUBLE,
    torch.bool: TensorProto.BOOL,
    torch.int8: TensorProto.INT8,
    torch.uint8: TensorProto.UINT8,
    torch.int16: TensorProto.INT16,
    torch.int32: TensorProto.INT32,
    torch.int64: TensorProto.INT64,
}
"""The element type of a computed value that has no other note of it: that of its own width."""


def type_name(elem_type: int) -> str:
    """Return ONNX's name of an element type, e.g. ``INT8``."""
    known = TensorProto.DataType.values()
    return TensorProto.DataType.Name(elem_type) if elem_type in known else f"type {elem_type}"


def to_tensor(proto: onnx.TensorProto) -> Tensor:
    """Read a stored tensor into memory of its own.

    Raises:
        UnsafeFile: the data lies in another file; the loader resolves those, nobody else may.
        UnreadableModel: the stored bytes do not fill the declared shape, or the type is no number.
    """
    if proto.data_location == TensorProto.EXTERNAL:
        raise UnsafeFile(
            f"tensor {proto.name!r} lies in an external file that was not loaded; load the model "
            "with its external data first"
        )
    dtype = TORCH_TYPES.get(proto.data_type)
    if dtype is None:
        raise UnreadableModel(
            f"tensor {proto.name!r} holds {type_name(proto.data_type)}, expected numbers"
        )
    try:
        array = numpy_helper.to_array(proto)
        wide = np.float32 if dtype is torch.float32 else str(dtype).removeprefix("torch.")
        return torch.from_numpy(np.array(array.astype(wide), order="C"))
    except (ValueError, TypeError, OverflowError, MemoryError) as error:
        raise UnreadableModel(
            f"tensor {proto.name!r} of shape {list(proto.dims)} cannot be read: {error}"
        ) from error
