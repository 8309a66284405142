"""Starts the service on an address and ends it in order."""

from __future__ import annotations

import socket
from collections.abc import Callable

import numpy as np

from onnxfr.errors import MissingExtra, SpecError
from onnxfr.models.remote.authorisation import is_loopback
from onnxfr.service.logs import log_to_stderr
from onnxfr.service.settings import ServiceSettings
from onnxfr.service.verifier import Verifier

_GRACE_SECONDS = 10
_IDLE_SECONDS = 30


def serve(
    verifier: Verifier,
    settings: ServiceSettings,
    *,
    host: str,
    port: int,
    ready: Callable[[str], None],
) -> None:
    """Answer requests until the process is told to end; what is under way is finished first.

    ``ready`` is called with the address once connections are accepted.
    """
    try:
        import uvicorn

        from onnxfr.service.app import build_app
        from onnxfr.service.connections import Connection, LastAnswers
    except ModuleNotFoundError as missing:
        raise MissingExtra(missing.name or "fastapi", "serve") from None
    if not is_loopback(host) and not settings.keys:
        raise SpecError(
            f"{host} can be reached from outside: give --keys FILE, or bind to 127.0.0.1"
        )
    listener = _listen(host, port)
    # The engine measures its best setting at first use: now, rather than under the first client.
    blank = np.zeros((*verifier.model.card.input_size, 3), dtype=np.uint8)
    verifier.embed([blank] * settings.max_batch)
    log_to_stderr()
    app = build_app(verifier, settings)
    config = uvicorn.Config(
        LastAnswers(app, lambda: server.should_exit),
        http=Connection,
        log_config=None,
        access_log=False,
        lifespan="on",
        timeout_keep_alive=_IDLE_SECONDS,
        timeout_graceful_shutdown=_GRACE_SECONDS,
        server_header=False,
    )
    server = uvicorn.Server(config)
    with listener:
        ready(f"http://{_written(host)}:{listener.getsockname()[1]}")
        server.run(sockets=[listener])


def _listen(host: str, port: int) -> socket.socket:
    try:
        family = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)[0][0]
        return socket.create_server((host, port), family=family, backlog=512)
    except OSError as error:
        raise SpecError(
            f"cannot listen on {host}:{port} ({error}); choose another --host or --port"
        ) from None


def _written(host: str) -> str:
    return f"[{host}]" if ":" in host else host
