"""Pictures of people who are colour patterns, and questions to a service in this process."""

from __future__ import annotations

import asyncio
import base64
from collections.abc import Awaitable, Callable
from typing import Any

import cv2
import httpx
import numpy as np
from fastapi import FastAPI

from onnxfr.models.wrapper import FRModel
from onnxfr.service.app import build_app
from onnxfr.service.settings import ServiceSettings
from onnxfr.service.verifier import Verifier
from onnxfr.types import Pixels


def pattern(person: int, picture: int = 0, side: int = 112) -> Pixels:
    """Return one picture of a person; pictures differ by noise."""
    coarse = np.random.default_rng(person).random((5, 5, 3))
    coarse += 0.3 * np.random.default_rng([person, picture]).standard_normal((5, 5, 3))
    smooth = cv2.resize(coarse, (side, side))
    return np.clip(255 * smooth, 0, 255).astype(np.uint8)


def encoded(pixels: Pixels, suffix: str = ".png") -> bytes:
    return bytes(cv2.imencode(suffix, np.ascontiguousarray(pixels[:, :, ::-1]))[1])


def question(probe: bytes, reference: bytes) -> dict[str, str]:
    return {
        "probe": base64.b64encode(probe).decode(),
        "reference": base64.b64encode(reference).decode(),
    }


SAME = question(encoded(pattern(1)), encoded(pattern(1, 1)))
OTHER = question(encoded(pattern(1)), encoded(pattern(2)))


def app_of(model: FRModel, threshold: float = 0.6, **options: Any) -> FastAPI:
    """Return a service around a model, with a verifier's or the settings' options."""
    scale = options.pop("scale", None)
    aligner = options.pop("aligner", None)
    verifier = Verifier(
        model, threshold, scale=scale, aligner=aligner, max_pixels=options.pop("max_pixels", 10**6)
    )
    return build_app(verifier, ServiceSettings(**options))


def talk(app: FastAPI, story: Callable[[httpx.AsyncClient], Awaitable[Any]]) -> Any:
    """Run a conversation with the application; one that hangs is an error."""

    async def run() -> Any:
        transport = httpx.ASGITransport(app)
        async with httpx.AsyncClient(transport=transport, base_url="http://localhost") as client:
            return await asyncio.wait_for(story(client), 60)

    return asyncio.run(run())


def ask(app: FastAPI, **request: Any) -> httpx.Response:
    """Send one request to /v1/verify."""

    async def story(client: httpx.AsyncClient) -> httpx.Response:
        return await client.post("/v1/verify", **request)

    answer: httpx.Response = talk(app, story)
    return answer
