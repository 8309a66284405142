"""The HTTP application around a verifier: keys, limits, pictures, batches, answers, log."""

from __future__ import annotations

import asyncio
import hashlib
import logging
import time
import uuid
from collections.abc import AsyncIterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import asynccontextmanager
from typing import Any

import numpy as np
from fastapi import Depends, FastAPI, Request
from fastapi.responses import JSONResponse
from fastapi.security import APIKeyHeader
from starlette.exceptions import HTTPException
from starlette.requests import ClientDisconnect
from starlette.responses import Response

from onnxfr.errors import EngineError
from onnxfr.models.hardware import available_cores
from onnxfr.service.answers import RESPONSES, Health, Verified, refusal
from onnxfr.service.batching import MicroBatcher, Overloaded
from onnxfr.service.bodies import REQUEST_BODY, BadBody, BodyLimit, drain, read_pictures
from onnxfr.service.hosts import LocalHosts
from onnxfr.service.keys import Client, Clients, TooMany
from onnxfr.service.logs import note
from onnxfr.service.query_watch import QueryWatch, pixel_feature
from onnxfr.service.settings import ServiceSettings
from onnxfr.service.verifier import Refusal, Verdict, Verifier
from onnxfr.types import Embeddings, Pixels

KEY_HEADER = "X-Api-Key"
API_VERSION = "1.0"
_BUSY_RETRY = 1


class Service:
    """One verifier with its clients, pools and counters."""

    def __init__(self, verifier: Verifier, settings: ServiceSettings) -> None:
        self.verifier, self.settings = verifier, settings
        self.clients = Clients(settings.keys, settings.limits)
        self.watch = None if settings.watch is None else QueryWatch(settings.watch)
        self._under_way = 0
        self._readers = ThreadPoolExecutor(available_cores(), "onnxfr-reader")
        self._model = ThreadPoolExecutor(1, "onnxfr-model")
        self.batcher = MicroBatcher(
            verifier.embed,
            self._model,
            max_batch=settings.max_batch,
            max_waiting=settings.max_waiting,
        )

    async def verify(self, request: Request, facts: dict[str, Any]) -> Verdict:
        """Answer one request; ``facts`` gathers what the log says about it."""
        client = self._admit(request, facts)
        self._under_way += 1
        client.under_way += 1
        try:
            probe, reference = await self._read(request)
            facts["bytes"] = len(probe) + len(reference)
            loop = asyncio.get_running_loop()
            crops = await loop.run_in_executor(self._readers, self._crops, probe, reference)
            found = await self.batcher.embed(crops)
        finally:
            self._under_way -= 1
            client.under_way -= 1
        if self.watch is not None:
            self._look(client, (probe, reference), crops, found, facts)
        verdict = self.verifier.judge(float(np.dot(found[0], found[1])))
        facts["match"] = verdict.match
        return verdict

    def close(self) -> None:
        """Wait for work under way and end the threads."""
        self._readers.shutdown()
        self._model.shutdown()

    def _admit(self, request: Request, facts: dict[str, Any]) -> Client:
        key = request.headers.get(KEY_HEADER)
        # Starlette reads headers as latin-1, which gives back the very bytes that came.
        client = self.clients.find(None if key is None else key.encode("latin-1"))
        if client is None:
            raise BadBody(401, "unknown_key", f"send a valid API key in {KEY_HEADER}")
        facts["client"] = client.name
        if self.watch is not None and self.watch.blocked(client.name) > 0:
            raise BadBody(403, "query_attack", "this client is refused for a while")
        # Before the body is read: what is held in memory is bounded by this.
        if self._under_way >= self.settings.max_waiting:
            raise Overloaded(f"{self._under_way} requests are under way already; try again later")
        if client.under_way >= self.settings.max_per_client:
            raise TooMany(
                f"{client.under_way} requests of this client are under way already; "
                "wait for their answers",
                _BUSY_RETRY,
            )
        client.charge()
        return client

    async def _read(self, request: Request) -> tuple[bytes, bytes]:
        seconds = self.settings.body_seconds
        try:
            async with asyncio.timeout(seconds):
                return await read_pictures(request, self.settings.max_bytes)
        except TimeoutError:
            raise BadBody(
                408,
                "body_too_slow",
                f"the body was not complete within {seconds:g} s; send it faster",
            ) from None

    def _crops(self, probe: bytes, reference: bytes) -> list[Pixels]:
        return [
            self.verifier.crop(probe, "probe"),
            self.verifier.crop(reference, "reference"),
        ]

    def _look(
        self,
        client: Client,
        blobs: tuple[bytes, bytes],
        crops: list[Pixels],
        found: Embeddings,
        facts: dict[str, Any],
    ) -> None:
        assert self.watch is not None
        settings = self.watch.settings
        for blob, crop, embedding in zip(blobs, crops, found, strict=True):
            feature = pixel_feature(crop) if settings.feature == "pixels" else embedding
            distance = self.watch.see(client.name, hashlib.sha256(blob).digest(), feature)
            if distance is None:
                continue
            facts["similar_queries"] = round(distance, 5)
            note(logging.WARNING, "query_attack", client=client.name, distance=round(distance, 5))
            if settings.action == "block":
                raise BadBody(403, "query_attack", "these questions look like an attack")


def build_app(verifier: Verifier, settings: ServiceSettings) -> FastAPI:
    """Return the application; its description is at ``/openapi.json``."""
    service = Service(verifier, settings)

    @asynccontextmanager
    async def lifespan(app: FastAPI) -> AsyncIterator[None]:
        note(logging.INFO, "started", model=verifier.model.name, version=verifier.version)
        yield
        service.close()
        note(logging.INFO, "ended", largest_batch=service.batcher.largest)

    app = FastAPI(
        title="onnxfr face verification",
        version=API_VERSION,
        description="Do two pictures show the same person?",
        docs_url=None,
        redoc_url=None,
        lifespan=lifespan,
    )
    app.add_middleware(BodyLimit, max_bytes=settings.max_bytes)
    if not service.clients.required:
        app.add_middleware(LocalHosts)
    app.state.service = service
    _add_routes(app, service)

    @app.exception_handler(HTTPException)
    async def refuse(request: Request, error: HTTPException) -> Response:
        return refusal("", error.status_code, "http", str(error.detail), headers=error.headers)

    return app


def _add_routes(app: FastAPI, service: Service) -> None:
    verifier = service.verifier
    # Documents the header; the check itself answers in the service's own form.
    guards = (
        [Depends(APIKeyHeader(name=KEY_HEADER, auto_error=False))]
        if service.clients.required
        else []
    )

    @app.post(
        "/v1/verify",
        response_model=Verified,
        response_model_exclude_none=True,
        responses=RESPONSES,
        openapi_extra={"requestBody": REQUEST_BODY},
        dependencies=guards,
        summary="Compare two pictures",
    )
    async def verify(request: Request) -> Response:
        begin, name = time.perf_counter(), uuid.uuid4().hex[:16]
        facts: dict[str, Any] = {"id": name}
        answer = await _answer(service, request, name, facts)
        facts["status"] = answer.status_code
        facts["ms"] = round(1e3 * (time.perf_counter() - begin), 2)
        note(logging.INFO, "verify", **facts)
        return answer

    @app.get(
        "/v1/health",
        responses={421: RESPONSES[421]},
        summary="Whether the service can answer",
    )
    async def health() -> Health:
        mode = "decision" if verifier.scale is None else "score"
        return Health(
            status="ok",
            model=verifier.model.name,
            mode=mode,  # type: ignore[arg-type]
            version=verifier.version,
        )


async def _answer(
    service: Service, request: Request, name: str, facts: dict[str, Any]
) -> JSONResponse:
    try:
        verdict = await service.verify(request, facts)
    except BadBody as bad:
        facts["refused"] = bad.code
        headers = {"WWW-Authenticate": "ApiKey"} if bad.status == 401 else None
        # What was not read of the body would be taken for the next request.
        if bad.status in (401, 403, 408, 413, 415):
            if bad.status != 408:
                await drain(request)
            headers = {**(headers or {}), "Connection": "close"}
        return refusal(name, bad.status, bad.code, str(bad), headers=headers)
    except Refusal as refused:
        facts["refused"] = refused.code
        return refusal(name, 422, refused.code, str(refused), picture=refused.picture)
    except TooMany as limit:
        facts["refused"] = "too_many"
        headers = {"Retry-After": str(limit.retry_after)}
        return refusal(name, 429, "too_many", str(limit), headers=headers)
    except ClientDisconnect:
        facts["refused"] = "left"
        return refusal(name, 400, "left", "the client left before its request was complete")
    except Overloaded as busy:
        facts["refused"] = "overloaded"
        headers = {"Retry-After": str(_BUSY_RETRY)}
        return refusal(name, 503, "overloaded", str(busy), headers=headers)
    except EngineError as broken:
        facts["refused"] = "engine"
        note(logging.ERROR, "engine", id=name, reason=str(broken))
        return refusal(name, 500, "engine", "the model could not be run")
    content: dict[str, Any] = {"id": name, "match": verdict.match}
    if verdict.score is not None:
        content |= {"score": verdict.score, "threshold": verdict.threshold}
    return JSONResponse(content | {"version": service.verifier.version})
