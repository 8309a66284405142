"""A verifier over HTTP as a model that only compares."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from onnxfr.errors import RemoteError, SpecError
from onnxfr.models.card import Card
from onnxfr.models.comparer import UNASKED, CallsSpent, Comparer
from onnxfr.models.preprocessing import Preprocessing
from onnxfr.models.remote.adapter import Adapter
from onnxfr.models.remote.asking import Asker, Question
from onnxfr.models.remote.authorisation import check_authorised, host_of, is_loopback
from onnxfr.models.remote.filling import (
    check_places,
    encode_picture,
    fill,
    join_pictures,
    read_secrets,
)
from onnxfr.models.remote.journal import Journal
from onnxfr.models.remote.reading import Verdict
from onnxfr.types import Access, Images, Pixels

_SIDE = 112
_GUESSED_SECONDS = 0.1


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
        if budget is not None and budget < 0:
            raise SpecError(f"a budget of calls is 0 or more; got {budget}")
        self.adapter, self.card = adapter, _card(adapter)
        self.access = Access.DECISION if adapter.answer.score is None else Access.SCORE
        self._place, self._budget, self._authorised = journal, budget, authorised
        self._asker: Asker | None = None

    def open(self) -> Asker:
        """Check the user's word, budget and secrets, and open the journal, once.

        Nothing of that is needed to plan a run and to estimate its price.
        """
        if self._asker is not None:
            return self._asker
        adapter = self.adapter
        check_places(adapter)
        shared = {f"parameter.{name}": text for name, text in adapter.parameters.items()}
        urls = _addresses(adapter, shared, "x")
        for url in urls:
            check_authorised(url, self._authorised)
        hosts = {host_of(url) for url in urls}
        if hosts != {host_of(url) for url in _addresses(adapter, shared, "y")}:
            raise RemoteError(
                f"the host that {adapter.name} asks depends on a secret or on an answer: put it "
                "under [parameters], so that it can be told whose service is asked"
            )
        outside = any(not is_loopback(host) for host in hosts)
        if self._budget is None and outside:
            raise SpecError(
                f"{adapter.name} may charge for every call: say how many at most, with --max-calls"
            )
        shared |= {f"secret.{name}": text for name, text in read_secrets(adapter).items()}
        journal = Journal(
            self._place,
            adapter=adapter.name,
            digest=adapter.digest(),
            former=adapter.former_digest(),
            budget=self._budget,
        )
        try:
            self._asker = Asker(adapter, journal, shared, hosts)
        except BaseException:
            journal.close()
            raise
        return self._asker

    @property
    def journal(self) -> Journal:
        """The book of questions and answers."""
        return self.open().journal

    @property
    def seconds_per_question(self) -> float:
        """A guess of the time one question takes, for plans."""
        rate = self.adapter.pace.per_second
        return _GUESSED_SECONDS if rate is None else self.adapter.calls / rate

    def compare(self, images: Images, references: Images) -> NDArray[np.float32]:
        """Return the margins; what the journal knows is not asked again."""
        verdicts = self.verdicts(images, references)
        if verdicts and all(verdict is None for verdict in verdicts):
            raise CallsSpent
        rule = self.adapter.answer
        return np.array(
            [UNASKED if each is None else each.margin(rule) for each in verdicts], np.float32
        )

    def verdicts(
        self, images: Images, references: Images, *, again: bool = False
    ) -> list[Verdict | None]:
        """Return the answer to each question; None where no call was left for it.

        Args:
            images: the probes.
            references: what each is compared with.
            again: ask once more what the journal knows, to see whether the service changes its
                mind; a second answer that the journal has is not asked for a third time.
        """
        questions = [
            self._question(image, reference)
            for image, reference in zip(to_pixels(images), to_pixels(references), strict=True)
        ]
        asker, calls = self.open(), self.adapter.calls
        journal = asker.journal
        answer = journal.repeat if again else journal.answers.get
        with journal.exclusive():
            affordable = list({q.key: q for q in questions if answer(q.key) is None}.values())
            if journal.left < len(affordable) * calls:
                affordable = affordable[: int(journal.left // calls)]
            if affordable:
                asker.check_use()
            asker.ask(affordable, again=again)
            found = [answer(each.key) for each in questions]
        self.unserved += sum(each is None for each in found)
        return found

    def price(self, questions: int) -> tuple[float | None, str]:
        """Return what so many questions cost, None where no price is known, and the currency."""
        price = self.adapter.price
        each = price.per_call
        return None if each is None else questions * self.adapter.calls * each, price.currency

    def close(self) -> None:
        """Close connections and journal."""
        if self._asker is not None:
            self._asker.close()
            self._asker.journal.close()
            self._asker = None

    def _question(self, probe: Pixels, reference: Pixels) -> Question:
        rule = self.adapter.picture
        files = [encode_picture(picture, rule) for picture in (probe, reference)]
        values: dict[str, bytes | str] = {"probe": files[0], "reference": files[1]}
        if _mentions(self.adapter, "${joined}"):
            values["joined"] = encode_picture(join_pictures(probe, reference), rule)
        key = "-".join(hashlib.sha256(file).hexdigest()[:32] for file in files)
        return Question(key, values)


def to_pixels(images: Images) -> list[Pixels]:
    """Return 8-bit pictures as services take them."""
    bytes_ = np.clip(np.round(images * 255), 0, 255).astype(np.uint8)
    return list(np.ascontiguousarray(bytes_.transpose(0, 2, 3, 1)))


def _addresses(adapter: Adapter, shared: Mapping[str, bytes | str], blank: str) -> list[str]:
    """Return where requests go, with a blank for what no setting tells."""
    names = [f"secret.{name}" for name in adapter.secrets]
    names += [f"captured.{name}" for step in adapter.steps for name in step.captures]
    values = {**shared, **dict.fromkeys(names, blank)}
    return [fill(step.url, values) for step in adapter.steps]


def _mentions(adapter: Adapter, place: str) -> bool:
    return any(place in str(step.body) for step in adapter.steps)


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
