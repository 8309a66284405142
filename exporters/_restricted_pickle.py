"""Reading pickles of PyTorch checkpoints without running a line of what they name.

``torch.load(weights_only=True)`` refuses pickled modules altogether and believes the sizes a file
states. Here every class or function a pickle names becomes an inert holder that only remembers what
it was given, tensors become descriptions bound to their bytes later, and sizes are checked against
the bytes present, so reading costs no more memory than the file has. What names the standard
library beyond plain data is refused, because no checkpoint needs it.
"""

from __future__ import annotations

import io
import math
import pickle
import pickletools
import sys
from collections import OrderedDict
from collections.abc import Callable
from dataclasses import dataclass, replace
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
DTYPES = {str(dtype).removeprefix("torch."): dtype for dtype in STORAGE_TYPES.values()}
PLAIN_DATA = frozenset(
    {"argparse", "collections", "datetime", "decimal", "enum", "fractions", "pathlib", "uuid"}
)
"""Modules of the standard library whose classes are data; they too become inert holders."""


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

    def materialise(self) -> Tensor:
        """Return the real tensor, dequantised to float32 where it was quantised."""
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
        tensor = values.as_strided(self.size, self.stride, self.offset)
        return tensor if self.quantiser is None else _dequantise(tensor, self.quantiser)


def _dequantise(raw: Tensor, quantiser: tuple[Any, ...]) -> Tensor:
    kind, scale, zero, *axis = quantiser
    if kind == "per_tensor_affine":
        return (raw.to(torch.float32) - float(zero)) * float(scale)
    if kind.startswith("per_channel_affine"):
        shape = [1] * raw.ndim
        shape[int(axis[0])] = -1
        scales = scale.materialise().to(torch.float64).reshape(shape)
        zeros = zero.materialise().to(torch.float64).reshape(shape)
        exact: Tensor = (raw.to(torch.float64) - zeros) * scales
        return exact.to(torch.float32)
    raise UnreadableModel(f"quantisation scheme {kind!r} is not known; export from float weights")


def _rebuild_tensor(
    storage: object, offset: object, size: Any, stride: Any, *_: object
) -> TensorSpec:
    if not isinstance(storage, StorageSpec) or not isinstance(offset, int):
        raise UnreadableModel("a tensor in the pickle has no storage; fetch the file again")
    if not all(isinstance(length, int) for length in (*size, *stride)):
        raise UnreadableModel("a tensor in the pickle has no proper shape; fetch the file again")
    return TensorSpec(storage, offset, tuple(size), tuple(stride))


def _rebuild_tensor_v3(
    storage: object,
    offset: object,
    size: Any,
    stride: Any,
    requires_grad: object,
    hooks: object,
    dtype: torch.dtype,
    *_: object,
) -> TensorSpec:
    return replace(_rebuild_tensor(storage, offset, size, stride), dtype=dtype)


def _rebuild_qtensor(
    storage: object, offset: object, size: Any, stride: Any, quantiser: Any, *_: object
) -> TensorSpec:
    plain = _rebuild_tensor(storage, offset, size, stride)
    return replace(plain, quantiser=tuple(quantiser))


def _rebuild_from_type(rebuild: object, kind: object, arguments: Any, *_: object) -> object:
    return rebuild(*arguments) if isinstance(rebuild, Admitted) else Inert(*arguments)


def _first(value: object, *_: object) -> object:
    return value


def _reconstruct(kind: object, *_: object) -> object:
    return kind() if isinstance(kind, type) and issubclass(kind, Inert) else Inert()


def _encode(text: str, encoding: str = "latin1") -> bytes:
    return text.encode("latin1")


def _plain_tuple(values: object = ()) -> tuple[object, ...]:
    return tuple(values) if isinstance(values, tuple | list) else ()


def _plain_set(values: object = ()) -> set[object]:
    return set(values) if isinstance(values, tuple | list) else set()


class Admitted:
    """One of our own functions, lent to a pickle that may call it but not alter it."""

    __slots__ = ("_make",)

    def __init__(self, make: Callable[..., object]) -> None:
        self._make = make

    def __call__(self, *arguments: object) -> object:
        return self._make(*arguments)

    def __setstate__(self, state: object) -> None:
        raise UnsafeFile("the pickle tries to alter a function; do not use this file")


class PlainDict(OrderedDict[object, object]):
    """A dictionary whose methods a pickle cannot overlay with attributes of its own."""

    def __setstate__(self, state: object) -> None:
        """Forget the attributes; PyTorch keeps only version numbers there."""


_TORCH_REBUILDERS: dict[str, Callable[..., object]] = {
    "_rebuild_tensor": _rebuild_tensor,
    "_rebuild_tensor_v2": _rebuild_tensor,
    "_rebuild_tensor_v3": _rebuild_tensor_v3,
    "_rebuild_qtensor": _rebuild_qtensor,
    "_rebuild_parameter": _first,
    "_rebuild_parameter_with_state": _first,
}
_TORCHSCRIPT = ("build_intlist", "build_doublelist", "build_boollist", "build_tensorlist")
ADMITTED: dict[tuple[str, str], object] = {
    ("collections", "OrderedDict"): PlainDict,
    ("builtins", "object"): object,
    ("__builtin__", "object"): object,
    ("builtins", "set"): Admitted(_plain_set),
    ("__builtin__", "set"): Admitted(_plain_set),
    ("copyreg", "_reconstructor"): Admitted(_reconstruct),
    ("copy_reg", "_reconstructor"): Admitted(_reconstruct),
    ("_codecs", "encode"): Admitted(_encode),
    ("torch", "Size"): Admitted(_plain_tuple),
    ("torch._tensor", "_rebuild_from_type_v2"): Admitted(_rebuild_from_type),
    ("torch.jit._pickle", "restore_type_tag"): Admitted(_first),
    **{("torch._utils", name): Admitted(make) for name, make in _TORCH_REBUILDERS.items()},
    **{("torch.jit._pickle", name): Admitted(_first) for name in _TORCHSCRIPT},
}


class RestrictedUnpickler(pickle.Unpickler):
    """An unpickler that can only make plain containers, specs and inert holders."""

    def __init__(self, stream: io.BufferedIOBase) -> None:
        super().__init__(stream, encoding="latin1")
        self.storages: dict[str, StorageSpec] = {}
        self.views: dict[str, tuple[str, int]] = {}
        self.origins: set[str] = set()
        self._inert: dict[str, type[Inert]] = {}

    def find_class(self, module: str, name: str) -> Any:
        """Return our stand-in for what the pickle names; nothing is ever imported."""
        known = ADMITTED.get((module, name))
        if known is not None:
            return known
        if module in {"torch", "torch.storage"} and name in STORAGE_TYPES:
            return name
        if module == "torch" and name in DTYPES:
            return DTYPES[name]
        if module == "torch" and name.startswith(("per_tensor_", "per_channel_", "q")):
            return name
        root = module.partition(".")[0]
        library = root in sys.stdlib_module_names or root in {"__builtin__", "copy_reg", "nt"}
        if library and root not in PLAIN_DATA:
            raise UnsafeFile(
                f"the pickle asks for {module}.{name}, which no checkpoint needs and which could "
                "run code; do not use this file"
            )
        self.origins.add(f"{module}.{name}")
        full = f"{module}.{name}"
        if full not in self._inert:
            self._inert[full] = type("Inert", (Inert,), {"origin": full})
        return self._inert[full]

    def persistent_load(self, pid: Any) -> Any:
        """Return the storage or the pickled class a persistent identifier stands for."""
        if isinstance(pid, tuple) and len(pid) >= 2 and pid[0] == "module":
            return pid[1]
        if not (isinstance(pid, tuple) and len(pid) >= 5 and pid[0] == "storage"):
            raise UnreadableModel(f"unknown persistent identifier {str(pid)[:80]!r} in the pickle")
        _, kind, key, _, count, *view = pid
        if kind not in STORAGE_TYPES or not isinstance(count, int) or count < 0:
            raise UnreadableModel(f"unknown storage {str(pid)[:80]!r} in the pickle")
        name = str(key)
        if view and view[0] is not None:
            part, offset, length = view[0]
            self.views[str(part)] = (name, int(offset))
            name, count = str(part), int(length)
        return self.storages.setdefault(name, StorageSpec(name, STORAGE_TYPES[kind], count))


def load_one(stream: io.BytesIO) -> tuple[object, RestrictedUnpickler]:
    """Read one pickle at the stream's position and leave the stream behind it."""
    _check_opcodes(stream)
    reader = RestrictedUnpickler(stream)
    try:
        return reader.load(), reader
    except (UnsafeFile, UnreadableModel):
        raise
    except MemoryError as error:
        raise UnsafeFile("the pickle asks for more memory than there is") from error
    except Exception as error:
        raise UnreadableModel(
            f"the pickle cannot be read ({type(error).__name__}: {error}); fetch the file again"
        ) from error


def _check_opcodes(stream: io.BytesIO) -> None:
    """Refuse pickles that would make the unpickler itself allocate out of proportion."""
    start = stream.tell()
    limit = stream.getbuffer().nbytes
    try:
        for opcode, argument, _ in pickletools.genops(stream):
            index = opcode.name in {"PUT", "BINPUT", "LONG_BINPUT"}
            if index and isinstance(argument, int) and argument > limit:
                raise UnsafeFile(f"the pickle numbers an object {argument} in {limit} bytes")
    except UnsafeFile:
        raise
    except Exception as error:
        raise UnreadableModel(f"not a complete pickle ({error}); fetch the file again") from error
    stream.seek(start)
