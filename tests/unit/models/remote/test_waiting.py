"""How long an answer may take to begin, to end, and to be asked for again."""

from __future__ import annotations

import math
import time
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from email.utils import format_datetime
from pathlib import Path

import pytest
from toy_service import KEY, Reply, adapter_of, ask, serving

from onnxfr.errors import RemoteError
from onnxfr.models.remote.deadlines import bound_heads
from onnxfr.models.remote.model import RemoteModel
from onnxfr.models.remote.pace import Moment, SharedPace, retry_after

_ABSURD = "Wed, 21 Oct 2026 07:28:00 +99999999999999"


@pytest.fixture(autouse=True)
def key(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(KEY, "abc")


def test_no_answer_is_told_with_its_reason(open_model: Callable[..., RemoteModel]) -> None:
    with serving(lambda _: Reply({}, 503)) as service:
        model = open_model(adapter_of(service.url, pace="retries = 0"))
        with pytest.raises(RemoteError, match=r"no answer in 1 tries, at last status 503; run"):
            ask(model)


def test_an_answer_that_comes_for_ever_is_none(open_model: Callable[..., RemoteModel]) -> None:
    with serving(lambda n: Reply(b" " * 60, pause=0.1) if n == 1 else Reply()) as service:
        begin = time.monotonic()
        (verdict,) = ask(open_model(adapter_of(service.url, pace="timeout = 0.5")))
        assert verdict is not None and verdict.match
    assert time.monotonic() - begin < 4 and len(service.calls) == 2


def test_so_is_one_that_never_comes_to_begin(open_model: Callable[..., RemoteModel]) -> None:
    with serving(lambda n: Reply(head_pause=0.1 if n in (2, 3) else 0.0)) as service:
        model = open_model(adapter_of(service.url, pace="timeout = 0.5\nconcurrency = 1"))
        assert None not in ask(model)
        begin = time.monotonic()
        # The second connection was open already, the third is new.
        assert None not in ask(model, 2)
        assert time.monotonic() - begin < 4
    assert len(service.calls) == 4 == model.journal.spent


def test_an_answer_may_begin_late_and_end_late(open_model: Callable[..., RemoteModel]) -> None:
    slow = Reply({"match": True}, pause=0.08, head_pause=0.012)
    with serving(lambda _: slow) as service:
        model = open_model(adapter_of(service.url, pace="timeout = 2\nretries = 0"))
        begin = time.monotonic()
        assert None not in ask(model)
        assert time.monotonic() - begin > 2, "head and content have the time each"


def test_nobody_waits_after_the_last_try(open_model: Callable[..., RemoteModel]) -> None:
    with serving(lambda _: Reply({}, 503, {"Retry-After": "5"})) as service:
        model = open_model(adapter_of(service.url, pace="retries = 0"))
        begin = time.monotonic()
        with pytest.raises(RemoteError, match="no answer in 1 tries"):
            ask(model)
    assert time.monotonic() - begin < 4 and len(service.calls) == 1


def test_a_time_to_wait_is_a_number_a_date_or_nothing() -> None:
    assert retry_after("7") == retry_after(" 7 ") == 7
    later = datetime.now(UTC) + timedelta(seconds=90)
    assert 80 < (retry_after(format_datetime(later, usegmt=True)) or 0) <= 90
    assert retry_after("Wed, 21 Oct 2015 07:28:00 GMT") == 0
    for none in (None, "", "soon", "-5", "\u00b2", "Wed, 99 Oct 2026 07:28:00 GMT", _ABSURD):
        assert retry_after(none) is None


def test_a_date_to_wait_for_is_counted_by_the_services_own_clock(
    open_model: Callable[..., RemoteModel],
) -> None:
    now = datetime.now(UTC) + timedelta(hours=3)
    date, later = (format_datetime(now + timedelta(seconds=k), usegmt=True) for k in (0, 2))
    assert retry_after(later, date) == 2
    assert (retry_after(later, "no date") or 0) > 3600
    busy = Reply({}, 429, {"Date": date, "Retry-After": later})
    with serving(lambda number: busy if number == 1 else Reply()) as service:
        begin = time.monotonic()
        (verdict,) = ask(open_model(adapter_of(service.url)))
    assert verdict is not None and verdict.match and time.monotonic() - begin > 1.9


def test_a_web_client_of_another_build_is_used_without_the_deadline(
    caplog: pytest.LogCaptureFixture,
) -> None:
    deadline = bound_heads(object(), 0.0)
    assert "waited for without end" in caplog.text and deadline.left() == math.inf


def test_all_who_share_a_journal_keep_one_pace(open_model: Callable[..., RemoteModel]) -> None:
    """Workers of a run have clocks of their own; the service has one limit."""
    with serving(lambda _: Reply()) as service:
        adapter = adapter_of(service.url, pace="per_second = 1.0\nconcurrency = 1")
        first, second = open_model(adapter), open_model(adapter)
        assert None not in ask(first) + ask(second, 2)
    assert len(service.calls) == 2 and service.calls[1] - service.calls[0] > 0.9


def test_a_service_that_is_away_is_left_alone_by_all(
    open_model: Callable[..., RemoteModel],
) -> None:
    busy = Reply({}, 429, {"Retry-After": "900"})
    with serving(lambda _: busy) as service:
        adapter = adapter_of(service.url, pace="patience = 1\nconcurrency = 1")
        for model in (open_model(adapter), open_model(adapter)):
            with pytest.raises(RemoteError, match=r"wait (900|89\d) s \(too many requests"):
                ask(model)
    assert len(service.calls) == 1


def test_more_patience_than_before_waits_for_what_is_left(
    open_model: Callable[..., RemoteModel],
) -> None:
    busy = Reply({}, 429, {"Retry-After": "2"})
    with serving(lambda number: busy if number == 1 else Reply()) as service:
        with pytest.raises(RemoteError, match="asks to wait"):
            ask(open_model(adapter_of(service.url, pace="patience = 1\nconcurrency = 1")))
        assert None not in ask(open_model(adapter_of(service.url, pace="patience = 9")))
        assert service.calls[1] - service.calls[0] > 1.7


def test_what_the_last_one_left_is_bounded_and_may_be_spoilt(tmp_path: Path) -> None:
    adapter = adapter_of("http://127.0.0.1/", pace="per_second = 0.5\npatience = 3")
    pace = SharedPace(tmp_path / "j", adapter)
    assert pace.read() == Moment()
    pace.write(Moment(turn=1e9, away=50.0, why="busy"))
    read = pace.read()
    assert 2.9 < read.turn <= 3 and 49.9 < read.away <= 50 and read.why == "busy, kept in j.pace"
    other = SharedPace(tmp_path / "j", adapter_of("http://127.0.0.1/other"))
    assert other.read() == Moment()
    pace.write(Moment(away=1.8e9, why="a moment for a time to wait"))
    assert pace.read().away <= 3600
    for text in ("", "[]", '{"left": 0}', '{"left": 1, "turn": "x", "away": 0, "why": ""}'):
        (tmp_path / "j.pace").write_text(text)
        assert pace.read() == Moment()
