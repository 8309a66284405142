"""Writing a file so that a crash leaves the old content or the new one, never a mixture."""

from __future__ import annotations

import contextlib
import errno
import os
import secrets
import shutil
from collections.abc import Iterator
from pathlib import Path

from filelock import FileLock, Timeout

from onnxfr.errors import StoreError

TEMPORARY = ".tmp-"
"""How names of unfinished files start; whoever owns the folder may delete them."""


_KEPT = ", finished cells are kept"


def write_atomically(path: Path, data: bytes, *, kept: str = _KEPT) -> None:
    """Write under a temporary name, flush to the disk, rename, flush the folder."""
    with explained(path, kept):
        path.parent.mkdir(parents=True, exist_ok=True)
        temporary = path.with_name(f"{TEMPORARY}{path.name}-{secrets.token_hex(6)}")
        try:
            with temporary.open("wb") as file:
                file.write(data)
                file.flush()
                os.fsync(file.fileno())
            temporary.replace(path)
        except BaseException:
            with contextlib.suppress(OSError):
                temporary.unlink()
            raise
        _flush_folder(path.parent)


def remove_temporaries(folder: Path) -> int:
    """Delete what killed writers left in ``folder``; return how many files that were."""
    removed = 0
    for path in folder.glob(f"{TEMPORARY}*") if folder.is_dir() else []:
        with contextlib.suppress(OSError):
            path.unlink()
            removed += 1
    return removed


@contextlib.contextmanager
def making(folder: Path) -> Iterator[Path]:
    """Give one process at a time an empty folder that becomes ``folder`` when all went well.

    It is made before the work, so that a bad place costs none.
    """
    part = folder.with_name(f".{folder.name}.part")
    with explained(folder, kept=""):
        part.mkdir(parents=True, exist_ok=True)
        lock = FileLock(part / "lock")
        try:
            lock.acquire(blocking=False)
        except Timeout:
            raise StoreError(
                f"another process is making {folder}; wait for it, or choose another folder"
            ) from None
    try:
        fresh = part / "fresh"
        shutil.rmtree(fresh, ignore_errors=True)  # what a killed process left
        with explained(folder, kept=""):
            fresh.mkdir()
        yield fresh
        with explained(folder, kept=""):
            if folder.exists():
                folder.rmdir()
            fresh.replace(folder)
    finally:
        shutil.rmtree(part, ignore_errors=True)
        lock.release()


@contextlib.contextmanager
def explained(path: Path, kept: str = _KEPT) -> Iterator[None]:
    """Turn an operating-system error about ``path`` into a StoreError that says what to do."""
    try:
        yield
    except OSError as error:
        raise StoreError(f"cannot write {path}: {_why(error, kept)}") from error


def _why(error: OSError, kept: str) -> str:
    if error.errno in (errno.ENOSPC, errno.EDQUOT):
        return f"the disk is full; free some space and run again{kept}"
    if error.errno == errno.EFBIG:
        return f"the file size limit is reached; raise it and run again{kept}"
    if error.errno in (errno.EROFS, errno.EACCES, errno.EPERM):
        return "the folder is read-only; choose another with -o or change its permissions"
    if error.errno in (errno.ENOTDIR, errno.EEXIST):
        return "a file is where a folder is needed; choose another folder with -o"
    return f"{error.strerror or error}{kept}"


def _flush_folder(folder: Path) -> None:
    # Windows cannot open folders; there the rename alone has to do.
    if os.name != "posix":
        return
    handle = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)
