"""Ends connections in time: those that never come to a request, and all when the service ends.

uvicorn gives up idle connections only between two requests: a head that arrives byte by byte would
hold its connection for ever, one of a gigabyte would be kept in memory, and no key is asked for
before a head is complete.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from http import HTTPStatus
from typing import TYPE_CHECKING

from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol

from onnxfr.service.answers import refusal

if TYPE_CHECKING:
    from starlette.types import ASGIApp, Message, Receive, Scope, Send

MAX_HEAD = 1 << 19
"""Bytes read until a head is complete: twice what is read at a time, for the end of the body before
may come in one piece with its beginning."""


class Connection(HttpToolsProtocol):
    """One connection; a head may take as long as uvicorn's keep-alive time lets it be idle."""

    _deadline: asyncio.TimerHandle | None = None
    _head: int | None = None
    """Bytes read of the head that is arriving; None between heads."""

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        """Begin to wait for a request."""
        super().connection_made(transport)
        self._expect_head()

    def connection_lost(self, exc: Exception | None) -> None:
        """Stop waiting."""
        super().connection_lost(exc)
        self._stop_waiting()

    def data_received(self, data: bytes) -> None:
        """Read on, unless this head has had its share."""
        super().data_received(data)
        if self._head is None:
            return
        self._head += len(data)
        if self._head > MAX_HEAD:
            self._refuse(431, "head_too_large", f"a request's head has at most {MAX_HEAD} bytes")

    def on_message_begin(self) -> None:
        """Begin a head."""
        super().on_message_begin()
        self._head = 0
        self._expect_head()

    def on_headers_complete(self) -> None:
        """End a head: the application has its own limits from here."""
        self._head = None
        self._stop_waiting()
        super().on_headers_complete()

    def on_response_complete(self) -> None:
        """Wait for the next request, behind what is left of this one's body."""
        super().on_response_complete()
        waiting = self._head is None and self.cycle.response_complete
        if waiting and not self.transport.is_closing():
            self._expect_head()

    def _expect_head(self) -> None:
        self._stop_waiting()
        self._deadline = self.loop.call_later(self.timeout_keep_alive, self._give_up)

    def _stop_waiting(self) -> None:
        if self._deadline is not None:
            self._deadline.cancel()
            self._deadline = None

    def _give_up(self) -> None:
        if self._head is None:
            self.transport.close()
            return
        seconds = self.timeout_keep_alive
        self._refuse(
            408, "head_too_slow", f"the request's head was not complete within {seconds:g} s"
        )

    def _refuse(self, status: int, code: str, message: str) -> None:
        if self.transport.is_closing():
            return
        answer = refusal("", status, code, message, headers={"Connection": "close"})
        lines = [f"HTTP/1.1 {status} {HTTPStatus(status).phrase}".encode("ascii")]
        lines += [name + b": " + value for name, value in answer.raw_headers]
        self.transport.write(b"\r\n".join([*lines, b"", bytes(answer.body)]))
        self.transport.close()


class LastAnswers:
    """Closes each connection with its answer once the service is ending.

    uvicorn tells the connections it knows at that moment. One that was accepted just then would be
    kept alive, and its requests answered until time is up and the last of them is thrown away.
    """

    def __init__(self, app: ASGIApp, ending: Callable[[], bool]) -> None:
        self._app, self._ending = app, ending

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Pass the request on with a word added to its answer."""

        async def say(message: Message) -> None:
            if message["type"] == "http.response.start" and self._ending():
                headers = [pair for pair in message["headers"] if pair[0] != b"connection"]
                message = {**message, "headers": [*headers, (b"connection", b"close")]}
            await send(message)

        await self._app(scope, receive, say)
