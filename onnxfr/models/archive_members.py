"""Takes single files out of wheels, sdists and npm packages without unpacking the rest.

Names inside an archive choose what is read, never where it is written, except below a tree's own
folder, and there only after they were checked. Sizes are bounded before and while reading.
"""

from __future__ import annotations

import gzip
import lzma
import posixpath
import tarfile
import zipfile
import zlib
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path, PureWindowsPath
from typing import IO

from onnxfr.errors import DownloadError, UnsafeFile

MAX_ARCHIVE_CONTENT = 8 * 2**30
_BLOCK = 1 << 20
_DAMAGE = (
    zipfile.BadZipFile,
    tarfile.TarError,
    gzip.BadGzipFile,
    zlib.error,
    lzma.LZMAError,
    EOFError,
    RuntimeError,
)


@dataclass(frozen=True)
class Member:
    """One regular file of an archive."""

    name: str
    size: int
    open: Callable[[], IO[bytes]]


def same_file(member: str, wanted: str) -> bool:
    """Compare names; sdists and npm packages put all below one folder, which may be left out."""
    return member == wanted or member.partition("/")[2] == wanted


def tree_name(member: str, prefix: str) -> str | None:
    """Return a member's name below ``prefix`` (ends in ``/``), or None if it is not there."""
    for name in (member, member.partition("/")[2]):
        if name.startswith(prefix) and name != prefix:
            rest = name.removeprefix(prefix)
            clean = posixpath.normpath(rest)
            if clean != rest or rest.startswith(("/", "..")) or PureWindowsPath(rest).drive:
                raise UnsafeFile(f"the archive names a file outside its folder: {member!r}")
            if "\\" in rest:
                raise UnsafeFile(f"the archive names a file with a backslash: {member!r}")
            return rest
    return None


@contextmanager
def members(archive: Path) -> Iterator[Iterator[Member]]:
    """Iterate over the regular files of a zip or tar archive; damage is a DownloadError."""
    try:
        if zipfile.is_zipfile(archive):
            with zipfile.ZipFile(archive) as opened:
                yield _zip_members(opened)
        elif tarfile.is_tarfile(archive):
            with tarfile.open(archive) as packed:
                yield _tar_members(packed)
        else:
            raise DownloadError(f"{archive.name}: expected a zip or tar archive, got neither")
    except _DAMAGE as error:
        raise DownloadError(f"{archive.name}: the archive is damaged ({error})") from error


def copy(member: Member, target: Path, limit: int) -> None:
    """Write a member's bytes to ``target``, at most ``limit`` of them."""
    if member.size > limit:
        raise UnsafeFile(f"{member.name}: {member.size} bytes announced, at most {limit} expected")
    written = 0
    with member.open() as source, target.open("xb") as out:
        while block := source.read(_BLOCK):
            written += len(block)
            if written > limit:
                raise UnsafeFile(f"{member.name}: more than the {limit} bytes expected")
            out.write(block)


def _zip_members(opened: zipfile.ZipFile) -> Iterator[Member]:
    for info in opened.infolist():
        if not info.is_dir():
            yield Member(info.filename, info.file_size, partial(opened.open, info))


def _tar_members(packed: tarfile.TarFile) -> Iterator[Member]:
    total = 0
    for info in packed:
        total += info.size
        if total > MAX_ARCHIVE_CONTENT:
            raise UnsafeFile("the archive unpacks to an absurd size")
        if info.isreg():
            yield Member(info.name, info.size, partial(_open_tar, packed, info))


def _open_tar(packed: tarfile.TarFile, info: tarfile.TarInfo) -> IO[bytes]:
    opened = packed.extractfile(info)
    if opened is None:
        raise DownloadError(f"{info.name}: not a regular file")
    return opened
