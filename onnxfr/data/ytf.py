"""YouTube Faces: pairs of videos, each stood for by its middle frame (Wolf et al., 2011)."""

from __future__ import annotations

import re
from pathlib import Path

from onnxfr.data.builder import PairBuilder, inside
from onnxfr.data.images import find_pictures
from onnxfr.data.loaders import Request, loader
from onnxfr.data.pairs import ImageSource, PairSet
from onnxfr.data.text import Line, read_lines
from onnxfr.errors import DataError
from onnxfr.paths import expanded

_FRAME_FOLDERS = ("aligned_images_DB", "frame_images_DB", "")
_SPLIT_FILES = ("splits.csv", "splits.txt")


@loader(
    "ytf",
    usage="ytf:PATH[,splits=FILE]",
    summary="YouTube Faces: PATH has person/video/frame folders and splits.csv; middle frames",
    places=("splits",),
)
def read(request: Request) -> PairSet:
    """Read the splits and take one frame of each video."""
    place = request.folder()
    named = request.options.get("splits")
    splits = expanded(named).absolute() if named else _find_splits(place)
    root = next(place / name for name in _FRAME_FOLDERS if (place / name).is_dir())
    builder = request.builder("ytf")
    middles: dict[str, str | None] = {}
    for line in read_lines(splits):
        fields = [field.strip() for field in line.text.split(",")]
        if not fields[0].isdecimal():
            if line.number == 1:
                continue
            fields = []
        if len(fields) < 5 or fields[-1] not in ("0", "1"):
            builder.problem(str(line), "expected split, number, video, video, ..., 0 or 1")
            continue
        _add(builder, root, middles, line, fields)
    return builder.build()


def middle_frame(root: Path, video: str) -> str | None:
    """Return the name of a video's middle frame, frames being in numeric order."""
    name = inside("", video)
    if name is None or not (root / name).is_dir():
        return None
    frames = [f.name for f in find_pictures(root / name) if f.parent == root / name]
    frames.sort(key=_numeric)
    return f"{name}/{frames[len(frames) // 2]}" if frames else None


def _add(
    builder: PairBuilder, root: Path, middles: dict[str, str | None], line: Line, fields: list[str]
) -> None:
    ids = []
    for video in fields[2:4]:
        if video not in middles:
            middles[video] = middle_frame(root, video)
        frame = middles[video]
        if frame is None:
            return builder.problem(str(line), f"no frames of video {video}")
        person = frame.split("/")[0]
        ids.append(builder.image(ImageSource(frame, identity=person, path=root / frame)))
    return builder.pair(ids[0], ids[1], fields[-1] == "1", fold=int(fields[0]) - 1)


def _numeric(name: str) -> tuple[tuple[int, int, str], ...]:
    """Sort key under which frame 99 comes before frame 100."""
    parts = re.split(r"(\d+)", name)
    return tuple((1, int(part), "") if part.isdecimal() else (0, 0, part) for part in parts)


def _find_splits(place: Path) -> Path:
    for name in _SPLIT_FILES:
        if (place / name).is_file():
            return place / name
    raise DataError(f"no splits.csv or splits.txt in {place}; name it: ytf:PATH,splits=FILE")
