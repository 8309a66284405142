"""Flat records: an evaluator's rows as one Arrow table that says which cell it came from."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from typing import Any

import pyarrow as pa

from onnxfr.errors import StoreError
from onnxfr.runs.cells import Cell, canonical

IDENTITY = ("cell", "evaluator", "model", "method", "condition", "data")
"""Columns every stored record starts with; ``condition`` is canonical JSON text."""

_CELL = b"onnxfr.cell"
_KEY = b"onnxfr.key"
_DIGEST = b"onnxfr.digest"
_UNFINISHED = b"onnxfr.unfinished"


def unfinished(rows: Sequence[Mapping[str, Any]], why: str) -> pa.Table:
    """Return the rows of a cell that could not be completed: kept, shown, and run again."""
    return pa.Table.from_pylist(list(rows), metadata={_UNFINISHED: why.encode()})


def why_unfinished(table: pa.Table) -> str | None:
    """Return what a table's cell was short of; None where it is complete."""
    why = (table.schema.metadata or {}).get(_UNFINISHED)
    return None if why is None else why.decode()


def to_table(cell: Cell, rows: pa.Table | Sequence[Mapping[str, Any]]) -> pa.Table:
    """Return the rows of one cell as a table with its identity in front."""
    try:
        table = rows if isinstance(rows, pa.Table) else pa.Table.from_pylist(list(rows))
    except (pa.ArrowException, TypeError, AttributeError) as bad:
        raise StoreError(
            f"records of {cell.evaluator!r} must be flat rows with one type per column: {bad}"
        ) from bad
    for column in table.schema:
        if column.name in IDENTITY:
            raise StoreError(
                f"records of {cell.evaluator!r} have a column {column.name!r}, which the store "
                "fills in by itself; rename it"
            )
        if pa.types.is_nested(column.type):
            raise StoreError(
                f"records are flat, but column {column.name!r} of {cell.evaluator!r} is "
                f"{column.type}; use one column per value"
            )
    values = (
        cell.key,
        cell.evaluator,
        cell.model.name,
        cell.method,
        canonical(cell.condition),
        cell.data.name,
    )
    for position, (name, value) in enumerate(zip(IDENTITY, values, strict=True)):
        column = pa.array([value] * table.num_rows, pa.string())
        table = table.add_column(position, pa.field(name, pa.string()), column)
    why = (table.schema.metadata or {}).get(_UNFINISHED)
    return table.replace_schema_metadata(
        {
            **({} if why is None else {_UNFINISHED: why}),
            _KEY: cell.key.encode(),
            _CELL: canonical(cell.content()).encode(),
            _DIGEST: _digest(table),
        }
    )


def is_intact(table: pa.Table, key: str) -> bool:
    """Tell whether a table read back is the one that was made from the cell with this key."""
    metadata = table.schema.metadata or {}
    return bool(metadata.get(_KEY) == key.encode() and metadata.get(_DIGEST) == _digest(table))


def _digest(table: pa.Table) -> bytes:
    # Parquet guards its pages with checksums but not its footer, where names and types stand.
    content = hashlib.sha256()
    for field, column in zip(table.schema, table.columns, strict=True):
        content.update(f"{field.name}\x1f{field.type}\x1f{column.to_pylist()!r}\x1e".encode())
    return content.hexdigest().encode()


def join(tables: Sequence[pa.Table]) -> pa.Table:
    """Stack tables of one evaluator; columns one of them lacks are null there."""
    if not tables:
        return pa.table({name: pa.array([], pa.string()) for name in IDENTITY})
    plain = [table.replace_schema_metadata(None) for table in tables]
    return pa.concat_tables(plain, promote_options="permissive").combine_chunks()
