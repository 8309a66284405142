"""A verifier over HTTP as a model that only compares."""

from __future__ import annotations

import hashlib
import math
from pathlib import Path
from typing import NamedTuple
from urllib.parse import urlsplit

import numpy as np
from numpy.typing import NDArray

from onnxfr.errors import RemoteError, SpecError
from onnxfr.models.card import Card
from onnxfr.models.comparer import CallsSpent, Comparer
from onnxfr.models.preprocessing import Preprocessing
from onnxfr.models.remote.adapter import Adapter, read_adapter
from onnxfr.models.remote.asking import Asker, Question
from onnxfr.models.remote.authorisation import check_authorised, is_loopback
from onnxfr.models.remote.filling import encode_picture, fill, join_pictures, read_secrets
from onnxfr.models.remote.journal import Journal
from onnxfr.models.remote.reading import Verdict
from onnxfr.types import Access, Images, Pixels

PREFIX = "remote:"
_SIDE = 112


class RemoteModel(Comparer):
    """Asks a service within a budget of calls, writing everything down.

    Args:
        adapter: how the service is asked and understood.
        journal: the file of questions and answers; a new run on it pays for nothing again.
        budget: the most calls in the journal's whole life; may be left out on this machine only.
        authorised: the user's word that the owner of an outside service allows the test.
    """

    def __init__(
        self,
        adapter: Adapter,
        journal: Path,
        *,
        budget: int | None = None,
        authorised: bool = False,
    ) -> None:
        secrets = read_secrets(adapter)
        shared = {f"secret.{name}": text for name, text in secrets.items()}
        shared |= {f"parameter.{name}": text for name, text in adapter.parameters.items()}
        outside = False
        for step in adapter.steps:
            url = fill(step.url, {**shared, **_blank_captures(adapter)})
            check_authorised(url, authorised)
            outside |= not is_loopback(_host(url))
        if budget is None and outside:
            raise SpecError(
                f"{adapter.name} may charge for every call: say how many at most, with --max-calls"
            )
        if budget is not None and budget < 0:
            raise SpecError(f"a budget of calls is 0 or more; got {budget}")
        self.adapter = adapter
        self.access = Access.DECISION if adapter.answer.score is None else Access.SCORE
        self.journal = Journal(
            journal, adapter=adapter.name, digest=adapter.digest(), budget=budget
        )
        self._asker = Asker(adapter, self.journal, shared)
        self.card = _card(adapter)

    def compare(self, images: Images, references: Images) -> NDArray[np.float32]:
        """Return the margins; what the journal knows is not asked again."""
        verdicts = self.verdicts(images, references)
        if verdicts and all(verdict is None for verdict in verdicts):
            raise CallsSpent
        rule = self.adapter.answer
        return np.array(
            [math.nan if each is None else each.margin(rule) for each in verdicts], np.float32
        )

    def verdicts(
        self, images: Images, references: Images, *, again: bool = False
    ) -> list[Verdict | None]:
        """Return the answer to each question; None where no call was left for it.

        Args:
            images: the probes.
            references: what each is compared with.
            again: ask also what the journal knows, to see whether the service changes its mind.
        """
        questions = [
            self._question(image, reference)
            for image, reference in zip(to_pixels(images), to_pixels(references), strict=True)
        ]
        with self.journal.exclusive():
            fresh = {each.key: each for each in questions}
            if not again:
                fresh = {
                    key: each for key, each in fresh.items() if key not in self.journal.answers
                }
            affordable = list(fresh.values())
            if self.journal.left < len(affordable) * self.adapter.calls:
                affordable = affordable[: int(self.journal.left // self.adapter.calls)]
            self.journal.ask([each.key for each in affordable], self.adapter.calls)
            self._asker.ask(affordable, again=again)
            if not again:
                return [self.journal.answers.get(each.key) for each in questions]
            asked = {each.key for each in affordable}
            repeats = self.journal.repeats
            return [
                repeats[each.key][-1] if each.key in asked and each.key in repeats else None
                for each in questions
            ]

    def price(self, questions: int) -> tuple[float, str]:
        """Return what so many questions cost by the adapter's price, and the currency."""
        price = self.adapter.price
        return questions * self.adapter.calls * price.per_call, price.currency

    def close(self) -> None:
        """Close connections and journal."""
        self._asker.close()
        self.journal.close()

    def _question(self, probe: Pixels, reference: Pixels) -> Question:
        rule = self.adapter.picture
        files = [encode_picture(picture, rule) for picture in (probe, reference)]
        values: dict[str, bytes | str] = {"probe": files[0], "reference": files[1]}
        if _mentions(self.adapter, "${joined}"):
            values["joined"] = encode_picture(join_pictures(probe, reference), rule)
        key = "-".join(hashlib.sha256(file).hexdigest()[:32] for file in files)
        return Question(key, values)


class RemoteReference(NamedTuple):
    """What a text such as ``remote:onnxfr,url=http://127.0.0.1:8600,budget=500`` says."""

    adapter: str
    parameters: dict[str, str]
    journal: Path | None
    budget: int | None
    authorised: bool


def is_remote(reference: str) -> bool:
    """Tell whether a model reference means a service."""
    return reference.startswith(PREFIX)


def parse_reference(reference: str) -> RemoteReference:
    """Split a reference into adapter, options and parameters."""
    name, *options = reference.removeprefix(PREFIX).split(",")
    parameters: dict[str, str] = {}
    journal, budget, authorised = None, None, False
    for option in options:
        key, equals, value = option.partition("=")
        if key == "authorised" and not equals:
            authorised = True
        elif key == "journal" and value:
            journal = Path(value)
        elif key == "budget" and value.isdigit():
            budget = int(value)
        elif equals:
            parameters[key] = value
        else:
            raise SpecError(
                f"{option!r} in {reference!r} is no option; expected authorised, journal=FILE, "
                "budget=CALLS or a parameter of the adapter as NAME=VALUE"
            )
    return RemoteReference(name, parameters, journal, budget, authorised)


def open_remote(reference: str) -> RemoteModel:
    """Open the service a reference means."""
    said = parse_reference(reference)
    adapter = read_adapter(said.adapter).with_parameters(said.parameters)
    if said.journal is None:
        raise RemoteError(
            f"{reference!r} names no journal: add journal=FILE, where every question and answer "
            "is kept so that nothing is paid for twice"
        )
    return RemoteModel(adapter, said.journal, budget=said.budget, authorised=said.authorised)


def to_pixels(images: Images) -> list[Pixels]:
    """Return 8-bit pictures as services take them."""
    bytes_ = np.clip(np.round(images * 255), 0, 255).astype(np.uint8)
    return list(np.ascontiguousarray(bytes_.transpose(0, 2, 3, 1)))


def _mentions(adapter: Adapter, place: str) -> bool:
    return any(place in str(step.body) for step in adapter.steps)


def _blank_captures(adapter: Adapter) -> dict[str, str]:
    return {f"captured.{name}": "x" for step in adapter.steps for name in step.captures}


def _host(url: str) -> str:
    return urlsplit(url).hostname or ""


def _card(adapter: Adapter) -> Card:
    return Card(
        name=adapter.name,
        sha256=adapter.digest(),
        licence="the service's terms",
        framework="http",
        architecture=adapter.description[:100],
        input_height=_SIDE,
        input_width=_SIDE,
        embedding_dim=1,
        opset=1,
        preprocessing=Preprocessing(),
        notes=(f"adapter tested: {adapter.tested}",),
    )
