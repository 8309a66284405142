"""Transfer records to numbers: every cell of the matrix, its means, and attacks compared.

A mean over targets is taken per pair first, so that its interval (people resampled) and the paired
tests count each pair once however many models it was shown to. Targets that belong to the source
(the diagonal) are white-box and left out of every mean; column and overall means are those of
single models where there are any.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import combinations

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from onnxfr.budgets import write_eps
from onnxfr.errors import MetricError
from onnxfr.evaluators.base import Result
from onnxfr.metrics.attack_success import attack_success
from onnxfr.metrics.bootstrap import bootstrap
from onnxfr.metrics.intervals import Estimate, rate, rule_of_three
from onnxfr.metrics.significance import holm, wilcoxon

_SEED = 0
_RESAMPLES = 1000
_GAME = ("data", "norm", "eps", "goal")

Floats = NDArray[np.float64]


@dataclass(frozen=True, eq=False)
class Entry:
    """One cell of the matrix: an attack from a source on a target."""

    data: str
    norm: str
    eps: float
    goal: str
    attack: str
    source: str
    members: str
    target: str
    level: str
    inside: bool
    threshold: float
    threshold_origin: str
    pair: NDArray[np.str_]
    people: tuple[NDArray[np.str_], NDArray[np.str_]]
    won_clean: NDArray[np.bool_]
    won_passed: NDArray[np.bool_]
    won_float: NDArray[np.bool_]
    won: NDArray[np.bool_]

    @property
    def budget(self) -> str:
        """The budget as people write it, ``linf 8/255``."""
        return f"{self.norm} {write_eps(self.eps)}"

    @property
    def ensemble(self) -> bool:
        """Whether the source is made of several models."""
        return " + " in self.members

    @property
    def game(self) -> tuple[str, str, float, str]:
        """What two attacks must share to be compared."""
        return self.data, self.norm, self.eps, self.goal


def entries(records: pa.Table) -> list[Entry]:
    """Return the cells of all matrices in order of appearance; unplayable pairs are left out."""
    played = records.filter(pc.equal(records["outcome"], "played"))
    names = (*_GAME, "method", "source", "target")
    columns = [played[name].to_pylist() for name in names]
    rows: dict[tuple[object, ...], list[int]] = {}
    for at, key in enumerate(zip(*columns, strict=True)):
        rows.setdefault(key, []).append(at)
    return [_entry(played.take(pa.array(at))) for at in rows.values()]


def results_of(records: pa.Table) -> list[Result]:
    """Return every number of a transfer evaluation."""
    cells = entries(records)
    results = [result for cell in cells for result in _cell_results(cell)]
    games = dict.fromkeys(cell.game for cell in cells)
    for game in games:
        members = [cell for cell in cells if cell.game == game]
        attacks = list(dict.fromkeys(cell.attack for cell in members))
        for attack in attacks:
            results.extend(_means([cell for cell in members if cell.attack == attack]))
        results.extend(_duels(members, attacks))
    return results


def mean_over_targets(cells: Sequence[Entry]) -> tuple[NDArray[np.str_], Floats]:
    """Return the pairs of some cells and the share of these cells in which each pair was lost."""
    total: dict[str, list[bool]] = {}
    for cell in cells:
        for name, won in zip(cell.pair.tolist(), cell.won.tolist(), strict=True):
            total.setdefault(name, []).append(won)
    return np.array(list(total), dtype=np.str_), np.array([np.mean(won) for won in total.values()])


def comparable(cells: Sequence[Entry]) -> list[Entry]:
    """Return the cells of single models, or all where there are only ensembles.

    Ensembles are stronger and not there for every target: they would tilt means and comparisons.
    """
    return [cell for cell in cells if not cell.ensemble] or list(cells)


def pooled(cells: Sequence[Entry]) -> Estimate:
    """Return the mean success of some cells, with an interval that resamples people."""
    pair, share = mean_over_targets(cells)
    return _resampled(cells, pair, share)


def _entry(rows: pa.Table) -> Entry:
    first = rows.slice(0, 1).to_pylist()[0]

    def flags(name: str) -> NDArray[np.bool_]:
        return np.asarray(rows[name].to_pylist(), dtype=np.bool_)

    pair = np.array(rows["pair"].to_pylist(), dtype=np.str_)
    people = [
        np.array(
            [who or name for who, name in zip(rows[side].to_pylist(), pair.tolist(), strict=True)],
            dtype=np.str_,
        )
        for side in ("left_identity", "right_identity")
    ]
    return Entry(
        data=first["data"],
        norm=first["norm"],
        eps=first["eps"],
        goal=first["goal"],
        attack=first["method"],
        source=first["source"],
        members=first["members"],
        target=first["target"],
        level=first["level"],
        inside=first["inside"],
        threshold=first["threshold"],
        threshold_origin=first["threshold_origin"],
        pair=pair,
        people=(people[0], people[1]),
        won_clean=flags("won_clean"),
        won_passed=flags("won_passed"),
        won_float=flags("won_float"),
        won=flags("won_8bit"),
    )


def _cell_results(cell: Entry) -> Iterator[Result]:
    success = attack_success(cell.won_clean, cell.won)
    estimates = {
        "asr_all": success.asr_all,
        "asr_clean_correct": success.asr_clean_correct,
        "robust_acc": success.robust_acc,
        "asr_all_float": rate(cell.won_float),
        "asr_unattacked": rate(cell.won_passed),
    }
    for metric, estimate in estimates.items():
        yield _result(cell, metric, estimate, model=cell.target, condition=f"from {cell.source}")


def _means(cells: Sequence[Entry]) -> Iterator[Result]:
    """Yield row, column and overall means of one attack's matrix, and those of each level."""
    across = [cell for cell in cells if not cell.inside]
    alone = comparable(across)
    for source in dict.fromkeys(cell.source for cell in across):
        row = [cell for cell in across if cell.source == source]
        yield _result(row[0], "source_strength", pooled(row), model=source)
    for target in dict.fromkeys(cell.target for cell in alone):
        column = [cell for cell in alone if cell.target == target]
        yield _result(column[0], "target_weakness", pooled(column), model=target)
    if alone:
        yield _result(alone[0], "transfer_mean", pooled(alone), model="all models")
    # Level F is the target itself; records of version 1 also gave it to ensembles with the target.
    known = [cell for cell in cells if cell.level and not (cell.level == "F" and cell.ensemble)]
    for target, level in dict.fromkeys((cell.target, cell.level) for cell in known):
        # FACESEC's attacker uses all that the level gives him, the largest set of surrogates; of
        # several as large, single ones above all, the one that serves him best.
        fitting = [c for c in known if (c.target, c.level) == (target, level)]
        best = max(fitting, key=lambda c: (c.members.count(" + "), float(c.won.mean()), c.source))
        yield _result(best, "asr_level", rate(best.won), model=target, condition=f"level={level}")


def _duels(cells: Sequence[Entry], attacks: Sequence[str]) -> Iterator[Result]:
    """Yield the difference of every two attacks over the same pairs, sources and targets."""
    compared = []
    for first, second in combinations(attacks, 2):
        sides = [
            {
                (c.source, c.target): c
                for c in comparable(cells)
                if c.attack == name and not c.inside
            }
            for name in (first, second)
        ]
        common = [place for place in sides[0] if place in sides[1]]
        pair, gain = _gains([(sides[0][place], sides[1][place]) for place in common])
        if not pair.size:
            continue
        estimate = _resampled([sides[0][place] for place in common], pair, gain, least=-1.0)
        compared.append((first, second, sides[0][common[0]], estimate, wilcoxon(gain, 0 * gain)))
    if not compared:
        return
    adjusted = holm([test.p_value for *_, test in compared])
    for (first, second, cell, estimate, test), p in zip(compared, adjusted, strict=True):
        method = f"{first} - {second}"
        yield _result(cell, "transfer_gain", estimate, model="all models", method=method)
        value = Estimate(float(p), float(p), float(p), test.n, "wilcoxon, Holm")
        yield _result(
            cell, "transfer_gain_p", value, model="all models", method=method, interval=False
        )


def _gains(duels: Sequence[tuple[Entry, Entry]]) -> tuple[NDArray[np.str_], Floats]:
    """Return for each pair how much oftener the first wins, where both attacks have played it.

    An unfinished run has pairs that one attack played from other sources than the other did.
    """
    total: dict[str, list[int]] = {}
    for cells in duels:
        first, second = (dict(zip(c.pair.tolist(), c.won.tolist(), strict=True)) for c in cells)
        for name in first:
            if name in second:
                total.setdefault(name, []).append(int(first[name]) - int(second[name]))
    return np.array(list(total), dtype=np.str_), np.array([np.mean(won) for won in total.values()])


def _resampled(
    cells: Sequence[Entry], pair: NDArray[np.str_], share: Floats, least: float = 0.0
) -> Estimate:
    """Return the mean of one value per pair; the interval resamples people, or pairs."""
    who: dict[str, tuple[str, str]] = {}
    for cell in cells:
        rows = zip(cell.pair.tolist(), *(side.tolist() for side in cell.people), strict=True)
        who.update({name: (left, right) for name, left, right in rows})
    first, second = ([who[name][side] for name in pair.tolist()] for side in (0, 1))
    mean = float(share.mean())
    # Where nothing varies, resampling would claim certainty: the rule of three does not.
    reach = rule_of_three(pair.size)
    wide = max(mean - reach, least), min(mean + reach, 1.0)
    careful = Estimate(mean, *wide, pair.size, "rule of three")
    if len({*first, *second}) < 3 or np.ptp(share) == 0:
        return careful

    def statistic(weights: Floats) -> Floats:
        total = weights.sum(axis=1)
        values: Floats = np.full(len(weights), np.nan)
        np.divide(weights @ share, total, out=values, where=total > 0)
        return values

    try:
        found = bootstrap(statistic, first, second, seed=_SEED, resamples=_RESAMPLES)
    except MetricError:  # so few people that many resamples hold no pair
        return careful
    return Estimate(
        mean, min(found.low, mean), max(found.high, mean), pair.size, found.method, found.level
    )


def _result(
    cell: Entry,
    metric: str,
    estimate: Estimate,
    *,
    model: str,
    condition: str = "",
    method: str = "",
    interval: bool = True,
) -> Result:
    single = condition.startswith(("from ", "level="))
    measured = bool(np.isfinite(estimate.value))
    return Result(
        evaluator="transfer",
        model=model,
        metric=metric,
        value=float(estimate.value) if measured else None,
        low=float(estimate.low) if measured and interval else None,
        high=float(estimate.high) if measured and interval else None,
        n=estimate.n,
        method=method or cell.attack,
        goal=cell.goal,
        norm=cell.budget,
        condition=condition,
        data=cell.data,
        protocol=f"8-bit, {cell.threshold_origin.partition('@')[2] or 'fixed'} thresholds",
        threshold=cell.threshold if single else None,
        threshold_origin=cell.threshold_origin if single else "",
    )
