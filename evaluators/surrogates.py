"""Who attacks whom, and what the attacker knows of his target (FACESEC, Tong et al. 2021).

A source is one model or an ensemble; its adversarial pictures are shown to targets. What a source
shares with a target decides the knowledge level: **F** the target itself, **A** its architecture
trained on other data, **T** its training set under other architectures, **Z** neither. The tags are
those of the models' cards; an unknown tag supports no claim and gives no level.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import get_args

from onnxfr.errors import SpecError
from onnxfr.models.card import Card
from onnxfr.models.ensemble import Mode
from onnxfr.runs.cells import ModelRef

LEVELS = {
    "Z": "nothing known: other architectures, other training data",
    "T": "training set known: other architectures, the same data",
    "A": "architecture known: the same, trained on other data",
    "F": "full knowledge: the target itself",
}
_UNKNOWN = frozenset(
    (
        *("", "unknown", "notknown", "na", "none", "notstated", "unspecified", "undisclosed"),
        *("proprietary", "private", "confidential"),
    )
)
"""What says nothing, as ``_plain`` has it: two vendors' private data are not the same data."""

Cards = Mapping[str, Card]
"""Cards by the sha256 of their model."""


@dataclass(frozen=True)
class Source:
    """What pictures are made with, and the targets they are shown to."""

    name: str
    members: tuple[ModelRef, ...]
    mode: Mode
    targets: tuple[ModelRef, ...]


def make_sources(
    words: Sequence[str], models: Sequence[ModelRef], targets: Sequence[ModelRef], cards: Cards
) -> list[Source]:
    """Return the sources that some words ask for, each set of members once under each name.

    A name stands for a row of the matrix; ``all others`` are other members for every target, and
    must not take over the targets of one of its sets that is also asked for by names.

    Args:
        words: ``each`` (every model alone), ``others`` (all models but the target, one ensemble per
            target), ``levels`` (the sets of FACESEC's knowledge levels), or names joined by ``+``;
            an ensemble mode may follow, as in ``others:loss``.
        models: the models of the run that can be attacked with gradients.
        targets: those that are attacked.
        cards: their cards.
    """
    found: dict[tuple[str, tuple[str, ...], str], Source] = {}
    for word in words:
        for source in _sources_of(word, models, targets, cards):
            key = (source.name, tuple(member.sha256 for member in source.members), source.mode)
            known = found.get(key)
            if known is not None:
                shown = dict.fromkeys((*known.targets, *source.targets))
                source = replace(known, targets=tuple(shown))
            found[key] = source
    if not found:
        raise SpecError(
            f"the sources {', '.join(words)!r} give no attack among {len(models)} models; "
            "add models whose cards name architecture and training set, or use 'each'"
        )
    return list(found.values())


def knowledge(members: Sequence[Card], target: Card) -> str:
    """Return the level at which an attacker with these surrogates knows the target, or nothing.

    Who holds the target and others beside it is not at level F: whoever knows everything attacks
    the target alone, and an ensemble would stand for less than that.
    """
    own = [member.sha256 == target.sha256 for member in members]
    if any(own):
        return "F" if all(own) else ""
    kinds = {_relation(member, target) for member in members}
    return kinds.pop() if len(kinds) == 1 else ""


def surrogates(level: str, target: Card, cards: Sequence[Card]) -> list[Card]:
    """Return the models that an attacker of a level may use against a target."""
    if level == "F":
        return [target]
    return [
        card for card in cards if card.sha256 != target.sha256 and _relation(card, target) == level
    ]


def _relation(member: Card, target: Card) -> str:
    pairs = (
        (member.architecture, target.architecture),
        (member.training_set, target.training_set),
    )
    plain = [(_plain(own), _plain(wanted)) for own, wanted in pairs]
    if any(tag in _UNKNOWN for pair in plain for tag in pair):
        return ""
    architecture, data = (own == wanted for own, wanted in plain)
    if architecture:
        return "" if data else "A"
    return "T" if data else "Z"


def _plain(tag: str) -> str:
    """Return a tag without case, spaces and punctuation: IResNet-50 and iresnet50 are one."""
    return "".join(letter for letter in tag.casefold() if letter.isalnum())


def _sources_of(
    word: str, models: Sequence[ModelRef], targets: Sequence[ModelRef], cards: Cards
) -> list[Source]:
    kind, _, given = word.partition(":")
    mode = _mode(given, word)
    if kind == "each":
        return [Source(model.name, (model,), "margin", tuple(targets)) for model in models]
    if kind == "others":
        return _against_each(
            targets,
            lambda target: [model for model in models if model.sha256 != target.sha256],
            mode,
            lambda members: "all others",
        )
    if kind == "levels":
        place = {model.sha256: model for model in models}
        every = [cards[model.sha256] for model in models]
        return [
            source
            for level in LEVELS
            for source in _against_each(
                targets,
                lambda target, level=level: [  # type: ignore[misc]
                    place[card.sha256]
                    for card in surrogates(level, cards[target.sha256], every)
                    if card.sha256 in place
                ],
                mode,
                lambda members: " + ".join(member.name for member in members),
            )
        ]
    return [_named(kind, mode, models, targets)]


def _against_each(
    targets: Sequence[ModelRef],
    choose: Callable[[ModelRef], list[ModelRef]],
    mode: Mode,
    name: Callable[[Sequence[ModelRef]], str],
) -> list[Source]:
    found = []
    for target in targets:
        members = choose(target)
        if len(members) == 1:
            found.append(Source(members[0].name, tuple(members), "margin", (target,)))
        elif members:
            title = f"{name(members)} ({mode})"
            found.append(Source(title, tuple(members), mode, (target,)))
    return found


def _named(
    text: str, mode: Mode, models: Sequence[ModelRef], targets: Sequence[ModelRef]
) -> Source:
    known = {model.name: model for model in models}
    names = [name.strip() for name in text.split("+")]
    missing = [name for name in names if name not in known]
    if missing:
        raise SpecError(
            f"no model of this run with a differentiable form is called {missing[0]!r}; sources "
            f"are each, others, levels or names joined by '+': {', '.join(known)}"
        )
    members = tuple(known[name] for name in dict.fromkeys(names))
    if len(members) == 1:
        return Source(members[0].name, members, "margin", tuple(targets))
    return Source(f"{' + '.join(m.name for m in members)} ({mode})", members, mode, tuple(targets))


def _mode(given: str, word: str) -> Mode:
    modes: tuple[Mode, ...] = get_args(Mode)
    for mode in modes:
        if mode == (given or "margin"):
            return mode
    raise SpecError(f"an ensemble mode is one of {', '.join(modes)}; got {given!r} in {word!r}")
