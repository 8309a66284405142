"""Pairs of a data set as games against one model: what is attacked, and at which threshold.

Dodging starts from genuine pairs and impersonation from impostor pairs; the left picture may be
changed, the right one is the reference. The threshold is measured on the clean pairs of the whole
data set, whichever rows a cell holds, so that cutting a run into cells never moves it.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from weakref import WeakKeyDictionary

import numpy as np
from numpy.typing import NDArray
from scipy.sparse import coo_array
from scipy.sparse.csgraph import connected_components

from onnxfr.alignment.aligner import Rejection
from onnxfr.data.images import image_sha, load_pixels, to_images
from onnxfr.data.pairs import ImageSource, PairSet
from onnxfr.errors import DataError, SpecError
from onnxfr.evaluators.base import PlanContext
from onnxfr.evaluators.crops import CropStore
from onnxfr.evaluators.faces import crop_store, embed_faces, needs_alignment
from onnxfr.evaluators.scored import finest_target
from onnxfr.metrics.protocols import oracle_accuracy
from onnxfr.metrics.thresholds import Threshold, checked_cosine, threshold_at_fmr
from onnxfr.models.geometry import fit_array
from onnxfr.probe import Probe
from onnxfr.rng import RowRng
from onnxfr.runs.cells import DataRef, ModelRef, Rows, take_rows
from onnxfr.runs.context import Context
from onnxfr.types import Goal, Images

_STRANGERS = 16
"""Faces of other people that every pair's attacker holds, where the data set has as many people."""
_MOST_ROWS, _FEWEST_ROWS = 50, 8
_QUESTIONS_OF_A_BLOCK = 100_000
_ROUNDING = 1e-6
"""A measured threshold is the score of a pair that it refuses; summed in another order or batch the
same score may be a little higher."""

_Measured = dict[tuple[str, str, str, str], Threshold]
_thresholds: WeakKeyDictionary[Context, _Measured] = WeakKeyDictionary()


@dataclass(frozen=True)
class Games:
    """The games of some rows of a data set, and the pairs that could not be played."""

    probe: Probe
    rows: NDArray[np.intp]
    """The position in the data set of each game."""
    unplayable: dict[int, str]
    """Why pairs (by position) have no game: an unreadable picture, or no face in it."""

    def refused(self, reason: str) -> Games:
        """Return the same pairs with none of them played, all for one reason."""
        rows = {int(row): reason for row in self.rows}
        nobody = self.rows[:0]
        return Games(self.probe.take(nobody), nobody, self.unplayable | rows)


def rows_of(pairs: PairSet, goal: Goal, limit: int | None = None, seed: int = 0) -> tuple[str, ...]:
    """Return the ids of the pairs that a goal starts from, at most ``limit``, drawn by seed.

    A pair's rank depends on the seed and its own id, so a smaller draw is part of a larger one.
    """
    ids = pairs.pair_ids()
    return tuple(ids[row] for row in sorted(_drawn(pairs, ids, goal, seed)[:limit]))


def blocks_of(
    pairs: PairSet, goal: Goal, limit: int | None, seed: int, size: int
) -> list[tuple[str, ...]]:
    """Return the same draw in the order of its ranks, cut into blocks.

    A larger draw begins with the full blocks of a smaller one, so that their cells are reused.
    """
    ids = pairs.pair_ids()
    drawn = [ids[row] for row in _drawn(pairs, ids, goal, seed)[:limit]]
    return [tuple(drawn[k : k + size]) for k in range(0, len(drawn), size)]


def block_rows(wanted: int, questions: int = 0) -> int:
    """Return how many pairs make a block: a process that is killed loses what its block has done.

    Blocks of attacks that ask many questions a pair are smaller, but fill the batches of an engine.
    """
    most = min(_MOST_ROWS, _QUESTIONS_OF_A_BLOCK // questions) if questions else _MOST_ROWS
    return min(wanted, max(most, _FEWEST_ROWS))


def _drawn(pairs: PairSet, ids: Sequence[str], goal: Goal, seed: int) -> list[int]:
    rows = np.flatnonzero(pairs.same if goal is Goal.DODGE else ~pairs.same)
    luck = RowRng(seed, [ids[int(row)] for row in rows], "rows").uniform(0.0, 1.0, (1,))[:, 0]
    return [int(row) for row in rows[np.argsort(luck, kind="stable")]]


def clean_threshold(
    context: Context, model: ModelRef, data: DataRef, rule: str, *, align: str = "auto"
) -> Threshold:
    """Return the threshold of a model that a rule gives on clean pairs, with its origin.

    Args:
        context: where models and caches are.
        model: the verifier.
        data: the pairs it is measured on.
        rule: ``fmr=1e-3`` (coarser where the data cannot resolve it), ``oracle`` (best accuracy on
            these very pairs, as RobFR and OODFace do), ``card`` (the first on the model's card) or
            ``fixed=0.3``.
        align: whether pictures are aligned here (auto, yes, no).
    """
    known = _thresholds.setdefault(context, {})
    key = (model.sha256, data.fingerprint, rule, align)
    if key not in known:
        known[key] = _measure(context, model, data, rule, align)
    return known[key]


def check_rule(rule: str) -> None:
    """Raise unless a rule of ``clean_threshold`` can be followed; plans ask before the work."""
    kind, equals, value = rule.partition("=")
    if kind not in ("fmr", "fixed", "oracle", "card") or (kind in ("oracle", "card") and equals):
        raise SpecError(f"a threshold rule is fmr=…, oracle, card or fixed=…; got {rule!r}")
    if kind == "fixed":
        checked_cosine(_number(rule, value), rule)
    if kind == "fmr" and not 0 < _number(rule, value) < 1:
        raise SpecError(f"a false-match rate lies between 0 and 1; got {rule!r}")


def planned_rule(wished: str, plan: PlanContext, models: Iterable[ModelRef]) -> str:
    """Return the rule a plan follows, the run's FMR where none is wished for.

    A rule that one of the models cannot follow is refused here, before the work.
    """
    rule = wished or f"fmr={plan.fmr:g}"
    check_rule(rule)
    if rule == "card":
        for model in models:
            plan.context.card(model).threshold()
    return rule


def load_games(
    context: Context,
    model: ModelRef,
    data: DataRef,
    rows: Rows,
    *,
    align: str = "auto",
    pool_seed: int | None = None,
) -> Games:
    """Read the pictures of some pairs at a model's input size.

    Args:
        context: where models and caches are.
        model: decides the size and the alignment template.
        data: the pairs.
        rows: which of them.
        align: whether pictures are aligned here (auto, yes, no).
        pool_seed: also give the attacker other people's faces, drawn with this seed.
    """
    pairs = context.pairs(data)
    ids = pairs.pair_ids()
    chosen = take_rows(ids, rows)
    loaded = context.model(model)
    crops = crop_store(context, loaded) if needs_alignment(pairs, align) else None
    size = loaded.card.input_size
    wanted = sorted({int(side[row]) for row in chosen for side in (pairs.left, pairs.right)})
    pictures = {index: _picture(pairs.images[index], crops, size) for index in wanted}
    unplayable, played = {}, []
    for row in chosen:
        sides = pictures[int(pairs.left[row])], pictures[int(pairs.right[row])]
        reasons = [side for side in sides if isinstance(side, str)]
        if reasons:
            unplayable[row] = reasons[0]
        else:
            played.append(row)
    positions = np.array(played, dtype=np.intp)
    probe = Probe(
        _stack([pictures[int(i)] for i in pairs.left[positions]], size),
        tuple(ids[row] for row in played),
        references=_stack([pictures[int(i)] for i in pairs.right[positions]], size),
    )
    if pool_seed is not None:
        people = people_of(pairs)
        pool, owners = _pool(pairs, people, crops, size, pool_seed)
        both = people[pairs.left[positions]], people[pairs.right[positions]]
        strangers = np.logical_and(*(side[:, None] != owners for side in both))
        probe = replace(probe, pool=pool, strangers=strangers)
    return Games(probe, positions, unplayable)


def _measure(context: Context, model: ModelRef, data: DataRef, rule: str, align: str) -> Threshold:
    check_rule(rule)
    kind, _, value = rule.partition("=")
    if kind == "fixed":
        return Threshold(_number(rule, value))
    if kind == "card":
        entry = context.model(model).card.threshold()
        return Threshold(entry.value, entry.origin)
    pairs = context.pairs(data)
    crops = crop_store(context, context.model(model)) if needs_alignment(pairs, align) else None
    faces = embed_faces(context, model, pairs, crops=crops)
    usable = faces.usable[pairs.left] & faces.usable[pairs.right]
    left, right = faces.embeddings[pairs.left[usable]], faces.embeddings[pairs.right[usable]]
    scores = np.einsum("nd,nd->n", left.astype(np.float64), right.astype(np.float64))
    same = pairs.same[usable]
    name = data.name.replace("@", "-").replace(" ", "-")
    if kind == "oracle":
        found = oracle_accuracy(scores, same, data=name).threshold
    else:
        target = finest_target(_number(rule, value), int((~same).sum()))
        found = threshold_at_fmr(scores, same, target, data=name)
    return replace(found, value=found.value + _ROUNDING)


def _number(rule: str, value: str) -> float:
    try:
        return float(value)
    except ValueError as bad:
        raise SpecError(f"expected a number behind '=' in the rule {rule!r}") from bad


def _picture(source: ImageSource, crops: CropStore | None, size: tuple[int, int]) -> Images | str:
    """Return one picture as ``(1, 3, H, W)``, or why there is none."""
    try:
        pixels = (
            load_pixels(source)
            if crops is None
            else crops.crop(source, crops.key(source, image_sha(source)))
        )
    except DataError as error:
        return str(error)
    if isinstance(pixels, Rejection):
        return f"{source.id}: {pixels.reason}"
    # Interpolation may leave [0, 1] by a rounding error, which a probe would refuse.
    return np.clip(fit_array(to_images([pixels]), size), 0.0, 1.0)


def _stack(pictures: Sequence[Images | str], size: tuple[int, int]) -> Images:
    images = [picture for picture in pictures if not isinstance(picture, str)]
    return np.concatenate(images) if images else np.zeros((0, 3, *size), dtype=np.float32)


def _pool(
    pairs: PairSet,
    people: NDArray[np.int32],
    crops: CropStore | None,
    size: tuple[int, int],
    seed: int,
) -> tuple[Images, NDArray[np.int32]]:
    """Return faces of different people, the same for every cell of a data set, and whose they are.

    There are as many as make ``_STRANGERS`` for every pair, whoever its two people are.
    """
    names = [image.id for image in pairs.images]
    luck = RowRng(seed, names, "pool").uniform(0.0, 1.0, (1,))[:, 0]
    found: dict[int, Images] = {}
    for index in np.argsort(luck, kind="stable"):
        person = int(people[index])
        picture = None if person in found else _picture(pairs.images[index], crops, size)
        if picture is not None and not isinstance(picture, str):
            found[person] = picture
        if len(found) == _STRANGERS + 2:
            break
    return _stack(list(found.values()), size), np.array(list(found), dtype=np.int32)


def people_of(pairs: PairSet) -> NDArray[np.int32]:
    """Return a number for who is on each picture: one for all that are said to show one person.

    Not every data set names people; what its genuine pairs tell is known all the same.
    """
    names: dict[str, int] = {}
    one, other = pairs.left[pairs.same].tolist(), pairs.right[pairs.same].tolist()
    for index, image in enumerate(pairs.images):
        if image.identity is not None:
            one.append(index)
            other.append(len(pairs.images) + names.setdefault(image.identity, len(names)))
    every = len(pairs.images) + len(names)
    said = coo_array((np.ones(len(one)), (one, other)), shape=(every, every))
    found: NDArray[np.int32] = connected_components(said, directed=False)[1]
    return found[: len(pairs.images)]
