"""A service without keys answers this machine only, whatever name a request came under.

A page in a browser may give its own name the address 127.0.0.1 after it was loaded (DNS rebinding);
its scripts may then ask and read the answers. They cannot change the name in the Host header.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from starlette.datastructures import Headers
from starlette.requests import Request

from onnxfr.models.remote.authorisation import is_loopback
from onnxfr.service.answers import refusal
from onnxfr.service.bodies import drain

if TYPE_CHECKING:
    from starlette.types import ASGIApp, Receive, Scope, Send

_HOST = re.compile(r"(localhost|[0-9.]+|\[[0-9a-f:]+\])(:[0-9]*)?", re.IGNORECASE)
_SHOWN = 100


class LocalHosts:
    """Refuses requests to any other name than those only this machine has."""

    def __init__(self, app: ASGIApp) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Pass on what is addressed to this machine."""
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        host = Headers(scope=scope).get("host", "")
        if names_this_machine(host):
            await self._app(scope, receive, send)
            return
        answer = refusal(
            "",
            421,
            "wrong_host",
            "without keys this service is for its own machine: expected localhost, 127.0.0.1 or "
            f"[::1] as Host, got {host[:_SHOWN]!r}; set up keys to serve other names",
            headers={"Connection": "close"},
        )
        await drain(Request(scope, receive))
        await answer(scope, receive, send)


def names_this_machine(host: str) -> bool:
    """Tell whether a Host header is localhost or a loopback address, with any port."""
    found = _HOST.fullmatch(host)
    return found is not None and is_loopback(found[1].lower())
