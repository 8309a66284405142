"""Bounds the time until an answer begins.

httpx bounds the silence before each byte only: a head that drips could go on for weeks, and its
question with it. It has no option for more, so the connections it opens are wrapped, by names that
are httpx's own business (as they are in 0.27 and 0.28): where they are gone, only silence is bound.
"""

from __future__ import annotations

import logging
import math
import threading
import time
from typing import Any

log = logging.getLogger(__name__)


class Overdue(Exception):
    """The head of an answer did not come to its end in time."""


class Deadline(threading.local):
    """When the answer that this thread waits for must have begun."""

    def __init__(self, seconds: float) -> None:
        self._seconds, self._until = seconds, math.inf

    def start(self) -> None:
        """Count from now: something of the request has just left."""
        self._until = time.monotonic() + self._seconds

    def stop(self) -> None:
        """Let what follows take its time: the answer has begun."""
        self._until = math.inf

    def left(self) -> float:
        """Return the seconds left, or raise where there are none."""
        left = self._until - time.monotonic()
        if left <= 0:
            raise Overdue
        return left


def bound_heads(client: Any, seconds: float) -> Deadline:
    """Let every connection of an httpx client, through proxies too, keep a deadline."""
    deadline = Deadline(seconds)
    try:
        transports = (client._transport, *client._mounts.values())
        for pool in [each._pool for each in transports if each is not None]:
            pool._network_backend = _Network(pool._network_backend, deadline)
    except AttributeError as gone:
        log.warning("answers that begin byte by byte are waited for without end: %s", gone)
    return deadline


class _Wrapped:
    """Does what another does, but for what a subclass says."""

    def __init__(self, inner: Any, deadline: Deadline) -> None:
        self._inner, self._deadline = inner, deadline

    def __getattr__(self, name: str) -> Any:
        return getattr(self._inner, name)


class _Network(_Wrapped):
    def connect_tcp(self, *place: Any, **how: Any) -> _Connection:
        return _Connection(self._inner.connect_tcp(*place, **how), self._deadline)


class _Connection(_Wrapped):
    def start_tls(self, *context: Any, **how: Any) -> _Connection:
        return _Connection(self._inner.start_tls(*context, **how), self._deadline)

    def write(self, *content: Any, **how: Any) -> None:
        self._inner.write(*content, **how)
        self._deadline.start()

    def read(self, max_bytes: int, timeout: float | None = None) -> bytes:
        left = self._deadline.left()
        content: bytes = self._inner.read(max_bytes, min(timeout or left, left))
        return content
