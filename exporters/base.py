"""What an exporter is, where exporters are found, and how a file tells its framework.

An exporter is one file of this package: a function from a source to a vendor-style ONNX graph,
decorated with ``exporter``. Whatever a damaged or forged source does inside it, one typed error
comes out. A framework is recognised by content, because ``.bin``, ``.pb`` and ``.model`` mean
nothing and file names are whatever the sender chose.
"""

from __future__ import annotations

import functools
import logging
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

import onnx

from onnxfr.errors import OnnxfrError, SpecError, UnreadableModel, UnsafeFile
from onnxfr.models.preprocessing import Preprocessing
from onnxfr.registry import Registry

logger = logging.getLogger(__name__)

MAX_BYTES = 2**31 - 1
"""Largest source file read; an ONNX file cannot be larger."""
_MOST_FILES = 200

Size = tuple[int, int]
"""Height and width."""

USUAL_SIZES: tuple[Size, ...] = (
    (112, 112),
    (112, 96),
    (128, 128),
    (160, 160),
    (224, 224),
    (150, 150),
    (96, 96),
)
"""Picture sizes of face networks, the likeliest first."""


@dataclass(frozen=True)
class Options:
    """What the user states about a source; None leaves it to the source."""

    arch: str | None = None
    input_size: Size | None = None


@dataclass(frozen=True)
class Exported:
    """A vendor-style ONNX graph, pictures in and embeddings out, and what the source told."""

    model: onnx.ModelProto
    framework: str
    architecture: str | None = None
    preprocessing: Preprocessing | None = None
    """A hint: what the file or its framework's habits say, to be used where no faces decide."""
    template: str | None = None
    """The alignment the network was trained with, where the source implies one."""
    notes: tuple[str, ...] = ()


class ExportFunction(Protocol):
    """The one function an exporter's file defines."""

    def __call__(
        self, source: Path, arch: str | None = None, input_size: Size | None = None
    ) -> Exported:
        """Return the graph of ``source``."""


@dataclass(frozen=True)
class Exporter:
    """One source framework: how to recognise its files and how to read them."""

    name: str
    formats: str
    recognises: Callable[[Path], bool]
    """Tell from the content whether a file or folder is of this framework; never raises."""
    function: ExportFunction
    checked: str = ""
    """What this reader was held against, for the notes of a card."""

    def export(self, path: Path, options: Options | None = None) -> Exported:
        """Turn ``path`` into an ONNX graph."""
        chosen = options or Options()
        return self.function(path, chosen.arch, chosen.input_size)


EXPORTERS: Registry[Exporter] = Registry("exporter", package="onnxfr.exporters")


def exporter(
    name: str, recognises: Callable[[Path], bool], formats: str, checked: str = ""
) -> Callable[[ExportFunction], ExportFunction]:
    """Return a decorator that files an export function and makes all its failures typed."""

    def decorate(function: ExportFunction) -> ExportFunction:
        @functools.wraps(function)
        def guarded(
            source: Path, arch: str | None = None, input_size: Size | None = None
        ) -> Exported:
            try:
                return function(source, arch, input_size)
            except OnnxfrError:
                raise
            except Exception as error:
                # A forged or damaged file can be wrong in more ways than can be listed.
                logger.debug("export of %s failed", source, exc_info=True)
                raise UnreadableModel(
                    f"{source.name} is not a usable {name} model ({formats}): "
                    f"{type(error).__name__}: {error}"
                ) from error

        EXPORTERS.register(name)(Exporter(name, formats, _quiet(recognises), guarded, checked))
        return guarded

    return decorate


def _quiet(recognises: Callable[[Path], bool]) -> Callable[[Path], bool]:
    @functools.wraps(recognises)
    def answer(path: Path) -> bool:
        try:
            return recognises(path)
        except Exception:
            return False

    return answer


def detect(path: Path) -> tuple[Exporter, Path]:
    """Return the exporter that recognises ``path`` and the file (or folder) to give it."""
    if not path.exists():
        raise UnreadableModel(f"{path}: expected a model file or folder, found none")
    found = _recognised_by(path)
    if not found and path.is_dir():
        files = sorted(p for p in path.iterdir() if p.is_file())[:_MOST_FILES]
        found = {k: v for file in reversed(files) for k, v in _recognised_by(file).items()}
    if len(found) == 1:
        return next(iter(found.values()))
    if found:
        raise SpecError(
            f"{path} could be of {' or '.join(sorted(found))}; name the framework with --from"
        )
    known = "; ".join(f"{name}: {item.formats}" for name, item in EXPORTERS.items())
    raise UnreadableModel(
        f"{path} is not of a framework known here by its content ({known}); "
        "name the framework with --from if you know it"
    )


def _recognised_by(path: Path) -> dict[str, tuple[Exporter, Path]]:
    return {name: (item, path) for name, item in EXPORTERS.items() if item.recognises(path)}


def read_source(path: Path, limit: int = MAX_BYTES) -> bytes:
    """Return a file's content, or say why not; ``limit`` bounds what is believed to be sane."""
    try:
        if not path.is_file():
            raise UnreadableModel(f"{path}: expected a file, found none; check the path")
        if path.stat().st_size > limit:
            raise UnsafeFile(f"{path} is larger than {limit >> 20} MiB, which no such file is")
        return path.read_bytes()
    except OSError as error:
        raise UnreadableModel(f"{path} cannot be read: {error.strerror}") from None


def head_of(path: Path, count: int = 64) -> bytes:
    """Return the first bytes of a file, nothing for a folder or an unreadable one."""
    try:
        with path.open("rb") as opened:
            return opened.read(count)
    except OSError:
        return b""


def companion(source: Path, wanted: Callable[[Path], bool], what: str) -> Path:
    """Return the one file beside ``source`` that is its other half.

    Where several are ``wanted``, the one that shares the longest beginning of the name is taken.
    """
    others = [p for p in sorted(source.parent.iterdir())[:_MOST_FILES] if p.is_file()]
    candidates = [p for p in others if p.name != source.name and wanted(p)]
    if not candidates:
        raise UnreadableModel(f"{source.name} alone is half a model: {what} must lie beside it")
    common = [_shared_beginning(source.name, p.name) for p in candidates]
    best = [p for p, length in zip(candidates, common, strict=True) if length == max(common)]
    if len(best) > 1:
        raise SpecError(
            f"{source.name} has several candidates for {what}: "
            f"{', '.join(p.name for p in best)}; leave one in the folder"
        )
    return best[0]


def _shared_beginning(left: str, right: str) -> int:
    pairs = zip(left, right, strict=False)
    return next((k for k, (a, b) in enumerate(pairs) if a != b), min(len(left), len(right)))


def fit_size(
    build: Callable[[Size], onnx.ModelProto], stated: Size | None, told: Size | None
) -> tuple[onnx.ModelProto, tuple[str, ...]]:
    """Build the graph at the stated size, else the one the source tells, else the first that fits.

    Many formats store weights without a picture size, but a dense layer fits only one of the usual
    ones.
    """
    known = stated or told
    if known:
        return build(known), ()
    first_error: OnnxfrError | None = None
    for size in USUAL_SIZES:
        try:
            model = build(size)
        except UnreadableModel as error:
            first_error = first_error or error
        else:
            text = f"{size[0]}x{size[1]}"
            return model, (f"the file does not tell its picture size; {text} fits and was taken",)
    assert first_error is not None
    raise first_error
