"""TALFW: adversarial pictures under LFW's names, beside the clean LFW (Zhong and Deng, 2020).

Made once with dropout in surrogates' features (DFANet), they fooled commercial verifiers without a
single query, so scoring a model on them is a black-box test that costs nothing. Each official pair
has one picture replaced by its adversarial version, the first if there is one, else the second; the
other one stays clean. Pairs without any are left out and counted.
"""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path, PurePosixPath

from onnxfr.data import lfw
from onnxfr.data.builder import PairBuilder
from onnxfr.data.images import SUFFIXES
from onnxfr.data.loaders import Request, loader
from onnxfr.data.pairs import ImageSource, PairSet
from onnxfr.errors import DataError
from onnxfr.paths import expanded

_PREFIX = "talfw/"


@loader(
    "talfw",
    usage="talfw:PATH,lfw=PATH[,pairs=FILE]",
    summary="TALFW: adversarial pictures named as in LFW, and the clean LFW they belong to",
    options=("folds",),
    places=("lfw", "pairs"),
)
def read(request: Request) -> PairSet:
    """Replace one picture of each LFW pair by its adversarial version."""
    place = request.folder()
    if "lfw" not in request.options:
        raise DataError("expected the clean LFW beside TALFW, as in talfw:PATH,lfw=PATH")
    theirs = {name: value for name, value in request.options.items() if name != "lfw"}
    original = expanded(request.options["lfw"]).absolute()
    if original.resolve() == place.resolve():
        raise DataError(f"{place} cannot be TALFW and the clean LFW at once; name both folders")
    clean = lfw.read(replace(request, place=original, options=theirs, strict=False))
    builder = request.builder("talfw")
    builder.problems.extend(clean.problems)
    without = 0
    for row, (a, b) in enumerate(zip(clean.left, clean.right, strict=True)):
        sides = clean.images[int(a)], clean.images[int(b)]
        attacked = [_adversarial(builder, place, side) for side in sides]
        at = next((k for k, found in enumerate(attacked) if found is not None), None)
        if at is None:
            without += 1
            continue
        changed = attacked[at]
        assert changed is not None
        builder.pair(
            builder.image(changed),
            builder.image(sides[1 - at]),
            bool(clean.same[row]),
            fold=None if clean.fold is None else int(clean.fold[row]),
        )
    if without:
        builder.problem("talfw", f"{without} pairs of LFW have no adversarial picture in it")
    return builder.build()


def _adversarial(builder: PairBuilder, place: Path, clean: ImageSource) -> ImageSource | None:
    """Return the adversarial version of a picture: in a folder per person, or all in one."""
    name = PurePosixPath(clean.id)
    for stem in (name.with_suffix(""), PurePosixPath(name.stem)):
        for suffix in SUFFIXES:
            path = place / f"{stem}{suffix}"
            if builder.has_file(path):
                return ImageSource(f"{_PREFIX}{clean.id}", identity=clean.identity, path=path)
    return None
