"""Asks questions, several at once, with patience where answers are not given.

A try is repeated only when there was no answer: the connection failed or broke, the service was
overloaded or said that this one did not count. Every try that may have been paid for is charged,
just before it leaves, and no other.
"""

from __future__ import annotations

import logging
import random
import time
from collections.abc import Collection, Mapping, Sequence
from concurrent.futures import FIRST_EXCEPTION, ThreadPoolExecutor, wait
from dataclasses import dataclass, replace

from onnxfr.errors import RemoteError
from onnxfr.models.comparer import CallsSpent
from onnxfr.models.remote.adapter import Adapter, Step
from onnxfr.models.remote.filling import make_request
from onnxfr.models.remote.journal import Journal
from onnxfr.models.remote.looking import found, look, plain
from onnxfr.models.remote.pace import Moment, SharedPace, retry_after
from onnxfr.models.remote.reading import (
    Kind,
    NoUse,
    TryAgain,
    Unusable,
    Verdict,
    check_given,
    check_status,
    find_rejection,
    parse,
    read_answer,
)
from onnxfr.models.remote.secrecy import Veil
from onnxfr.models.remote.sending import NeverSent, Sender
from onnxfr.models.remote.turns import Stopped, Turns

log = logging.getLogger(__name__)

_FIRST_WAIT, _LONGEST_WAIT = 0.25, 30.0
_MOST_SENSELESS = 50
"""Answers in a row that nobody could read before the service is left alone."""

Values = Mapping[str, bytes | str]


@dataclass(frozen=True)
class Question:
    """One comparison: what it is called in the journal, and what fills the adapter's places."""

    key: str
    values: Values


@dataclass
class _Tally:
    """The calls of one try: how many were charged, and how many may have been paid for."""

    charged: int = 0
    used: int = 0


class Asker:
    """Asks the questions of one adapter."""

    def __init__(
        self, adapter: Adapter, journal: Journal, shared: Values, hosts: Collection[str]
    ) -> None:
        self.adapter, self.journal, self._shared = adapter, journal, shared
        self._jitter, self._turns = random.Random(), Turns(adapter.pace)
        self._sender = Sender(adapter.pace, hosts)
        self._pace = SharedPace(journal.path, adapter)
        self._veil = Veil(
            text
            for name, text in shared.items()
            if name.startswith("secret.") and isinstance(text, str)
        )
        self._pool = ThreadPoolExecutor(adapter.pace.concurrency, "onnxfr-ask")
        self._away_until, self._away_why = 0.0, ""
        self._no_use: NoUse | None = None
        self.retried = 0

    def check_use(self) -> None:
        """Raise where an earlier question has shown that none will be answered."""
        if self._no_use is not None:
            raise NoUse(str(self._no_use))

    def ask(self, questions: Sequence[Question], *, again: bool = False) -> None:
        """Ask questions; their answers are in the journal afterwards, as far as the budget goes.

        The journal's lock is held meanwhile, so that all who share it keep one pace. An error or
        Ctrl-C stops what has not been sent yet and further tries; what is under way is waited for
        and kept.
        """
        if not questions:
            return
        self._turns.begin()
        self._take_up_pace()
        tasks = [self._pool.submit(self._answer, each, again) for each in questions]
        try:
            done, _ = wait(tasks, return_when=FIRST_EXCEPTION)
            for task in done:
                task.result()
        except BaseException:
            self._turns.stop()
            raise
        finally:
            for task in tasks:
                task.cancel()
            # The answers first: whatever fails below, no thread may write without the lock.
            wait(tasks)
            away = self._away_until - time.monotonic()
            self._pace.write(Moment(self._turns.turn_in(), max(0.0, away), self._away_why))
            self.journal.sync()

    def close(self) -> None:
        """Close the connections."""
        self._pool.shutdown()
        self._sender.close()

    def _take_up_pace(self) -> None:
        """Wait as long as the last one to ask this service would have waited."""
        moment = self._pace.read()
        patient = moment.away <= self.adapter.pace.patience
        self._turns.hold(max(moment.turn, moment.away if patient else 0.0))
        if not patient and moment.away > self._away_until - time.monotonic():
            self._away_until, self._away_why = time.monotonic() + moment.away, moment.why

    def _answer(self, question: Question, again: bool) -> None:
        try:
            self._persist(question, again)
        except (Stopped, CallsSpent):
            return
        except BaseException as error:
            # At once: until the caller wakes, the other threads would go on sending.
            self._turns.stop()
            if not isinstance(error, RemoteError):
                raise
            told = type(error)(self._veil(str(error)))
            if isinstance(told, NoUse):
                self._no_use = told
            raise told from None

    def _persist(self, question: Question, again: bool) -> None:
        """Try until there is an answer, and write it down."""
        why, tries, most = "", 0, self.adapter.pace.retries + 1
        while True:
            try:
                verdict = self._try(question)
                break
            except TryAgain as reason:
                why = self._veil(str(reason))
                log.info("%s: %s (try %d)", self.adapter.name, why, tries + 1)
                self._check_away()
                # To be told to wait is no try: with many threads most are told so several times.
                limited = reason.wait is not None and not reason.charged
                tries += not (limited and self._turns.patient(reason.wait or 0.0))
                if tries == most:
                    raise RemoteError(self._unanswered(most, why, limited)) from None
                self._pause(tries, reason.wait)
        version = None if verdict.version is None else self._veil(verdict.version)
        verdict = replace(verdict, detail=self._veil(verdict.detail), version=version)
        changed = self._version_changed(verdict)
        # A paid answer is kept even where it may not be used.
        self.journal.record(question.key, verdict, again=again or changed is not None)
        if changed is not None:
            raise changed
        self._check_sense(verdict)

    def _unanswered(self, tries: int, why: str, limited: bool) -> str:
        remedy = (
            ". A per_second, or a smaller concurrency, under [pace] of the adapter keeps within "
            "the service's limit"
        )
        return (
            f"{self.adapter.name} gave no answer in {tries} tries, at last {why}; run the same "
            "command again later: what was answered is kept and not asked again"
            + (remedy if limited else "")
        )

    def _try(self, question: Question) -> Verdict:
        """Go through the steps once; give back what was charged for calls that were not made."""
        tally = _Tally()
        try:
            return self._go_through(question, tally)
        except Unusable as why:
            return Verdict(Kind.INVALID, detail=str(why))
        except TryAgain as reason:
            tally.used -= not reason.charged
            raise
        finally:
            if tally.used < tally.charged:
                self.journal.give_back([question.key], tally.charged - tally.used)

    def _go_through(self, question: Question, tally: _Tally) -> Verdict:
        """Take the steps of a question."""
        values = {**self._shared, **question.values}
        for step in self.adapter.steps[:-1]:
            status, body = self._send(question.key, step, values, tally)
            content = parse(body)
            refused = find_rejection(self.adapter, status, content, last=False)
            if refused is not None:
                return refused
            check_status(self.adapter, status, body, last=False)
            for name, path in step.captures.items():
                value = look(content, path)
                if not found(value):
                    return Verdict(Kind.REJECTED, detail=f"no {name}")
                values[f"captured.{name}"] = plain(value)
        status, body = self._send(question.key, self.adapter.steps[-1], values, tally)
        return read_answer(self.adapter, status, body)

    def _send(self, key: str, step: Step, values: Values, tally: _Tally) -> tuple[int, bytes]:
        last = tally.used + 1 == self.adapter.calls
        self._check_away()
        with self._turns.turn():
            if not tally.charged:
                # Not before its turn: what waits for it when the process dies was not paid for.
                self.journal.ask([key], self.adapter.calls)
                tally.charged = self.adapter.calls
            # Signatures name the time, and services take none that is old.
            request = make_request(step, values, time.time())
            tally.used += 1
            try:
                given = self._sender.send(request)
            except NeverSent:
                tally.used -= 1
                raise
            wait = retry_after(given.retry_after, given.date)
            try:
                check_given(self.adapter, given.status, given.content, wait, last=last)
            except TryAgain as reason:
                self._heed(reason)
                raise
            self._turns.heard()
        if given.problem:
            check_status(self.adapter, given.status, given.problem.encode(), last=last)
            raise Unusable(given.problem)
        return given.status, given.content

    def _heed(self, reason: TryAgain) -> None:
        """Do what a service asks for, before the turn of its answer ends and others begin."""
        if reason.wait is not None and reason.wait > self.adapter.pace.patience:
            self._away_until = time.monotonic() + reason.wait
            self._away_why = self._veil(str(reason))
        elif reason.wait is not None or not reason.charged:
            self._turns.slow_down(max(reason.wait or 0.0, _FIRST_WAIT))

    def _pause(self, tries: int, wanted: float | None) -> None:
        self.retried += 1
        spread = min(_LONGEST_WAIT, _FIRST_WAIT * 2 ** max(0, tries - 1))
        # Jitter on top: clients that were told the same time must not come back together.
        self._turns.rest((wanted or 0.0) + self._jitter.uniform(0.0, spread))

    def _check_away(self) -> None:
        """Raise while the service wants to be left alone for longer than anybody waits."""
        left = self._away_until - time.monotonic()
        if left > 0:
            raise RemoteError(
                f"{self.adapter.name} asks to wait {left:.0f} s ({self._away_why}); run the same "
                "command again then: what was answered is kept and not asked again"
            )

    def _check_sense(self, verdict: Verdict) -> None:
        """Raise where a service that is down, or misread, would be paid to the end of the budget.

        What it said meanwhile is about no picture, and no later run may take it for a verdict.
        """
        count = len(self.journal.senseless)
        if verdict.kind is Kind.INVALID and count >= _MOST_SENSELESS:
            self.journal.void_senseless()
            raise NoUse(
                f"{count} answers of {self.adapter.name} in a row made no sense, at last "
                f"{verdict.detail!r}; nothing more is asked, and these questions count as paid for "
                "but not as answered. See with onnxfr remote ask whether the service is up and "
                "what it answers, and mend the adapter where it is not read (rules for it keep the "
                "journal, another way to ask or to read begins a new one)"
            )

    def _version_changed(self, verdict: Verdict) -> NoUse | None:
        before = self.journal.version
        if verdict.version is None or before is None or verdict.version == before:
            return None
        return NoUse(
            f"{self.adapter.name} is not the service it was: it answers as version "
            f"{verdict.version}, the journal was begun with {before}. Answers of two versions "
            "are not one result; begin a new journal"
        )
