"""A service that lets through so many a second, and the calls that a killed run was charged."""

from __future__ import annotations

import math
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path

import pytest
from toy_service import KEY, Reply, adapter_of, ask, serving

from onnxfr.errors import RemoteError
from onnxfr.models.remote.adapter import Pace
from onnxfr.models.remote.journal import Journal
from onnxfr.models.remote.model import RemoteModel
from onnxfr.models.remote.turns import Stopped, Turns

BUSY = Reply({}, 429, {"Retry-After": "1"})
CHILD = """
import sys
from pathlib import Path
sys.path.insert(0, sys.argv[1])
from toy_service import adapter_of, ask
from onnxfr.models.remote.model import RemoteModel
ask(RemoteModel(adapter_of(sys.argv[2]), Path(sys.argv[3]), budget=64), 40)
"""


class Bucket:
    """So many answers a second, and as many at once; the others are told to wait."""

    def __init__(self, rate: float) -> None:
        self.rate, self.tokens, self.at = rate, rate, time.monotonic()
        self.refused, self._lock = 0, threading.Lock()

    def __call__(self, number: int) -> Reply:
        with self._lock:
            now = time.monotonic()
            self.tokens = min(self.rate, self.tokens + (now - self.at) * self.rate)
            self.at = now
            if self.tokens < 1:
                self.refused += 1
                wait = math.ceil((1 - self.tokens) / self.rate)
                return Reply({}, 429, {"Retry-After": str(wait)})
            self.tokens -= 1
            return Reply()


@pytest.fixture(autouse=True)
def key(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(KEY, "abc")


def test_a_limit_of_rate_ends_no_run_and_costs_nothing(
    open_model: Callable[..., RemoteModel],
) -> None:
    """Eight threads that come back together are refused more often than they have tries."""
    bucket = Bucket(2)
    with serving(bucket) as service:
        model = open_model(adapter_of(service.url, pace="concurrency = 8\nretries = 2"))
        assert None not in ask(model, 16)
    assert model.journal.spent == 16
    # About one refusal a second, not one for each thread.
    assert 0 < bucket.refused < 24


def test_a_limit_that_lets_nobody_through_is_told_with_its_remedy(
    open_model: Callable[..., RemoteModel],
) -> None:
    with serving(lambda _: BUSY) as service:
        pace = "concurrency = 2\nretries = 1\npatience = 1.5"
        model = open_model(adapter_of(service.url, pace=pace))
        begin = time.monotonic()
        with pytest.raises(RemoteError, match=r"in 2 tries.*429.*per_second.*concurrency"):
            ask(model, 3)
    assert time.monotonic() - begin < 10 and model.journal.spent == 0


def test_a_refusal_that_may_be_paid_for_is_a_try(open_model: Callable[..., RemoteModel]) -> None:
    with serving(lambda _: Reply({}, 503, {"Retry-After": "0"})) as service:
        model = open_model(adapter_of(service.url, pace="retries = 1"))
        with pytest.raises(RemoteError, match="in 2 tries, at last status 503") as told:
            ask(model)
    assert len(service.calls) == 2 == model.journal.spent and "per_second" not in str(told.value)


def test_few_go_at_once_after_a_refusal_and_more_with_each_answer() -> None:
    turns = Turns(Pace(concurrency=4))
    turns.begin()

    def at_once() -> int:
        inside: list[bool] = []

        def go() -> None:
            with turns.turn():
                inside.append(True)
                leave.wait()

        leave = threading.Event()
        threads = [threading.Thread(target=go) for _ in range(6)]
        for thread in threads:
            thread.start()
        time.sleep(0.2)
        count = len(inside)
        leave.set()
        for thread in threads:
            thread.join()
        return count

    assert at_once() == 4
    for _ in range(3):
        turns.slow_down(0.05)
    assert at_once() == 1
    turns.heard()
    assert at_once() == 2
    for _ in range(20):
        turns.heard()
    assert at_once() == 4
    turns.stop()
    with pytest.raises(Stopped), turns.turn():
        pytest.fail("nothing may leave any more")


def test_a_killed_run_was_charged_for_what_was_under_way_only(tmp_path: Path) -> None:
    started = threading.Event()

    def say(number: int) -> Reply:
        if number == 3:
            started.wait()
            os.kill(child.pid, signal.SIGKILL)
        return Reply()

    with serving(say) as service:
        here = str(Path(__file__).parent)
        place = tmp_path / "j"
        child = subprocess.Popen([sys.executable, "-c", CHILD, here, service.url, str(place)])
        started.set()
        child.wait(60)
        served = len(service.calls)
    adapter = adapter_of(service.url)
    book = Journal(place, adapter="toy", digest=adapter.digest(), budget=None)
    assert served == 3 == book.spent and len(book.answers) == 2


def test_a_question_is_on_the_disk_before_it_leaves(
    open_model: Callable[..., RemoteModel], tmp_path: Path
) -> None:
    charged: list[int] = []

    def say(number: int) -> Reply:
        charged.append((tmp_path / "j").read_bytes().count(b'"ask"'))
        return Reply()

    with serving(say) as service:
        model = open_model(adapter_of(service.url, pace="concurrency = 1"))
        assert None not in ask(model, 5)
    assert charged == [1, 2, 3, 4, 5] and model.journal.spent == 5


def test_many_at_once_stay_within_the_budget(open_model: Callable[..., RemoteModel]) -> None:
    """Tries that broke are paid for; they must not be paid beyond the budget."""
    with serving(lambda number: Reply({}, 503) if number % 3 == 0 else Reply()) as service:
        model = open_model(adapter_of(service.url, pace="concurrency = 8"), budget=20)
        answers = ask(model, 20)
    assert len(service.calls) == 20 == model.journal.spent
    assert sum(answer is None for answer in answers) == 6
