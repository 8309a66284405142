"""``onnxfr doctor``: what is installed, what works, and what to do about the rest."""

from __future__ import annotations

from json import dumps
from typing import Annotated

import typer
from rich.console import Console
from rich.markup import escape
from rich.table import Table

from onnxfr.doctor import Diagnosis, diagnose


def doctor(
    json: Annotated[bool, typer.Option("--json", help="Print the findings as JSON.")] = False,
) -> None:
    """Check engines, devices, threads and folders; exit with 1 if something is wrong."""
    found = diagnose()
    if json:
        typer.echo(dumps(found.to_dict(), indent=2))
    else:
        _show(found, Console())
    if not found.healthy:
        raise typer.Exit(1)


def _show(found: Diagnosis, console: Console) -> None:
    table = Table(show_header=False, box=None, pad_edge=False)
    table.add_column(style="bold")
    table.add_column(overflow="fold")
    for name, value in _lines(found):
        table.add_row(name, escape(value))
    console.print(table)
    for note in found.notes:
        console.print(f"[yellow]note[/]     {escape(note)}")
    for problem in found.problems:
        console.print(f"[red]problem[/]  {escape(problem.what)}")
        console.print(f"         remedy: {escape(problem.remedy)}")
    if found.healthy:
        console.print("[green]all is well[/]")


def _lines(found: Diagnosis) -> list[tuple[str, str]]:
    providers = [
        f"{provider.name} {'works' if provider.works else 'does not work: ' + provider.detail}"
        for provider in found.providers
    ]
    packages = [f"{name} {version}" for name, version in found.packages.items() if version]
    extras = [f"{name}: {'yes' if there else 'no'}" for name, there in found.extras.items()]
    variables = [f"{name}={value}" for name, value in found.thread_variables.items()]
    threads = "?" if found.threads is None else str(found.threads)
    free = "unknown" if found.free_gigabytes is None else f"{found.free_gigabytes} GB free"
    return [
        ("engine", ", ".join(f"{n} {v}" for n, v in found.wheels.items()) or "none"),
        ("providers", "; ".join(providers) or "none"),
        ("GPUs", ", ".join(found.cuda_devices) or "none"),
        ("processor", f"{found.cpu}, {found.cores} cores, {found.instruction_set}"),
        ("threads", " ".join([threads, *variables])),
        ("cache", f"{found.cache} ({free})"),
        ("Python", f"{found.python} on {found.system}"),
        ("packages", ", ".join(packages)),
        ("extras", ", ".join(extras) or "unknown"),
    ]
