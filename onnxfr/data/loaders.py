"""The kinds of data set that can be opened, and what their loaders share.

A loader is one file that registers one function; it reads a protocol and hands pairs to a
``PairBuilder``, which leaves out and records what is no good.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path

from onnxfr.data.builder import PairBuilder
from onnxfr.data.pairs import PairSet
from onnxfr.errors import DataError, UnknownName
from onnxfr.paths import expanded
from onnxfr.registry import Registry

_OPTION = re.compile(r",([a-z_]+)=")
_YES_NO = {"yes": True, "no": False}


@dataclass(frozen=True)
class Request:
    """What a loader is asked for: a place, options, a seed, and how to treat problems."""

    place: Path
    strict: bool = False
    seed: int = 0
    options: Mapping[str, str] = field(default_factory=dict)

    def builder(self, name: str) -> PairBuilder:
        """Return an empty builder that obeys ``strict`` and the options that all kinds have."""
        given = self.options.get("name", name).strip()
        if not given:
            raise DataError("expected name= a text, got an empty one")
        return PairBuilder(given, strict=self.strict, aligned=self._aligned())

    def count(self, option: str, default: int) -> int:
        """Return a whole number above zero given as an option."""
        text = self.options.get(option, str(default))
        if not text.isdecimal() or int(text) < 1:
            raise DataError(f"expected {option}= a whole number above 0, got {text!r}")
        return int(text)

    def choice(self, option: str, allowed: tuple[str, ...]) -> str:
        """Return an option that has few legal values; the first is the default."""
        text = self.options.get(option, allowed[0])
        if text not in allowed:
            raise DataError(f"expected {option}= one of {', '.join(allowed)}, got {text!r}")
        return text

    def folder(self) -> Path:
        """Return the place, which must be a folder."""
        if not self.place.is_dir():
            raise DataError(f"expected a folder, but {self.place} is none; check the path")
        return self.place

    def file(self) -> Path:
        """Return the place, which must be a file."""
        if not self.place.is_file():
            raise DataError(f"expected a file, but {self.place} is none; check the path")
        return self.place

    def _aligned(self) -> bool | None:
        return _YES_NO[self.choice("aligned", ("yes", "no"))] if "aligned" in self.options else None


Read = Callable[[Request], PairSet]


@dataclass(frozen=True)
class Loader:
    """One kind of data set; ``obtain`` fetches it where no file of the user's is needed."""

    usage: str
    summary: str
    read: Read
    options: frozenset[str] = frozenset()
    places: frozenset[str] = frozenset()
    """Those options that name a file or a folder."""
    obtain: Callable[[Path | None], Path] | None = None


LOADERS: Registry[Loader] = Registry("kind of data set", "onnxfr.data")


def loader(
    name: str,
    usage: str,
    summary: str,
    options: tuple[str, ...] = (),
    places: tuple[str, ...] = (),
    obtain: Callable[[Path | None], Path] | None = None,
) -> Callable[[Read], Read]:
    """Register a loading function under ``name``; ``places`` are options that name a file."""

    def decorate(read: Read) -> Read:
        known = frozenset((*options, *places, "aligned", "name"))
        LOADERS.register(name)(Loader(usage, summary, read, known, frozenset(places), obtain))
        return read

    return decorate


def load(spec: str, *, strict: bool, seed: int) -> PairSet:
    """Open ``KIND:PLACE[,option=value...]``."""
    head, *pieces = _OPTION.split(spec)
    kind, colon, place = head.partition(":")
    options = dict(zip(pieces[::2], pieces[1::2], strict=True))
    if kind not in LOADERS:
        raise UnknownName(_unknown_kind(spec, kind))
    found = LOADERS.get(kind)
    unknown = sorted(set(options) - found.options)
    if unknown:
        raise DataError(
            f"{kind} has no option {unknown[0]!r}; it has {', '.join(sorted(found.options))}"
        )
    if found.obtain is None and not place:
        raise DataError(f"expected a place after {kind!r}, as in {found.usage}; got {spec!r}")
    if found.obtain is not None and colon and place:
        raise DataError(f"{kind} takes no path; write {found.usage}")
    request = Request(expanded(place).absolute(), strict, seed, options)
    return found.read(request)


def absolute(spec: str, folder: Path) -> str:
    """Return a specification whose files are found from anywhere; they are relative to folder."""
    head, *pieces = _OPTION.split(spec)
    kind, _, place = head.partition(":")
    if not place or kind not in LOADERS:
        return spec
    places = LOADERS.get(kind).places
    options = [
        f",{name}={_below(folder, value) if name in places else value}"
        for name, value in zip(pieces[::2], pieces[1::2], strict=True)
    ]
    return f"{kind}:{_below(folder, place)}{''.join(options)}"


def _below(folder: Path, place: str) -> str:
    return str((folder / expanded(place)).resolve())


def _unknown_kind(spec: str, kind: str) -> str:
    path = expanded(spec)
    known = ", ".join(LOADERS.names())
    if path.exists():
        guess = {".csv": "csv", ".bin": "bin", ".txt": "pairlist"}.get(path.suffix, "folder")
        return f"expected KIND:PLACE with KIND one of {known}; did you mean {guess}:{spec}?"
    return f"no kind of data set is called {kind!r}; known: {known} (onnxfr data list)"
