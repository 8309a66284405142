"""Sends questions: a pool of connections, a steady pace, and patience with answers not given.

A try is repeated only when there was no answer: the connection failed or broke, the service was
overloaded or said that this one did not count. Every try that may have been paid for is charged.
"""

from __future__ import annotations

import logging
import random
import threading
import time
from collections.abc import Mapping, Sequence
from concurrent.futures import FIRST_EXCEPTION, ThreadPoolExecutor, wait
from dataclasses import dataclass
from datetime import UTC, datetime
from email.utils import parsedate_to_datetime
from typing import Any

from onnxfr.errors import MissingExtra, RemoteError
from onnxfr.models.comparer import CallsSpent
from onnxfr.models.remote.adapter import Adapter
from onnxfr.models.remote.authorisation import is_loopback
from onnxfr.models.remote.filling import Ready, fill, make_request
from onnxfr.models.remote.journal import Journal
from onnxfr.models.remote.reading import (
    Kind,
    TryAgain,
    Verdict,
    check_given,
    check_status,
    find_rejection,
    found,
    look,
    parse,
    read_answer,
)

log = logging.getLogger(__name__)

_FIRST_WAIT, _LONGEST_WAIT = 0.25, 30.0

Values = Mapping[str, bytes | str]


@dataclass(frozen=True)
class Question:
    """One comparison: what it is called in the journal, and what fills the adapter's places."""

    key: str
    values: Values


class Asker:
    """Asks the questions of one adapter."""

    def __init__(
        self,
        adapter: Adapter,
        journal: Journal,
        shared: Values,
    ) -> None:
        try:
            import httpx
        except ModuleNotFoundError:
            raise MissingExtra("httpx", "remote") from None
        self._httpx: Any = httpx
        self.adapter, self.journal, self._shared = adapter, journal, shared
        self._jitter, self._stopping = random.Random(), threading.Event()
        # It would write whole addresses into logs, and some vendors sign in the address.
        logging.getLogger("httpx").setLevel(logging.WARNING)
        pace = adapter.pace
        host = httpx.URL(fill(adapter.steps[0].url, shared)).host
        self._client = httpx.Client(
            timeout=httpx.Timeout(pace.timeout),
            limits=httpx.Limits(max_connections=pace.concurrency),
            # A redirect could lead to a service nobody has vouched for.
            follow_redirects=False,
            trust_env=not is_loopback(host),
        )
        self._pool = ThreadPoolExecutor(pace.concurrency, "onnxfr-ask")
        self._turn, self._next = threading.Lock(), 0.0
        self.retried = 0

    def ask(self, questions: Sequence[Question], *, again: bool = False) -> None:
        """Ask questions that are charged already; their answers are in the journal afterwards.

        An error or Ctrl-C stops what has not been sent yet and further tries; what is under way is
        waited for and kept.
        """
        self._stopping.clear()
        tasks = [self._pool.submit(self._answer, each, again) for each in questions]
        try:
            done, _ = wait(tasks, return_when=FIRST_EXCEPTION)
            for task in done:
                task.result()
        except BaseException:
            self._stopping.set()
            raise
        finally:
            for question, task in zip(questions, tasks, strict=True):
                if task.cancel():
                    self.journal.give_back(question.key, self.adapter.calls)
            wait(tasks)
            self.journal.sync()

    def close(self) -> None:
        """Close the connections."""
        self._pool.shutdown()
        self._client.close()

    def _answer(self, question: Question, again: bool) -> None:
        calls = self.adapter.calls
        for attempt in range(self.adapter.pace.retries + 1):
            if attempt:
                if self._stopping.is_set():
                    return
                try:
                    self.journal.ask([question.key], calls)
                except CallsSpent:
                    return
                self.retried += 1
            used = [0]
            try:
                verdict = self._go_through(question, used)
            except TryAgain as reason:
                self._settle(question, used[0] + reason.charged)
                log.info("%s: %s (try %d)", self.adapter.name, reason, attempt + 1)
                self._pause(attempt, reason)
                continue
            self._settle(question, used[0])
            changed = self._version_changed(verdict)
            # A paid answer is kept even where it may not be used.
            self.journal.record(question.key, verdict, again=again or changed is not None)
            if changed is not None:
                raise changed
            return
        raise RemoteError(
            f"{self.adapter.name} gave no answer in {self.adapter.pace.retries + 1} tries; run the "
            "same command again later: what was answered is kept and not asked again"
        )

    def _settle(self, question: Question, used: int) -> None:
        """Give back what was charged for steps that were never taken."""
        if used < self.adapter.calls:
            self.journal.give_back(question.key, self.adapter.calls - used)

    def _go_through(self, question: Question, used: list[int]) -> Verdict:
        """Take the steps of a question, counting in ``used`` those that were answered."""
        values = {**self._shared, **question.values}
        for step in self.adapter.steps[:-1]:
            status, body = self._send(make_request(step, values, time.time()))
            used[0] += 1
            content = parse(body)
            refused = find_rejection(self.adapter, status, content)
            if refused is not None:
                return refused
            check_status(self.adapter, status, body)
            for name, path in step.captures.items():
                value = look(content, path)
                if not found(value):
                    return Verdict(Kind.REJECTED, detail=f"no {name}")
                values[f"captured.{name}"] = str(value)
        status, body = self._send(make_request(self.adapter.steps[-1], values, time.time()))
        used[0] += 1
        return read_answer(self.adapter, status, body)

    def _send(self, request: Ready) -> tuple[int, bytes]:
        self._wait_turn()
        try:
            answer = self._client.request(
                request.method, request.url, headers=request.headers, content=request.content
            )
        except (self._httpx.ConnectError, self._httpx.ConnectTimeout) as error:
            raise TryAgain(f"no connection ({error})", charged=False) from None
        except self._httpx.TransportError as error:
            raise TryAgain(f"the connection broke ({type(error).__name__})") from None
        wait_for = retry_after(answer.headers.get("retry-after"))
        check_given(self.adapter, answer.status_code, answer.content, wait_for)
        return answer.status_code, answer.content

    def _wait_turn(self) -> None:
        rate = self.adapter.pace.per_second
        if rate is None:
            return
        with self._turn:
            now = time.monotonic()
            start = max(now, self._next)
            self._next = start + 1 / rate
        self._stopping.wait(max(0.0, start - now))

    def _pause(self, attempt: int, reason: TryAgain) -> None:
        if reason.wait is not None and reason.wait > self.adapter.pace.patience:
            raise RemoteError(
                f"{self.adapter.name} asks to wait {reason.wait:.0f} s ({reason}); run the same "
                "command again then: what was answered is kept and not asked again"
            )
        spread = min(_LONGEST_WAIT, _FIRST_WAIT * 2**attempt)
        # Jitter on top: clients that were told the same time must not come back together.
        self._stopping.wait((reason.wait or 0.0) + self._jitter.uniform(0.0, spread))

    def _version_changed(self, verdict: Verdict) -> RemoteError | None:
        before = self.journal.version
        if verdict.version is None or before is None or verdict.version == before:
            return None
        return RemoteError(
            f"{self.adapter.name} is not the service it was: it answers as version "
            f"{verdict.version}, the journal was begun with {before}. Answers of two versions "
            "are not one result; begin a new journal"
        )


def retry_after(text: str | None) -> float | None:
    """Return the seconds a Retry-After header asks for, in either of its forms."""
    if text is None:
        return None
    if text.strip().isdigit():
        return float(text)
    try:
        moment = parsedate_to_datetime(text)
    except ValueError:
        return None
    if moment.tzinfo is None:
        moment = moment.replace(tzinfo=UTC)
    return max(0.0, (moment - datetime.now(UTC)).total_seconds())
