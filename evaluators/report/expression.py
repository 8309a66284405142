"""The small language of ``--fail-if``: metric names compared with numbers, joined by and/or.

``accuracy < 0.99``, ``asr[method=mim]@4/255 > 50%``, ``asr@8/255,queries=200 > 0.1``,
``delta.tar@1e-3 < -0.005 or b.eer > 0.02``.
A number such as ``2/255`` is two grey levels, the unit of every distance in results.
Parsed by hand so that an expression from a CI file can never run code.
"""

from __future__ import annotations

import difflib
import math
import operator
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from onnxfr.errors import MetricError, SpecError
from onnxfr.evaluators.base import Result
from onnxfr.evaluators.report.wording import is_never, where_text

SCOPES = ("a", "b", "delta")
_FILTERS = ("evaluator", "model", "method", "goal", "norm", "data", "protocol")
_OPERATORS: dict[str, Callable[[float, float], bool]] = {
    "<=": operator.le,
    ">=": operator.ge,
    "==": operator.eq,
    "!=": operator.ne,
    "<": operator.lt,
    ">": operator.gt,
}
_TEST = re.compile(
    r"\s*(?:(?P<scope>a|b|delta)\.)?(?P<metric>[A-Za-z_][A-Za-z0-9_]*)"
    r"(?:\[(?P<filters>[^\]]*)\])?(?:@(?P<at>[^\s<>=!]+(?:=(?!=)[^\s<>=!]+)*))?"
    r"\s*(?P<operator><=|>=|==|!=|<|>)\s*(?P<number>[-+]?[0-9.][0-9.eE+\-/]*)\s*(?P<percent>%?)\s*"
)
FILTER_HINT = "name what can be judged, as in accuracy[model=NAME,data=NAME]"
_JOIN = re.compile(r"(and|or)\b")
_FILTER = re.compile(r"(?:[^,()]|\([^()]*\)?|\))+")
"""A filter ends at a comma, but for those between an attack's settings: ``pgd(steps=9,seed=1)``."""
_HELP = (
    "expected tests such as 'accuracy < 0.99' or 'tar@1e-3 < 98% and eer > 0.01', "
    "joined by 'and' or 'or'"
)


@dataclass(frozen=True)
class Test:
    """One comparison of a metric with a number."""

    scope: str
    metric: str
    filters: tuple[tuple[str, str], ...]
    at: str | None
    operator: str
    number: float
    text: str


@dataclass(frozen=True)
class Match:
    """A result a test looked at, the value it saw there, and whether the test holds for it."""

    test: Test
    result: Result
    value: float
    holds: bool


@dataclass(frozen=True)
class Outcome:
    """Whether an expression holds, and because of which results."""

    expression: str
    holds: bool
    matches: tuple[Match, ...]


def parse(text: str) -> list[list[Test]]:
    """Return the expression as alternatives of conjunctions; ``and`` binds tighter than ``or``."""
    alternatives: list[list[Test]] = [[]]
    position = 0
    while True:
        found = _TEST.match(text, position)
        if found is None:
            rest = text[position:].strip() or "nothing"
            raise SpecError(f"cannot read {rest!r} in {text!r}; {_HELP}")
        alternatives[-1].append(_test(found, text))
        position = found.end()
        if position == len(text):
            return alternatives
        joined = _JOIN.match(text, position)
        if joined is None:
            raise SpecError(f"cannot read {text[position:]!r} in {text!r}; {_HELP}")
        if joined[1] == "or":
            alternatives.append([])
        position = joined.end()


def judge(text: str, results: Mapping[str, Sequence[Result]]) -> Outcome:
    """Tell whether an expression holds for the results of each scope (``a``, ``b``, ``delta``).

    A test holds when any result it names meets it. A metric nobody measured, or that could not be
    resolved for one of those it names, is an error: a gate that cannot see must not wave through.
    """
    matches: list[Match] = []
    holds = False
    for conjunction in parse(text):
        answers = []
        for test in conjunction:
            looked = [
                Match(test, result, value, _OPERATORS[test.operator](value, test.number))
                for result in _find(test, results)
                if (value := _seen(test, result)) is not None
            ]
            matches.extend(looked)
            answers.append(any(match.holds for match in looked))
        holds = holds or all(answers)
    return Outcome(text, holds, tuple(matches))


def _test(found: re.Match[str], text: str) -> Test:
    filters = []
    for part in filter(None, (p.strip() for p in _FILTER.findall(found["filters"] or ""))):
        name, equals, value = (piece.strip() for piece in part.partition("="))
        if not equals or name not in _FILTERS:
            raise SpecError(
                f"cannot read [{part}] in {text!r}; expected one of {', '.join(_FILTERS)} = value"
            )
        filters.append((name, value))
    number = _number(found["number"].removesuffix("/255"))
    if number is None:
        raise SpecError(f"{found['number']!r} in {text!r} is no number; {_HELP}")
    return Test(
        scope=found["scope"] or "b",
        metric=found["metric"],
        filters=tuple(filters),
        at=found["at"],
        operator=found["operator"],
        number=number / 100 if found["percent"] else number,
        text=found[0].strip(),
    )


def _number(text: str) -> float | None:
    top, slash, bottom = text.partition("/")
    try:
        return float(top) / float(bottom) if slash else float(text)
    except (ValueError, ZeroDivisionError):
        return None


def _seen(test: Test, result: Result) -> float | None:
    """Return what a test compares; an infinite median is a number, a difference of two is none."""
    return math.inf if is_never(result) and test.scope != "delta" else result.value


def fits(test: Test, result: Result) -> bool:
    """Tell whether a test names this result."""
    return (
        result.metric == test.metric
        and all(getattr(result, name) == value for name, value in test.filters)
        and (test.at is None or _meets(result.condition, test.at))
    )


def _find(test: Test, results: Mapping[str, Sequence[Result]]) -> list[Result]:
    named = [result for result in results[test.scope] if result.metric == test.metric]
    if not named:
        raise SpecError(_absent(test, results))
    fitting = [result for result in named if fits(test, result)]
    if not fitting:
        raise SpecError(f"no result of {test.metric!r} fits {test.text!r}; {_misfit(test, named)}")
    chosen = fitting if test.at is not None else _plain(fitting)
    blind = _blind(test, chosen)
    if blind:
        why = "the data could not resolve this metric"
        if all(is_never(result) for result in chosen if where_text(result) in blind):
            why = "half of the pairs or more were never won, so that the median is infinite"
        raise MetricError(
            f"{test.text!r} cannot be judged for {'; '.join(blind)}: {why}; {FILTER_HINT}"
        )
    return chosen


def _misfit(test: Test, named: Sequence[Result]) -> str:
    """Name the first part of a test that leaves nothing over, and what would fit there."""
    left = list(named)
    for name, value in test.filters:
        known = {getattr(result, name) for result in left}
        if value not in known:
            return f"its {name} is {' or '.join(sorted(each or 'none' for each in known))}"
        left = [result for result in left if getattr(result, name) == value]
    conditions = sorted({result.condition for result in left if result.condition})
    return f"it was measured at {'; '.join(conditions)}" if conditions else "leave out the @"


def _absent(test: Test, results: Mapping[str, Sequence[Result]]) -> str:
    """Say why a scope has no such metric, and what to do."""
    ours, theirs = (
        [result for result in results[name] if result.metric == test.metric] for name in ("a", "b")
    )
    if test.scope == "delta" and ours and theirs:
        return (
            f"{test.text!r} cannot be judged: both runs have {test.metric!r}, but not of the same "
            f"thing{_apart(ours, theirs)}; compare runs that were asked the same question"
        )
    known = sorted({result.metric for result in results[test.scope]})
    kin = [name for name in known if name.startswith(f"{test.metric}_")]
    near = kin or difflib.get_close_matches(test.metric, known, n=3)
    has = f"it has {', '.join(known)}" if known else "it has no results"
    hint = f"did you mean {', '.join(near)}?" if near else has
    whose = "the difference of the runs" if test.scope == "delta" else "the run"
    return f"{whose} has no metric {test.metric!r}; {hint}"


def _apart(ours: Sequence[Result], theirs: Sequence[Result]) -> str:
    """Name the columns in which no result of one run agrees with one of the other."""
    told = []
    for name in (*_FILTERS, "condition"):
        a, b = ({getattr(result, name) for result in side} for side in (ours, theirs))
        if name != "model" and not a & b:
            words = [", ".join(sorted(value or "none" for value in side)) for side in (a, b)]
            told.append(f"{name} is {words[0]} in A and {words[1]} in B")
    return f" ({'; '.join(told)})" if told else ""


def _blind(test: Test, results: Sequence[Result]) -> list[str]:
    """Return the games, by model and data, in which not one of the results has a value."""
    known: dict[str, bool] = {}
    for result in results:
        place = where_text(result)
        known[place] = known.get(place, False) or _seen(test, result) is not None
    return [place for place, seen in known.items() if not seen]


def _plain(results: Sequence[Result]) -> list[Result]:
    """Return what stands for the whole of each model and data set, where no condition is named."""
    groups: dict[tuple[str, str], list[Result]] = {}
    for result in results:
        groups.setdefault((result.model, result.data), []).append(result)
    return [result for group in groups.values() for result in _overall(group)]


def _overall(results: Sequence[Result]) -> list[Result]:
    """Prefer what has no condition; take an oracle only if there is nothing else."""
    for wanted in (
        [r for r in results if not r.condition and r.protocol != "oracle"],
        [r for r in results if r.protocol != "oracle"],
    ):
        if wanted:
            return wanted
    return list(results)


def _meets(condition: str, at: str) -> bool:
    """Tell whether ``at`` names the condition: all of it, or some of its parts or their values."""
    parts = [part.strip(' "{}') for part in re.split(r"[,;]", condition)]
    return at == condition or all(_among(parts, wanted) for wanted in at.split(","))


def _among(parts: Sequence[str], wanted: str) -> bool:
    for part in parts:
        value = re.split(r"[=:]", part, maxsplit=1)[-1].strip(' "')
        if wanted in (part, value):
            return True
        left, right = _number(value), _number(wanted)
        if left is not None and right is not None and abs(left - right) <= 1e-9 * abs(right):
            return True
    return False
