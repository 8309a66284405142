"""A service as a model reference: ``remote:ADAPTER,NAME=VALUE,name=front,budget=500``.

In the paths of adapter and journal ``%2C`` stands for a comma and ``%25`` for a percent sign. A
comma may be written as it is where a slash, and no ``=`` before it, follows.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field, replace
from pathlib import Path

from onnxfr.errors import RemoteError, SpecError
from onnxfr.models.remote.adapter import NAME, Adapter, adapter_names, read_adapter
from onnxfr.models.remote.model import RemoteModel
from onnxfr.paths import expanded

PREFIX = "remote:"
_COMMA = re.compile(r",(?![^=]*[/\\])")
"""Between two options; others belong to the name of a folder, for more of its path follows."""
_CALLS = re.compile("[0-9]{1,18}")
_ESCAPED = re.compile("%(2C|25)")


@dataclass(frozen=True)
class RemoteReference:
    """What such a text says."""

    adapter: str
    parameters: dict[str, str] = field(default_factory=dict)
    journal: Path | None = None
    budget: int | None = None
    authorised: bool = False
    price: float | None = None
    name: str | None = None
    """What results call the service; None takes the adapter's name."""

    def __str__(self) -> str:
        parts = [f"{PREFIX}{escaped(self.adapter)}"]
        parts += [f"{name}={value}" for name, value in self.parameters.items()]
        parts += [] if self.name is None else [f"name={self.name}"]
        parts += [] if self.budget is None else [f"budget={self.budget}"]
        parts += [] if self.journal is None else [f"journal={escaped(str(self.journal))}"]
        parts += [] if self.price is None else [f"price={self.price!r}"]
        return ",".join([*parts, "authorised"] if self.authorised else parts)

    def read(self) -> Adapter:
        """Return the adapter with its parameters, name and price set."""
        adapter = read_adapter(self.adapter).with_parameters(self.parameters)
        if self.name is not None:
            adapter = adapter.model_copy(update={"name": self.name})
        if self.price is None:
            return adapter
        price = adapter.price.model_copy(update={"per_call": self.price})
        return adapter.model_copy(update={"price": price})


def is_remote(reference: str) -> bool:
    """Tell whether a model reference means a service."""
    return reference.startswith(PREFIX)


def parse_reference(reference: str) -> RemoteReference:
    """Split a reference into adapter, options and parameters."""
    name, *options = _COMMA.split(reference.removeprefix(PREFIX))
    found = RemoteReference(_unescape(name))
    for option in options:
        key, equals, value = option.partition("=")
        if key == "authorised" and not equals:
            found = replace(found, authorised=True)
        elif key == "journal" and value:
            found = replace(found, journal=Path(_unescape(value)))
        elif key == "budget" and _CALLS.fullmatch(value):
            found = replace(found, budget=int(value))
        elif key == "price" and (cost := _number(value)) is not None:
            found = replace(found, price=cost)
        elif key == "name" and re.fullmatch(NAME, value):
            found = replace(found, name=value)
        elif equals and key not in ("budget", "price", "name"):
            found.parameters[key] = value
        else:
            raise SpecError(
                f"{option!r} in {reference!r} is no option; expected authorised, journal=FILE, "
                "budget=CALLS, price=PER_CALL, name=NAME (small letters, digits and _.-) or a "
                "parameter of the adapter as NAME=VALUE"
            )
    return found


def escaped(path: str) -> str:
    """Return a path that stays in one piece when the reference is split, as it is where it does."""
    if not (_COMMA.search(path) or _ESCAPED.search(path)):
        return path
    return path.replace("%", "%25").replace(",", "%2C")


def _unescape(text: str) -> str:
    return _ESCAPED.sub(lambda found: {"2C": ",", "25": "%"}[found.group(1)], text)


def _number(text: str) -> float | None:
    try:
        value = float(text)
    except ValueError:
        return None
    return value if 0 <= value < float("inf") else None


def complete(
    reference: str, folder: Path, *, budget: int | None = None, authorised: bool = False
) -> str:
    """Return a reference with what was left out: the journal in ``folder``, budget, permission."""
    if not is_remote(reference):
        return reference
    said = parse_reference(reference)
    journal = said.journal or folder / f"journal-{said.read().name}.jsonl"
    return str(
        replace(
            said,
            journal=journal.absolute(),
            budget=said.budget if budget is None else budget,
            authorised=said.authorised or authorised,
        )
    )


def absolute(reference: str, folder: Path) -> str:
    """Return a reference whose files are found from anywhere; they are relative to ``folder``."""
    said = parse_reference(reference)
    if said.adapter not in adapter_names():
        said = replace(said, adapter=str((folder / expanded(said.adapter)).resolve()))
    if said.journal is not None:
        said = replace(said, journal=(folder / expanded(said.journal)).resolve())
    return str(said)


def open_remote(reference: str) -> RemoteModel:
    """Return the service a reference means; it is not asked anything yet."""
    said = parse_reference(reference)
    if said.journal is None:
        raise RemoteError(
            f"{reference!r} names no journal: add journal=FILE, where every question and answer "
            "is kept so that nothing is paid for twice"
        )
    return RemoteModel(said.read(), said.journal, budget=said.budget, authorised=said.authorised)
