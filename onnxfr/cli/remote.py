"""``onnxfr remote``: the adapters in the box, and one question to try one out."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Annotated, Any

import typer

from onnxfr.errors import RemoteError

remote_app = typer.Typer(help="Verification services over HTTP.", no_args_is_help=True)


@remote_app.command("list")
def list_adapters(
    as_json: Annotated[bool, typer.Option("--json", help="Print a JSON list.")] = False,
) -> None:
    """List the adapters in the box, what each was tried on and which secrets it wants."""
    from onnxfr.models.remote.adapter import adapter_names, read_adapter

    rows: list[dict[str, Any]] = []
    for name in adapter_names():
        adapter = read_adapter(name)
        rows.append(
            {
                "name": name,
                "description": adapter.description,
                "tested": adapter.tested,
                "calls_per_question": adapter.calls,
                "price_per_call": adapter.price.per_call,
                "currency": adapter.price.currency,
                "secrets": sorted(adapter.secrets.values()),
                "optional_secrets": sorted(
                    adapter.secrets[each] for each in adapter.optional_secrets
                ),
                "parameters": adapter.parameters,
            }
        )
    if as_json:
        typer.echo(json.dumps(rows, indent=1))
        return
    for row in rows:
        wants = ", ".join(_wanted(row)) or "nothing"
        typer.echo(
            f"{row['name']:<22} {row['description']}; wants {wants}; tested: {row['tested']}"
        )


@remote_app.command("ask")
def ask(
    service: Annotated[str, typer.Argument(help="ADAPTER[,NAME=VALUE...], a name or a path.")],
    probe: Annotated[Path, typer.Argument(help="One picture.")],
    reference: Annotated[Path, typer.Argument(help="The picture it is compared with.")],
    journal: Annotated[
        Path, typer.Option(help="Where the question and its answer are kept.")
    ] = Path("journal.jsonl"),
    max_calls: Annotated[
        int | None, typer.Option(min=0, help="Most calls in the journal's life.")
    ] = None,
    i_am_authorised: Annotated[
        bool, typer.Option("--i-am-authorised", help="The service's owner allows this test.")
    ] = False,
    as_json: Annotated[bool, typer.Option("--json", help="Print one JSON object.")] = False,
) -> None:
    """Ask a service one question: the way to try an adapter before a run.

    Example: onnxfr remote ask onnxfr,url=http://127.0.0.1:8600 a.jpg b.jpg
    """
    from onnxfr.data.images import decode, to_images
    from onnxfr.models.remote.reference import (
        PREFIX,
        absolute,
        complete,
        escaped,
        open_remote,
    )

    place = absolute(f"{PREFIX}{service},journal={escaped(str(journal))}", Path.cwd())
    wanted = complete(place, Path.cwd(), budget=max_calls, authorised=i_am_authorised)
    pictures = [to_images([decode(_read(path), path.name)]) for path in (probe, reference)]
    remote = open_remote(wanted)
    (verdict,) = remote.verdicts(*pictures)
    if verdict is None:
        raise RemoteError("no call was left for this question; raise --max-calls")
    answer = {
        "outcome": verdict.kind,
        "match": verdict.match,
        "score": verdict.score,
        "threshold": verdict.threshold,
        "detail": verdict.detail,
        "calls_spent": remote.journal.spent,
    }
    if as_json:
        typer.echo(json.dumps(answer, indent=1))
        return
    said = {True: "the same person", False: "different people", None: verdict.kind.value}
    score = "" if verdict.score is None else f", score {verdict.score:g}"
    detail = f" ({verdict.detail})" if verdict.detail else ""
    spent = remote.journal.spent
    calls = "1 call" if spent == 1 else f"{spent} calls"
    typer.echo(f"{said[verdict.match]}{score}{detail}; {calls} in the journal")


def _wanted(row: dict[str, Any]) -> list[str]:
    optional = row["optional_secrets"]
    return [f"{name} (where it is needed)" if name in optional else name for name in row["secrets"]]


def _read(path: Path) -> bytes:
    try:
        return path.read_bytes()
    except OSError as bad:
        raise RemoteError(f"cannot read {path}: {bad.strerror or bad}") from None
