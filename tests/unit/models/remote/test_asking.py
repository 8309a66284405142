"""Questions to a service that answers whatever the test wants: what is sent, charged and kept."""

from __future__ import annotations

import gzip
import sys
import time
from collections.abc import Callable
from concurrent.futures import wait
from pathlib import Path
from typing import Any

import numpy as np
import pytest

sys.path.insert(0, str(Path(__file__).parent))

from toy_service import KEY, Reply, adapter_of, ask, pictures, serving

from onnxfr.errors import RemoteError
from onnxfr.models.comparer import UNASKED, CallsSpent
from onnxfr.models.remote.adapter import Step
from onnxfr.models.remote.asking import Values
from onnxfr.models.remote.filling import Ready, make_request
from onnxfr.models.remote.model import RemoteModel
from onnxfr.models.remote.reading import Kind, Verdict

SLOW = "concurrency = 8\nper_second = 0.1"
"""The first question leaves at once, the others would wait longer than any test."""


@pytest.fixture(autouse=True)
def key(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(KEY, "abc")


def test_after_an_error_nothing_more_is_sent_or_charged(
    open_model: Callable[..., RemoteModel],
) -> None:
    with serving(lambda _: Reply(status=401)) as service:
        model = open_model(adapter_of(service.url, pace=SLOW))
        with pytest.raises(RemoteError, match="401"):
            ask(model, 12)
    assert len(service.calls) == 1 == model.journal.spent


def test_ctrl_c_keeps_what_was_answered_and_sends_nothing_more(
    open_model: Callable[..., RemoteModel], monkeypatch: pytest.MonkeyPatch
) -> None:
    interrupted: list[bool] = []

    def wait_and_press(tasks: Any, **how: Any) -> Any:
        if interrupted:
            return wait(tasks, **how)
        interrupted.append(True)
        while not model.journal.answers:
            time.sleep(0.01)
        raise KeyboardInterrupt

    monkeypatch.setattr("onnxfr.models.remote.asking.wait", wait_and_press)
    with serving(lambda _: Reply()) as service:
        model = open_model(adapter_of(service.url, pace=SLOW))
        with pytest.raises(KeyboardInterrupt):
            ask(model, 8)
    assert len(service.calls) == 1 == model.journal.spent == len(model.journal.answers)


def test_a_step_that_fails_charges_no_later_one(open_model: Callable[..., RemoteModel]) -> None:
    with serving(lambda number: Reply(status=401 if number == 2 else 200)) as service:
        model = open_model(adapter_of(service.url, service.url, service.url))
        with pytest.raises(RemoteError, match="401"):
            ask(model)
    assert len(service.calls) == 2 == model.journal.spent


def test_a_request_that_http_has_no_form_for_is_neither_charged_nor_tried_again(
    open_model: Callable[..., RemoteModel], monkeypatch: pytest.MonkeyPatch
) -> None:
    for value in ("abc\n", "schlüssel"):
        monkeypatch.setenv(KEY, value)
        with serving(lambda _: Reply()) as service:
            model = open_model(adapter_of(service.url))
            with pytest.raises(RemoteError, match="cannot be sent") as refused:
                ask(model, 3)
        assert not service.calls and model.journal.spent == 0
        assert value.strip() not in str(refused.value)
        model.close()
        model.journal.path.unlink()


@pytest.mark.parametrize("url", ["ftp://127.0.0.1/x", "http://127.0.0.1:many/x"])
def test_so_is_an_address_that_is_none(open_model: Callable[..., RemoteModel], url: str) -> None:
    model = open_model(adapter_of(url))
    with pytest.raises(RemoteError, match="cannot be sent"):
        ask(model)
    assert model.journal.spent == 0


@pytest.mark.parametrize(
    ("content", "encoding", "why"),
    [
        (b"not packed at all", "gzip", "unpacked"),
        (gzip.compress(b'{"match": true}')[:-9], "gzip", "ends before"),
        (b"?", "br", "nobody asked"),
        (gzip.compress(bytes(9 * 2**20)), "gzip", "8 MB"),
        (gzip.compress(bytes(5 * 2**20)) * 2, "gzip", "8 MB"),
        (gzip.compress(b"") * 2000, "gzip", "parts"),
        (gzip.compress(b'{"match": ') + gzip.compress(b"true}")[:-9], "gzip", "ends before"),
        (bytes(9 * 2**20), "identity", "8 MB"),
    ],
    ids=["garbage", "torn", "strange", "bomb", "two bombs", "parts", "torn part", "long"],
)
def test_content_that_cannot_be_had_is_an_invalid_answer_paid_for_once(
    open_model: Callable[..., RemoteModel], content: bytes, encoding: str, why: str
) -> None:
    with serving(lambda _: Reply(content, headers={"Content-Encoding": encoding})) as service:
        model = open_model(adapter_of(service.url))
        (verdict,) = ask(model)
        assert ask(model) == [verdict]
    assert verdict is not None and verdict.kind is Kind.INVALID and why in verdict.detail
    assert len(service.calls) == 1 == model.journal.spent


def test_a_packed_answer_is_read(open_model: Callable[..., RemoteModel]) -> None:
    packed = Reply(gzip.compress(b'{"match": false}'), headers={"Content-Encoding": "gzip"})
    with serving(lambda _: packed) as service:
        assert ask(open_model(adapter_of(service.url))) == [Verdict(Kind.JUDGED, False)]


@pytest.mark.parametrize("after", [b"", bytes(8), b"padding"])
def test_so_is_one_packed_in_parts(open_model: Callable[..., RemoteModel], after: bytes) -> None:
    parts = [gzip.compress(part) for part in (b"", b'{"match": ', b"", b"false}")]
    packed = Reply(b"".join(parts) + after, headers={"Content-Encoding": "gzip"})
    with serving(lambda _: packed) as service:
        assert ask(open_model(adapter_of(service.url))) == [Verdict(Kind.JUDGED, False)]


def test_a_status_counts_though_the_content_cannot_be_had(
    open_model: Callable[..., RemoteModel],
) -> None:
    broken = {"Content-Encoding": "gzip"}
    with serving(
        lambda number: Reply(b"not packed", 503 if number == 1 else 401, broken)
    ) as service:
        model = open_model(adapter_of(service.url))
        with pytest.raises(RemoteError, match="401"):
            ask(model)
    assert len(service.calls) == 2 == model.journal.spent


def test_a_number_beyond_all_bounds_is_no_score(open_model: Callable[..., RemoteModel]) -> None:
    huge = b'{"match": true, "score": 1' + b"0" * 400 + b"}"
    with serving(lambda _: Reply(huge)) as service:
        model = open_model(adapter_of(service.url, answer='score = "score"\nthreshold = 0.5'))
        assert ask(model) == [Verdict(Kind.JUDGED, True)]


def test_a_budget_below_what_was_spent_allows_nothing(
    open_model: Callable[..., RemoteModel],
) -> None:
    with serving(lambda _: Reply()) as service:
        open_model(adapter_of(service.url), budget=3).verdicts(pictures(3), pictures(3))
        model = open_model(adapter_of(service.url), budget=2)
        assert [verdict is None for verdict in ask(model, 6)] == [False] * 3 + [True] * 3
        assert len(service.calls) == 3 and model.unserved == 3
        answered = model.compare(pictures(6), pictures(6))
        np.testing.assert_array_equal(answered, [1, 1, 1, UNASKED, UNASKED, UNASKED])
        with pytest.raises(CallsSpent):
            model.compare(pictures(6)[3:], pictures(6)[3:])


def test_a_second_answer_is_not_paid_for_again_after_a_crash(
    open_model: Callable[..., RemoteModel],
) -> None:
    with serving(lambda number: Reply({"match": number <= 2})) as service:
        adapter = adapter_of(service.url)
        ask(open_model(adapter), 2)
        later = ask(open_model(adapter), 2, again=True)
        assert later == [Verdict(Kind.JUDGED, False)] * 2
        assert ask(open_model(adapter), 2, again=True) == later
        assert len(service.calls) == 4


def test_an_answer_cannot_choose_where_the_key_goes(open_model: Callable[..., RemoteModel]) -> None:
    with (
        serving(lambda _: Reply(), host="127.0.0.2") as stranger,
        serving(lambda _: Reply({"match": "@" + stranger.url.removeprefix("http://")})) as service,
    ):
        model = open_model(adapter_of(service.url, service.url + "${captured.m}"))
        with pytest.raises(RemoteError, match=r"leads to 127\.0\.0\.2"):
            ask(model)
    assert not stranger.calls and len(service.calls) == 1 == model.journal.spent


def test_a_service_that_asks_for_patience_gets_it_from_every_question(
    open_model: Callable[..., RemoteModel],
) -> None:
    def say(number: int) -> Reply:
        if number == 1:
            return Reply({}, 429, {"Retry-After": "1"})
        if number == 2:
            time.sleep(0.3)  # under way already; the next question would follow it
        return Reply()

    with serving(say) as service:
        model = open_model(adapter_of(service.url, pace="concurrency = 2"))
        assert all(ask(model, 3))
    first, *_, third, _ = service.calls
    assert len(service.calls) == 4 and third - first >= 0.95


def test_a_service_that_wants_to_be_left_alone_for_long_is_asked_nothing_more(
    open_model: Callable[..., RemoteModel],
) -> None:
    with serving(lambda _: Reply({}, 429, {"Retry-After": "9000"})) as service:
        model = open_model(adapter_of(service.url))
        for _ in range(3):
            with pytest.raises(RemoteError, match=r"asks to wait (9000|8999) s .*429"):
                ask(model, 2)
    assert len(service.calls) == 1 and model.journal.spent == 0


def test_a_signature_tells_the_time_at_which_its_request_leaves(
    open_model: Callable[..., RemoteModel], monkeypatch: pytest.MonkeyPatch
) -> None:
    signed: list[float] = []

    def note(step: Step, values: Values, clock: float) -> Ready:
        signed.append(clock)
        return make_request(step, values, clock)

    monkeypatch.setattr("onnxfr.models.remote.asking.make_request", note)
    with serving(lambda _: Reply()) as service:
        model = open_model(adapter_of(service.url, pace="concurrency = 4\nper_second = 4"))
        ask(model, 4)
    # Four threads at once, a quarter of a second apart.
    assert np.diff(sorted(signed)).min() > 0.15 and len(signed) == 4
