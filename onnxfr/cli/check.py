"""``onnxfr check``: the parity certificate of a model."""

from __future__ import annotations

import json as json_module
from typing import TYPE_CHECKING, Annotated

import typer

from onnxfr.errors import SpecError

if TYPE_CHECKING:
    from onnxfr.models.certificate import Certificate

_COLOR = {"green": typer.colors.GREEN, "yellow": typer.colors.YELLOW, "red": typer.colors.RED}


def check(
    model: Annotated[str, typer.Argument(help="Folder of an admitted model, or a zoo name.")],
    data: Annotated[
        str | None, typer.Option(help="Real faces to measure on; synthetic pictures otherwise.")
    ] = None,
    device: Annotated[str, typer.Option(help="auto, cpu or cuda.")] = "auto",
    json: Annotated[bool, typer.Option("--json", help="Print one JSON object.")] = False,
) -> None:
    """Prove that a model's two engines are one function, and store the certificate beside it."""
    from onnxfr.cli.faces import some_faces
    from onnxfr.models.certificate import write_certificate
    from onnxfr.models.parity import certify
    from onnxfr.models.wrapper import load_model

    if device not in ("auto", "cpu", "cuda"):
        raise SpecError(f"--device is auto, cpu or cuda; got {device!r}")
    loaded = load_model(model, device=device)
    certificate = certify(loaded, some_faces(data, most=32) if data else None)
    write_certificate(certificate, loaded.folder)
    if json:
        typer.echo(json_module.dumps(certificate.to_json(), indent=2))
    else:
        show(certificate)
    if certificate.status == "red":
        raise typer.Exit(1)


def show(certificate: Certificate) -> None:
    """Print the certificate for a person."""
    light = typer.style(certificate.status.upper(), fg=_COLOR[certificate.status], bold=True)
    typer.echo(f"certificate   {light}  {certificate.model}, measured on {certificate.pictures}")
    for flag in certificate.flags:
        mark = typer.style(f"{flag.level:7}", fg=_COLOR[flag.level])
        typer.echo(f"  {mark} {flag.name:15} {flag.sentence}")
    times = ", ".join(
        f"{k.replace('_', ' ')} {v:.1f} ms" for k, v in certificate.latency_ms.items()
    )
    typer.echo(f"  per image: {times}; peak memory {certificate.peak_memory_mb:.0f} MB")
