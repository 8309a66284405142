"""A folder of identities, one subfolder each: the lab's own faces. The seed decides the pairs."""

from __future__ import annotations

import os
from pathlib import Path

from onnxfr.data.builder import PairBuilder
from onnxfr.data.drawing import NamePair, draw_genuine, draw_impostor
from onnxfr.data.images import find_pictures
from onnxfr.data.loaders import Request, loader
from onnxfr.data.pairs import ImageSource, PairSet
from onnxfr.errors import DataError

DEFAULT_LIMIT = 3000
_FOLDS = 10


@loader(
    "folder",
    usage="folder:PATH[,genuine=3000][,impostor=3000]",
    summary="one subfolder of pictures per person; balanced pairs drawn with the seed",
    options=("genuine", "impostor"),
)
def read(request: Request) -> PairSet:
    """Find the pictures and draw pairs of them."""
    root = request.folder()
    genuine = request.count("genuine", DEFAULT_LIMIT)
    impostor = request.count("impostor", genuine) if "impostor" in request.options else None
    return draw_pairs(request.builder(root.name), root, genuine, impostor, request.seed)


def draw_pairs(
    builder: PairBuilder, root: Path, genuine: int, impostor: int | None, seed: int
) -> PairSet:
    """Draw from the identities below ``root``; as many impostor as genuine pairs unless told."""
    people = _find_people(builder, root)
    if len(people) < 2:
        raise DataError(
            f"expected at least two people, one subfolder of pictures each, in {root}; "
            f"found {len(people)}"
        )
    mated = draw_genuine(people, genuine, seed)
    if not mated:
        raise DataError(
            f"expected two pictures of at least one person in {root} for a genuine pair, found one "
            "picture each; add pictures, or list impostor pairs in a csv"
        )
    non_mated = draw_impostor(people, impostor or len(mated), seed)
    _interleave(builder, mated, non_mated)
    return builder.build()


def _interleave(builder: PairBuilder, mated: list[NamePair], non_mated: list[NamePair]) -> None:
    """Add pairs fold by fold, each fold with its share of both classes."""
    folds = _FOLDS if min(len(mated), len(non_mated)) >= _FOLDS else 1
    for fold in range(folds):
        for pairs, same in ((mated, True), (non_mated, False)):
            for left, right in pairs[fold::folds]:
                builder.pair(left, right, same, fold=fold if folds > 1 else None)


def _find_people(builder: PairBuilder, root: Path) -> dict[str, list[str]]:
    people: dict[str, list[str]] = {}
    try:
        for person in sorted(child for child in root.iterdir() if child.is_dir()):
            if person.name.startswith(".") or not _is_text(builder, person.name):
                continue
            for path in find_pictures(person):
                name = path.relative_to(root).as_posix()
                if not _is_text(builder, name):
                    continue
                builder.image(ImageSource(name, identity=person.name, path=path))
                people.setdefault(person.name, []).append(name)
            if person.name not in people:
                builder.problem(person.name, "a folder without pictures")
    except OSError as error:
        raise DataError(f"{root}: cannot be listed ({error.strerror or error})") from error
    return people


def _is_text(builder: PairBuilder, name: str) -> bool:
    """Tell whether records can hold a file's name; old archives spell umlauts in other bytes."""
    raw = os.fsencode(name)
    told = raw.decode("utf-8", "replace")
    if told.encode() == raw:
        return True
    builder.problem(told, "its name is not UTF-8; rename it")
    return False
