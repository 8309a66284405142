"""Fixed adversarial suites: made once from surrogates, then scored like a unit test.

RobFace's idea (Zhang et al. 2025): pictures that were optimised beforehand need neither gradients
nor queries of the model under test, so the same suite follows a product through its versions.
Making and scoring are one file, longer than most: what one writes down is what the other has to
hold against the pictures, and neither may be changed alone.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

import onnxfr
from onnxfr.alignment.templates import TEMPLATES
from onnxfr.data.images import decode, to_images
from onnxfr.data.pairs import PairSet
from onnxfr.data.suite import (
    LABEL,
    MANIFEST,
    SuiteFile,
    SuiteManifest,
    SuitePair,
    SuiteSurrogate,
    open_suite,
)
from onnxfr.errors import SpecError, StoreError
from onnxfr.evaluators.attacked import check_needs, games_for
from onnxfr.evaluators.crafting import (
    Surrogate,
    check_budget,
    check_frames,
    craft,
    embed_all,
    fooled,
    make_surrogate,
    parse_budget,
    tell_unplayable,
    transfer_attack,
    widest,
)
from onnxfr.evaluators.games import Games, check_rule, clean_threshold, rows_of
from onnxfr.evaluators.pictures import png, to_pixels
from onnxfr.metrics.attack_success import AttackSuccess, attack_success
from onnxfr.metrics.thresholds import Resolution, Threshold
from onnxfr.models.ensemble import Mode
from onnxfr.models.geometry import fit_array
from onnxfr.probe import Probe
from onnxfr.runs.cells import ModelRef
from onnxfr.runs.context import Context
from onnxfr.runs.files import explained, making
from onnxfr.threat import Threat
from onnxfr.types import Goal, Images

Progress = Callable[[int, int], None]


@dataclass(frozen=True, kw_only=True)
class SuiteOrder:
    """What a suite is made of; ``threshold`` is a rule of ``clean_threshold``."""

    name: str
    models: tuple[str, ...]
    data: str
    attack: str = "lgc"
    budget: str = "linf:8/255"
    goals: tuple[Goal, ...] = (Goal.DODGE, Goal.IMPERSONATE)
    pairs: int = 100
    steps: int = 100
    mode: Mode = "margin"
    threshold: str = "fmr=1e-3"
    align: str = "auto"
    landmarks: str = ""
    seed: int = 0


@dataclass(frozen=True)
class GoalScore:
    """How a model stands on the pairs of one goal."""

    goal: Goal
    success: AttackSuccess
    wrong_clean: int


@dataclass(frozen=True)
class SuiteScore:
    """How a model stands on a suite."""

    suite: str
    model: str
    threshold: Threshold
    goals: tuple[GoalScore, ...]
    notes: tuple[str, ...]


def make_suite(
    context: Context, order: SuiteOrder, folder: Path, report: Progress = lambda a, b: None
) -> SuiteManifest:
    """Attack the surrogates as one, and write pictures and manifest into a new folder."""
    if folder.exists() and (not folder.is_dir() or any(folder.iterdir())):
        raise StoreError(
            f"{folder} is there already; a suite is never changed: choose a new folder"
        )
    if not re.fullmatch(LABEL, order.name):
        raise SpecError(
            f"a suite's name has letters, digits, '.', '_' and '-' only, got {order.name!r}"
        )
    norm, eps = parse_budget(order.budget)
    check_budget(norm, eps)
    check_rule(order.threshold)
    threat, attack = Threat(norm=norm, eps=eps), transfer_attack(order.attack, order.steps)
    check_needs((attack,), order.landmarks)
    members = [context.identify(name) for name in dict.fromkeys(order.models)]
    frame = members[widest(map(context.card, members))]
    data = context.describe(order.data, seed=order.seed)
    check_frames(context, members, data, align=order.align)
    drawn = {goal: _drawn(context.pairs(data), goal, order) for goal in order.goals}
    surrogate = make_surrogate(
        context, members, order.mode, data, order.threshold, align=order.align
    )
    with making(folder) as part:
        pairs: list[SuitePair] = []
        for goal, rows in drawn.items():
            games = games_for(
                context,
                frame,
                data,
                rows,
                attack,
                align=order.align,
                seed=order.seed,
                landmarks=order.landmarks,
            )
            tell_unplayable(games, goal)
            made = craft(
                surrogate, games.probe, attack, threat, goal, seed=order.seed, report=report
            )
            made = threat.as_file(games.probe.images, made)
            people = _people(context.pairs(data), games)
            pairs.extend(_write_goal(part, goal, games.probe, made, people, surrogate))
        card = context.model(frame).card
        manifest = SuiteManifest(
            name=order.name,
            made_with=f"onnxfr {onnxfr.__version__}",
            attack=attack.label,
            parameters=attack.parameters(),
            norm=norm,
            eps=eps,
            seed=order.seed,
            mode=order.mode,
            height=card.input_height,
            width=card.input_width,
            template=card.template,
            data=data.name,
            data_fingerprint=data.fingerprint,
            surrogates=_surrogates(members, surrogate),
            licence=_licence(data.name, surrogate),
            pairs=tuple(pairs),
        )
        _write_file(part / MANIFEST, (manifest.model_dump_json(indent=1) + "\n").encode())
    return manifest


def score_suite(
    context: Context, model: str, folder: Path, *, rule: str = "fmr=1e-3", data: str | None = None
) -> SuiteScore:
    """Score a model on a suite.

    Args:
        context: where models and caches are.
        model: the model under test.
        folder: the suite.
        rule: how the model's threshold is found, see ``clean_threshold``.
        data: clean pairs to find it on; the suite's own clean pairs by default, which are few.
    """
    manifest, files = open_suite(folder)
    ref = context.identify(model)
    clean_pairs = context.describe(data or f"suite:{folder},part=clean")
    threshold = clean_threshold(context, ref, clean_pairs, rule)
    loaded = context.model(ref)
    size = loaded.card.input_size

    def embed(entries: Sequence[SuiteFile]) -> Images:
        pictures = [decode(files[entry.file].read_bytes(), entry.file) for entry in entries]
        return embed_all(loaded, fit_array(to_images(pictures), size))

    goals = []
    for goal in dict.fromkeys(pair.goal for pair in manifest.pairs):
        mine = [pair for pair in manifest.pairs if pair.goal is goal]
        references = embed([pair.reference for pair in mine])
        won_clean, won = (
            fooled(np.einsum("nd,nd->n", embed(entries), references), threshold.value, goal)
            for entries in ([pair.clean for pair in mine], [pair.adversarial for pair in mine])
        )
        goals.append(GoalScore(goal, attack_success(won_clean, won), int(won_clean.sum())))
    notes = []
    if ref.sha256 in {surrogate.sha256 for surrogate in manifest.surrogates}:
        notes.append("this model helped to make the suite: its score is a white-box one")
    made_in = manifest.template, (manifest.height, manifest.width)
    wanted = loaded.card.template, size
    if _frame(*made_in) != _frame(*wanted):
        notes.append(
            f"the suite is aligned to {_told(*made_in)}, this model wants {_told(*wanted)}: it "
            "sees these faces in another place or size than those it was made for"
        )
    if threshold.resolution is Resolution.UNRESOLVED:
        notes.append(
            f"{clean_pairs.name} has too few impostor pairs for the threshold's false-match rate; "
            "name more clean pairs, or state a threshold"
        )
    return SuiteScore(manifest.name, ref.name, threshold, tuple(goals), tuple(notes))


def _frame(template: str, size: tuple[int, int]) -> tuple[object, ...]:
    # A manifest may come from somebody who has templates that this installation does not know.
    known = template in TEMPLATES
    return TEMPLATES.get(template).frame(size) if known else (template, *size)


def _told(template: str, size: tuple[int, int]) -> str:
    return f"{template} at {size[0]}x{size[1]}"


def _drawn(pairs: PairSet, goal: Goal, order: SuiteOrder) -> tuple[str, ...]:
    if order.pairs < 1:
        raise SpecError(f"a suite has at least one pair of each goal; got pairs={order.pairs}")
    rows = rows_of(pairs, goal, order.pairs, order.seed)
    if not rows:
        raise SpecError(f"{pairs.name} has no pair to {goal} with; leave that goal out")
    return rows


def _people(pairs: PairSet, games: Games) -> list[tuple[str | None, str | None]]:
    return [
        (pairs.images[int(pairs.left[row])].identity, pairs.images[int(pairs.right[row])].identity)
        for row in games.rows
    ]


def _write_goal(
    folder: Path,
    goal: Goal,
    probe: Probe,
    made: Images,
    people: Sequence[tuple[str | None, str | None]],
    surrogate: Surrogate,
) -> Iterator[SuitePair]:
    assert probe.references is not None, "games are made with their references"
    wins = np.zeros(len(made), dtype=np.int64)
    for model, threshold in zip(surrogate.members, surrogate.thresholds, strict=True):
        pair = (
            embed_all(model, fit_array(x, model.card.input_size)) for x in (made, probe.references)
        )
        wins += fooled(np.einsum("nd,nd->n", *pair), threshold.value, goal)
    for k, name in enumerate(probe.ids):
        entries = {}
        kinds = {"clean": probe.images, "adversarial": made, "reference": probe.references}
        for kind, images in kinds.items():
            content = png(to_pixels(images[k]))
            file = f"{goal}/{k:05d}-{kind}.png"
            _write_file(folder / file, content)
            entries[kind] = SuiteFile(file=file, sha256=hashlib.sha256(content).hexdigest())
        yield SuitePair(
            id=name,
            goal=goal,
            clean=entries["clean"],
            adversarial=entries["adversarial"],
            reference=entries["reference"],
            left_identity=people[k][0],
            right_identity=people[k][1],
            won_surrogates=int(wins[k]),
        )


def _write_file(place: Path, content: bytes) -> None:
    with explained(place, kept=""):
        place.parent.mkdir(exist_ok=True)
        place.write_bytes(content)


def _surrogates(members: Sequence[ModelRef], surrogate: Surrogate) -> tuple[SuiteSurrogate, ...]:
    return tuple(
        SuiteSurrogate(
            name=ref.name,
            sha256=ref.sha256,
            licence=model.card.licence,
            threshold=threshold.value,
            threshold_origin=threshold.origin,
        )
        for ref, model, threshold in zip(
            members, surrogate.members, surrogate.thresholds, strict=True
        )
    )


def _licence(data: str, surrogate: Surrogate) -> str:
    models = ", ".join(f"{model.name} ({model.card.licence})" for model in surrogate.members)
    return (
        f"The pictures are copies of {data}, changed: its terms apply to them. They were made with "
        f"{models}; some licences restrict what is made with the weights. Use them to test "
        "verifiers that you may test."
    )
