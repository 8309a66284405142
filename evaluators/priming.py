"""Starts from a surrogate: a transfer example that is often won already, and near the clean face.

An attack that may only ask for yes or no spends its first hundreds of questions on the way in from
somebody else's face. Whoever holds a network of his own begins much closer: its white-box example
costs no question until it is shown, and one that fails costs one.
"""

from __future__ import annotations

from collections.abc import Sequence

import cv2
import numpy as np

from onnxfr.alignment.aligner import AlignedFace, Aligner
from onnxfr.attacks import make_attack
from onnxfr.data.images import to_images
from onnxfr.errors import SpecError
from onnxfr.evaluators.crafting import Surrogate, craft, make_surrogate
from onnxfr.evaluators.pictures import to_pixels
from onnxfr.probe import Probe, round8
from onnxfr.runs.cells import Cell, ModelRef
from onnxfr.runs.context import Context
from onnxfr.threat import Threat
from onnxfr.types import Goal, Images

_EPS = 16 / 255
_STEPS = 20


def identify_surrogate(context: Context, name: str) -> ModelRef:
    """Return the model that a setting names, which must be able to give gradients."""
    other = context.identify(name)
    if not context.model(other).differentiable:
        raise SpecError(
            f"the surrogate {other.name} has no differentiable form, and a surrogate is asked for "
            "gradients; choose a model that has one"
        )
    return other


def surrogate_of(cell: Cell, context: Context) -> Surrogate:
    """Load the surrogate of a cell, with a threshold of its own: the target's means nothing."""
    rule, align = cell.params["threshold"], cell.params["align"]
    if rule.startswith("fixed"):
        rule = "oracle"
    return make_surrogate(context, cell.others, "margin", cell.data, rule, align=align)


def primed(surrogate: Surrogate, probe: Probe, goal: Goal, seed: int) -> Images:
    """Return a bold transfer example for each game."""
    threat = Threat(norm="linf", eps=_EPS)
    bold = make_attack("mim", {"steps": _STEPS})
    return craft(surrogate, probe, bold, threat, goal, seed=seed)


def primed_photographs(
    surrogate: Surrogate, probe: Probe, goal: Goal, seed: int, aligner: Aligner
) -> Images:
    """Return starts for whole photographs: the surrogate attacks the crop, the change goes back.

    The crop is the one ``aligner`` cuts, and its change is laid onto the photograph where the face
    is. A photograph without a face the surrogate could use is its own start, which no attack asks
    about.
    """
    assert probe.references is not None, "games are made with their references"
    cuts = [_cut(aligner, pair) for pair in zip(probe.images, probe.references, strict=True)]
    rows = np.array([row for row, cut in enumerate(cuts) if cut is not None], dtype=np.intp)
    starts = probe.images.copy()
    if not rows.size:
        return starts
    faces, references = zip(*(cut for cut in cuts if cut is not None), strict=True)
    crops = Probe(_images(faces), tuple(probe.ids[row] for row in rows), _images(references))
    changes = primed(surrogate, crops, goal, seed) - crops.images
    for row, face, change in zip(rows, faces, changes, strict=True):
        starts[row] = round8(np.clip(starts[row] + _laid(change, face, starts.shape[2:]), 0, 1))
    return starts


def _cut(aligner: Aligner, pair: Sequence[Images]) -> tuple[AlignedFace, AlignedFace] | None:
    probe, reference = (aligner.align(to_pixels(picture)) for picture in pair)
    if isinstance(probe, AlignedFace) and isinstance(reference, AlignedFace):
        return probe, reference
    return None


def _images(faces: Sequence[AlignedFace]) -> Images:
    return to_images([face.pixels for face in faces])


def _laid(change: Images, face: AlignedFace, size: tuple[int, ...]) -> Images:
    """Return the change of a crop in the photograph it was cut from; nothing around it changes."""
    laid = cv2.warpAffine(
        change.transpose(1, 2, 0),
        face.matrix,
        size[::-1],
        flags=cv2.INTER_LINEAR | cv2.WARP_INVERSE_MAP,
    )
    return np.asarray(laid, dtype=np.float32).transpose(2, 0, 1)
