"""Sends requests: to hosts that were vouched for, for answers of some size."""

from __future__ import annotations

import logging
import time
import zlib
from collections.abc import Collection
from dataclasses import dataclass
from typing import Any

from onnxfr.errors import MissingExtra, RemoteError
from onnxfr.models.remote.adapter import Pace
from onnxfr.models.remote.authorisation import is_loopback
from onnxfr.models.remote.deadlines import Overdue, bound_heads
from onnxfr.models.remote.filling import Ready
from onnxfr.models.remote.reading import TryAgain

_LARGEST = 8 * 2**20
"""Bytes of an answer, packed and unpacked; a verdict has a few hundred."""
_TOO_LARGE = f"more than {_LARGEST // 2**20} MB came as an answer"
_GZIP_OR_ZLIB = 32 + zlib.MAX_WBITS
_GZIP = b"\x1f\x8b"
_MOST_PARTS = 1000


class NeverSent(RemoteError):
    """A request cannot be sent, now or later, and nothing of it has left."""


@dataclass(frozen=True)
class Given:
    """What came back; ``problem`` says why there is no content that could be read."""

    status: int
    content: bytes
    retry_after: str | None
    date: str | None
    problem: str = ""


class Sender:
    """A pool of connections to one service.

    Args:
        pace: how many connections there are, and how long they are waited for.
        hosts: where requests may go, whatever an answer puts into the address of a later step.
    """

    def __init__(self, pace: Pace, hosts: Collection[str]) -> None:
        try:
            import httpx
        except ModuleNotFoundError:
            raise MissingExtra("httpx", "remote") from None
        self._httpx: Any = httpx
        # It would write whole addresses into logs, and some vendors sign in the address.
        logging.getLogger("httpx").setLevel(logging.WARNING)
        try:
            self._client = httpx.Client(
                timeout=httpx.Timeout(pace.timeout),
                limits=httpx.Limits(max_connections=pace.concurrency),
                # A redirect could lead to a service nobody has vouched for.
                follow_redirects=False,
                # What is packed all the same is unpacked here: httpx does so without a limit.
                headers={"Accept-Encoding": "identity"},
                trust_env=not all(is_loopback(host) for host in hosts),
            )
        except (ImportError, ValueError, httpx.InvalidURL) as bad:
            raise RemoteError(
                "the proxy that HTTP_PROXY, HTTPS_PROXY or ALL_PROXY names cannot be used "
                f"({bad}); correct or unset it, or install httpx[socks] for a socks5:// one"
            ) from None
        self._deadline = bound_heads(self._client, pace.timeout)
        self._timeout = pace.timeout
        try:
            self._hosts = {httpx.URL(scheme="https", host=host).raw_host for host in hosts}
        except httpx.InvalidURL:
            raise NeverSent(
                "the adapter's address is none: its host cannot be told; correct it"
            ) from None

    def send(self, request: Ready) -> Given:
        """Send a request now.

        Raises:
            TryAgain: there was no answer.
            NeverSent: HTTP has no form for this request, or nobody has allowed its way.
        """
        self._check_host(request)
        web = self._httpx
        try:
            with self._client.stream(
                request.method, request.url, headers=request.headers, content=request.content
            ) as answer:
                self._deadline.stop()
                content, problem = _read(answer, time.monotonic() + self._timeout)
                wait, date = (answer.headers.get(name) for name in ("retry-after", "date"))
                return Given(answer.status_code, content, wait, date, problem)
        except (web.LocalProtocolError, web.UnsupportedProtocol, UnicodeEncodeError) as error:
            # Not its text: that would show the header, and with it the key.
            raise NeverSent(
                f"the request cannot be sent ({type(error).__name__}): expected an http address "
                "and headers in plain characters; check the adapter, its parameters and secrets "
                "(a key that ends in a line break?)"
            ) from None
        except (web.ConnectError, web.ConnectTimeout, web.PoolTimeout, web.ProxyError) as error:
            raise TryAgain(f"no connection ({error})", charged=False) from None
        except Overdue:
            raise TryAgain("the answer did not begin in time") from None
        except web.TransportError as error:
            raise TryAgain(f"the connection broke ({type(error).__name__})") from None

    def close(self) -> None:
        """Close the connections."""
        self._client.close()

    def _check_host(self, request: Ready) -> None:
        try:
            host = self._httpx.URL(request.url).raw_host
        except self._httpx.InvalidURL:
            # Not its text: that would show a part of the address, and a key may be in it.
            raise NeverSent(
                "the request cannot be sent: its address is none; check the adapter's address "
                "and parameters (the port is a number?)"
            ) from None
        if host not in self._hosts:
            allowed = ", ".join(sorted(each.decode() for each in self._hosts))
            raise NeverSent(
                f"the request was not sent: an answer leads to {host.decode()}, but the word was "
                f"given for {allowed}; use an adapter whose hosts are fixed"
            )


def _read(answer: Any, until: float) -> tuple[bytes, str]:
    """Return an answer's content, or nothing and the problem with it.

    httpx bounds the silence before each byte only: an answer could go on coming for ever.
    """
    content = b""
    for part in answer.iter_raw():
        if time.monotonic() > until:
            raise TryAgain("the answer did not come to its end in time")
        content += part
        if len(content) > _LARGEST:
            return b"", _TOO_LARGE
    return _unpack(content, answer.headers.get("content-encoding", "").strip().lower())


def _unpack(content: bytes, encoding: str) -> tuple[bytes, str]:
    if encoding in ("", "identity"):
        return content, ""
    if encoding not in ("gzip", "x-gzip", "deflate"):
        return b"", f"the answer is packed as {encoding[:40]!r}, which nobody asked for"
    unpacked = b""
    # Gzip may come in several parts, packed one by one.
    for _ in range(_MOST_PARTS):
        packed = zlib.decompressobj(_GZIP_OR_ZLIB)
        try:
            unpacked += packed.decompress(content, _LARGEST + 1 - len(unpacked))
        except zlib.error as bad:
            return b"", f"the answer cannot be unpacked ({bad})"
        if len(unpacked) > _LARGEST:
            return b"", _TOO_LARGE
        if not packed.eof:
            return b"", "the answer ends before it is unpacked"
        content = packed.unused_data
        if not content.startswith(_GZIP):
            return unpacked, ""
    return b"", f"the answer is packed in more than {_MOST_PARTS} parts"
