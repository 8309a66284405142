"""``onnxfr import``: admit a vendor's ONNX file."""

from __future__ import annotations

import json as json_module
from pathlib import Path
from typing import Annotated, Any

import typer

from onnxfr.errors import SpecError


def import_model(
    vendor: Annotated[Path, typer.Argument(help="The vendor's ONNX file.")],
    folder: Annotated[Path, typer.Option("-o", "--out", help="Folder to create for the model.")],
    data: Annotated[
        str | None, typer.Option(help="Labelled aligned faces, e.g. lfw:PATH or folder:PATH.")
    ] = None,
    preprocess: Annotated[
        str | None, typer.Option(help="State the preprocessing, e.g. rgb,pm1 (skips the probe).")
    ] = None,
    output: Annotated[str | None, typer.Option(help="Name of the embedding tensor.")] = None,
    closed_set: Annotated[
        bool, typer.Option("--closed-set", help="Accept class scores as the model's answer.")
    ] = False,
    name: Annotated[str | None, typer.Option(help="The model's name.")] = None,
    size: Annotated[
        str | None, typer.Option(help="Height x width where the graph leaves it open: 160x160.")
    ] = None,
    pairs: Annotated[int, typer.Option(help="Most pairs the probe may use.")] = 2400,
    seed: Annotated[int, typer.Option(help="Seed of the choice of pairs.")] = 0,
    overwrite: Annotated[bool, typer.Option("--overwrite", help="Replace the folder.")] = False,
    json: Annotated[bool, typer.Option("--json", help="Print one JSON object.")] = False,
) -> None:
    """Admit a vendor's ONNX file: find its preprocessing, write normal form, card, certificate."""
    from onnxfr.cli.check import show
    from onnxfr.cli.faces import labelled_pairs
    from onnxfr.models.admission import admit, table_text
    from onnxfr.models.card import CARD_FILE, MODEL_FILE
    from onnxfr.models.certificate import write_certificate
    from onnxfr.models.parity import certify
    from onnxfr.models.wrapper import load_model

    if pairs < 10:
        raise SpecError(f"--pairs must be at least 10 to tell anything apart, got {pairs}")
    faces = labelled_pairs(data, most=pairs, seed=seed) if data else None
    admitted = admit(
        vendor,
        folder,
        pairs=faces,
        preprocess=preprocess,
        output=output,
        closed_set=closed_set,
        name=name,
        size=_size(size) if size else None,
        overwrite=overwrite,
    )
    certificate = certify(load_model(folder), faces.images[:32] if faces else None)
    write_certificate(certificate, folder)
    card, probe = admitted.card, admitted.probe
    if json:
        runner_up = probe.runner_up if probe else None
        answer: dict[str, Any] = {
            "model": str(folder / MODEL_FILE),
            "card": str(folder / CARD_FILE),
            "sha256": card.sha256,
            "preprocessing": {
                "color": card.preprocessing.color,
                "scaling": card.preprocessing.public_scaling,
                "layout": card.preprocessing.layout,
            },
            "probe": {
                "auc": probe.table[0].auc if probe else None,
                "runner_up_auc": runner_up.auc if runner_up else None,
                "d_prime": probe.table[0].d_prime if probe else None,
                "runner_up_d_prime": runner_up.d_prime if runner_up else None,
                "confidence": probe.confidence if probe else None,
                "pairs": probe.pairs if probe else 0,
                "ambiguous": probe.ambiguous if probe else False,
                "reasons": list(probe.reasons if probe else admitted.hints.reasons),
            },
            "repairs": [repair.model_dump() for repair in card.repairs],
            "output": {"name": admitted.output.name, "reason": admitted.output.reason},
            "status": certificate.status,
        }
        typer.echo(json_module.dumps(answer, indent=2))
        return
    size = f"{card.input_height}x{card.input_width}"
    typer.echo(f"{card.source.file}: {size} -> {card.embedding_dim}")
    typer.echo(f"output        {admitted.output.name} ({admitted.output.reason})")
    if probe:
        typer.echo(table_text(probe))
    for reason in probe.reasons if probe else admitted.hints.reasons:
        typer.echo(f"              {reason}")
    typer.echo(f"preprocessing {card.preprocessing.describe()}" + _confidence(probe))
    for repair in card.repairs:
        proof = "" if repair.max_abs is None else f" (embeddings changed by {repair.max_abs:.1e})"
        typer.echo(f"repair        {repair.name}: {repair.detail}{proof}")
    for note in card.notes:
        if "--size" in note:
            typer.echo(f"note          {note}")
    show(certificate)
    typer.echo(f"written to    {folder}")


def _size(text: str) -> tuple[int, int]:
    height, _, width = text.lower().partition("x")
    if not (height.isdecimal() and width.isdecimal() and int(height) and int(width)):
        raise SpecError(f"--size is HEIGHTxWIDTH, such as 160x160; got {text!r}")
    return int(height), int(width)


def _confidence(probe: Any) -> str:
    if probe is None:
        return ""
    rival = probe.runner_up
    lead = (
        f", d′ ahead of the runner-up by {probe.table[0].d_prime - rival.d_prime:.2f}"
        if rival
        else ""
    )
    return f"  (confidence {probe.confidence:.3f} on {probe.pairs} pairs{lead})"
