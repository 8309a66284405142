"""A folder of pictures to a folder of crops with the same tree, resumable at any moment.

Crops are PNG unless asked otherwise: JPEG noise is as large as the perturbations studied later, and
would be counted as the model's weakness.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

import cv2

from onnxfr.alignment.aligner import Aligner, Alignment, Outcome, Rejection
from onnxfr.alignment.manifest import (
    JOURNAL,
    MANIFEST,
    Entry,
    check_settings,
    describe,
    encode,
    forget_entries,
    read_entries,
    write_file,
)
from onnxfr.alignment.pool import ordered_map
from onnxfr.data import images
from onnxfr.errors import DataError, StoreError
from onnxfr.types import Pixels

CropFormat = Literal["png", "jpeg"]
_EXTENSION: dict[CropFormat, str] = {"png": ".png", "jpeg": ".jpg"}
_JPEG_QUALITY = 95


@dataclass(frozen=True)
class FolderResult:
    """What became of a folder: every line of the manifest, and how many were made just now."""

    entries: tuple[Entry, ...]
    fresh: int
    manifest: Path

    @property
    def counts(self) -> dict[str, int]:
        """Pictures per outcome, all outcomes named."""
        found = Counter(entry.outcome for entry in self.entries)
        return {str(outcome): found[outcome] for outcome in Outcome}

    @property
    def several(self) -> int:
        """Aligned pictures that show more than one face."""
        return sum(not entry.rejected and entry.faces > 1 for entry in self.entries)


def align_folder(
    source: Path,
    target: Path,
    aligner: Aligner,
    *,
    crop_format: CropFormat = "png",
    workers: int | None = None,
    overwrite: bool = False,
    progress: Callable[[int, int], None] | None = None,
) -> FolderResult:
    """Align every picture below ``source`` into ``target``; what is there already is kept.

    ``progress`` is called with (done, total).
    """
    files = find_pictures(source, target)
    crops = name_crops(files, _EXTENSION[crop_format])
    check_settings(target, _settings(aligner, crop_format), overwrite=overwrite)
    if overwrite:
        forget_entries(target)
    known = read_entries(target)
    done = {
        file: known[file]
        for file in files
        if file in known and (known[file].rejected or (target / known[file].crop).is_file())
    }
    left = [file for file in files if file not in done]

    def work(file: str) -> Entry:
        result = _align_file(source / file, file, aligner)
        if not isinstance(result, Rejection):
            write_file(target / crops[file], _encode(result.pixels, crop_format))
        return describe(file, crops[file], result)

    write_file(target / JOURNAL, encode(done.values()))
    for entry in ordered_map(work, left, workers):
        _append(target / JOURNAL, encode([entry]))
        done[entry.file] = entry
        if progress is not None:
            progress(len(done), len(files))
    entries = tuple(done[file] for file in files)
    write_file(target / MANIFEST, encode(entries, header=True))
    (target / JOURNAL).unlink(missing_ok=True)
    return FolderResult(entries, len(left), target / MANIFEST)


def find_pictures(source: Path, target: Path) -> list[str]:
    """Return the pictures below ``source``, sorted, without those of a target folder inside it."""
    if not source.is_dir():
        raise DataError(f"expected a folder of pictures, found none at {source}")
    inside = target.resolve()
    if inside == source.resolve():
        raise DataError("expected two different folders, got the same one as source and target")
    files = sorted(
        path.relative_to(source).as_posix()
        for path in images.find_pictures(source)
        if inside not in path.resolve().parents
    )
    if not files:
        raise DataError(
            f"{source} holds no pictures; expected files ending in {' '.join(images.SUFFIXES)}"
        )
    return files


def name_crops(files: Sequence[str], extension: str) -> dict[str, str]:
    """Return each file's crop name; pictures that differ in suffix only keep theirs inside.

    So does one that is named like another picture with a suffix added: without its own it would get
    the name of that one's crop.
    """
    stems = {file: Path(file).with_suffix("").as_posix() for file in files}
    shared = Counter(stems.values())
    return {
        file: (file if shared[stem] > 1 or stem in stems else stem) + extension
        for file, stem in stems.items()
    }


def _align_file(path: Path, name: str, aligner: Aligner) -> Alignment:
    try:
        pixels = images.decode(path.read_bytes(), name)
    except (DataError, OSError) as error:
        return Rejection(Outcome.UNREADABLE, str(error))
    return aligner.align(pixels)


def _encode(pixels: Pixels, crop_format: CropFormat) -> bytes:
    options = [cv2.IMWRITE_JPEG_QUALITY, _JPEG_QUALITY] if crop_format == "jpeg" else []
    blue_first = cv2.cvtColor(pixels, cv2.COLOR_RGB2BGR)
    _, data = cv2.imencode(_EXTENSION[crop_format], blue_first, options)
    return bytes(data)


def _append(journal: Path, line: bytes) -> None:
    try:
        with journal.open("ab") as file:
            file.write(line)
    except OSError as error:
        raise StoreError(f"cannot write {journal}: {error.strerror or error}") from None


def _settings(aligner: Aligner, crop_format: CropFormat) -> dict[str, object]:
    return {
        "template": aligner.template.name,
        "height": aligner.size[0],
        "width": aligner.size[1],
        "min_face": aligner.min_face,
        "detector": None if aligner.detector is None else aligner.detector.sha256,
        "format": crop_format,
    }
