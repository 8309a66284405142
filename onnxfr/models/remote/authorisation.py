"""Which addresses are this machine's own, and who answers for the others."""

from __future__ import annotations

import ipaddress
from urllib.parse import urlsplit

from onnxfr.errors import NotAuthorised


def is_loopback(host: str) -> bool:
    """Tell whether ``host`` is this machine and nobody else's."""
    if host == "localhost":
        return True
    try:
        return ipaddress.ip_address(host.strip("[]")).is_loopback
    except ValueError:
        return False


def check_authorised(url: str, authorised: bool) -> None:
    """Raise unless a service may be attacked: it is local, or the user vouches for it."""
    host = urlsplit(url).hostname or ""
    if not authorised and not is_loopback(host):
        raise NotAuthorised(
            f"{host or url} is not this machine. Test only services whose owner allows it, "
            "within the terms they set; if that is so, say it with --i-am-authorised"
        )
