"""Who may ask when: at a steady rate, not while the service wants rest, and few at once after that.

A service that says "too many" is left alone by every thread for its Retry-After. All of them at
once would be too many again: each such answer halves the number that may be under way, and each
round of answers that were given raises it by one, as TCP does (Jacobson 1988).
"""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager

from onnxfr.models.remote.adapter import Pace


class Stopped(Exception):
    """A request was not sent because the run ends: a signal, no failure."""


class Turns:
    """Hands out turns to the threads that ask one service."""

    def __init__(self, pace: Pace) -> None:
        self._interval = 1 / pace.per_second if pace.per_second else 0.0
        self._patience, self._most = pace.patience, float(pace.concurrency)
        self._room, self._under_way = self._most, 0
        self._next = self._heard_at = 0.0
        self._stopped = False
        self._change = threading.Condition()

    def begin(self) -> None:
        """Let requests out from now on."""
        with self._change:
            self._stopped, self._heard_at = False, time.monotonic()

    def stop(self) -> None:
        """Let nothing out any more."""
        with self._change:
            self._stopped = True
            self._change.notify_all()

    @contextmanager
    def turn(self) -> Iterator[None]:
        """Wait until a request may leave; its turn ends with the block.

        Raises:
            Stopped: nothing may leave any more.
        """
        with self._change:
            while True:
                if self._stopped:
                    raise Stopped
                wait = self._next - time.monotonic()
                if wait <= 0 and self._under_way < int(self._room):
                    break
                self._change.wait(wait if wait > 0 else None)
            self._next = time.monotonic() + self._interval
            self._under_way += 1
        try:
            yield
        finally:
            with self._change:
                self._under_way -= 1
                self._change.notify_all()

    def turn_in(self) -> float:
        """Return the seconds until the next request may leave."""
        with self._change:
            return max(0.0, self._next - time.monotonic())

    def hold(self, seconds: float) -> None:
        """Let nothing out for a while: a service that asks for patience means every question."""
        with self._change:
            self._next = max(self._next, time.monotonic() + seconds)

    def slow_down(self, seconds: float) -> None:
        """Let nothing out for a while, and fewer at once after it."""
        with self._change:
            self.hold(seconds)
            self._room = max(1.0, self._room / 2)

    def heard(self) -> None:
        """Take note of an answer that was given."""
        with self._change:
            self._heard_at = time.monotonic()
            self._room = min(self._most, self._room + 1 / self._room)

    def patient(self, seconds: float) -> bool:
        """Tell whether to wait so long for a service whose last answer, to anybody, is a while ago.

        A question may wait for many others as long as the service answers these.
        """
        with self._change:
            return time.monotonic() + seconds - self._heard_at <= self._patience

    def rest(self, seconds: float) -> None:
        """Wait outside any turn, at most until all is stopped."""
        with self._change:
            self._change.wait_for(lambda: self._stopped, seconds)
