"""Fixed adversarial suites: PNG pictures and a manifest, made once, scored again and again.

A manifest comes from outside and is believed in nothing: names that leave the folder are refused,
and every picture must have the sha256 it was made with, because a suite that changed silently would
make two models' scores incomparable.
"""

from __future__ import annotations

import hashlib
import json
from pathlib import Path
from typing import Annotated, Any, Literal, Self

from pydantic import BaseModel, ConfigDict, Field, ValidationError, model_validator

from onnxfr.data.builder import inside
from onnxfr.data.loaders import Request, loader
from onnxfr.data.pairs import ImageSource, PairSet
from onnxfr.errors import DataError, UnsafeFile
from onnxfr.types import Goal

MANIFEST = "manifest.json"
LABEL = r"[A-Za-z0-9][A-Za-z0-9._-]{0,79}"
"""What a suite may be called: it becomes the name of a data set and part of threshold origins."""
_MOST_BYTES = 256 * 2**20

Sha256 = Annotated[str, Field(pattern=r"^[0-9a-f]{64}$")]
Label = Annotated[str, Field(pattern=f"^{LABEL}$")]


class _Part(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True, allow_inf_nan=False)


class SuiteFile(_Part):
    """One picture, by its name below the suite's folder."""

    file: str = Field(min_length=1, max_length=500)
    sha256: Sha256


class SuiteSurrogate(_Part):
    """A model the pictures were made with, and the threshold it had."""

    name: str
    sha256: Sha256
    licence: str
    threshold: float = Field(ge=-1.0, le=1.0)
    threshold_origin: str


class SuitePair(_Part):
    """One game: what is shown instead of ``clean``, and whom it is compared with."""

    id: str = Field(min_length=1)
    goal: Goal
    clean: SuiteFile
    adversarial: SuiteFile
    reference: SuiteFile
    left_identity: str | None = None
    right_identity: str | None = None
    won_surrogates: int = Field(ge=0)
    """How many of the surrogates the 8-bit picture fools."""


class SuiteManifest(_Part):
    """Everything about a suite but its pixels."""

    format: Literal["onnxfr-suite"] = "onnxfr-suite"
    version: Literal[1] = 1
    name: Label
    made_with: str
    attack: str
    parameters: dict[str, Any]
    norm: Literal["linf", "l2"]
    eps: float = Field(gt=0.0, le=1.0)
    seed: int
    mode: str
    height: int = Field(ge=8, le=4096)
    width: int = Field(ge=8, le=4096)
    template: str
    data: str
    data_fingerprint: str
    surrogates: tuple[SuiteSurrogate, ...] = Field(min_length=1)
    licence: str
    pairs: tuple[SuitePair, ...] = Field(min_length=1)

    @model_validator(mode="after")
    def _each_pair_once(self) -> Self:
        """A pair listed twice would count twice in every rate."""
        seen: set[tuple[str, ...]] = set()
        for pair in self.pairs:
            names = {("id", pair.id), ("files", pair.adversarial.file, pair.reference.file)}
            if names & seen:
                raise ValueError(f"the pair {pair.id!r} is listed twice")
            seen |= names
        return self


@loader(
    "suite",
    usage="suite:PATH[,part=adversarial|clean]",
    summary="a suite made by 'onnxfr suite make': adversarial pictures, or the clean originals",
    options=("part",),
)
def read(request: Request) -> PairSet:
    """Read a suite as pairs: the changed (or clean) picture against its reference."""
    manifest, files = open_suite(request.folder())
    part = request.choice("part", ("adversarial", "clean"))
    builder = request.builder(manifest.name if part == "adversarial" else f"{manifest.name}-clean")
    if builder.aligned is None:
        builder.aligned = True
    for pair in manifest.pairs:
        chosen = pair.adversarial if part == "adversarial" else pair.clean
        left = ImageSource(chosen.file, identity=pair.left_identity, path=files[chosen.file])
        right = ImageSource(
            pair.reference.file, identity=pair.right_identity, path=files[pair.reference.file]
        )
        builder.pair(builder.image(left), builder.image(right), pair.goal is Goal.DODGE)
    return builder.build()


def open_suite(folder: Path) -> tuple[SuiteManifest, dict[str, Path]]:
    """Return a suite's manifest and where its pictures are, each of them checked."""
    manifest = _read_manifest(folder / MANIFEST)
    files: dict[str, Path] = {}
    checked: set[tuple[str, str]] = set()
    for pair in manifest.pairs:
        for entry in (pair.clean, pair.adversarial, pair.reference):
            if (entry.file, entry.sha256) not in checked:
                files[entry.file] = _checked(folder, entry)
                checked.add((entry.file, entry.sha256))
    return manifest, files


def _read_manifest(path: Path) -> SuiteManifest:
    try:
        if path.stat().st_size > _MOST_BYTES:
            raise UnsafeFile(f"{path} is larger than {_MOST_BYTES} bytes; this is no manifest")
        raw = json.loads(path.read_text(encoding="utf-8"))
    except FileNotFoundError:
        raise DataError(
            f"no {MANIFEST} in {path.parent}; expected a folder made by 'onnxfr suite make'"
        ) from None
    except (OSError, UnicodeDecodeError, json.JSONDecodeError, RecursionError) as error:
        raise DataError(f"{path} is not a readable manifest: {error}") from None
    try:
        return SuiteManifest.model_validate(raw)
    except ValidationError as error:
        problems = "; ".join(
            f"{'.'.join(str(p) for p in e['loc'])}: {e['msg']}" for e in error.errors()[:3]
        )
        raise DataError(f"{path} is not a valid suite manifest: {problems}") from None


def _checked(folder: Path, entry: SuiteFile) -> Path:
    """Return the path of a picture, which lies in the folder and is the one that was made."""
    name = inside("", entry.file)
    if name is None or name != entry.file:
        raise UnsafeFile(f"the manifest names {entry.file!r}, which leaves the suite's folder")
    path = folder / name
    if not path.resolve().is_relative_to(folder.resolve()):
        raise UnsafeFile(f"{entry.file} is a link out of the suite's folder; copy the picture")
    try:
        if path.exists() and not path.is_file():
            raise UnsafeFile(f"{entry.file} of the suite {folder} is no regular file")
        found = hashlib.sha256(path.read_bytes()).hexdigest()
    except OSError as error:
        raise DataError(
            f"{entry.file} of the suite {folder} cannot be read ({error.strerror or error}); "
            "get the whole suite again"
        ) from None
    if found != entry.sha256:
        raise DataError(
            f"{entry.file} is not the picture the suite was made with: expected sha256 "
            f"{entry.sha256[:12]}..., found {found[:12]}...; get the suite again"
        )
    return path
