"""What a restricted pickle can describe: storages, tensors, and objects of unknown classes.

Descriptions are bound to bytes only after the pickle was read, and every claimed size is checked
against the bytes present, so that reading costs no more memory than the file has.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from onnxfr.errors import UnreadableModel, UnsafeFile

STORAGE_TYPES: dict[str, torch.dtype] = {
    "FloatStorage": torch.float32,
    "DoubleStorage": torch.float64,
    "HalfStorage": torch.float16,
    "BFloat16Storage": torch.bfloat16,
    "LongStorage": torch.int64,
    "IntStorage": torch.int32,
    "ShortStorage": torch.int16,
    "CharStorage": torch.int8,
    "ByteStorage": torch.uint8,
    "BoolStorage": torch.bool,
    "UntypedStorage": torch.uint8,
    "QInt8Storage": torch.int8,
    "QUInt8Storage": torch.uint8,
    "QInt32Storage": torch.int32,
}


class Inert:
    """Stands for an object of an unknown class: keeps its state, has no behaviour."""

    origin = ""

    def __init__(self, *arguments: object) -> None:
        self.arguments = arguments
        self.attributes: dict[str, object] = {}
        self.items: dict[object, object] = {}
        self.sequence: list[object] = []

    def __new__(cls, *arguments: object) -> Inert:
        """Make the holder ready even where a pickle skips the initialiser."""
        made = super().__new__(cls)
        Inert.__init__(made, *arguments)
        return made

    def __setstate__(self, state: object) -> None:
        parts = state if isinstance(state, tuple) else (state,)
        for part in parts:
            if isinstance(part, dict):
                self.attributes.update({str(key): value for key, value in part.items()})

    def __setitem__(self, key: object, value: object) -> None:
        self.items[key] = value

    def append(self, value: object) -> None:
        """Keep one element of a list-like object."""
        self.sequence.append(value)

    def extend(self, values: list[object]) -> None:
        """Keep elements of a list-like object."""
        self.sequence.extend(values)


@dataclass
class StorageSpec:
    """A run of values named by the pickle; ``values`` is bound once its bytes were found."""

    key: str
    dtype: torch.dtype
    count: int
    values: Tensor | None = None

    def bind(self, content: bytes | memoryview) -> None:
        """Attach the bytes, which must hold the promised number of values."""
        needed = self.count * self.dtype.itemsize
        if len(content) < needed:
            raise UnsafeFile(
                f"storage {self.key!r} claims {needed} bytes but the file holds {len(content)}; "
                "the checkpoint is damaged or forged, fetch it again"
            )
        self.values = (
            torch.frombuffer(bytearray(content[:needed]), dtype=self.dtype)
            if self.count
            else torch.empty(0, dtype=self.dtype)
        )


@dataclass(frozen=True)
class TensorSpec:
    """A tensor as the pickle describes it: a strided view of a storage, maybe quantised."""

    storage: StorageSpec
    offset: int
    size: tuple[int, ...]
    stride: tuple[int, ...]
    dtype: torch.dtype | None = None
    quantiser: tuple[Any, ...] | None = None

    @property
    def nbytes(self) -> int:
        """How many bytes the real tensor has, told without making it."""
        raw = self._view()
        return raw.numel() * (raw.itemsize if self.quantiser is None else torch.float32.itemsize)

    def materialise(self) -> Tensor:
        """Return the real tensor, dequantised to float32 where it was quantised."""
        raw = self._view()
        return raw if self.quantiser is None else _dequantise(raw, self.quantiser)

    def _view(self) -> Tensor:
        """Return the stored numbers, which must lie within the storage; takes no memory."""
        values = self.storage.values
        if values is None:
            raise UnreadableModel(
                f"storage {self.storage.key!r} has no data in the file; fetch it again"
            )
        if self.dtype is not None and self.dtype != values.dtype:
            values = values.view(self.dtype)
        count = math.prod(self.size)
        steps = zip(self.size, self.stride, strict=True)
        last = self.offset + sum((n - 1) * step for n, step in steps) if count else self.offset
        sound = self.offset >= 0 and all(n >= 0 for n in self.size + self.stride)
        # An expanded view (stride 0) of few values could ask for any amount of memory.
        if not sound or (count and (last >= len(values) or count > len(values))):
            raise UnsafeFile(
                f"a tensor of shape {self.size} claims more than its storage of {len(values)} "
                "values; the checkpoint is damaged or forged, fetch it again"
            )
        return values.as_strided(self.size, self.stride, self.offset)


def _dequantise(raw: Tensor, quantiser: tuple[Any, ...]) -> Tensor:
    kind, scale, zero, *axis = quantiser
    if kind == "per_tensor_affine":
        return (raw.to(torch.float32) - float(zero)) * float(scale)
    if kind.startswith("per_channel_affine"):
        channels = raw.shape[int(axis[0])]
        scales, zeros = (part.materialise().to(torch.float64) for part in (scale, zero))
        # Numbers for more channels than there are would multiply the tensor by broadcasting.
        if scales.numel() != channels or zeros.numel() != channels:
            raise UnsafeFile(
                f"{channels} channels are quantised by {scales.numel()} scales and {zeros.numel()} "
                "zero points; the checkpoint is damaged or forged, fetch it again"
            )
        shape = [1] * raw.ndim
        shape[int(axis[0])] = channels
        exact: Tensor = (raw.to(torch.float64) - zeros.reshape(shape)) * scales.reshape(shape)
        return exact.to(torch.float32)
    raise UnreadableModel(f"quantisation scheme {kind!r} is not known; export from float weights")
