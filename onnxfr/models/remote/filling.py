"""From an adapter's step and two pictures to a signed HTTP request."""

from __future__ import annotations

import base64
import json
import os
import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any
from urllib.parse import quote, urlencode, urlsplit

import cv2
import numpy as np

from onnxfr.errors import RemoteError
from onnxfr.models.remote.adapter import Adapter, Picture, Step
from onnxfr.models.remote.signing import SIGNERS, Unsigned
from onnxfr.types import Pixels

_PLACE = re.compile(r"\$\{([^{}]*)\}")
"""Whatever looks like a place is one: sent as it stands, a slip of the pen would be paid for."""
_BOUNDARY = "onnxfr-e3b0c44298fc1c149afbf4c8"
_GAP = 8


@dataclass(frozen=True)
class Ready:
    """A request that only has to be sent."""

    method: str
    url: str
    headers: dict[str, str]
    content: bytes


def encode_picture(pixels: Pixels, rule: Picture) -> bytes:
    """Return the file that is sent for a picture."""
    if rule.enlarge > 1:
        pixels = pixels.repeat(rule.enlarge, axis=0).repeat(rule.enlarge, axis=1)
    options = [cv2.IMWRITE_JPEG_QUALITY, rule.quality] if rule.format == "jpeg" else []
    suffix = ".jpg" if rule.format == "jpeg" else ".png"
    return bytes(cv2.imencode(suffix, np.ascontiguousarray(pixels[:, :, ::-1]), options)[1])


def join_pictures(left: Pixels, right: Pixels) -> Pixels:
    """Return both side by side on black, for services that take one picture."""
    height = max(left.shape[0], right.shape[0])
    width = left.shape[1] + _GAP + right.shape[1]
    both = np.zeros((height, width, 3), dtype=np.uint8)
    both[: left.shape[0], : left.shape[1]] = left
    both[: right.shape[0], left.shape[1] + _GAP :] = right
    return both


def read_secrets(adapter: Adapter) -> dict[str, str]:
    """Return the adapter's secrets from the environment; raise if one it needs is not set."""
    found = {}
    for name, variable in adapter.secrets.items():
        value = os.environ.get(variable, "")
        if not value and name not in adapter.optional_secrets:
            raise RemoteError(
                f"adapter {adapter.name} takes its {name} from the environment variable "
                f"{variable}, which is not set"
            )
        found[name] = value
    return found


def check_places(adapter: Adapter) -> None:
    """Raise where any text of an adapter has a place that nothing will fill."""
    known = [f"secret.{name}" for name in adapter.secrets]
    known += [f"parameter.{name}" for name in adapter.parameters]
    values = dict.fromkeys(("probe", "reference", "joined", *known), "x")
    for step in adapter.steps:
        settings = (step.query, step.headers, step.signing)
        texts = [text for each in settings for pair in each.items() for text in pair]
        _fill_deep([step.url, *texts, step.body], values)
        values |= {f"captured.{name}": "x" for name in step.captures}


def make_request(step: Step, values: Mapping[str, bytes | str], clock: float) -> Ready:
    """Fill a step's templates and sign it.

    Args:
        step: what is sent.
        values: what stands for each place; pictures as bytes.
        clock: seconds since 1970, for signatures.
    """
    url = fill_url(step.url, values)
    query = {fill(name, values): fill(text, values) for name, text in step.query.items()}
    headers = {fill(name, values): fill(text, values) for name, text in step.headers.items()}
    headers = {name: text for name, text in headers.items() if text}
    content, kind = _content(step, values)
    if kind and not any(name.lower() == "content-type" for name in headers):
        headers["Content-Type"] = kind
    if step.signer is not None:
        settings = {name: fill(text, values) for name, text in step.signing.items()}
        plain = Unsigned(step.method, url, query, headers, content)
        signed = SIGNERS.get(step.signer)(plain, settings, clock)
        query, headers, content = signed.query, signed.headers, signed.content
    if query:
        url += ("&" if urlsplit(url).query else "?") + urlencode(query)
    return Ready(step.method, url, headers, content)


def fill(text: str, values: Mapping[str, bytes | str]) -> str:
    """Return the text with every ``${place}`` filled in."""

    def put(found: re.Match[str]) -> str:
        value = _look_up(found.group(1), values)
        return base64.b64encode(value).decode() if isinstance(value, bytes) else value

    return _PLACE.sub(put, text)


def fill_url(text: str, values: Mapping[str, bytes | str]) -> str:
    """Return an address with every place filled in.

    Secrets are percent-encoded: with a ``/`` or ``@`` as it stands, a key would cut the address
    elsewhere, and part of it would be sent to, and shown as, a host or a path.
    """
    encoded = {
        name: quote(value, safe="") if name.startswith("secret.") else value
        for name, value in values.items()
        if isinstance(value, str)
    }
    return fill(text, {**values, **encoded})


def _look_up(name: str, values: Mapping[str, bytes | str]) -> bytes | str:
    if name not in values:
        known = ", ".join(sorted(values))
        raise RemoteError(f"an adapter's text holds ${{{name}}}; it may hold: {known}")
    return values[name]


def _content(step: Step, values: Mapping[str, bytes | str]) -> tuple[bytes, str]:
    if step.body is None:
        return b"", ""
    if step.encoding == "json":
        return json.dumps(_fill_deep(step.body, values)).encode(), "application/json"
    if step.encoding == "raw":
        return _whole(str(step.body), values), "application/octet-stream"
    if not isinstance(step.body, dict):
        raise RemoteError(f"a body in {step.encoding} encoding is a table of texts")
    fields = {fill(name, values): _text(value) for name, value in step.body.items()}
    if step.encoding == "form":
        filled = {name: fill(text, values) for name, text in fields.items()}
        return urlencode(filled).encode(), "application/x-www-form-urlencoded"
    return _multipart(fields, values), f"multipart/form-data; boundary={_BOUNDARY}"


def _text(value: Any) -> str:
    """Return a setting as services write it: ``true``, not ``True``."""
    return value if isinstance(value, str) else json.dumps(value)


def _multipart(fields: Mapping[str, str], values: Mapping[str, bytes | str]) -> bytes:
    parts = []
    for field, text in fields.items():
        # As browsers do: a line break or quote would begin another header.
        name = field.translate({10: "%0A", 13: "%0D", 34: "%22"})
        head = f'--{_BOUNDARY}\r\nContent-Disposition: form-data; name="{name}"'
        value = _whole(text, values)
        if _is_picture(text, values):
            head += f'; filename="{name}"\r\nContent-Type: application/octet-stream'
        parts.append(head.encode() + b"\r\n\r\n" + value + b"\r\n")
    return b"".join(parts) + f"--{_BOUNDARY}--\r\n".encode()


def _is_picture(text: str, values: Mapping[str, bytes | str]) -> bool:
    found = _PLACE.fullmatch(text)
    return found is not None and isinstance(values.get(found.group(1)), bytes)


def _whole(text: str, values: Mapping[str, bytes | str]) -> bytes:
    """Return a picture as bytes where the text is nothing but its place."""
    found = _PLACE.fullmatch(text)
    if found is not None:
        value = _look_up(found.group(1), values)
        return value if isinstance(value, bytes) else value.encode()
    return fill(text, values).encode()


def _fill_deep(value: Any, values: Mapping[str, bytes | str]) -> Any:
    if isinstance(value, str):
        return fill(value, values)
    if isinstance(value, dict):
        # Keys too: one vendor names a field after its service.
        return {fill(str(name), values): _fill_deep(each, values) for name, each in value.items()}
    return [_fill_deep(each, values) for each in value] if isinstance(value, list) else value
