"""Celebrities in Frontal-Profile: FP and FF protocol folders (Sengupta et al., 2016).

``Pair_list_F.txt`` and ``Pair_list_P.txt`` number the pictures, ``Split/FP/NN/{same,diff}.txt``
pair the numbers. The frontal picture is the probe, as in the papers that attack it.
"""

from __future__ import annotations

from pathlib import Path, PurePosixPath

from onnxfr.data.builder import PairBuilder, inside
from onnxfr.data.loaders import Request, loader
from onnxfr.data.pairs import ImageSource, PairSet
from onnxfr.data.text import read_lines
from onnxfr.errors import DataError

_LISTS = {"F": "Pair_list_F.txt", "P": "Pair_list_P.txt"}


@loader(
    "cfp",
    usage="cfp:PATH[,protocol=FP|FF]",
    summary="CFP: PATH has Protocol/ and Data/; frontal-profile unless protocol=FF",
    options=("protocol",),
)
def read(request: Request) -> PairSet:
    """Read both lists and all splits."""
    root, protocol = _find_protocol(request.folder())
    kind = request.choice("protocol", ("FP", "FF"))
    builder = request.builder(f"cfp_{kind.lower()}")
    pictures = {side: _read_list(root, protocol, side) for side in dict.fromkeys(kind)}
    splits = sorted(folder for folder in (protocol / "Split" / kind).glob("*") if folder.is_dir())
    if not splits:
        raise DataError(f"no split folders in {protocol / 'Split' / kind}; is the data set whole?")
    for fold, split in enumerate(splits):
        for name, same in (("same.txt", True), ("diff.txt", False)):
            for line in read_lines(split / name):
                left, _, right = line.text.partition(",")
                names = pictures[kind[0]].get(left.strip()), pictures[kind[1]].get(right.strip())
                ids = [_image(builder, root, name) for name in names]
                where = f"{split.name}/{name} {line}"
                if ids[0] is None or ids[1] is None:
                    builder.problem(where, "a picture is not in the list or not in the folder")
                else:
                    builder.pair(ids[0], ids[1], same, fold=fold)
    return builder.build()


def _find_protocol(place: Path) -> tuple[Path, Path]:
    """Return (data set folder, protocol folder)."""
    candidates = [place / "Protocol", place, *sorted(place.glob("*/Protocol"))]
    for protocol in candidates:
        if (protocol / _LISTS["F"]).is_file():
            return protocol.parent, protocol
    raise DataError(f"no Protocol/{_LISTS['F']} in {place}; name the data set's own folder")


def _read_list(root: Path, protocol: Path, side: str) -> dict[str, str | None]:
    """Return number → name relative to the data set's folder (None if it leaves the folder)."""
    base = protocol.relative_to(root).as_posix()
    names: dict[str, str | None] = {}
    for line in read_lines(protocol / _LISTS[side]):
        number, _, name = line.text.partition(" ")
        names[number.strip()] = inside(base, name.strip())
    return names


def _image(builder: PairBuilder, root: Path, name: str | None) -> str | None:
    if name is None or not builder.has_file(root / name):
        return None
    identity = PurePosixPath(name).parent.parent.name
    return builder.image(ImageSource(name, identity=identity, path=root / name))
