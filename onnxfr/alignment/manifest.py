"""The table an aligned folder carries: one line per picture, what became of it and why.

Lines are appended to a journal while work goes on, each after its crop is in place, and become the
sorted ``manifest.csv`` at the end. A picture is done when its line is there, so a killed run goes
on where it stopped.
"""

from __future__ import annotations

import csv
import io
import json
import os
from collections.abc import Iterable
from dataclasses import asdict, dataclass, fields
from pathlib import Path

from onnxfr.alignment.aligner import Alignment, Outcome, Rejection
from onnxfr.errors import AlignmentError, StoreError

MANIFEST, JOURNAL, SETTINGS = "manifest.csv", ".manifest.part.csv", "alignment.json"


@dataclass(frozen=True)
class Entry:
    """One line: source and crop relative to their folders; landmarks in the source picture."""

    file: str
    outcome: str
    crop: str
    faces: int
    score: str
    box: str
    landmarks: str
    reason: str

    @property
    def rejected(self) -> bool:
        """Whether the picture gave no crop."""
        return self.outcome != Outcome.ALIGNED


COLUMNS = tuple(field.name for field in fields(Entry))


def describe(file: str, crop: str, result: Alignment) -> Entry:
    """Return the manifest line of one result."""
    face = result.face
    rejected = isinstance(result, Rejection)
    return Entry(
        file=file,
        outcome=str(result.outcome),
        crop="" if rejected else crop,
        faces=result.faces,
        score="" if face is None else f"{face.score:.4f}",
        box="" if face is None else _numbers(face.box),
        landmarks="" if face is None else _numbers(face.landmarks.ravel().tolist()),
        reason=result.reason if isinstance(result, Rejection) else "",
    )


def read_entries(folder: Path) -> dict[str, Entry]:
    """Return the finished lines of a folder by source file; a torn last line is left out."""
    entries: dict[str, Entry] = {}
    for name in (MANIFEST, JOURNAL):
        place = folder / name
        if not place.is_file():
            continue
        text = place.read_text(encoding="utf-8", errors="surrogateescape")
        for row in csv.reader(io.StringIO(text[: text.rfind("\n") + 1])):
            if len(row) == len(COLUMNS) and row != list(COLUMNS) and row[3].isdigit():
                entries[row[0]] = Entry(row[0], row[1], row[2], int(row[3]), *row[4:])
    return entries


def encode(entries: Iterable[Entry], *, header: bool = False) -> bytes:
    """Return manifest lines as CSV."""
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    if header:
        writer.writerow(COLUMNS)
    writer.writerows(list(asdict(entry).values()) for entry in entries)
    return text.getvalue().encode("utf-8", errors="surrogateescape")


def forget_entries(folder: Path) -> None:
    """Drop all lines, so that every picture is looked at again."""
    try:
        for name in (MANIFEST, JOURNAL):
            (folder / name).unlink(missing_ok=True)
    except OSError as error:
        raise StoreError(f"cannot clear {folder}: {error.strerror or error}") from None


def check_settings(folder: Path, settings: dict[str, object], *, overwrite: bool) -> None:
    """Refuse to mix crops of different settings in one folder; remember the settings."""
    place = folder / SETTINGS
    if place.is_file() and not overwrite:
        try:
            found = json.loads(place.read_text(encoding="utf-8"))
        except ValueError:
            found = None
        if found != settings:
            raise AlignmentError(
                f"{folder} holds crops made with other settings ({found}, now {settings}); "
                "choose another folder or pass --overwrite"
            )
    write_file(place, json.dumps(settings, indent=2).encode() + b"\n")


def write_file(place: Path, data: bytes) -> None:
    """Write a file whole or not at all."""
    temporary = place.with_name(f".{place.name}.{os.getpid()}.tmp")
    try:
        place.parent.mkdir(parents=True, exist_ok=True)
        try:
            temporary.write_bytes(data)
            temporary.replace(place)
        finally:
            temporary.unlink(missing_ok=True)
    except OSError as error:
        raise StoreError(
            f"cannot write {place}: {error.strerror or error}; check free space and permissions"
        ) from None


def _numbers(values: Iterable[float]) -> str:
    return " ".join(f"{value:.2f}" for value in values)
