"""A reader for InsightFace packs that cannot be made to run code.

A pack is a pickle, and a pickle is a program. Here only the instructions that build lists, tuples,
bytes, booleans and whole numbers are obeyed; the few named things that real packs call
(``_codecs.encode`` for bytes written under protocol 2; NumPy's array, dtype and scalar) are inert
stand-ins that only collect bytes, and every other name is refused before it is looked up.
Python's own unpickler in Python serves as the machine: its table of instructions can be cut down,
and a hostile memo index costs it nothing, where the C one would fill the memory.
"""

from __future__ import annotations

import io
import pickle
from collections.abc import Callable
from typing import Any, Final, NoReturn

import numpy as np
from numpy.typing import NDArray

from onnxfr.errors import DataError, UnsafeFile

_PLAIN_TYPES: Final = {
    "u1": np.uint8,
    "b1": np.bool_,
    "i1": np.int8,
    "i4": np.int32,
    "i8": np.int64,
}
_INSTRUCTIONS: Final = (
    "PROTO FRAME STOP MARK GET BINGET LONG_BINGET PUT BINPUT LONG_BINPUT MEMOIZE "
    "EMPTY_LIST LIST APPEND APPENDS EMPTY_TUPLE TUPLE TUPLE1 TUPLE2 TUPLE3 "
    "NEWTRUE NEWFALSE NONE INT BININT BININT1 BININT2 LONG LONG1 "
    "STRING BINSTRING SHORT_BINSTRING BINBYTES SHORT_BINBYTES BINBYTES8 "
    "UNICODE BINUNICODE SHORT_BINUNICODE BINUNICODE8 GLOBAL STACK_GLOBAL REDUCE BUILD"
)


class _Dtype:
    __slots__ = ("code",)

    def __init__(self, code: str) -> None:
        self.code = code

    def __setstate__(self, state: object) -> None:
        """Accept NumPy's state and ignore it: only fixed one-letter types are read."""


class _Array:
    __slots__ = ("values",)

    values: NDArray[np.generic]

    def __setstate__(self, state: object) -> None:
        match state:
            case (int(), tuple(), _Dtype() as dtype, _, bytes() as raw):
                self.values = _plain(dtype, raw)
            case _:
                _refuse("an array of objects")


class _Make:
    """Stands for a function or class of NumPy; slotless, so a pickle cannot alter it."""

    __slots__ = ()


class _MakeDtype(_Make):
    __slots__ = ()

    def __call__(self, code: object, *_: object) -> _Dtype:
        name = code.decode("ascii", "replace") if isinstance(code, bytes) else code
        if not isinstance(name, str) or name not in _PLAIN_TYPES:
            _refuse(f"the data type {name!r}")
        return _Dtype(name)


class _MakeArray(_Make):
    __slots__ = ()

    def __call__(self, *_: object) -> _Array:
        return _Array()


class _ArrayFromBuffer(_Make):
    __slots__ = ()

    def __call__(self, raw: object, dtype: object, *_: object) -> _Array:
        if not isinstance(raw, bytes) or not isinstance(dtype, _Dtype):
            _refuse("an array of objects")
        array = _Array()
        array.values = _plain(dtype, raw)
        return array


class _MakeScalar(_Make):
    __slots__ = ()

    def __call__(self, dtype: object, raw: object) -> bool | int:
        if not isinstance(dtype, _Dtype) or not isinstance(raw, bytes):
            _refuse("a scalar of objects")
        values = _plain(dtype, raw)
        if values.size != 1:
            _refuse("a scalar of several values")
        return int(values.astype(np.int64)[0])


class _Encode(_Make):
    """``_codecs.encode(text, "latin1")``; the total cannot exceed the file that holds the text."""

    __slots__ = ("_left",)

    _left: list[int]

    def __init__(self, limit: int) -> None:
        object.__setattr__(self, "_left", [limit])

    def __setattr__(self, name: str, value: object) -> None:
        _refuse("a change of its own reader")

    def __call__(self, text: object, codec: object) -> bytes:
        if not isinstance(text, str) or codec not in ("latin1", "latin-1"):
            _refuse("an encoding other than latin-1")
        self._left[0] -= len(text)
        if self._left[0] < 0:
            _refuse("more bytes than the file holds")
        return text.encode("latin-1")


class _Instructions(dict[int, Any]):
    def __missing__(self, code: int) -> NoReturn:
        _refuse(f"the instruction {bytes([code])!r}")


def _byte_array(machine: _RestrictedUnpickler) -> None:
    # Python's own handler allocates the announced length before it looks for the bytes.
    machine.append(machine.read(int.from_bytes(machine.read(8), "little")))


class _RestrictedUnpickler(pickle._Unpickler):
    append: Callable[[object], None]
    read: Callable[[int], bytes]
    dispatch = _Instructions(
        (getattr(pickle, name)[0], pickle._Unpickler.dispatch[getattr(pickle, name)[0]])
        for name in _INSTRUCTIONS.split()
    )
    dispatch[pickle.BYTEARRAY8[0]] = _byte_array

    def __init__(self, blob: bytes) -> None:
        super().__init__(io.BytesIO(blob), encoding="bytes")
        self._admitted: dict[tuple[str, str], object] = {
            ("_codecs", "encode"): _Encode(len(blob)),
            ("numpy", "ndarray"): _Make(),
            ("numpy", "dtype"): _MakeDtype(),
        }
        for core in ("numpy.core", "numpy._core"):
            self._admitted[f"{core}.multiarray", "_reconstruct"] = _MakeArray()
            self._admitted[f"{core}.multiarray", "scalar"] = _MakeScalar()
            self._admitted[f"{core}.numeric", "_frombuffer"] = _ArrayFromBuffer()

    def find_class(self, module: str, name: str) -> object:
        found = self._admitted.get((module, name))
        if found is None:
            _refuse(f"{module}.{name}")
        return found


def read_pack(blob: bytes, name: str) -> tuple[list[bytes], list[bool]]:
    """Return the encoded pictures and the same-person flags of a pack."""
    try:
        content = _RestrictedUnpickler(blob).load()
    except UnsafeFile as error:
        raise UnsafeFile(
            f"{name}: the pickle asks for {error}; a face pack holds only lists of bytes and "
            "booleans. Do not open it with anything else either"
        ) from None
    except MemoryError as error:
        raise UnsafeFile(f"{name}: the pickle claims more memory than there is") from error
    except Exception as error:  # a damaged pickle fails in as many ways as there are opcodes
        raise DataError(
            f"{name}: expected an InsightFace .bin pack, but it is no readable pickle ({error})"
        ) from error
    match content:
        case (list() | tuple() as pictures, list() | tuple() | _Array() as flags):
            return [_as_bytes(item, name) for item in pictures], _as_flags(flags, name)
    raise DataError(f"{name}: expected a pair (list of pictures, list of flags) in the pack")


def _plain(dtype: _Dtype, raw: bytes) -> NDArray[np.generic]:
    return np.frombuffer(raw, dtype=_PLAIN_TYPES[dtype.code])


def _as_bytes(item: object, name: str) -> bytes:
    match item:
        case bytes():
            return item
        case _Array() if hasattr(item, "values") and item.values.dtype == np.uint8:
            return item.values.tobytes()
    raise DataError(f"{name}: expected encoded pictures, found a {type(item).__name__}")


def _as_flags(flags: object, name: str) -> list[bool]:
    values = flags.values.tolist() if isinstance(flags, _Array) else flags
    assert isinstance(values, list | tuple)
    if not all(isinstance(flag, int) and flag in (0, 1) for flag in values):
        raise DataError(f"{name}: expected same-person flags true or false, found others")
    return [bool(flag) for flag in values]


def _refuse(what: str) -> NoReturn:
    raise UnsafeFile(what)
