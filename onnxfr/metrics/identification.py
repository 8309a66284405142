"""One-to-many search, exact and in bounded memory, and its error rates (ISO/IEC 19795-1).

The score of an identity is the best of its templates. Every probe meets every template in blocked
matrix products, so a million templates need no index and no N x M matrix; ``gallery`` may be a
memory map. Ties go against the system: a stranger as similar as the mate outranks it.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from onnxfr.errors import MetricError
from onnxfr.metrics._checks import Bools, Floats, Ints, flags, fraction, vector
from onnxfr.metrics.intervals import Estimate, rate
from onnxfr.metrics.thresholds import Resolution, Threshold, resolution

Vectors = NDArray[np.float32]


@dataclass(frozen=True)
class SearchResult:
    """What each probe's search returned.

    ``mate_score`` and ``rank`` are -inf and 0 for a probe whose person is not enrolled; a mate
    beyond ``max_rank`` has rank ``max_rank + 1``. ``other_id`` indexes ``identities``.
    """

    mated: Bools
    mate_score: Floats
    rank: Ints
    other_score: Floats
    other_id: Ints
    identities: NDArray[Any]
    max_rank: int


@dataclass(frozen=True)
class IdentificationPoint:
    """Open-set operating point: DIR at the threshold that meets a target FPIR."""

    target: float
    threshold: Threshold
    dir: Estimate
    fpir: Estimate
    resolution: Resolution


@dataclass
class _Best:
    mate: Floats
    scores: Vectors
    ids: Ints


def _embeddings(values: ArrayLike, name: str) -> NDArray[Any]:
    array = values if isinstance(values, np.ndarray) else np.asarray(values)
    if array.ndim != 2 or 0 in array.shape:
        raise MetricError(f"{name} must be a non-empty (N, D) array, got shape {array.shape}")
    return array


def _slab(array: NDArray[Any], rows: slice | Ints, name: str) -> Vectors:
    slab = np.asarray(array[rows], dtype=np.float32)
    if not np.isfinite(slab).all():
        raise MetricError(f"{name} has NaN or infinite values; pass failed probes as rejected")
    return slab


def _gallery_blocks(starts: Ints, templates: int, width: int) -> Iterator[tuple[int, int]]:
    """Yield ranges of identities that hold at most ``width`` templates (or a single identity)."""
    ends = np.append(starts[1:], templates)
    first = 0
    while first < starts.size:
        last = int(np.searchsorted(ends, starts[first] + width, "right"))
        last = max(last, first + 1)
        yield first, last
        first = last


def _absorb(best: _Best, scores: Vectors, first: int, mates: Ints) -> None:
    """Merge one block of identity scores into the running best strangers and mates."""
    here = np.flatnonzero((mates >= first) & (mates < first + scores.shape[1]))
    best.mate[here] = scores[here, mates[here] - first]
    scores[here, mates[here] - first] = -np.inf
    keep = best.scores.shape[1]
    rows = np.flatnonzero(scores.max(axis=1) > best.scores.min(axis=1))
    if rows.size == 0:
        return
    candidates = scores[rows]
    if candidates.shape[1] > keep:
        top = np.argpartition(candidates, -keep, axis=1)[:, -keep:]
        candidates = np.take_along_axis(candidates, top, axis=1)
    else:
        top = np.broadcast_to(np.arange(candidates.shape[1]), candidates.shape)
    merged = np.concatenate([best.scores[rows], candidates], axis=1)
    ids = np.concatenate([best.ids[rows], top + first], axis=1)
    chosen = np.argpartition(merged, -keep, axis=1)[:, -keep:]
    best.scores[rows] = np.take_along_axis(merged, chosen, axis=1)
    best.ids[rows] = np.take_along_axis(ids, chosen, axis=1)


def _block_shape(probes: int, templates: int, dim: int, memory: int) -> tuple[int, int]:
    """Return probe rows and gallery rows of a block whose work space fits the memory."""
    rows = int(min(probes, max(1, memory // (8 * 4 * dim)), 1024))
    # Per template of a block: its vector and copy, and three score-sized temporaries per probe.
    width = memory // (4 * (2 * dim + 6 * rows))
    return rows, int(min(templates, max(1, width)))


def _check_search(
    asked: NDArray[Any], enrolled: NDArray[Any], names: NDArray[Any], people: NDArray[Any]
) -> None:
    if asked.shape[1] != enrolled.shape[1]:
        raise MetricError(f"probes have {asked.shape[1]} dimensions, gallery {enrolled.shape[1]}")
    if names.size != asked.shape[0] or people.size != enrolled.shape[0]:
        raise MetricError("every probe and every gallery template needs exactly one identity")
    if (names.dtype.kind in "US") != (people.dtype.kind in "US"):
        raise MetricError(f"identities must be of one kind, got {names.dtype} and {people.dtype}")


def _scan(
    best: _Best,
    asked: NDArray[Any],
    enrolled: NDArray[Any],
    live: Ints,
    mates: Ints,
    order: Ints,
    starts: Ints,
    memory: int,
) -> None:
    """Compare the live probes with the gallery, sorted by identity, block by block."""
    if live.size == 0:
        return
    rows, width = _block_shape(live.size, order.size, asked.shape[1], memory)
    for first, last in _gallery_blocks(starts, order.size, width):
        stop = starts[last] if last < starts.size else order.size
        templates = _slab(enrolled, order[starts[first] : stop], "gallery")
        for begin in range(0, live.size, rows):
            some = live[begin : begin + rows]
            scores = _slab(asked, some, "probes") @ templates.T
            if templates.shape[0] > last - first:
                scores = np.maximum.reduceat(scores, starts[first:last] - starts[first], axis=1)
            part = _Best(best.mate[some], best.scores[some], best.ids[some])
            _absorb(part, scores, first, mates[some])
            best.mate[some], best.scores[some], best.ids[some] = part.mate, part.scores, part.ids


def search(
    probes: ArrayLike,
    probe_ids: ArrayLike,
    gallery: ArrayLike,
    gallery_ids: ArrayLike,
    *,
    rejected: ArrayLike | None = None,
    max_rank: int = 50,
    memory: int = 256 * 2**20,
) -> SearchResult:
    """Search every probe in the whole gallery, using about ``memory`` bytes of work space.

    Rows are unit embeddings, scores their dot products. A rejected probe (no face found) finds
    nobody: a miss if its person is enrolled, never a false positive.
    """
    asked, enrolled = _embeddings(probes, "probes"), _embeddings(gallery, "gallery")
    names, people = vector(probe_ids, "probe_ids"), vector(gallery_ids, "gallery_ids")
    _check_search(asked, enrolled, names, people)
    if max_rank < 1 or memory < 2**20:
        raise MetricError("max_rank must be at least 1 and memory at least one MiB")
    refused = flags(np.zeros(names.size) if rejected is None else rejected, "rejected", names.size)
    order = np.argsort(people, kind="stable")
    identities, starts = np.unique(people[order], return_index=True)
    mates = np.minimum(np.searchsorted(identities, names), identities.size - 1).astype(np.int64)
    mated = identities[mates] == names
    best = _Best(
        mate=np.full(names.size, -np.inf),
        scores=np.full((names.size, max_rank), -np.inf, dtype=np.float32),
        ids=np.full((names.size, max_rank), -1, dtype=np.int64),
    )
    live = np.flatnonzero(~refused)
    _scan(best, asked, enrolled, live, np.where(mated, mates, -1), order, starts, memory)
    ahead = (best.scores >= best.mate[:, None]).sum(axis=1)
    rank = np.where(refused, max_rank, ahead) + 1
    top = np.argmax(best.scores, axis=1)[:, None]
    return SearchResult(
        mated=mated,
        mate_score=best.mate,
        rank=np.where(mated, rank, 0).astype(np.int64),
        other_score=np.take_along_axis(best.scores, top, axis=1)[:, 0].astype(np.float64),
        other_id=np.take_along_axis(best.ids, top, axis=1)[:, 0],
        identities=identities,
        max_rank=max_rank,
    )


def _need(found: SearchResult, mated: bool) -> None:
    if not (found.mated if mated else ~found.mated).any():
        kind = "mated (enrolled)" if mated else "non-mated (not enrolled)"
        raise MetricError(f"this rate needs {kind} probes and there is none")


def cmc(found: SearchResult, level: float = 0.95) -> list[Estimate]:
    """Return the share of mated probes whose mate is within rank 1, 2, ..., ``max_rank``."""
    _need(found, mated=True)
    ranks = found.rank[found.mated]
    return [rate(ranks <= r, level) for r in range(1, found.max_rank + 1)]


def fnir(
    found: SearchResult,
    threshold: Threshold | float = -np.inf,
    rank: int = 1,
    level: float = 0.95,
) -> Estimate:
    """Return FNIR(N, R, T): mated searches whose mate is outside rank R or not above T."""
    _need(found, mated=True)
    if not 1 <= rank <= found.max_rank:
        raise MetricError(f"rank must be in 1..{found.max_rank} (max_rank of the search)")
    limit = threshold.value if isinstance(threshold, Threshold) else threshold
    hit = (found.rank <= rank) & (found.mate_score > limit)
    return rate(~hit[found.mated], level)


def fpir(found: SearchResult, threshold: Threshold | float, level: float = 0.95) -> Estimate:
    """Return FPIR(N, T): non-mated searches that return anybody above T."""
    _need(found, mated=False)
    limit = threshold.value if isinstance(threshold, Threshold) else threshold
    return rate(found.other_score[~found.mated] > limit, level)


def dir_at_fpir(
    found: SearchResult,
    target: float,
    rank: int = 1,
    *,
    data: str = "data",
    level: float = 0.95,
) -> IdentificationPoint:
    """Return detection-and-identification rate at the lowest threshold with FPIR <= target."""
    fraction(target, "the target FPIR")
    _need(found, mated=False)
    alarms = np.sort(found.other_score[~found.mated])
    limit = float(alarms[alarms.size - 1 - int(target * alarms.size + 1e-9)])
    if not np.isfinite(limit):
        raise MetricError("too many non-mated probes were rejected to set a threshold")
    threshold = Threshold.at_rate(limit, f"{data}@fpir", target, alarms.size)
    return IdentificationPoint(
        target=target,
        threshold=threshold,
        dir=fnir(found, threshold, rank, level).complement(),
        fpir=fpir(found, threshold, level),
        resolution=resolution(target, alarms.size),
    )
