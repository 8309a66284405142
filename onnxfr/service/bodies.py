"""Two pictures out of a request: multipart or base64 in JSON, never more than the limit."""

from __future__ import annotations

import asyncio
import base64
import binascii
import json
from contextlib import suppress
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from starlette.requests import Request
    from starlette.types import ASGIApp, Message, Receive, Scope, Send

PICTURES = ("probe", "reference")

_DRAIN_BYTES = 1 << 20
_DRAIN_SECONDS = 1.0

_BASE64 = (
    r"^(?:[A-Za-z0-9+/]{4})*"
    r"(?:[A-Za-z0-9+/]{2}==|[A-Za-z0-9+/]{3}=|[A-Za-z0-9+/]{4})$"
)
_GREY_PNG = (
    "iVBORw0KGgoAAAANSUhEUgAAACAAAAAgCAAAAABWESUoAAAARUlEQVQ4EX3BAQEAAACCIH3u9B4Exmd8xmd8xmd8xmd8"
    "xmd8xmd8xmd8xmd8xmd8xmd8xmd8xmd8xmd8xmd8xmd8xmd8A0IuECEuYkIdAAAAAElFTkSuQmCC"
)
REQUEST_BODY: dict[str, Any] = {
    "required": True,
    "content": {
        "application/json": {
            "schema": {
                "type": "object",
                "additionalProperties": False,
                "required": list(PICTURES),
                "properties": {
                    name: {
                        "type": "string",
                        "pattern": _BASE64,
                        "contentEncoding": "base64",
                        "description": f"The {name} picture (JPEG, PNG, ...) in base64.",
                    }
                    for name in PICTURES
                },
            },
            "example": dict.fromkeys(PICTURES, _GREY_PNG),
        },
        "multipart/form-data": {
            "schema": {
                "type": "object",
                "additionalProperties": False,
                "required": list(PICTURES),
                "properties": {
                    name: {
                        "type": "string",
                        "format": "binary",
                        "description": f"The {name} picture as a file.",
                    }
                    for name in PICTURES
                },
            }
        },
    },
}


class BadBody(Exception):
    """A request that holds no two pictures; ``status`` is the answer's."""

    def __init__(self, status: int, code: str, message: str) -> None:
        super().__init__(message)
        self.status, self.code = status, code


class BodyLimit:
    """Stops reading a request at the limit, whatever its header promised."""

    def __init__(self, app: ASGIApp, max_bytes: int) -> None:
        self._app, self._max_bytes = app, max_bytes

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Pass the request on with a counter on its body."""
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        read = 0

        async def counted() -> Message:
            nonlocal read
            message = await receive()
            read += len(message.get("body", b""))
            if read > self._max_bytes:
                raise BadBody(
                    413, "body_too_large", f"a request has at most {self._max_bytes} bytes"
                )
            return message

        await self._app(scope, counted, send)


async def read_pictures(request: Request, max_bytes: int) -> tuple[bytes, bytes]:
    """Return both encoded pictures of a request, or raise ``BadBody``."""
    length = request.headers.get("content-length", "")
    if length.isdigit() and int(length) > max_bytes:
        raise BadBody(413, "body_too_large", f"a request has at most {max_bytes} bytes")
    kind = request.headers.get("content-type", "").partition(";")[0].strip().lower()
    if kind == "application/json":
        return _from_json(await request.body())
    if kind == "multipart/form-data":
        return await _from_form(request)
    raise BadBody(
        415, "unsupported_type", "expected application/json or multipart/form-data with two files"
    )


async def drain(request: Request) -> None:
    """Read the rest of an ordinary body that nobody wants, for a moment at most.

    A connection closed over unread bytes is reset, and the reset may overtake the answer.
    """
    from starlette.requests import ClientDisconnect

    read = 0
    # Whatever had begun to read the stream keeps it; there is nothing left to do then.
    with suppress(TimeoutError, BadBody, ClientDisconnect, RuntimeError):
        async with asyncio.timeout(_DRAIN_SECONDS):
            async for chunk in request.stream():
                read += len(chunk)
                if read > _DRAIN_BYTES:
                    break


def _from_json(body: bytes) -> tuple[bytes, bytes]:
    try:
        content = json.loads(body)
    except (ValueError, RecursionError):
        raise BadBody(400, "bad_json", "the body is no JSON text") from None
    if not isinstance(content, dict) or set(content) != set(PICTURES):
        raise BadBody(400, "bad_fields", "expected an object with 'probe' and 'reference' only")
    probe, reference = (_decode(name, content[name]) for name in PICTURES)
    return probe, reference


def _decode(name: str, text: object) -> bytes:
    if not isinstance(text, str) or not text:
        raise BadBody(400, "bad_fields", f"{name} is no text; expected base64 of a picture")
    try:
        return base64.b64decode(text.encode("ascii"), validate=True)
    except (binascii.Error, UnicodeEncodeError):
        raise BadBody(400, "bad_base64", f"{name} is no base64") from None


async def _from_form(request: Request) -> tuple[bytes, bytes]:
    from starlette.datastructures import UploadFile
    from starlette.exceptions import HTTPException

    try:
        async with request.form(max_files=2, max_fields=2) as form:
            names = [name for name, _ in form.multi_items()]
            files = [form.get(name) for name in PICTURES]
            if sorted(names) != sorted(PICTURES):
                raise BadBody(400, "bad_fields", "expected 'probe' and 'reference' only")
            found = []
            for name, file in zip(PICTURES, files, strict=True):
                if not isinstance(file, UploadFile):
                    raise BadBody(400, "bad_fields", f"{name} is no file")
                found.append(await file.read())
            return found[0], found[1]
    except HTTPException as error:
        raise BadBody(400, "bad_multipart", str(error.detail)) from None
