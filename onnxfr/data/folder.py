"""A folder of identities, one subfolder each: the lab's own faces. The seed decides the pairs."""

from __future__ import annotations

import logging
import os
from pathlib import Path, PurePosixPath

from onnxfr.data.builder import PairBuilder
from onnxfr.data.drawing import NamePair, draw_genuine, draw_impostor
from onnxfr.data.images import find_pictures
from onnxfr.data.loaders import Request, loader
from onnxfr.data.pairs import ImageSource, PairSet
from onnxfr.errors import DataError

log = logging.getLogger(__name__)

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
    seen: dict[tuple[int, int], str] = {}
    try:
        # Links come last: of a file with two names the one where it lies is kept.
        for person in sorted((c for c in root.iterdir() if c.is_dir()), key=_links_last):
            if person.name.startswith(".") or not _is_text(builder, person.name):
                continue
            if root.resolve().is_relative_to(person.resolve()):
                builder.problem(person.name, "a link to a folder that holds all people; left out")
                continue
            pictures = find_pictures(person)
            for path in sorted(pictures, key=_links_last):
                name = path.relative_to(root).as_posix()
                if not _is_text(builder, name) or not _is_new(builder, seen, name, path):
                    continue
                builder.image(ImageSource(name, identity=person.name, path=path))
                people.setdefault(person.name, []).append(name)
            if not pictures:
                builder.problem(person.name, "a folder without pictures")
    except OSError as error:
        raise DataError(f"{root}: cannot be listed ({error.strerror or error})") from error
    _doubt_people(people)
    return people


def _doubt_people(people: dict[str, list[str]]) -> None:
    """Warn where the folders look like parts of a data set (test, gallery) that hold the people.

    A person may have folders, one for each session: only who has more of them than there are people
    is in doubt.
    """
    for person, names in people.items():
        parts = {PurePosixPath(name).parts[1] for name in names if name.count("/") > 1}
        if len(parts) > len(people):
            log.warning(
                "%s is taken for one person, though it holds %d folders with pictures and there "
                "are only %d such people; if its folders are people, give the place of these",
                *(person, len(parts), len(people)),
            )


def _links_last(path: Path) -> tuple[bool, Path]:
    return path.is_symlink(), path


def _is_new(builder: PairBuilder, seen: dict[tuple[int, int], str], name: str, path: Path) -> bool:
    """Tell whether a file is met for the first time; a face is no second picture of itself."""
    state = path.stat()
    known = seen.setdefault((state.st_dev, state.st_ino), name)
    # Some network drives number no files.
    if known == name or not state.st_ino:
        return True
    builder.problem(name, f"the same file as {known}; left out")
    return False


def _is_text(builder: PairBuilder, name: str) -> bool:
    """Tell whether records can hold a file's name; old archives spell umlauts in other bytes."""
    raw = os.fsencode(name)
    told = raw.decode("utf-8", "replace")
    if told.encode() == raw:
        return True
    builder.problem(told, "its name is not UTF-8; rename it")
    return False
