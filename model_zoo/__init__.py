"""The model zoo: facts about models, one TOML card each, and the way to have them.

``zoo_card("sface")`` reads a card; ``onnxfr.model_zoo.obtaining.get`` fetches, exports, admits and
certifies the model it describes.
"""

from __future__ import annotations

import difflib
import tomllib
from functools import cache
from importlib import resources

from pydantic import ValidationError

from onnxfr.errors import CardError, UnknownName
from onnxfr.model_zoo.schema import Member, ZooCard, ZooCarrier

__all__ = ["Member", "ZooCard", "ZooCarrier", "parse_zoo_card", "zoo_card", "zoo_cards"]


@cache
def zoo_cards() -> dict[str, ZooCard]:
    """Return every card of the zoo by name, sorted."""
    folder = resources.files("onnxfr.model_zoo").joinpath("cards")
    files = sorted((f for f in folder.iterdir() if f.name.endswith(".toml")), key=lambda f: f.name)
    cards = {}
    for file in files:
        card = parse_zoo_card(file.read_text(encoding="utf-8"), file.name)
        if f"{card.name}.toml" != file.name:
            raise CardError(f"{file.name} describes {card.name!r}; a card's file has its name")
        cards[card.name] = card
    return cards


def zoo_card(name: str) -> ZooCard:
    """Return the card called ``name``, or raise with the nearest names."""
    cards = zoo_cards()
    if name not in cards:
        near = difflib.get_close_matches(name, cards, n=3)
        hint = f"; did you mean {', '.join(near)}?" if near else ""
        raise UnknownName(f"the zoo has no model {name!r}{hint} (see: onnxfr zoo list)")
    return cards[name]


def parse_zoo_card(text: str, where: str) -> ZooCard:
    """Read one card; ``where`` names it in the error."""
    try:
        return ZooCard.model_validate(tomllib.loads(text))
    except tomllib.TOMLDecodeError as error:
        raise CardError(f"{where} is not TOML: {error}") from None
    except ValidationError as error:
        problems = "; ".join(
            f"{'.'.join(str(part) for part in each['loc']) or 'card'}: {each['msg']}"
            for each in error.errors()[:5]
        )
        raise CardError(f"{where} is not a valid zoo card: {problems}") from None
