"""The pair lists AgeDB-30, CALFW and CPLFW are published and passed around with.

Three shapes, told apart by their first line: ``left right label`` (AgeDB and converted lists); two
lines ``image label`` a pair (CALFW, CPLFW: label 0 is two persons, anything else one, in CALFW the
number of its fold); and LFW's ``name i j``. Impostor lines carry no fold, so folds are dealt out in
order where a list has a multiple of ten pairs of each class, as the official lists have. Who is
shown is read from the names, unless these contradict the labels.
"""

from __future__ import annotations

import re
from dataclasses import replace
from pathlib import Path, PurePosixPath

import numpy as np

from onnxfr.data import lfw
from onnxfr.data.builder import PairBuilder, inside
from onnxfr.data.loaders import Request, loader
from onnxfr.data.pairs import ImageSource, PairSet
from onnxfr.data.text import Line, read_lines
from onnxfr.errors import DataError
from onnxfr.paths import expanded

_FOLDS = 10
_NUMBERED = re.compile(r"(.+)_\d+$")
_AGEDB = re.compile(r"\d+_(.+)_\d+_[mf]$")
_MOST_SLIPS = 0.01
"""Share of pairs in which names may contradict the label before they are taken for no names."""
_USUAL_FOLDERS = ("", "images", "aligned images", "aligned_images")

Entry = tuple[str, str, bool]


@loader(
    "pairlist",
    usage="pairlist:FILE[,images=FOLDER]",
    summary="AgeDB-30, CALFW, CPLFW: a text list of pairs; images beside it unless named",
    options=("images",),
)
def read(request: Request) -> PairSet:
    """Read a list of any of the three shapes."""
    listing = request.file()
    builder = request.builder(listing.stem.lower())
    entries = _parse(read_lines(listing), builder)
    root = _find_images(listing.parent, request.options.get("images"), entries)
    folds = _deal_folds([entry[2] for entry in entries])
    for (left, right, same), fold in zip(entries, folds, strict=True):
        ids = [_image(builder, root, name) for name in (left, right)]
        if ids[0] is None or ids[1] is None:
            missing = left if ids[0] is None else right
            builder.problem(f"{left}|{right}", f"{missing} is not in the image folder")
        else:
            builder.pair(ids[0], ids[1], same, fold=fold)
    return _with_people(builder.build())


def _with_people(pairs: PairSet) -> PairSet:
    """Return the pairs, without identities where folders or numbers were taken for people."""
    names = np.array([image.identity or image.id for image in pairs.images])
    slips = (names[pairs.left] == names[pairs.right]) != pairs.same
    if slips.mean() <= _MOST_SLIPS:
        return pairs
    return replace(pairs, images=tuple(replace(image, identity=None) for image in pairs.images))


def _parse(lines: list[Line], builder: PairBuilder) -> list[Entry]:
    first = lines[0].fields
    if len(first) == 2 and not all(text.isdecimal() for text in first):
        return _two_lines_a_pair(lines, builder)
    if len(first) == 3 and first[2] in ("0", "1", "-1") and not first[1].isdecimal():
        return _one_line_a_pair(lines, builder)
    return _lfw_style(lines, builder)


def _one_line_a_pair(lines: list[Line], builder: PairBuilder) -> list[Entry]:
    entries = []
    for line in lines:
        match line.fields:
            case (left, right, ("0" | "1" | "-1") as label):
                entries.append((left, right, label == "1"))
            case _:
                builder.problem(str(line), "expected `left right 0|1`")
    return entries


def _two_lines_a_pair(lines: list[Line], builder: PairBuilder) -> list[Entry]:
    if len(lines) % 2:
        builder.problem(str(lines[-1]), "a first image without its second")
    entries = []
    for one, two in zip(lines[::2], lines[1::2], strict=False):
        if len(one.fields) != 2 or len(two.fields) != 2 or one.fields[1] != two.fields[1]:
            builder.problem(str(one), "expected two lines `image label` with one label")
        else:
            entries.append((one.fields[0], two.fields[0], one.fields[1] != "0"))
    return entries


def _lfw_style(lines: list[Line], builder: PairBuilder) -> list[Entry]:
    entries = []
    header = all(text.isdecimal() for text in lines[0].fields)
    for line in lines[header:]:
        parsed = lfw.parse(line)
        if parsed is None:
            builder.problem(str(line), "expected `left right label`, `image label` or `name i j`")
            continue
        name, i, other, j, same = parsed
        entries.append((f"{name}/{name}_{i:04d}.jpg", f"{other}/{other}_{j:04d}.jpg", same))
    return entries


def _deal_folds(same: list[bool]) -> list[int | None]:
    totals = {kind: same.count(kind) for kind in (True, False)}
    if not all(total and total % _FOLDS == 0 for total in totals.values()):
        return [None] * len(same)
    seen = {True: 0, False: 0}
    folds: list[int | None] = []
    for kind in same:
        folds.append(seen[kind] * _FOLDS // totals[kind])
        seen[kind] += 1
    return folds


def _find_images(beside: Path, named: str | None, entries: list[Entry]) -> Path:
    if named is not None:
        folder = expanded(named)
        folder = folder if folder.is_absolute() else beside / folder
        if not folder.is_dir():
            raise DataError(f"expected images= a folder, but {folder} is none")
        return folder
    probes = [name for entry in entries[:20] for name in entry[:2]]
    for name in _USUAL_FOLDERS:
        if any((beside / name / probe).is_file() for probe in probes if inside("", probe)):
            return beside / name
    return beside


def _image(builder: PairBuilder, root: Path, listed: str) -> str | None:
    name = inside("", listed)
    if name is None or not builder.has_file(root / name):
        return None
    return builder.image(ImageSource(name, identity=_identity(name), path=root / name))


def _identity(name: str) -> str | None:
    """Who is shown: AgeDB's ``12_Person_35_m``, LFW's ``Person_0001``, else the folder."""
    path = PurePosixPath(name)
    match = _AGEDB.match(path.stem) or _NUMBERED.match(path.stem)
    return match[1] if match else path.parent.name or None
