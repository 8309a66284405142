"""What the service says, as the OpenAPI description has it."""

from __future__ import annotations

from typing import Any, Literal

from pydantic import BaseModel, ConfigDict, Field
from starlette.responses import JSONResponse


class _Answer(BaseModel):
    model_config = ConfigDict(extra="forbid")


class Verified(_Answer):
    """Both pictures were compared."""

    id: str = Field(description="Names this request in the service's log.")
    match: bool = Field(description="Whether both pictures show the same person.")
    score: float | None = Field(default=None, description="Similarity; absent in decision mode.")
    threshold: float | None = Field(
        default=None, description="The score above which match is true; absent in decision mode."
    )
    version: str = Field(description="Changes when the same pictures may be answered otherwise.")


class Problem(_Answer):
    """Why there is no verdict."""

    code: str = Field(description="A word for programs, such as no_face.")
    message: str = Field(description="A sentence for people.")
    picture: str | None = Field(default=None, description="Which picture is meant, where one is.")


class Refused(_Answer):
    """No verdict: the request or a picture cannot be judged."""

    id: str
    error: Problem


class Health(_Answer):
    """Whether the service can answer, and as what."""

    status: Literal["ok"]
    model: str
    mode: Literal["decision", "score"]
    version: str


def refusal(
    name: str,
    status: int,
    code: str,
    message: str,
    *,
    picture: str | None = None,
    headers: Any = None,
) -> JSONResponse:
    """Return a ``Refused`` as it is sent; ``name`` is the request's id, if it has one."""
    problem = {"code": code, "message": message}
    if picture is not None:
        problem["picture"] = picture
    return JSONResponse({"id": name, "error": problem}, status_code=status, headers=headers)


def _refused(description: str, headers: dict[str, Any] | None = None) -> dict[str, Any]:
    return {"model": Refused, "description": description, "headers": headers or {}}


_RETRY = {
    "Retry-After": {
        "description": "Seconds to wait before asking again.",
        "schema": {"type": "integer", "minimum": 1},
    }
}

RESPONSES: dict[int | str, dict[str, Any]] = {
    400: _refused("The body does not hold two pictures."),
    401: _refused("The API key is missing or unknown."),
    403: _refused("The client is refused: its questions look like an attack."),
    408: _refused("The head or the body did not arrive in time."),
    413: _refused("The body is larger than the service takes."),
    415: _refused("Neither JSON nor multipart."),
    421: _refused("A service without keys was asked under another name than this machine's own."),
    422: _refused("A picture cannot be judged: unreadable, too large or small, or without a face."),
    429: _refused(
        "The rate, daily quota or share of waiting requests of this key is used up.", _RETRY
    ),
    431: _refused("The head is larger than the service takes."),
    500: _refused("The model could not be run; nothing was judged."),
    503: _refused("Too many requests are waiting, or the service is ending.", _RETRY),
}
