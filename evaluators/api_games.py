"""Questions to a verifier about pairs: clean comparisons, and attacks that ask for yes or no."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from onnxfr.attacks import AttackResult, make_attack
from onnxfr.data.pairs import PairSet
from onnxfr.evaluators.api_pictures import MOST_PIXELS, Asked, by_size, pool_of, stack
from onnxfr.evaluators.api_results import checkpoints
from onnxfr.models.remote.model import RemoteModel
from onnxfr.models.remote.reading import Kind, Verdict
from onnxfr.oracle import Oracle
from onnxfr.probe import Probe, as_jpeg
from onnxfr.runs.cells import Cell
from onnxfr.service.local import LocalVerifier
from onnxfr.threat import Threat
from onnxfr.types import Access, Goal, Images

_BATCH = 64

Judge = LocalVerifier | RemoteModel
Row = dict[str, Any]
Primer = Callable[[Probe], Images]
"""Makes starts for games with a surrogate."""

_OUTCOMES = {Kind.JUDGED: "judged", Kind.REJECTED: "rejected", Kind.INVALID: "invalid"}


def compare_pairs(judge: Judge, asked: list[Asked], jpeg: int | None, *, again: bool) -> list[Row]:
    """Return what the verifier says of clean pairs, also when they are asked ``again``."""
    told: dict[str, Row] = {}
    for group in by_size(asked):
        probes, references = stack(group)
        if jpeg is not None:
            probes = as_jpeg(probes, jpeg)
        first: Sequence[Verdict | None] = judge.verdicts(probes, references)
        later: Sequence[Verdict | None] | None = None
        if again and isinstance(judge, RemoteModel):
            later = judge.verdicts(probes, references, again=True)
        for k, (each, verdict) in enumerate(zip(group, first, strict=True)):
            second = None if later is None else later[k]
            changed = None
            if verdict is not None and second is not None:
                changed = (verdict.kind, verdict.match) != (second.kind, second.match)
            calls = ((verdict is not None) + (second is not None)) * calls_a_question(judge)
            short = verdict is None or (later is not None and second is None)
            told[each.pair] = _told(verdict) | {"changed": changed, "calls": calls, "short": short}
    unread = {"outcome": "unreadable", "calls": 0, "short": False}
    return [each.record() | (unread if each.reason else told[each.pair]) for each in asked]


def calls_a_question(judge: Judge) -> int:
    """Return how many calls a question takes; a picture that is rejected early may take fewer."""
    return judge.adapter.calls if isinstance(judge, RemoteModel) else 1


def attack_pairs(
    judge: Judge, pairs: PairSet, asked: list[Asked], cell: Cell, prime: Primer | None = None
) -> list[Row]:
    """Attack the pairs that can be read, those of one size at a time."""
    rules = {"goal": cell.condition["goal"], "norm": cell.params["norm"]}
    rules |= {"eps": cell.params["eps"], "max_queries": cell.params["max_queries"]}
    if cell.others:
        rules["surrogate"] = cell.others[0].name
    records = [
        each.record() | {"outcome": "unplayable", "reason": each.reason, "short": False}
        for each in asked
        if each.reason
    ]
    for group in by_size(asked):
        pool, owners = pool_of(pairs, group[0].probe.shape, cell.seed)
        records.extend(_play(judge, group, pool, owners, cell, prime))
    return [record | rules for record in records]


def _told(verdict: Verdict | None) -> Row:
    if verdict is None:
        return {"outcome": "unasked", "match": None, "score": None, "reason": "no call was left"}
    return {
        "outcome": _OUTCOMES[verdict.kind],
        "match": verdict.match,
        "score": verdict.score,
        "reason": verdict.detail or None,
    }


def _play(
    judge: Judge,
    group: list[Asked],
    pool: Images | None,
    owners: NDArray[np.int32],
    cell: Cell,
    prime: Primer | None,
) -> list[Row]:
    """Attack those pairs that the verifier accepts for a comparison."""
    params = cell.params
    probes, references = stack(group)
    sent = probes if params["jpeg"] is None else as_jpeg(probes, params["jpeg"])
    clean: Sequence[Verdict | None] = judge.verdicts(sent, references)
    playable = [k for k, verdict in enumerate(clean) if verdict and verdict.kind is Kind.JUDGED]
    records = [
        group[k].record() | _unplayed(verdict)
        for k, verdict in enumerate(clean)
        if k not in playable
    ]
    if not playable:
        return records
    chosen = [group[k] for k in playable]
    threat = Threat(norm=params["norm"], max_queries=params["max_queries"])
    strangers = np.array([~np.isin(owners, each.people) for each in chosen])
    probe = Probe(
        probes[playable],
        tuple(each.pair for each in chosen),
        references[playable],
        pool=pool,
        strangers=None if pool is None else strangers,
    )
    if prime is not None:
        probe = replace(probe, starts=prime(probe))
    goal, jpeg = Goal(cell.condition["goal"]), params["jpeg"]
    oracle = Oracle(
        judge,
        probe,
        threat,
        goal=goal,
        access=Access.DECISION,
        jpeg=jpeg,
        batch_size=max(1, min(_BATCH, 3 * MOST_PIXELS // probes[0].size)),
    )
    before = judge.unserved
    result = make_attack(cell.method)(oracle, probe, threat, seed=cell.seed)
    for k, each in enumerate(chosen):
        ran_out = judge.unserved > before and bool(oracle.cut_short[k])
        played = _played(result, k, params["max_queries"], ran_out=ran_out)
        played["calls"] = played["queries"] * calls_a_question(judge)
        records.append(each.record() | played | {"refusals": int(oracle.refusals[k])})
    return records


def _unplayed(verdict: Verdict | None) -> Row:
    outcome = "unasked" if verdict is None else "unplayable"
    return {"outcome": outcome, "reason": _told(verdict)["reason"], "short": verdict is None}


def _played(result: AttackResult, k: int, cap: int, *, ran_out: bool) -> Row:
    """Return how one game went; ``short`` if calls ran out and more of them could change it."""
    won, asked = bool(result.won[k]), int(result.queries[k])
    steps = [entry for entry in result.trace if entry.row == k]
    at = {
        f"distance_at_{q}": min((e.distance for e in steps if e.queries <= q), default=None)
        for q in checkpoints(cap)
    }
    return {
        "outcome": "played",
        "won": won,
        "won_clean": bool(result.won_clean[k]),
        "distance": float(result.distance[k]) if won else None,
        "queries": asked,
        "short": ran_out and not bool(result.won_clean[k]) and not (won and asked >= cap),
    } | at
