"""A proxy that behaves like a bad network: drops, delays, duplicates, 429 and 503."""

from __future__ import annotations

import asyncio
import random
import threading
from collections import Counter
from contextlib import suppress
from types import TracebackType

FAULTS = ("drop_before", "drop_after", "delay", "duplicate", "too_many", "unavailable")


class ChaosProxy:
    """Forwards requests to ``port`` on this machine; a seed decides which of them suffer.

    ``seen`` counts what was done: every request by its fault (or ``pass``), ``served`` those that
    the server has answered, whether or not the client ever learnt of it.
    """

    def __init__(self, port: int, *, seed: int = 0, share: float = 0.4) -> None:
        self._upstream, self._random, self._share = port, random.Random(seed), share
        self.seen: Counter[str] = Counter()
        self.port = 0
        self._ready = threading.Event()
        self._thread = threading.Thread(target=self._run, daemon=True)

    def __enter__(self) -> ChaosProxy:
        self._thread.start()
        assert self._ready.wait(10)
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._loop.call_soon_threadsafe(self._stop.set)
        self._thread.join(10)

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    def _run(self) -> None:
        asyncio.run(self._serve())

    async def _serve(self) -> None:
        self._loop, self._stop = asyncio.get_running_loop(), asyncio.Event()
        server = await asyncio.start_server(self._meet, "127.0.0.1", 0, limit=2**24)
        self.port = server.sockets[0].getsockname()[1]
        self._ready.set()
        await self._stop.wait()
        server.close()

    async def _meet(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with suppress(ConnectionError, asyncio.IncompleteReadError):
            while request := await _read_message(reader):
                answer = await self._handle(request)
                if answer is None:
                    break
                writer.write(answer)
                await writer.drain()
        writer.close()

    async def _handle(self, request: bytes) -> bytes | None:
        fault = "pass"
        if self._random.random() < self._share:
            fault = self._random.choice(FAULTS)
        self.seen[fault] += 1
        if fault == "drop_before":
            return None
        if fault == "too_many":
            return _canned(429, "Too Many Requests", "Retry-After: 0\r\n")
        if fault == "unavailable":
            return _canned(503, "Service Unavailable")
        if fault == "delay":
            await asyncio.sleep(self._random.uniform(0.0, 0.05))
        answer = await self._forward(request)
        if fault == "duplicate":
            await self._forward(request)
        self.seen["served"] += 1
        return None if fault == "drop_after" else answer

    async def _forward(self, request: bytes) -> bytes:
        reader, writer = await asyncio.open_connection("127.0.0.1", self._upstream)
        writer.write(request)
        await writer.drain()
        answer = await _read_message(reader)
        writer.close()
        return answer


async def _read_message(reader: asyncio.StreamReader) -> bytes:
    try:
        head = await reader.readuntil(b"\r\n\r\n")
    except asyncio.IncompleteReadError:
        return b""
    for line in head.split(b"\r\n"):
        name, _, value = line.partition(b":")
        if name.strip().lower() == b"content-length":
            return head + await reader.readexactly(int(value))
    return head


def _canned(status: int, reason: str, headers: str = "") -> bytes:
    return f"HTTP/1.1 {status} {reason}\r\n{headers}Content-Length: 2\r\n\r\n{{}}".encode()
