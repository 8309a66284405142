"""Which addresses are this machine's own, and who answers for the others."""

from __future__ import annotations

import ipaddress
from urllib.parse import urlsplit

from onnxfr.errors import NotAuthorised, RemoteError


def is_loopback(host: str) -> bool:
    """Tell whether ``host`` is this machine and nobody else's."""
    if host == "localhost":
        return True
    try:
        return ipaddress.ip_address(host.strip("[]")).is_loopback
    except ValueError:
        return False


def host_of(url: str) -> str:
    """Return the host in an address; empty where it names none."""
    try:
        return urlsplit(url).hostname or ""
    except ValueError:
        # Not the address itself: it may hold a secret.
        raise RemoteError(
            "expected an address such as https://host/path, got one whose host cannot be told; "
            "correct the adapter or its parameters"
        ) from None


def check_authorised(url: str, authorised: bool) -> None:
    """Raise unless a service may be attacked: it is local, or the user vouches for it."""
    host = host_of(url)
    if not authorised and not is_loopback(host):
        raise NotAuthorised(
            f"{host or url} is not this machine. Test only services whose owner allows it, "
            "within the terms they set; if that is so, say it with --i-am-authorised"
        )
