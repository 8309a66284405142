"""A run on disk: a manifest, one Parquet shard per cell, one note per failed cell, a log.

One process works on a run directory at a time, which an operating-system lock ensures; the lock
goes with its process, so a killed run never blocks the next. Reading needs no lock.
"""

from __future__ import annotations

import contextlib
import json
import logging
import os
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
from filelock import FileLock, Timeout

from onnxfr.errors import StoreError
from onnxfr.runs.cells import Cell
from onnxfr.runs.files import explained, remove_temporaries, write_atomically
from onnxfr.runs.records import is_intact, join, why_unfinished

log = logging.getLogger(__name__)

MANIFEST_VERSION = 1


class RunStore:
    """The files of one run."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.cells = folder / "cells"
        self.failures = folder / "failed"
        self.log_file = folder / "run.log"
        self.manifest_file = folder / "manifest.json"

    @classmethod
    def open(cls, folder: Path) -> RunStore:
        """Return the store of an existing run, for reading."""
        store = cls(folder)
        if not store.manifest_file.is_file():
            raise StoreError(
                f"{folder} is no run directory: manifest.json is missing; "
                "name the folder that 'onnxfr run -o' wrote"
            )
        return store

    @contextlib.contextmanager
    def working(self) -> Iterator[RunStore]:
        """Own the run directory for writing, and clean up after killed predecessors."""
        with explained(self.folder):
            self.cells.mkdir(parents=True, exist_ok=True)
            self.failures.mkdir(exist_ok=True)
            lock = FileLock(self.folder / "run.lock", thread_local=False)
            try:
                lock.acquire(blocking=False)
            except Timeout:
                raise StoreError(
                    f"another process{self._owner()} is working on {self.folder}; "
                    "wait for it, or choose another folder with -o"
                ) from None
        try:
            write_atomically(self.folder / "run.pid", f"{os.getpid()}\n".encode())
            for folder in (self.folder, self.cells, self.failures):
                remove_temporaries(folder)
            yield self
        finally:
            with contextlib.suppress(OSError):
                (self.folder / "run.pid").unlink()
            lock.release()

    def write(self, cell: Cell, table: pa.Table) -> None:
        """Keep the records of a cell."""
        sink = pa.BufferOutputStream()
        pq.write_table(table, sink, compression="zstd", write_page_checksum=True)
        write_atomically(self._shard(cell.key), sink.getvalue().to_pybytes())
        with contextlib.suppress(OSError):
            (self.failures / f"{cell.key}.json").unlink(missing_ok=True)

    def write_failure(self, cell: Cell, message: str) -> None:
        """Note why a cell has no records."""
        note = {"cell": cell.key, "label": cell.label, "message": message}
        write_atomically(self.failures / f"{cell.key}.json", _to_json(note))

    def read(self, key: str) -> pa.Table | None:
        """Return the records of one cell, or None when there are none or they are damaged."""
        path = self._shard(key)
        if not path.is_file():
            return None
        try:
            # Not ``read_table``, which starts threads: one that lives when the process ends now and
            # then aborts it, and the exit code that a gate answers with is lost.
            shard = pq.ParquetFile(
                pa.BufferReader(path.read_bytes()),
                page_checksum_verification=True,
                pre_buffer=False,
            )
            table = shard.read(use_threads=False)
        except (OSError, pa.ArrowException) as damage:
            log.warning("%s is damaged and counts as missing: %s", path, damage)
            return None
        if not is_intact(table, key):
            log.warning("%s does not hold what was written and counts as missing", path)
            return None
        return table

    def has(self, cell: Cell) -> bool:
        """Tell whether the cell's records are there, intact and complete."""
        table = self.read(cell.key)
        return table is not None and why_unfinished(table) is None

    def records(self, evaluator: str | None = None) -> pa.Table:
        """Return the records of the cells the manifest lists, in its order."""
        listed = [
            entry["key"]
            for entry in self.manifest()["cells"]
            if evaluator is None or entry["evaluator"] == evaluator
        ]
        tables = [self.read(key) for key in listed]
        return join([table for table in tables if table is not None])

    def evaluators(self) -> list[str]:
        """Return the names of the evaluators that the manifest lists, in order of appearance."""
        return list(dict.fromkeys(entry["evaluator"] for entry in self.manifest()["cells"]))

    def failed(self) -> dict[str, str]:
        """Return the message of every listed cell that failed last time, by key."""
        listed = {entry["key"] for entry in self.manifest()["cells"]}
        notes: dict[str, str] = {}
        for path in sorted(self.failures.glob("*.json")) if self.failures.is_dir() else []:
            with contextlib.suppress(OSError, ValueError, KeyError):
                note = json.loads(path.read_text(encoding="utf-8"))
                if note["cell"] in listed:
                    notes[note["cell"]] = note["message"]
        return notes

    def manifest(self) -> dict[str, Any]:
        """Return the manifest."""
        try:
            content = json.loads(self.manifest_file.read_text(encoding="utf-8"))
        except (OSError, ValueError) as bad:
            raise StoreError(
                f"{self.manifest_file} cannot be read ({bad}); "
                "run the same specification again to write it anew, finished cells are kept"
            ) from bad
        if not isinstance(content, dict) or content.get("version") != MANIFEST_VERSION:
            raise StoreError(
                f"{self.manifest_file} has another layout than version {MANIFEST_VERSION}; "
                "read it with the onnxfr that wrote it, or run again"
            )
        return content

    def write_manifest(self, content: Mapping[str, Any], cells: Sequence[Cell]) -> None:
        """Write what the run is and which cells it consists of; earlier sessions stay noted."""
        sessions: list[Any] = []
        with contextlib.suppress(StoreError):
            sessions = self.manifest().get("sessions", [])
        listed = [describe(cell) for cell in cells]
        document = {"version": MANIFEST_VERSION, **content, "cells": listed, "sessions": sessions}
        write_atomically(self.manifest_file, _to_json(document))

    def add_session(self, session: Mapping[str, Any]) -> None:
        """Append to the manifest what one invocation did and with which software."""
        manifest = self.manifest()
        manifest["sessions"].append(dict(session))
        write_atomically(self.manifest_file, _to_json(manifest))

    def _shard(self, key: str) -> Path:
        return self.cells / f"{key}.parquet"

    def _owner(self) -> str:
        with contextlib.suppress(OSError):
            return f" (pid {(self.folder / 'run.pid').read_text().strip()})"
        return ""


def describe(cell: Cell) -> dict[str, Any]:
    """Return the manifest's entry of a cell."""
    return {
        "key": cell.key,
        "label": cell.label,
        **cell.content(),
        "model_name": cell.model.name,
        "data_spec": cell.data.spec,
        "images": cell.cost.images,
        "gradients": cell.cost.gradients,
        "priority": cell.priority,
    }


def _to_json(content: object) -> bytes:
    return (json.dumps(content, indent=1, sort_keys=True, allow_nan=False) + "\n").encode()
