"""``onnxfr ls``: what is registered, straight from the registries."""

from __future__ import annotations

import json as json_module
from collections.abc import Callable
from typing import Annotated

import typer

from onnxfr.errors import UnknownName

Row = dict[str, str]


def ls(
    kind: Annotated[str, typer.Argument(help="attacks, corruptions, evaluators, models, ...")],
    json: Annotated[bool, typer.Option("--json", help="Print a JSON list.")] = False,
) -> None:
    """List what can be named: attacks, corruptions, evaluators, exporters, models, presets."""
    if kind not in KINDS:
        raise UnknownName(f"onnxfr ls knows {', '.join(sorted(KINDS))}; got {kind!r}")
    rows = KINDS[kind]()
    if json:
        typer.echo(json_module.dumps(rows, indent=2))
        return
    widest = max((len(row["name"]) for row in rows), default=0)
    for row in rows:
        typer.echo(f"{row['name']:{widest}}  {row['what']}".rstrip())


def _first_line(thing: object) -> str:
    return (getattr(thing, "__doc__", None) or "").strip().split("\n")[0]


def _corruptions() -> list[Row]:
    from onnxfr.corruptions import CORRUPTIONS

    return [{"name": name, "what": str(item.category)} for name, item in CORRUPTIONS.items()]


def _evaluators() -> list[Row]:
    from onnxfr.evaluators.base import EVALUATORS

    return [{"name": name, "what": _first_line(item)} for name, item in EVALUATORS.items()]


def _architectures() -> list[Row]:
    from onnxfr.exporters.architectures import ARCHITECTURES

    return [{"name": name, "what": item.paper} for name, item in ARCHITECTURES.items()]


def _models() -> list[Row]:
    from onnxfr.model_zoo import zoo_cards

    return [
        {"name": name, "what": f"{card.framework}, {card.architecture}"}
        for name, card in zoo_cards().items()
    ]


def _presets() -> list[Row]:
    from importlib import resources

    from onnxfr.runs.spec import read_suite

    folder = resources.files("onnxfr.evaluators").joinpath("presets")
    files = sorted((f for f in folder.iterdir() if f.name.endswith(".toml")), key=lambda f: f.name)
    suites = {file.name.removesuffix(".toml"): file.read_text("utf-8") for file in files}
    return [{"name": n, "what": read_suite(n, text).description} for n, text in suites.items()]


def _operators() -> list[Row]:
    from onnxfr.models.graph.rules import OPERATORS, discover

    discover()
    return [
        {"name": name, "what": f"{domain or 'onnx'}, rules from opset {sorted(versions)}"}
        for (domain, name), versions in sorted(OPERATORS.items(), key=lambda item: item[0][::-1])
    ]


def _attacks() -> list[Row]:
    from onnxfr.attacks.base import ATTACKS

    return [{"name": name, "what": item.paper} for name, item in ATTACKS.items()]


def _exporters() -> list[Row]:
    from onnxfr.exporters.base import EXPORTERS

    return [{"name": name, "what": item.formats} for name, item in EXPORTERS.items()]


KINDS: dict[str, Callable[[], list[Row]]] = {
    "architectures": _architectures,
    "attacks": _attacks,
    "corruptions": _corruptions,
    "evaluators": _evaluators,
    "exporters": _exporters,
    "models": _models,
    "operators": _operators,
    "presets": _presets,
}
