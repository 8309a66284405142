"""``onnxfr align``: a folder of pictures to a folder of aligned face crops."""

from __future__ import annotations

import json
from enum import StrEnum
from pathlib import Path
from typing import Annotated

import typer

from onnxfr.errors import SpecError


class CropFormat(StrEnum):
    """How crops are stored."""

    PNG = "png"
    JPEG = "jpeg"


def align(
    source: Annotated[Path, typer.Argument(metavar="IN", help="Folder of pictures.")],
    target: Annotated[Path, typer.Argument(metavar="OUT", help="Folder for the crops.")],
    size: Annotated[
        str | None,
        typer.Option(help="Crop size, 112 or 112x96 (height x width); default: the template's."),
    ] = None,
    template: Annotated[str, typer.Option(help="arcface, dlib or whole.")] = "arcface",
    detector: Annotated[
        Path | None,
        typer.Option(help="A YuNet ONNX file; fetched once when not given."),
    ] = None,
    min_face: Annotated[
        float, typer.Option(help="Faces smaller than this many pixels are rejected.")
    ] = 20,
    crop_format: Annotated[
        CropFormat, typer.Option("--format", help="PNG keeps every pixel; JPEG is smaller.")
    ] = CropFormat.PNG,
    workers: Annotated[int | None, typer.Option(help="Threads; default: one per core.")] = None,
    overwrite: Annotated[
        bool, typer.Option("--overwrite", help="Make crops again that are there already.")
    ] = False,
    as_json: Annotated[bool, typer.Option("--json", help="Print the result as JSON.")] = False,
) -> None:
    """Find the main face of every picture below IN and cut it into the same tree below OUT.

    Run it again to go on after an interruption. OUT/manifest.csv tells what became of each
    picture; one without a usable face is listed there, not an error.

    Example: onnxfr align photos crops --size 112x96
    """
    from onnxfr.alignment.aligner import Aligner
    from onnxfr.alignment.detector import Detector
    from onnxfr.alignment.folder import align_folder
    from onnxfr.cli.progress import bar

    aligner = Aligner(
        template,
        None if size is None else parse_size(size),
        detector=None if detector is None else Detector(detector),
        min_face=min_face,
    )
    with bar("aligning") as report:
        result = align_folder(
            source,
            target,
            aligner,
            crop_format=crop_format.value,
            workers=workers,
            overwrite=overwrite,
            progress=report,
        )
    total = len(result.entries)
    if as_json:
        summary = {
            "pictures": total,
            "fresh": result.fresh,
            "outcomes": result.counts,
            "several_faces": result.several,
            "manifest": str(result.manifest),
        }
        typer.echo(json.dumps(summary, indent=2))
        return
    counts = result.counts
    typer.echo(
        f"{counts['aligned']} of {total} pictures aligned ({result.fresh} looked at now): "
        f"{counts['no_face']} without a face, {counts['tiny_face']} with a tiny face, "
        f"{counts['unreadable']} unreadable; {result.several} show several faces"
    )
    typer.echo(f"details: {result.manifest}")


def parse_size(text: str) -> tuple[int, int]:
    """Return (height, width) of ``112`` or ``112x96``."""
    parts = text.lower().split("x")
    if len(parts) > 2 or not all(part.isdecimal() for part in parts):
        raise SpecError(f"expected a size such as 112 or 112x96 (height x width), got {text!r}")
    return int(parts[0]), int(parts[-1])
