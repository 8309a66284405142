"""When a service is not asked any more, whatever is left to ask."""

from __future__ import annotations

import os
import sys
import threading
from collections.abc import Callable, Sequence
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parent))

from toy_service import KEY, Reply, adapter_of, pictures, serving

from onnxfr.errors import RemoteError
from onnxfr.models.remote import asking
from onnxfr.models.remote.adapter import Adapter
from onnxfr.models.remote.model import RemoteModel
from onnxfr.models.remote.reading import Kind


@pytest.fixture
def open_model(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[..., RemoteModel]:
    monkeypatch.setenv(KEY, "abc")

    def make(adapter: Adapter) -> RemoteModel:
        return RemoteModel(adapter, tmp_path / "j", budget=50)

    return make


@pytest.mark.parametrize(
    "wrong",
    [
        Reply(status=401),
        Reply(status=403),
        Reply(status=302),
        Reply({"error": "no such account"}),
        Reply({"match": True, "version": "2"}),
    ],
    ids=["key", "blocked", "moved", "account", "version"],
)
def test_a_service_that_will_answer_nobody_is_not_asked_again(
    wrong: Reply, open_model: Callable[..., RemoteModel]
) -> None:
    """A run has many cells: each would pay a few calls to hear the same."""
    first = Reply({"match": True, "version": "1"})
    rules = 'version = "version"\nfailed = [{ path = "error" }]'
    with serving(lambda number: first if number == 1 else wrong) as service:
        model = open_model(adapter_of(service.url, answer=rules))
        some = pictures(4)
        assert model.verdicts(some[:1], some[:1])[0] is not None
        for _ in range(3):
            with pytest.raises(RemoteError):
                model.verdicts(some[1:], some[1:])
        assert len(service.calls) == model.journal.spent == 2
        known = model.verdicts(some[:1], some[:1])[0]
    assert known is not None and known.match, "what was answered is there all the same"


def test_an_error_that_may_be_about_the_picture_says_nothing_of_others(
    open_model: Callable[..., RemoteModel],
) -> None:
    with serving(lambda number: Reply(status=400 if number == 1 else 200)) as service:
        model = open_model(adapter_of(service.url))
        some = pictures(2)
        with pytest.raises(RemoteError, match="400"):
            model.verdicts(some[:1], some[:1])
        assert model.verdicts(some[1:], some[1:])[0] is not None


def test_a_rule_for_an_answer_that_had_none_keeps_what_was_paid_for(
    open_model: Callable[..., RemoteModel],
) -> None:
    stranger = Reply({"code": "FACE_ANGLE"}, 400)
    with serving(lambda number: Reply() if number <= 3 else stranger) as service:
        adapter, some = adapter_of(service.url), pictures(5)
        first = open_model(adapter)
        with pytest.raises(RemoteError, match=r"status 400.*give the adapter a rule"):
            first.verdicts(some, some)
        assert len(service.calls) == 4
        first.close()
        rule = 'rejected = [{ status = [400], path = "code", values = ["FACE_ANGLE"] }]'
        later = open_model(adapter_of(service.url, answer=rule))
        answers = later.verdicts(some, some)
        assert [each is not None and each.kind is Kind.JUDGED for each in answers] == (
            [True] * 3 + [False] * 2
        )
        assert None not in answers and len(service.calls) == 6
        later.close()
        with pytest.raises(RemoteError, match="something else than rules"):
            open_model(adapter_of(service.url, answer='yes = ["same"]')).open()


def test_a_service_that_makes_no_sense_is_not_paid_to_the_end(
    open_model: Callable[..., RemoteModel], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(asking, "_MOST_SENSELESS", 3)
    down = Reply({"notice": "down for maintenance"})
    with serving(lambda number: Reply() if number == 3 else down) as service:
        model = open_model(adapter_of(service.url, pace="concurrency = 1"))
        some = pictures(9)
        with pytest.raises(RemoteError, match="3 answers of toy in a row made no sense"):
            model.verdicts(some, some)
        assert len(service.calls) == 6, "the third made sense and begins the count anew"
        with pytest.raises(RemoteError, match="in a row"):
            model.verdicts(some[-1:], some[-1:])
        assert len(service.calls) == model.journal.spent == 6


@pytest.mark.parametrize("again", [False, True])
@pytest.mark.parametrize("threads", [1, 4])
def test_what_made_no_sense_is_paid_for_and_asked_anew(
    open_model: Callable[..., RemoteModel],
    monkeypatch: pytest.MonkeyPatch,
    again: bool,
    threads: int,
) -> None:
    """A page that tells of maintenance says nothing about the pictures it was given for."""
    monkeypatch.setattr(asking, "_MOST_SENSELESS", 4)
    page, down = Reply(b"<html>back soon</html>"), threading.Event()
    with serving(lambda _: page if down.is_set() else Reply()) as service:
        adapter, some = adapter_of(service.url, pace=f"concurrency = {threads}"), pictures(12)
        first = open_model(adapter)
        # What is asked again is known before, and stays so.
        known = 12 if again else 3
        assert None not in first.verdicts(some[:known], some[:known])
        down.set()
        with pytest.raises(RemoteError, match=r"answers of toy in a row made no sense"):
            first.verdicts(some, some, again=again)
        lost = len(service.calls) - known
        first.close()
        down.clear()
        later = open_model(adapter)
        assert not later.journal.senseless and len(later.journal.answers) == known
        healed = later.verdicts(some, some, again=again)
        assert [each is not None and each.match for each in healed] == [True] * 12
        asked = 12 if again else 9
        assert later.journal.spent == len(service.calls) == known + lost + asked
    assert 4 <= lost < 4 + threads


def test_a_disk_that_fills_meanwhile_costs_no_answer_and_no_call(
    open_model: Callable[..., RemoteModel], monkeypatch: pytest.MonkeyPatch
) -> None:
    with serving(lambda _: Reply(pause=0.01)) as service:
        model = open_model(adapter_of(service.url, pace="concurrency = 4"))
        some, charge = pictures(30), model.journal.ask

        with monkeypatch.context() as full:

            def charge_and_fill(keys: Sequence[str], calls: int) -> None:
                charge(keys, calls)
                full.setattr(os, "write", lambda file, text: 0)

            full.setattr(model.journal, "ask", charge_and_fill)
            for _ in range(2):
                with pytest.raises(RemoteError, match="in memory only"):
                    model.verdicts(some, some)
        assert len(service.calls) == model.journal.spent == len(model.journal.answers) < 30
        assert None not in model.verdicts(some, some)
        assert len(service.calls) == model.journal.spent == 30, "nothing was paid for twice"
    model.close()
    assert open_model(model.adapter).journal.spent == 30
