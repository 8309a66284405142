"""Reading pickles of PyTorch checkpoints without running a line of what they name.

``torch.load(weights_only=True)`` refuses pickled modules altogether and believes the sizes a file
states. Here every class or function a pickle names becomes an inert holder that only remembers what
it was given, and tensors become descriptions bound to their bytes later. What names the standard
library beyond plain data is refused, because no checkpoint needs it.
"""

from __future__ import annotations

import io
import pickle
import pickletools
import sys
from collections import OrderedDict
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import torch

from onnxfr.errors import UnreadableModel, UnsafeFile
from onnxfr.exporters._torch_specs import STORAGE_TYPES, Inert, StorageSpec, TensorSpec

DTYPES = {str(dtype).removeprefix("torch."): dtype for dtype in STORAGE_TYPES.values()}
PLAIN_DATA = frozenset(
    {"argparse", "collections", "datetime", "decimal", "enum", "fractions", "pathlib", "uuid"}
)
"""Modules of the standard library whose classes are data; they too become inert holders."""


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
        if view and view[0] is not None:
            raise UnreadableModel(
                "the file was written by PyTorch before 0.4; load and save it with a newer one"
            )
        name = str(key)
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
