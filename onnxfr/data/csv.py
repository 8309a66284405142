"""Pairs in a CSV file: ``left,right,same`` and, where known, fold, group, landmarks, identities.

Names are relative to the CSV's folder and may not leave it through ``..``; whoever means a file
elsewhere writes its absolute path, which then is the image's id as it stands.
"""

from __future__ import annotations

import csv
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from onnxfr.data.builder import PairBuilder, inside
from onnxfr.data.loaders import Request, loader
from onnxfr.data.pairs import ImageSource, PairSet
from onnxfr.data.text import read_text
from onnxfr.errors import DataError

_NEEDED = ("left", "right", "same")
_OPTIONAL = (
    "fold",
    "group",
    "left_landmarks",
    "right_landmarks",
    "left_identity",
    "right_identity",
)
_BEYOND = "beyond"
"""Where a row keeps what stands behind its last column."""
_FOLD_DIGITS = 9
_SAME = {"1": True, "true": True, "yes": True, "0": False, "false": False, "no": False}


class _BadRow(Exception):
    """Why a row cannot be used."""


@loader(
    "csv",
    usage="csv:FILE",
    summary="columns left,right,same[,fold,group,left_landmarks,right_landmarks,...]",
)
def read(request: Request) -> PairSet:
    """Read the rows."""
    path = request.file()
    lines = read_text(path).splitlines()
    rows = csv.DictReader(lines, restkey=_BEYOND, skipinitialspace=True)
    columns = [(name or "").strip().lower() for name in rows.fieldnames or ()]
    _check_columns(path, columns)
    rows.fieldnames = columns
    builder = request.builder(path.stem)
    try:
        for row in rows:
            where, beyond = f"line {rows.line_num}", row.pop(_BEYOND, ())
            if any(field.strip() for field in beyond):
                builder.problem(where, "more fields than columns; quote what holds a comma")
            else:
                _add(builder, path.parent, where, row)
    except csv.Error as error:
        raise DataError(f"{path.name}, line {rows.line_num}: {error}") from error
    return builder.build()


def _check_columns(path: Path, columns: list[str]) -> None:
    missing = [name for name in _NEEDED if name not in columns]
    unknown = [name for name in columns if name not in (*_NEEDED, *_OPTIONAL)]
    if missing or unknown or len(set(columns)) < len(columns):
        raise DataError(
            f"{path.name}: expected the columns {','.join(_NEEDED)} and any of "
            f"{','.join(_OPTIONAL)} in the first line, got {','.join(columns) or 'nothing'}"
        )


def _add(builder: PairBuilder, base: Path, where: str, row: dict[str, str | None]) -> None:
    try:
        same = _SAME.get((row["same"] or "").strip().lower())
        if same is None:
            raise _BadRow(f"expected same 1 or 0, got {row['same']!r}")
        fold = (row.get("fold") or "").strip()
        if fold and not (fold.isdecimal() and len(fold) <= _FOLD_DIGITS):
            raise _BadRow(f"expected fold a whole number of few digits, got {fold[:60]!r}")
        _check_people(row, same)
        left, right = (_image(builder, base, row, side) for side in ("left", "right"))
    except _BadRow as bad:
        return builder.problem(where, str(bad))
    group = (row.get("group") or "").strip() or None
    return builder.pair(left, right, same, fold=int(fold) if fold else None, group=group)


def _check_people(row: dict[str, str | None], same: bool) -> None:
    """Refuse a pair whose label its identities contradict: intervals are made of these."""
    left, right = (_identity(row, side) for side in ("left", "right"))
    if left and right and (left == right) != same:
        raise _BadRow(f"same is {int(same)}, but the identities are {left!r} and {right!r}")


def _identity(row: dict[str, str | None], side: str) -> str | None:
    return (row.get(f"{side}_identity") or "").strip() or None


def _image(builder: PairBuilder, base: Path, row: dict[str, str | None], side: str) -> str:
    written = (row[side] or "").strip()
    if not written:
        raise _BadRow(f"no name in column {side}")
    absolute = Path(written).is_absolute()
    name = written if absolute else inside("", written)
    if name is None:
        raise _BadRow(f"{written} leaves the folder of the CSV; write an absolute path instead")
    path = Path(name) if absolute else base / name
    if not builder.has_file(path):
        raise _BadRow(f"{written} does not exist")
    landmarks = _landmarks((row.get(f"{side}_landmarks") or "").strip())
    return builder.image(ImageSource(name, _identity(row, side), path, landmarks=landmarks))


def _landmarks(text: str) -> NDArray[np.float32] | None:
    """Read ``x y x y ...`` (blanks or semicolons between) as ``(5, 2)``: what templates have."""
    if not text:
        return None
    try:
        numbers = np.array(text.replace(";", " ").split(), dtype=np.float32)
    except ValueError:
        raise _BadRow(f"expected landmarks `x y x y ...`, got {text[:60]!r}") from None
    if numbers.size != 10 or not np.isfinite(numbers).all():
        raise _BadRow(
            "expected five points `x y` (eyes, nose tip, mouth corners), "
            f"got {numbers.size} numbers"
        )
    points = numbers.reshape(5, 2)
    if (points == points[0]).all():
        raise _BadRow("expected five points `x y` of a face, got one place five times")
    return points
