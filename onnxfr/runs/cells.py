"""The unit of work: one evaluator, model, method and some rows, named by a hash of its content.

The hash covers what decides the numbers (contents of model and data, parameters, versions) and
nothing else: where files lie, how urgent or how dear a cell is may change without recomputing it.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

from onnxfr.budgets import write_eps
from onnxfr.errors import SpecError

Json = Mapping[str, Any]
"""A JSON object: text keys; text, numbers, booleans, None, lists and objects as values."""

Rows = range | tuple[str, ...] | None
"""Which pairs of the data set: a range of positions, a list of pair ids, or None for all."""


def canonical(value: object) -> str:
    """Return the one JSON text of ``value``: sorted keys, no spaces, no NaN."""
    try:
        return json.dumps(
            value, sort_keys=True, separators=(",", ":"), ensure_ascii=True, allow_nan=False
        )
    except (TypeError, ValueError) as bad:
        raise SpecError(
            f"parameters of a cell must be plain JSON values (text, finite numbers, booleans, "
            f"lists, objects), got {value!r} ({bad}); convert them before planning"
        ) from bad


@dataclass(frozen=True)
class ModelRef:
    """A model by content, and how a worker loads it."""

    ref: str
    sha256: str
    name: str
    template: str = ""
    """How pictures are aligned for it: the card says so, not the file."""

    @property
    def content(self) -> list[str]:
        """What a cell's records depend on; they carry the name."""
        return [self.sha256, self.name, self.template]


@dataclass(frozen=True)
class DataRef:
    """A pair set by content, and how a worker opens it."""

    spec: str
    fingerprint: str
    pairs: int
    name: str
    seed: int = 0
    limit: int | None = None
    """How many pairs were drawn, when not all are used."""


@dataclass(frozen=True)
class Cost:
    """An estimate of the work in a cell; only ``--dry-run``, ``--budget`` and the ETA read it."""

    images: int = 0
    """Forward passes, counted in images; queries of black-box attacks are forward passes."""
    gradients: int = 0
    """Forward+backward passes, counted in images."""

    def __add__(self, other: Cost) -> Cost:
        return Cost(self.images + other.images, self.gradients + other.gradients)

    @property
    def units(self) -> float:
        """Forward-pass equivalents: a backward pass to the input costs about two forward ones."""
        return self.images + 3.0 * self.gradients


@dataclass(frozen=True, eq=False, kw_only=True)
class Cell:
    """One shard's worth of work. Everything an evaluator's ``run`` may depend on is in here."""

    evaluator: str
    version: int
    model: ModelRef
    data: DataRef
    method: str = ""
    params: Json = field(default_factory=dict)
    condition: Json = field(default_factory=dict)
    rows: Rows = None
    seed: int = 0
    others: tuple[ModelRef, ...] = ()
    """Further models: targets of a transfer attack, members of a surrogate ensemble."""
    code: str = ""
    priority: float = 0.0
    """Larger is more informative; ``--budget`` starts with the largest."""
    cost: Cost = field(default_factory=Cost)

    def __post_init__(self) -> None:
        if isinstance(self.rows, range) and self.rows.step != 1:
            raise SpecError(f"a cell's rows are consecutive, got {self.rows!r}; use a list of ids")
        # A private copy: a caller that edits its dictionary later must not change the key.
        object.__setattr__(self, "params", json.loads(canonical(dict(self.params))))
        object.__setattr__(self, "condition", json.loads(canonical(dict(self.condition))))

    def content(self) -> dict[str, Any]:
        """Return what the key is made of."""
        return {
            "evaluator": self.evaluator,
            "version": self.version,
            "model": self.model.content,
            "others": [other.content for other in self.others],
            "data": [self.data.fingerprint, self.data.name],
            "method": self.method,
            "params": self.params,
            "condition": self.condition,
            "rows": _rows_to_json(self.rows),
            "seed": self.seed,
            "code": self.code,
        }

    @cached_property
    def key(self) -> str:
        """The content hash, also the shard's file name."""
        return hashlib.sha256(canonical(self.content()).encode()).hexdigest()[:32]

    @property
    def label(self) -> str:
        """A short text for people: evaluator, model, method, condition, rows."""
        condition = ",".join(
            f"{name}={write_eps(value) if name == 'eps' and isinstance(value, float) else value}"
            for name, value in self.condition.items()
            if value is not None
        )
        rows = ""
        if isinstance(self.rows, range):
            rows = f"rows {self.rows.start}-{self.rows.stop}"
        elif self.rows is not None:
            rows = f"{len(self.rows)} rows"
        parts = [self.evaluator, self.model.name, self.method, condition, rows]
        return " ".join(part for part in parts if part)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Cell) and self.key == other.key

    def __hash__(self) -> int:
        return hash(self.key)


def chunks(count: int, size: int) -> Iterator[range]:
    """Cut ``count`` rows into ranges of at most ``size``; none for an empty data set."""
    if size < 1:
        raise SpecError(f"rows per cell must be at least 1, got {size}")
    for start in range(0, count, size):
        yield range(start, min(start + size, count))


def take_rows(ids: Sequence[str], rows: Rows) -> list[int]:
    """Return the positions that ``rows`` names in a data set with these pair ids."""
    if rows is None:
        return list(range(len(ids)))
    if isinstance(rows, range):
        if rows.start < 0 or rows.stop > len(ids):
            raise SpecError(
                f"a cell asks for rows {rows.start} to {rows.stop} of {len(ids)} pairs; plan again"
            )
        return list(rows)
    position = {pair_id: index for index, pair_id in enumerate(ids)}
    missing = [pair_id for pair_id in rows if pair_id not in position]
    if missing:
        raise SpecError(f"{len(missing)} pair ids are not in the data set, first {missing[0]!r}")
    return [position[pair_id] for pair_id in rows]


def _rows_to_json(rows: Rows) -> Any:
    if isinstance(rows, range):
        return {"start": rows.start, "stop": rows.stop}
    return None if rows is None else {"ids": list(rows)}
