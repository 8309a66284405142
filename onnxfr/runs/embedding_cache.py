"""Embeddings kept on disk by content, so that no image passes through the same model twice.

One folder per (model sha, view) holds pairs of append-only files: ``.dat`` has float32 rows,
``.idx`` the digest and checksum of each row, written after it. Every writing process owns one such
pair for its lifetime through an operating-system lock, which a killed process gives back by dying;
a torn tail is cut off by the next owner and never read. A cache that cannot be written costs speed,
not correctness.
"""

from __future__ import annotations

import hashlib
import logging
import os
import threading
import zlib
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
from filelock import FileLock, Timeout
from numpy.typing import NDArray

from onnxfr.errors import StoreError
from onnxfr.types import Embeddings

log = logging.getLogger(__name__)

_ENTRY = np.dtype([("digest", "V16"), ("crc", "<u4")])


class EmbeddingCache:
    """All spaces below one folder."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self._spaces: dict[tuple[str, str], Space] = {}

    def space(self, model_sha256: str, view: str = "") -> Space:
        """Return the space of one model and one view of the images."""
        key = (model_sha256, view)
        if key not in self._spaces:
            name = hashlib.sha256("\x1f".join(key).encode()).hexdigest()[:40]
            self._spaces[key] = Space(self.root / name)
        return self._spaces[key]

    def close(self) -> None:
        """Give back every file owned for writing."""
        for space in self._spaces.values():
            space.close()
        self._spaces.clear()


class Space:
    """Embeddings of one model, found by image hash; safe for threads and for other processes."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self._guard = threading.RLock()
        self._where: dict[bytes, tuple[int, int]] = {}
        self._spare: dict[bytes, list[tuple[int, int]]] = {}
        """Earlier places of what two processes wrote, in case the last is damaged."""
        self._segments: list[_Segment] = []
        self._writer: _Writer | None = None
        self._writable = True

    def find(self, keys: Sequence[str]) -> tuple[Embeddings | None, NDArray[np.bool_]]:
        """Return one row per key and which rows are known; None when none is.

        Rows that fail their checksum count as unknown and are forgotten, unless they were written
        twice.
        """
        digests = [_digest(key) for key in keys]
        found = np.zeros(len(keys), dtype=np.bool_)
        with self._guard:
            if any(digest not in self._where for digest in digests):
                self._refresh()
            places = [self._where.get(digest) for digest in digests]
            known = [place for place in places if place is not None]
            if not known:
                return None, found
            rows = np.zeros((len(keys), self._segments[known[0][0]].dim), dtype=np.float32)
            for number, segment in enumerate(self._segments):
                at = [i for i, place in enumerate(places) if place and place[0] == number]
                if not at:
                    continue
                values, good = segment.read([places[i][1] for i in at])  # type: ignore[index]
                if segment.dim != rows.shape[1]:
                    good = np.zeros(len(at), dtype=np.bool_)
                else:
                    rows[at] = values
                found[at] = good
                again = [int(i) for i in np.asarray(at)[~good] if self._forget(digests[int(i)])]
                spare, kept = self.find([keys[i] for i in again]) if again else (None, found)
                if spare is not None and spare.shape[1] == rows.shape[1]:
                    rows[again], found[again] = spare, kept
        return rows, found

    def _forget(self, digest: bytes) -> bool:
        """Drop a damaged row; tell whether there is another place to look."""
        self._where.pop(digest, None)
        spare = self._spare.get(digest)
        if spare:
            self._where[digest] = spare.pop()
        return digest in self._where

    def get(self, keys: Sequence[str]) -> Embeddings:
        """Return the embeddings of keys that are all known."""
        rows, found = self.find(keys)
        if not found.all() or rows is None:
            raise StoreError(
                f"{int((~found).sum())} of {len(keys)} embeddings are not in the cache "
                f"{self.folder}; embed them first"
            )
        return rows

    def put(self, keys: Sequence[str], rows: Embeddings) -> None:
        """Keep rows under keys; keys that are known already are left as they are."""
        if len(keys) != len(rows):
            raise StoreError(
                f"expected one embedding per key, got {len(rows)} for {len(keys)} keys"
            )
        with self._guard:
            fresh: dict[bytes, int] = {}
            for i, key in enumerate(keys):
                digest = _digest(key)
                if digest not in self._where:
                    fresh.setdefault(digest, i)
            if not fresh or not self._writable:
                return
            values = np.ascontiguousarray(rows[list(fresh.values())], dtype="<f4")
            try:
                if self._writer is None:
                    self._writer = _Writer.claim(self.folder, values.shape[1])
                self._writer.append(list(fresh), values)
            except OSError as error:
                # A half-written row would misplace every later one, so this process writes no more.
                self._writable = False
                self.close()
                log.warning("embeddings are not cached any more in %s: %s", self.folder, error)
            self._refresh()

    def close(self) -> None:
        """Give back the file owned for writing."""
        with self._guard:
            if self._writer is not None:
                self._writer.close()
                self._writer = None

    def __len__(self) -> int:
        with self._guard:
            self._refresh()
            return len(self._where)

    def _refresh(self) -> None:
        seen = {segment.path for segment in self._segments}
        for path in sorted(self.folder.glob("*.idx")) if self.folder.is_dir() else []:
            if path not in seen:
                self._segments.append(_Segment(path))
        for number, segment in enumerate(self._segments):
            first, digests = segment.grow()
            for row, digest in enumerate(digests, first):
                if digest in self._where:
                    self._spare.setdefault(digest, []).append(self._where[digest])
                self._where[digest] = (number, row)


class _Segment:
    """The readable side of one file pair."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.dim = int(path.stem.split("-")[0])
        self._crc: NDArray[np.uint32] = np.zeros(0, dtype=np.uint32)

    def grow(self) -> tuple[int, list[bytes]]:
        """Read the index entries that appeared since the last call."""
        first = len(self._crc)
        try:
            whole = _whole_rows(self.path, self.dim)
            if whole <= first:
                return first, []
            with self.path.open("rb") as file:
                file.seek(first * _ENTRY.itemsize)
                entries = np.frombuffer(file.read((whole - first) * _ENTRY.itemsize), dtype=_ENTRY)
        except OSError as error:
            log.warning("embedding cache file %s cannot be read: %s", self.path, error)
            return first, []
        self._crc = np.concatenate([self._crc, entries["crc"]])
        return first, entries["digest"].tolist()

    def read(self, rows: Sequence[int]) -> tuple[Embeddings, NDArray[np.bool_]]:
        """Return some rows and which of them can be read and pass their checksum."""
        try:
            data = np.memmap(
                self.path.with_suffix(".dat"),
                dtype="<f4",
                mode="r",
                shape=(len(self._crc), self.dim),
            )
        except (OSError, ValueError) as error:  # deleted, or cut short, by somebody else
            log.warning("embedding cache file %s cannot be read: %s", self.path, error)
            nothing = np.zeros((len(rows), self.dim), dtype=np.float32)
            return nothing, np.zeros(len(rows), dtype=np.bool_)
        values = np.asarray(data[np.asarray(rows, dtype=np.intp)], dtype=np.float32)
        checks = np.fromiter((zlib.crc32(value.data) for value in values), np.uint32, len(rows))
        return values, checks == self._crc[np.asarray(rows, dtype=np.intp)]


class _Writer:
    """The owner of one file pair."""

    def __init__(self, path: Path, dim: int, lock: Any) -> None:
        self._lock = lock
        rows = _whole_rows(path, dim) if path.exists() else 0
        flags = os.O_WRONLY | os.O_CREAT
        self._dat = os.open(path.with_suffix(".dat"), flags, 0o644)
        self._idx = os.open(path, flags, 0o644)
        for handle, size in ((self._dat, 4 * dim), (self._idx, _ENTRY.itemsize)):
            os.ftruncate(handle, rows * size)
            os.lseek(handle, 0, os.SEEK_END)

    @classmethod
    def claim(cls, folder: Path, dim: int) -> _Writer:
        """Own the first pair nobody else writes to, or a new one."""
        folder.mkdir(parents=True, exist_ok=True)
        for number in range(10_000):
            path = folder / f"{dim}-{number:04d}.idx"
            lock = FileLock(path.with_suffix(".lock"), thread_local=False)
            try:
                lock.acquire(blocking=False)
            except Timeout:
                continue
            try:
                return cls(path, dim, lock)
            except OSError:
                lock.release()
                raise
        raise OSError(f"ten thousand processes write to {folder}")

    def append(self, digests: Sequence[bytes], values: NDArray[np.float32]) -> None:
        """Write rows, then their index entries: an entry never precedes its row."""
        entries = np.zeros(len(digests), dtype=_ENTRY)
        entries["digest"] = np.frombuffer(b"".join(digests), dtype="V16")
        entries["crc"] = [zlib.crc32(value.data) for value in values]
        _write_all(self._dat, values.tobytes())
        _write_all(self._idx, entries.tobytes())

    def close(self) -> None:
        os.close(self._dat)
        os.close(self._idx)
        self._lock.release()


def _digest(key: str) -> bytes:
    return hashlib.blake2b(key.encode(), digest_size=16).digest()


def _whole_rows(idx: Path, dim: int) -> int:
    dat = idx.with_suffix(".dat")
    if not dat.exists():
        return 0
    return min(idx.stat().st_size // _ENTRY.itemsize, dat.stat().st_size // (4 * dim))


def _write_all(handle: int, data: bytes) -> None:
    view = memoryview(data)
    while view:
        view = view[os.write(handle, view) :]
