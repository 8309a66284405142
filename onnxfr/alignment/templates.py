"""Where five landmarks belong in a crop: the frames face-recognition networks were trained on.

A template is a rule from a crop size to five target points (left eye, right eye, nose tip, left and
right mouth corner as the viewer sees them), so one name covers every size. ``whole`` has no points:
the picture is taken as it is and only resized.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from onnxfr.alignment.geometry import Matrix, Points, similarity_transform
from onnxfr.errors import AlignmentError
from onnxfr.registry import Registry

Size = tuple[int, int]
"""Crop size as (height, width)."""

MIN_SIDE, MAX_SIDE = 16, 2048

_ARCFACE_112 = (
    (38.2946, 51.6963),
    (73.5318, 51.5014),
    (56.0252, 71.7366),
    (41.5493, 92.3655),
    (70.7299, 92.2041),
)

_DLIB_150 = (
    (46.38, 45.53),
    (101.64, 45.53),
    (74.01, 79.26),
    (49.80, 103.67),
    (98.22, 103.67),
)
"""Where YuNet's points lie, on average over 219 LFW faces and made symmetric, in chips cut by dlib
itself with padding 0.25: it aligns by eye corners and nose base, which YuNet does not give."""


@dataclass(frozen=True)
class Template:
    """A named rule from a crop size to the five target points; ``None`` means no alignment."""

    name: str
    size: Size
    about: str
    rule: Callable[[Size], Points] | None

    def points(self, size: Size | None = None) -> Points:
        """Return the ``(5, 2)`` target points for a crop of ``size`` (the usual size if None)."""
        if self.rule is None:
            raise AlignmentError(
                f"template {self.name!r} has no landmarks: the whole picture is resized; "
                "choose another template to align faces"
            )
        return self.rule(check_size(size or self.size))

    def frame(self, size: Size) -> tuple[object, ...]:
        """Return what two sizes share if crops of one, matched in height, are crops of the other.

        Not all sizes of a template do: InsightFace's squares of 128 show more around the face.
        """
        if self.rule is None:
            return (self.name,)
        height, width = size
        places = (self.points(size) - (width / 2, 0.0)) / height
        return self.name, *np.round(places, 3).flatten().tolist()


TEMPLATES: Registry[Template] = Registry("template")


def check_size(size: Size) -> Size:
    """Return ``size`` or refuse it."""
    if not all(MIN_SIDE <= side <= MAX_SIDE for side in size):
        raise AlignmentError(
            f"expected crop sides between {MIN_SIDE} and {MAX_SIDE} pixels, "
            f"got {size[0]}x{size[1]} (height x width)"
        )
    return size


def warp_between(
    source: Template, source_size: Size, target: Template, target_size: Size
) -> Matrix:
    """Return the map from crops of one template to another's, without the original picture.

    Exact between sizes of one template. Between families it is the best similarity of the two
    point sets; ``geometry.coverage`` tells how much of the target the source crop can fill.
    """
    return similarity_transform(source.points(source_size), target.points(target_size))


def _arcface(size: Size) -> Points:
    height, width = size
    points: Points = np.array(_ARCFACE_112)
    if height == width and height % 128 == 0:
        points[:, 0] += 8
        return points * (height / 128)
    ratio = height / 112
    return points * ratio - ((112 * ratio - width) / 2, 0.0)


def _dlib(size: Size) -> Points:
    height, width = size
    return np.array(_DLIB_150) * (width / 150) + (0.0, (height - width) / 2)


def _add(name: str, size: Size, about: str, rule: Callable[[Size], Points] | None) -> None:
    TEMPLATES.register(name)(Template(name, size, about, rule))


_add(
    "arcface",
    (112, 112),
    "ArcFace five points, scaled to any size: 112x112, 112x96 (8 columns less on each side), "
    "160, 224; squares whose side is a multiple of 128 take InsightFace's wider frame",
    _arcface,
)
_add("dlib", (150, 150), "dlib's face chip with padding 0.25, as its ResNet-29 expects", _dlib)
_add("whole", (112, 112), "no alignment: the whole picture, resized", None)
