"""From games to flat records: attack them, judge the pictures, measure, and keep a few to look at.

Whatever an attack evaluator stores about a pair is made here, so that white-box, transfer and query
records have the same columns. A randomised model is recognised by its answers: its gradients are
averaged over several calls, and its wins are judged by the mean margin of fresh ones.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable
from dataclasses import dataclass, replace
from typing import Any, Literal

import numpy as np
import torch

from onnxfr.attacks import ATTACKS, Attack, AttackResult
from onnxfr.data.pairs import PairSet
from onnxfr.errors import SpecError
from onnxfr.evaluators.faces import needs_alignment
from onnxfr.evaluators.games import Games, load_games
from onnxfr.evaluators.landmarks import check_landmarks, find_landmarks
from onnxfr.evaluators.pictures import thumbnail, to_pixels
from onnxfr.metrics.perceptual import distortion
from onnxfr.metrics.thresholds import Threshold
from onnxfr.models.answers import chunks, embed_each
from onnxfr.models.wrapper import FRModel
from onnxfr.oracle import Oracle
from onnxfr.probe import Probe
from onnxfr.runs.cells import DataRef, ModelRef, Rows
from onnxfr.runs.context import Context
from onnxfr.threat import Threat
from onnxfr.types import Goal, Images

Precision = Literal["float32", "float64"]
PICTURES = ("clean_picture", "adversarial_picture", "difference_picture", "reference_picture")
"""Binary columns, JPEG, filled for the pairs to show."""

EOT_SAMPLES = 20
FRESH_LOOKS = 10
_NOT_RANDOM = 1e-6
_AT_ONCE = 64
_SILENT = "the model has no finite answer for the picture as it is (NaN or infinity)"


@dataclass(frozen=True, kw_only=True)
class Rules:
    """How games are played; ``samples`` 0 means: 1, or ``EOT_SAMPLES`` for a randomised model.

    ``looks`` are taken by the judge; what a randomised model says once is no verdict.
    """

    goal: Goal
    threat: Threat
    threshold: Threshold
    seed: int = 0
    samples: int = 0
    looks: int = 1
    precision: Precision = "float32"
    batch_size: int = 64
    quantise: bool = False
    jpeg: int | None = None

    def oracle(self, model: FRModel, probe: Probe, threat: Threat | None = None) -> Oracle:
        """Return a fresh window on a model under these rules, or under another threat."""
        return Oracle(
            model,
            probe,
            threat or self.threat,
            goal=self.goal,
            threshold=self.threshold.value,
            samples=max(self.samples, 1),
            looks=self.looks,
            dtype=torch.float64 if self.precision == "float64" else torch.float32,
            batch_size=self.batch_size,
            quantise=self.quantise,
            jpeg=self.jpeg,
        )


@dataclass(frozen=True)
class Fought:
    """What came of attacking some games."""

    result: AttackResult
    rules: Rules
    """As played: ``samples`` is what was used."""
    randomised: bool


def games_for(
    context: Context,
    model: ModelRef,
    data: DataRef,
    rows: Rows,
    attack: Attack,
    *,
    align: str = "auto",
    seed: int = 0,
    landmarks: str = "",
) -> Games:
    """Read the games of some rows with all that an attack needs: other faces, landmarks.

    Args:
        context: where models and caches are.
        model: decides the size and the alignment template.
        data: the pairs.
        rows: which of them.
        attack: says what it needs.
        align: whether pictures are aligned here (auto, yes, no).
        seed: draws the other faces.
        landmarks: where the dense-landmark network comes from, see ``find_landmarks``.
    """
    needs = needs_of(attack)
    games = load_games(
        context, model, data, rows, align=align, pool_seed=seed if "pool" in needs else None
    )
    if "landmarks" in needs and len(games.probe):
        cut = needs_alignment(context.pairs(data), align)
        template = context.model(model).card.template if cut else None
        points = find_landmarks(context, games.probe.images, landmarks, template)
        games = replace(games, probe=replace(games.probe, landmarks=points))
    return games


def needs_of(attack: Attack) -> set[str]:
    """Return the optional fields of a probe that an attack or any part of it needs."""
    inner = getattr(attack, "attack", attack)
    parts = getattr(inner, "parts", ())
    return {*inner.needs, *(need for part in parts for need in ATTACKS.get(part).needs)}


def check_needs(attacks: Iterable[Attack], landmarks: str = "") -> None:
    """Raise where an attack needs what its evaluator cannot give it; plans ask before the work."""
    for attack in attacks:
        needs = needs_of(attack)
        if "basis" in needs:
            raise SpecError(
                f"{attack.label} asks where a surrogate is sensitive; run it with the evaluator "
                "query and its setting surrogate, or choose space=spatial or space=cosine"
            )
        if "landmarks" in needs:
            check_landmarks(landmarks)


def fight(model: FRModel, probe: Probe, attack: Attack, rules: Rules) -> Fought:
    """Attack every game of a probe under the rules."""
    randomised = is_randomised(model, probe)
    if rules.samples == 0:
        rules = replace(rules, samples=EOT_SAMPLES if randomised else 1)
    if randomised:
        rules = replace(rules, looks=FRESH_LOOKS)
    oracle = rules.oracle(model, probe)
    result = attack(oracle, probe, rules.threat, seed=rules.seed)
    return Fought(result, rules, randomised)


def is_randomised(model: FRModel, probe: Probe) -> bool:
    """Tell whether two looks at the same pictures differ by more than rounding."""
    some = probe.images[:4]
    if not len(some):
        return False
    gap = np.abs(embed_each(model, some) - embed_each(model, some))
    return bool((gap > _NOT_RANDOM).any())


def answered(model: FRModel, games: Games) -> Games:
    """Return the games without the pairs for which the model has no finite answer as they are.

    Attacking those measures nothing: no answer is no win, so they would count for the model.
    """
    probe = games.probe
    assert probe.references is not None, "games are made with their references"
    finite = np.ones(len(probe), dtype=np.bool_)
    for side in (probe.images, probe.references):
        for part in chunks(np.arange(len(probe)), _AT_ONCE):
            finite[part] &= np.isfinite(embed_each(model, side[part])).all(axis=1)
    if finite.all():
        return games
    silent = {int(row): _SILENT for row in games.rows[~finite]}
    kept = np.flatnonzero(finite)
    return Games(probe.take(kept), games.rows[kept], games.unplayable | silent)


def records_of(
    pairs: PairSet, games: Games, fought: Fought, shown: Collection[str] = ()
) -> list[dict[str, Any]]:
    """Return one flat record per pair, played or not; ``shown`` pairs keep their pictures."""
    result, probe, rules = fought.result, games.probe, fought.rules
    first_win = gradients_to_win(result)
    measured = distortion(probe.images, result.images)
    no_pictures = dict.fromkeys((*PICTURES, "difference_gain"))
    records = []
    for k, row in enumerate(games.rows.tolist()):
        record = identity_of(pairs, row, rules) | {
            "outcome": "played",
            "reason": None,
            "randomised": fought.randomised,
            "samples": rules.samples,
            "won": bool(result.won[k]),
            "won_8bit": bool(result.won_8bit[k]),
            "won_clean": bool(result.won_clean[k]),
            "margin": float(result.margin[k]),
            "margin_8bit": float(result.margin_8bit[k]),
            "distance": float(result.distance[k]),
            "linf": float(measured.linf[k]),
            "l2": float(measured.l2[k]),
            "l2n": float(measured.l2n[k]),
            "psnr": float(measured.psnr[k]) if np.isfinite(measured.psnr[k]) else None,
            "ssim": float(measured.ssim[k]),
            "queries": int(result.queries[k]),
            "gradients": int(result.gradients[k]),
            "bad_gradients": int(result.bad_gradients[k]),
            "gradients_to_win": first_win[k],
        }
        kept = pictures_of(probe, result.images, k) if probe.ids[k] in shown else no_pictures
        records.append(record | kept)
    return [*records, *unplayed(pairs, games, rules)]


def unplayed(pairs: PairSet, games: Games, rules: Rules) -> list[dict[str, Any]]:
    """Return the records of pairs that have no game, with the reason."""
    return [
        identity_of(pairs, row, rules) | {"outcome": "unplayable", "reason": reason}
        for row, reason in games.unplayable.items()
    ]


def gradients_to_win(result: AttackResult) -> list[int | None]:
    """Return after how many gradients each row first won; None where it did not, 0 if it had."""
    found: list[int | None] = [None] * len(result.won)
    for entry in result.trace:
        if found[entry.row] is None:
            found[entry.row] = entry.gradients
    for k in range(len(found)):
        if result.won_clean[k]:
            found[k] = 0
        elif not result.won[k]:
            found[k] = None
        elif found[k] is None:
            found[k] = int(result.gradients[k])
    return found


def identity_of(pairs: PairSet, row: int, rules: Rules) -> dict[str, Any]:
    """Return the columns that say which game a record is about."""
    left, right = pairs.images[int(pairs.left[row])], pairs.images[int(pairs.right[row])]
    eps = rules.threat.eps
    return {
        "pair": pairs.pair_ids()[row],
        "left": left.id,
        "right": right.id,
        "left_identity": left.identity,
        "right_identity": right.identity,
        "same": bool(pairs.same[row]),
        "goal": str(rules.goal),
        "norm": rules.threat.norm,
        "eps": None if eps is None else float(np.asarray(eps)),
        "threshold": rules.threshold.value,
        "threshold_origin": rules.threshold.origin,
    }


def pictures_of(probe: Probe, images: Images, k: int) -> dict[str, Any]:
    """Return game k as small pictures: clean, attacked, the change enlarged, the reference."""
    assert probe.references is not None, "games are made with their references"
    change = images[k] - probe.images[k]
    gain = float(0.5 / max(np.abs(change).max(), 1e-6))
    faces = (probe.images[k], images[k], 0.5 + gain * change, probe.references[k])
    small = [thumbnail(to_pixels(face)) for face in faces]
    return dict(zip(PICTURES, small, strict=True)) | {"difference_gain": gain}
