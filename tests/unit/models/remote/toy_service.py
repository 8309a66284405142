"""A service whose every answer is written by the test, and adapters that ask it."""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

import numpy as np

from onnxfr.models.remote.adapter import Adapter, parse_adapter
from onnxfr.models.remote.model import RemoteModel
from onnxfr.models.remote.reading import Verdict
from onnxfr.types import Images

KEY = "TOY_SERVICE_KEY"


@dataclass(frozen=True)
class Reply:
    """What a service says; content that is not bytes is sent as JSON."""

    content: Any = field(default_factory=lambda: {"match": True})
    status: int = 200
    headers: dict[str, str] = field(default_factory=dict)
    pause: float = 0.0
    """Seconds between two bytes of the content."""
    head_pause: float = 0.0
    """Seconds between two bytes of the head."""

    def body(self) -> bytes:
        if isinstance(self.content, bytes):
            return self.content
        return json.dumps(self.content).encode()


@dataclass
class Service:
    """Where it is, and when it was asked; a call is noted before it is answered."""

    url: str
    calls: list[float] = field(default_factory=list)


@contextmanager
def serving(say: Callable[[int], Reply], host: str = "127.0.0.1") -> Iterator[Service]:
    """Answer call number 1, 2, ... by ``say`` until the end of the block."""
    turn = threading.Lock()

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def do_POST(self) -> None:
            self.rfile.read(int(self.headers["content-length"]))
            with turn:
                service.calls.append(time.monotonic())
                number = len(service.calls)
            reply = say(number)
            body = reply.body()
            self.send_response_only(reply.status)
            for name, value in {**reply.headers, "Content-Length": str(len(body))}.items():
                self.send_header(name, value)
            for byte in b"X-Slow: 1\r\n" * 6 if reply.head_pause else ():
                self.flush_headers()
                time.sleep(reply.head_pause)
                self.wfile.write(bytes([byte]))
            self.end_headers()
            for byte in body if reply.pause else ():
                time.sleep(reply.pause)
                self.wfile.write(bytes([byte]))
            if not reply.pause:
                self.wfile.write(body)

        def log_message(self, *_: Any) -> None:
            return None

    class Quiet(ThreadingHTTPServer):
        def handle_error(self, *_: Any) -> None:
            """Ignore clients that do not listen to the end."""

    server = Quiet((host, 0), Handler)
    service = Service(f"http://{host}:{server.server_port}")
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
    thread.start()
    try:
        yield service
    finally:
        server.shutdown()
        server.server_close()
        thread.join()


def adapter_of(*urls: str, pace: str = "", answer: str = "", captures: str = "m") -> Adapter:
    """Return an adapter with a step for each address; all but the last capture ``captures``."""
    steps = [
        f'[[steps]]\nurl = "{url}"\nbody = {{ a = "${{probe}}", b = "${{reference}}" }}\n'
        f'headers = {{ Authorization = "Bearer ${{secret.key}}" }}\n'
        + (f'captures = {{ {captures} = "match" }}\n' if at < len(urls) - 1 else "")
        for at, url in enumerate(urls)
    ]
    head = f'name = "toy"\ndescription = "d"\ntested = "here"\nsecrets = {{ key = "{KEY}" }}\n'
    rules = f'[pace]\n{pace or "concurrency = 1"}\n[answer]\ndecision = "match"\n{answer}\n'
    return parse_adapter(head + rules + "".join(steps), "toy.toml")


def pictures(count: int) -> Images:
    """Return pictures that all differ."""
    return np.random.default_rng(0).random((count, 3, 8, 8)).astype(np.float32)


def ask(model: RemoteModel, count: int = 1, **how: Any) -> list[Verdict | None]:
    """Ask about so many pictures, each beside itself."""
    return model.verdicts(pictures(count), pictures(count), **how)
