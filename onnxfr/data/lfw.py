"""Labeled Faces in the Wild: a folder per person, official ``pairs.txt`` (Huang et al., 2007)."""

from __future__ import annotations

from pathlib import Path

from onnxfr.data.builder import PairBuilder, inside
from onnxfr.data.images import SUFFIXES
from onnxfr.data.loaders import Request, loader
from onnxfr.data.pairs import ImageSource, PairSet
from onnxfr.data.text import Line, read_lines
from onnxfr.errors import DataError
from onnxfr.paths import expanded

_USUAL_NAMES = ("lfw_112", "lfw", "lfw-deepfunneled", "lfw_funneled", "lfw-align-128")
_PUBLISHED_SIZE = (250, 250)  # whole heads, however funneled


@loader(
    "lfw",
    usage="lfw:PATH[,pairs=FILE][,folds=1-10]",
    summary="LFW: PATH has a folder per person, or holds the folder that has; official pairs.txt",
    options=("folds",),
    places=("pairs",),
)
def read(request: Request) -> PairSet:
    """Read the protocol file and resolve its pairs in the tree."""
    place = request.folder()
    lines = read_lines(_find_protocol(place, request.options.get("pairs")))
    per_fold, lines = _take_header(lines)
    tree = _find_tree(place, lines)
    wanted = _fold_range(request.options.get("folds"))
    if wanted is not None and per_fold is None:
        raise DataError("folds= needs a pairs file that starts with `10 300`; this one does not")
    if wanted is not None and per_fold is not None and wanted.stop > per_fold[0]:
        raise DataError(f"expected folds= from 1 to {per_fold[0]}, got {request.options['folds']}")
    builder = request.builder("lfw")
    builder.unaligned_size = _PUBLISHED_SIZE
    announced = per_fold[0] * per_fold[1] if per_fold else len(lines)
    if announced != len(lines):
        builder.problem("pairs file", f"announces {announced} pairs, holds {len(lines)}")
    for position, line in enumerate(lines):
        fold = position // per_fold[1] if per_fold else None
        if wanted is None or (fold is not None and fold in wanted):
            _add(builder, tree, line, fold)
    return builder.build()


def parse(line: Line) -> tuple[str, int, str, int, bool] | None:
    """Read ``name i j`` (one person) or ``nameA i nameB j`` (two); None if it is neither."""
    match line.fields:
        case (name, i, j) if i.isdecimal() and j.isdecimal():
            return name, int(i), name, int(j), True
        case (name, i, other, j) if i.isdecimal() and j.isdecimal():
            return name, int(i), other, int(j), False
    return None


def _add(builder: PairBuilder, tree: Path, line: Line, fold: int | None) -> None:
    parsed = parse(line)
    if parsed is None:
        return builder.problem(str(line), "expected `name i j` or `nameA i nameB j`")
    name, i, other, j, same = parsed
    ids = []
    for person, number in ((name, i), (other, j)):
        found = _find_image(builder, tree, person, number)
        if found is None:
            wanted = f"{person}/{person}_{number:04d}.jpg"
            return builder.problem(str(line), f"{wanted} is not in the image folder")
        ids.append(builder.image(ImageSource(found, identity=person, path=tree / found)))
    return builder.pair(ids[0], ids[1], same, fold=fold)


def _find_image(builder: PairBuilder, tree: Path, person: str, number: int) -> str | None:
    stem = inside(person, f"{person}_{number:04d}")
    if stem is None:
        return None
    names = (stem + suffix for suffix in SUFFIXES)
    return next((name for name in names if builder.has_file(f"{tree}/{name}")), None)


def _take_header(lines: list[Line]) -> tuple[tuple[int, int] | None, list[Line]]:
    """Return (folds, pairs a fold) from ``10 300`` or ``1000``, and the lines after it."""
    head = lines[0].fields
    if len(head) > 2 or not all(text.isdecimal() for text in head):
        return None, lines
    folds, per_class = (1, int(head[0])) if len(head) == 1 else (int(head[0]), int(head[1]))
    if folds < 1 or per_class < 1:
        raise DataError(f"pairs file: the header {lines[0]} announces no pairs")
    return (folds, 2 * per_class), lines[1:]


def _find_protocol(place: Path, named: str | None) -> Path:
    if named is not None:
        return expanded(named).absolute()
    for folder in (place, place.parent):
        if (folder / "pairs.txt").is_file():
            return folder / "pairs.txt"
    raise DataError(f"no pairs.txt in {place} or its parent folder; name it: lfw:PATH,pairs=FILE")


def _find_tree(place: Path, lines: list[Line]) -> Path:
    """Return the folder of person folders: the place itself, or one folder in it."""
    people = [parsed[0] for parsed in map(parse, lines) if parsed is not None]
    if any((place / person).is_dir() for person in people):
        return place
    usual = [place / name for name in _USUAL_NAMES]
    for child in usual:
        if any((child / person).is_dir() for person in people[:1]):
            return child
    children = sorted(child for child in place.iterdir() if child.is_dir())
    fitting = [c for c in children if any((c / person).is_dir() for person in people)]
    if len(fitting) == 1:
        return fitting[0]
    seen = f"several: {', '.join(child.name for child in fitting)}" if fitting else "none"
    raise DataError(
        f"expected a folder with one folder per person of the pairs file in {place}, found {seen}; "
        "name the folder itself"
    )


def _fold_range(text: str | None) -> range | None:
    if text is None:
        return None
    first, _, last = text.partition("-")
    known = first.isdecimal() and (last or first).isdecimal()
    if not known or not 1 <= int(first) <= int(last or first):
        raise DataError(f"expected folds= a number or a range such as 1 or 1-3, got {text!r}")
    return range(int(first) - 1, int(last or first))
