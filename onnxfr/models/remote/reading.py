"""What a service's answer says, by its adapter's rules."""

from __future__ import annotations

import json
import math
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from enum import StrEnum
from typing import Any

from onnxfr.errors import RemoteError
from onnxfr.models.remote.adapter import Adapter, Answer, Rule, Value
from onnxfr.models.remote.looking import FILTERS, MISSING, found, look, plain, stages

_SHOWN = 300
_NUDGE = 1e-6
_FARTHEST = 2 - 1e-6
"""Just within what counts as a verdict, also as float32."""

_ABOUT_THE_CLIENT = (401, 402, 403, 404, 405, 407)


class Kind(StrEnum):
    """What became of a question."""

    JUDGED = "judged"
    REJECTED = "rejected"
    INVALID = "invalid"


@dataclass(frozen=True)
class Verdict:
    """An answer that was given; ``score`` and ``threshold`` where the service tells them."""

    kind: Kind
    match: bool | None = None
    score: float | None = None
    threshold: float | None = None
    version: str | None = None
    detail: str = ""

    def margin(self, rule: Answer) -> float:
        """Return how far on the accepted side, in parts of the score range; 1 or -1 without one.

        Scores outside the range keep their order but stay within two ranges: what is farther from
        the threshold counts as no verdict, and an attack would see nothing to climb.
        """
        if self.kind is not Kind.JUDGED:
            return math.nan
        if self.score is None or self.threshold is None:
            return 1.0 if self.match else -1.0
        low, high = rule.score_range
        margin = _above(rule, self.score, self.threshold) / (high - low)
        if abs(margin) > 1:
            margin = math.copysign(min(2 - 1 / abs(margin), _FARTHEST), margin)
        # The decision counts where rounding has moved the score onto or over the threshold.
        if self.match and margin <= 0:
            return _NUDGE
        return -_NUDGE if self.match is False and margin > 0 else margin


class TryAgain(Exception):
    """No answer was given; ``wait`` is what the service asks for, in seconds."""

    def __init__(self, why: str, wait: float | None = None, *, charged: bool = True) -> None:
        super().__init__(why)
        self.wait, self.charged = wait, charged


class NoUse(RemoteError):
    """Whatever is asked next will be answered alike: key, account, address or version is wrong."""


class Unusable(Exception):
    """An answer was given, and has to be paid for, but its content cannot be had."""


def read_answer(adapter: Adapter, status: int, body: bytes) -> Verdict:
    """Return the verdict in the last step's answer."""
    content = parse(body)
    refused = find_rejection(adapter, status, content)
    if refused is not None:
        return refused
    check_status(adapter, status, body)
    rule = adapter.answer
    score = _number(rule.score, content)
    if rule.score is not None and not found(look(content, rule.score)):
        score = rule.score_absent if _has_room_for(rule.score, content) else None
    threshold = rule.threshold
    if rule.threshold_path is not None:
        threshold = _number(rule.threshold_path, content)
    match = _decision(rule, content, score, threshold)
    version = None if rule.version is None else look(content, rule.version)
    if match is None:
        return Verdict(Kind.INVALID, detail=_shown(body))
    return Verdict(
        Kind.JUDGED,
        match,
        score,
        threshold if score is not None else None,
        None if version in (None, MISSING) else plain(version),
    )


def find_rejection(
    adapter: Adapter, status: int, content: Any, *, last: bool = True
) -> Verdict | None:
    """Return the rejection that an answer is, if it is one; ``last`` where it may be a verdict."""
    for rule in _heard(adapter.answer.rejected, last):
        # A page that says "overloaded" lacks whatever one looks for: name the status there.
        if (rule.status or not _is_busy(status)) and fits(rule, status, content):
            if rule.absent:
                return Verdict(Kind.REJECTED, detail="nothing found")
            detail = "" if rule.path is None else _cut(plain(look(content, rule.path)))
            return Verdict(Kind.REJECTED, detail=detail)
    return None


def check_given(
    adapter: Adapter, status: int, body: bytes, wait: float | None, *, last: bool = True
) -> None:
    """Raise ``TryAgain`` where the service has not answered, only said so."""
    content, rules = parse(body), adapter.answer
    again = any(fits(rule, status, content) for rule in _heard(rules.retry, last))
    named = [rule for rule in (*rules.rejected, *rules.failed) if status in rule.status]
    # One that takes whatever is said for a failure takes "slow down" for one, too.
    certain = [rule for rule in rules.failed if rule.values or rule.begins]
    told = any(fits(rule, status, content) for rule in _heard((*named, *certain), last))
    if told and not again:
        return
    if status == 429:
        raise TryAgain("too many requests (429)", wait, charged=False)
    if _is_busy(status):
        raise TryAgain(f"status {status}", wait)
    if again:
        raise TryAgain(f"status {status}: {_shown(body)}", wait)


def _heard(rules: Sequence[Rule], last: bool) -> list[Rule]:
    """Return the rules for a step: earlier answers never hold what the last one does."""
    return [rule for rule in rules if last or not rule.absent]


def _is_busy(status: int) -> bool:
    return status in (408, 429) or status >= 500


def check_status(adapter: Adapter, status: int, body: bytes, *, last: bool = True) -> None:
    """Raise where an answer is neither a verdict nor a known rejection."""
    rules = _heard(adapter.answer.failed, last)
    failed = any(fits(rule, status, parse(body)) for rule in rules)
    if failed or not 200 <= status < 300:
        # The others may be about this picture.
        hopeless = failed or 300 <= status < 400 or status in _ABOUT_THE_CLIENT
        raise (NoUse if hopeless else RemoteError)(
            f"{adapter.name} answered with status {status}, which is no verdict: {_shown(body)}. "
            "Check key and address, or give the adapter a rule for it (rejected, retry, failed) "
            "and run again: answers so far are kept and not asked again"
        )


def parse(body: bytes) -> Any:
    """Return the JSON of an answer, or its text where it is none."""
    text = body.decode("utf-8", "replace")
    # The second time for a message in the vendor's own encoding, which must not cost the verdict.
    for form in (body, text):
        with suppress(ValueError, RecursionError):
            return json.loads(form)
    return text


def fits(rule: Rule, status: int, content: Any) -> bool:
    """Tell whether an answer is what a rule describes."""
    if rule.status and status not in rule.status:
        return False
    if rule.path is None:
        return True
    value = look(content, rule.path)
    if rule.absent:
        return value is MISSING or value is None or value == []
    if value is MISSING:
        return False
    if rule.unless:
        return not _among(value, rule.unless)
    if rule.begins and isinstance(value, str) and value.startswith(rule.begins):
        return True
    return not (rule.values or rule.begins) or _among(value, rule.values)


def _has_room_for(path: str, content: Any) -> bool:
    """Tell whether an answer could hold something at a path: what the path goes through is there.

    A page that asks to log in holds no score either, and says nothing about two faces.
    """
    parts = stages(path)
    while parts[-1] in FILTERS and len(parts) > 1:
        parts.pop()
    last = parts.pop()
    stem = last.rpartition("[" if "[" in last else ".")[0]
    place = " | ".join(part for part in (*parts, stem) if part)
    around = look(content, place) if place else content
    return around is None or isinstance(around, list if "[" in last else dict)


def _number(path: str | None, content: Any) -> float | None:
    value = MISSING if path is None else look(content, path)
    if isinstance(value, bool) or not isinstance(value, int | float | str):
        return None
    try:
        number = float(value)
    except (ValueError, OverflowError):
        return None
    return number if math.isfinite(number) else None


def _decision(
    rule: Answer, content: Any, score: float | None, threshold: float | None
) -> bool | None:
    if rule.decision is not None:
        value = look(content, rule.decision)
        if _among(value, rule.yes):
            return True
        return False if _among(value, rule.no) else None
    return None if score is None or threshold is None else _above(rule, score, threshold) > 0


def _above(rule: Answer, score: float, threshold: float) -> float:
    """Return by how much a score accepts: small distances do, large similarities."""
    return threshold - score if rule.score_is == "distance" else score - threshold


def _among(value: Any, values: Sequence[Value]) -> bool:
    # True is no 1 here, but 1.0 is: which of both is written is the service's JSON library's whim.
    kind = _kind(value)
    return any(kind is _kind(each) and value == each for each in values)


def _kind(value: Any) -> type:
    return float if type(value) is int else type(value)


def _shown(body: bytes) -> str:
    return _cut(" ".join(body.decode("utf-8", "replace").split()))


def _cut(text: str) -> str:
    return text[:_SHOWN] + ("..." if len(text) > _SHOWN else "")
