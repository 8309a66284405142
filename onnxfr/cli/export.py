"""``onnxfr export``: a model of any known framework becomes normal form, card and certificate."""

from __future__ import annotations

import json as json_module
from pathlib import Path
from typing import Annotated

import typer

from onnxfr.errors import SpecError

_DECIDED = {
    "stated": "as stated",
    "measured": "measured on the faces given",
    "source": "as the source and its framework's habits tell; confirm with --data",
    "graph": "as the graph itself shows",
}


def export(
    source: Annotated[Path, typer.Argument(help="A model's file or folder, of any framework.")],
    folder: Annotated[Path, typer.Option("-o", "--out", help="Folder to create for the model.")],
    framework: Annotated[
        str | None, typer.Option("--from", help="Framework, if the content should not decide.")
    ] = None,
    arch: Annotated[
        str | None, typer.Option(help="Architecture of bare weights, e.g. iresnet50.")
    ] = None,
    size: Annotated[
        str | None, typer.Option(help="Picture size HEIGHTxWIDTH, if the source does not tell.")
    ] = None,
    preprocess: Annotated[
        str | None, typer.Option(help="State the preprocessing, e.g. rgb,pm1.")
    ] = None,
    data: Annotated[
        str | None, typer.Option(help="Labelled aligned faces that decide it, e.g. lfw:PATH.")
    ] = None,
    output: Annotated[str | None, typer.Option(help="Name of the embedding tensor.")] = None,
    name: Annotated[str | None, typer.Option(help="The model's name.")] = None,
    pairs: Annotated[int, typer.Option(help="Most pairs the probe may use.")] = 1200,
    seed: Annotated[int, typer.Option(help="Seed of the choice of pairs.")] = 0,
    overwrite: Annotated[bool, typer.Option("--overwrite", help="Replace the folder.")] = False,
    json: Annotated[bool, typer.Option("--json", help="Print one JSON object.")] = False,
) -> None:
    """Export a model of any framework: write its normal form, card and certificate."""
    from onnxfr.cli.check import show
    from onnxfr.cli.faces import labelled_pairs
    from onnxfr.exporters.admitting import export_model
    from onnxfr.exporters.base import Options
    from onnxfr.models.card import CARD_FILE, MODEL_FILE
    from onnxfr.models.certificate import write_certificate
    from onnxfr.models.parity import certify
    from onnxfr.models.wrapper import load_model

    if pairs < 10:
        raise SpecError(f"--pairs must be at least 10 to tell anything apart, got {pairs}")
    faces = labelled_pairs(data, most=pairs, seed=seed) if data and not preprocess else None
    made = export_model(
        source,
        folder,
        framework=framework,
        options=Options(arch, _parse_size(size)),
        preprocess=preprocess,
        pairs=faces,
        output=output,
        name=name,
        overwrite=overwrite,
    )
    certificate = certify(load_model(folder), faces.images[:32] if faces else None)
    write_certificate(certificate, folder)
    card = made.admission.card
    if json:
        answer = {
            "model": str(folder / MODEL_FILE),
            "card": str(folder / CARD_FILE),
            "sha256": card.sha256,
            "framework": card.framework,
            "architecture": card.architecture,
            "input_size": list(card.input_size),
            "embedding_dim": card.embedding_dim,
            "preprocessing": {
                "color": card.preprocessing.color,
                "scaling": card.preprocessing.public_scaling,
                "layout": card.preprocessing.layout,
                "decided": made.origin,
            },
            "notes": list(card.notes),
            "status": certificate.status,
        }
        typer.echo(json_module.dumps(answer, indent=2))
        return
    typer.echo(
        f"{source.name}: {card.framework}, {card.input_height}x{card.input_width} "
        f"-> {card.embedding_dim}"
    )
    typer.echo(f"preprocessing {card.preprocessing.describe()}  ({_DECIDED[made.origin]})")
    for note in card.notes:
        typer.echo(f"note          {note}")
    show(certificate)
    typer.echo(f"written to    {folder}")


def _parse_size(text: str | None) -> tuple[int, int] | None:
    if text is None:
        return None
    height, cross, width = text.lower().partition("x")
    if not cross or not height.isdecimal() or not width.isdecimal():
        raise SpecError(f"--size must be HEIGHTxWIDTH such as 112x96, got {text!r}")
    if not all(8 <= int(side) <= 4096 for side in (height, width)):
        raise SpecError(f"--size must be between 8 and 4096 pixels a side, got {text!r}")
    return int(height), int(width)
