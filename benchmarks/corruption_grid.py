"""Draws every corruption at every severity into one picture, and their table into the docs.

    python benchmarks/corruption_grid.py [--face PICTURE --picture OUT.png] [--docs]

Without a face it draws one of its own, which is what the docs show: no real person is needed.
"""

from __future__ import annotations

import argparse
import inspect
from pathlib import Path

import cv2
import numpy as np
from numpy.typing import NDArray
from PIL import Image

from onnxfr.corruptions import CORRUPTIONS, SEVERITIES, Corruption, corrupt, oodface_names
from onnxfr.corruptions.base import Row
from onnxfr.rng import stream

DOCS = Path(__file__).parents[1] / "docs"
PICTURE = DOCS / "images" / "corruption_grid.jpg"
EXTENDED_PICTURE = DOCS / "images" / "corruption_grid_extended.jpg"
TILE, LABEL, BLOCKS = 112, 132, 2
BEGIN, END = "<!-- table: begin -->", "<!-- table: end -->"

Picture = NDArray[np.uint8]


def drawn_face() -> Picture:
    """Return a drawn face on the ArcFace template, 112 pixels a side."""
    zoom = 8
    canvas = np.zeros((112 * zoom, 112 * zoom, 3), dtype=np.float32)
    canvas[:] = np.linspace((96, 120, 138), (150, 162, 160), 112 * zoom)[:, None]

    def blob(x: float, y: float, a: float, b: float, rgb: tuple[int, ...], soft: float) -> None:
        mask = np.zeros(canvas.shape[:2], dtype=np.float32)
        centre, axes = (round(x * zoom), round(y * zoom)), (round(a * zoom), round(b * zoom))
        cv2.ellipse(mask, centre, axes, 0, 0, 360, 1.0, -1)
        mask = cv2.GaussianBlur(mask, (0, 0), max(soft * zoom, 0.5))[..., None]
        canvas[:] = canvas * (1 - mask) + mask * np.array(rgb, dtype=np.float32)

    blob(56, 128, 58, 26, (58, 74, 104), 0.8)
    blob(56, 104, 18, 22, (188, 138, 112), 1)
    blob(56, 42, 44, 50, (58, 40, 30), 1.5)
    blob(56, 62, 36, 49, (222, 174, 146), 1)
    blob(34, 74, 10, 20, (204, 150, 124), 7)
    blob(80, 74, 10, 20, (196, 142, 118), 7)
    blob(56, 36, 22, 8, (236, 192, 164), 6)
    blob(56, 8, 38, 15, (62, 43, 32), 2)
    for x, out in ((38.3, -1), (73.5, 1)):
        blob(x, 51, 10, 6.5, (190, 140, 118), 2.5)
        blob(x + out, 42.5, 9, 1.6, (64, 44, 34), 0.6)
        blob(x, 51.6, 7, 3.1, (240, 238, 236), 0.4)
        blob(x, 51.6, 3.1, 3.1, (74, 92, 70), 0.3)
        blob(x, 51.6, 1.5, 1.5, (16, 14, 14), 0.2)
        blob(x - 1, 50.6, 0.7, 0.7, (255, 255, 255), 0.2)
        blob(x, 48.6, 7.5, 0.8, (70, 46, 38), 0.4)
    blob(52.5, 62, 1.6, 9, (206, 156, 128), 1.6)
    blob(57, 62, 1.8, 10, (238, 196, 168), 1.6)
    blob(56, 71.5, 5.5, 3.6, (226, 172, 146), 1.4)
    for x in (52.6, 59.4):
        blob(x, 74, 1.8, 1, (128, 78, 64), 0.6)
    blob(56, 90.5, 14, 2.6, (176, 88, 84), 0.7)
    blob(56, 94, 11, 3.2, (192, 104, 98), 0.8)
    blob(56, 92.2, 13.5, 0.6, (120, 54, 54), 0.4)
    blob(56, 101, 9, 2, (204, 152, 126), 2.5)
    face = cv2.resize(canvas, (112, 112), interpolation=cv2.INTER_AREA)
    grain = stream(0, "drawn face grain").normal(0, 2, face.shape)
    return np.asarray(np.clip(face + grain, 0, 255), dtype=np.uint8)


def grid(face: Picture, names: list[str]) -> Picture:
    """Return a labelled sheet, names in two blocks, severities left to right."""
    rows = -(-len(names) // BLOCKS)
    wide = LABEL + len(SEVERITIES) * TILE
    sheet = np.full((rows * TILE, BLOCKS * wide, 3), 255, dtype=np.uint8)
    for number, name in enumerate(names):
        block, row = divmod(number, rows)
        top, left = row * TILE, block * wide
        font, black = cv2.FONT_HERSHEY_SIMPLEX, (0, 0, 0)
        for line, word in enumerate(name.split("_")):
            at = (left + 8, top + 50 + 20 * line)
            cv2.putText(sheet, word, at, font, 0.55, black, 1, cv2.LINE_AA)
        for severity in SEVERITIES:
            tile = corrupt(face[None], name, severity, ids=["docs"])[0]
            x = left + LABEL + (severity - 1) * TILE
            sheet[top : top + TILE, x : x + TILE] = tile
    return sheet


def table() -> str:
    """Return the severity tables of all registered corruptions in Markdown."""
    lines = ["| name and parameters | category | preset | 1 | 2 | 3 | 4 | 5 |", "|" + "---|" * 8]
    for wanted in (False, True):
        for name, entry in CORRUPTIONS.items():
            if entry.extended != wanted:
                continue
            tables: dict[tuple[Row, ...], list[str]] = {}
            for preset, levels in entry.presets.items():
                tables.setdefault(levels, []).append(preset)
            for levels, presets in tables.items():
                cells = [" ".join(map(_spell, row)) for row in levels]
                named = [f"`{name}({wanted_by(entry)})`", entry.category, ", ".join(presets)]
                lines.append("| " + " | ".join([*named, *cells]) + " |")
    return "\n".join(lines)


def wanted_by(entry: Corruption) -> str:
    """Return the names of a corruption's parameters, without pictures and scene."""
    return ", ".join(list(inspect.signature(entry.function).parameters)[2:])


def _spell(value: float | str) -> str:
    return f"{value:.4g}" if isinstance(value, float) else str(value)


def write_docs() -> None:
    """Bring pictures and table in the docs up to date."""
    face = drawn_face()
    PICTURE.parent.mkdir(parents=True, exist_ok=True)
    extended = [name for name, entry in CORRUPTIONS.items() if entry.extended]
    for path, names in ((PICTURE, oodface_names()), (EXTENDED_PICTURE, extended)):
        Image.fromarray(grid(face, names)).save(path, quality=80)
    page = DOCS / "corruptions.md"
    before, rest = page.read_text().split(BEGIN)
    page.write_text(f"{before}{BEGIN}\n{table()}\n{END}{rest.split(END)[1]}")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--face", type=Path, help="112x112 face to use in place of the drawn one")
    parser.add_argument("--picture", type=Path, help="where to write the sheet")
    parser.add_argument("--docs", action="store_true", help="rewrite the pictures and the table")
    options = parser.parse_args()
    if options.docs:
        write_docs()
    if options.picture:
        drawn = options.face is None
        face = drawn_face() if drawn else np.asarray(Image.open(options.face).convert("RGB"))
        Image.fromarray(grid(face, CORRUPTIONS.names())).save(options.picture)


if __name__ == "__main__":
    main()
