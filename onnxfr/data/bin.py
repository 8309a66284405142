"""InsightFace ``.bin`` packs (lfw, agedb_30, cfp_fp, calfw, cplfw): aligned crops in pair order.

Pictures 2k and 2k+1 are pair k. A picture that occurs in many pairs is kept once, known by its
first place. Folds are the ten consecutive blocks every published number on these packs uses.
"""

from __future__ import annotations

import hashlib
from dataclasses import replace

from onnxfr.data.loaders import Request, loader
from onnxfr.data.pairs import ImageSource, PairSet
from onnxfr.data.unpickle import read_pack
from onnxfr.errors import DataError

_FOLDS = 10
_MAX_BYTES = 8 * 2**30


@loader(
    "bin",
    usage="bin:FILE",
    summary="InsightFace .bin pack, read without running the pickle; crops are taken as aligned",
)
def read(request: Request) -> PairSet:
    """Read a pack."""
    path = request.file()
    if path.stat().st_size > _MAX_BYTES:
        raise DataError(f"{path.name}: larger than {_MAX_BYTES} bytes; that is no face pack")
    try:
        blob = path.read_bytes()
    except OSError as error:
        raise DataError(f"{path}: cannot be read ({error.strerror or error})") from error
    pictures, same = read_pack(blob, path.name)
    if len(pictures) != 2 * len(same):
        raise DataError(
            f"{path.name}: expected two pictures per flag, got {len(pictures)} and {len(same)}"
        )
    builder = request.builder(path.stem)
    first_place: dict[bytes, str] = {}
    ids = []
    for number, picture in enumerate(pictures):
        name = first_place.setdefault(hashlib.sha256(picture).digest(), f"#{number:06d}")
        ids.append(builder.image(ImageSource(name, blob=picture)))
    for k, flag in enumerate(same):
        builder.pair(ids[2 * k], ids[2 * k + 1], flag, fold=_block(k, len(same)))
    built = builder.build()
    return replace(built, aligned=True) if "aligned" not in request.options else built


def _block(k: int, total: int) -> int:
    """Return which of ten consecutive blocks pair k is in; the first ones hold the remainder."""
    size, longer = divmod(total, _FOLDS)
    ahead = longer * (size + 1)
    return k // (size + 1) if k < ahead else longer + (k - ahead) // size
