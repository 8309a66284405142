"""Limits over a real connection: rates, quotas, redirects, an end in the middle of a request."""

from __future__ import annotations

import json
import signal
import socket
import sys
import time
from http.client import HTTPResponse
from pathlib import Path

import numpy as np
import pytest
from fastapi import FastAPI
from fastapi.responses import RedirectResponse

sys.path.insert(0, str(Path(__file__).parent))
sys.path.insert(0, str(Path(__file__).parents[1] / "unit" / "evaluators"))

from remote_games import (
    adapter_for,
    free_port,
    pattern_probe,
    running,
    served,
)
from toy_faces import make_model

from onnxfr.errors import RemoteError
from onnxfr.models.remote.model import RemoteModel
from onnxfr.models.wrapper import load_model
from onnxfr.service.app import build_app
from onnxfr.service.keys import Limits
from onnxfr.service.settings import ServiceSettings
from onnxfr.service.verifier import Verifier

THRESHOLD, RATE = 0.6, 4


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return make_model(tmp_path_factory.mktemp("model") / "toy")


def test_a_client_that_is_too_fast_waits_as_told_and_pays_for_answers_only(
    model: Path, tmp_path: Path
) -> None:
    port, probe, inner = free_port(), pattern_probe(12), load_model(model)
    assert probe.references is not None
    expected = inner.similarity(probe.images, probe.references) > THRESHOLD
    with served(model, port, "--threshold", str(THRESHOLD), "--per-second", str(RATE)):
        remote = RemoteModel(adapter_for(f"http://127.0.0.1:{port}", retries=12), tmp_path / "j")
        begin = time.monotonic()
        found = remote.compare(probe.images, probe.references)
        seconds = time.monotonic() - begin
    np.testing.assert_array_equal(found > 0, expected)
    # A second's worth at once, then the rate; what was refused is not charged.
    assert remote.open().retried > 0 and remote.journal.spent == len(probe)
    assert seconds >= (len(probe) - RATE) / RATE


def test_a_quota_that_is_used_up_ends_the_run_and_keeps_the_answers(
    model: Path, tmp_path: Path
) -> None:
    port, probe = free_port(), pattern_probe(4)
    assert probe.references is not None
    verifier = Verifier(load_model(model), THRESHOLD)
    app = build_app(verifier, ServiceSettings(limits=Limits(per_day=2)))
    with running(app, port):
        adapter = adapter_for(f"http://127.0.0.1:{port}", concurrency=1)
        for spent in (2, 2):
            remote = RemoteModel(adapter, tmp_path / "j")
            with pytest.raises(RemoteError, match="asks to wait"):
                remote.compare(probe.images, probe.references)
            assert len(remote.journal.answers) == remote.journal.spent == spent
            remote.close()


def test_a_redirect_leads_nowhere(tmp_path: Path) -> None:
    app, port, probe = FastAPI(), free_port(), pattern_probe(1)
    assert probe.references is not None
    followed = []

    @app.post("/v1/verify")
    async def elsewhere() -> RedirectResponse:
        return RedirectResponse("/other")

    @app.post("/other")
    async def other() -> dict[str, bool]:
        followed.append(True)
        return {"match": True}

    with running(app, port):
        remote = RemoteModel(adapter_for(f"http://127.0.0.1:{port}"), tmp_path / "j")
        with pytest.raises(RemoteError, match="status 307"):
            remote.compare(probe.images, probe.references)
    assert not followed and not remote.journal.answers


def test_a_request_under_way_is_finished_when_the_service_is_told_to_end(
    model: Path, tmp_path: Path
) -> None:
    port, log = free_port(), tmp_path / "log"
    body = b'{"probe": "AAAA", "reference": "AAAA"}'
    head = "POST /v1/verify HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Type: application/json\r\n"
    with served(model, port, "--threshold", "0.6", log=log) as process:
        with socket.create_connection(("127.0.0.1", port)) as client:
            client.sendall(f"{head}Content-Length: {len(body)}\r\n\r\n".encode() + body[:10])
            wait_for(lambda: '"started"' in log.read_text())
            time.sleep(0.2)
            process.send_signal(signal.SIGTERM)
            wait_for(lambda: "Shutting down" in log.read_text())
            client.sendall(body[10:])
            assert client.recv(4096).startswith(b"HTTP/1.1 422")
        process.wait(15)
    events = [json.loads(line) for line in log.read_text().splitlines()]
    assert [line["status"] for line in events if line["event"] == "verify"] == [422]
    assert any(line["event"] == "ended" for line in events)


def test_a_body_refused_unread_costs_its_sender_no_connection(model: Path) -> None:
    port, body, contents = free_port(), b"x" * 300, []
    with served(model, port, "--threshold", "0.6"):
        for host in (b"localhost", b"photos.example"):
            head = (
                b"POST /v1/verify HTTP/1.1\r\nHost: " + host + b"\r\nContent-Type: text/plain\r\n"
            )
            with socket.create_connection(("127.0.0.1", port), timeout=20) as client:
                # Closed too early, the connection would be reset by the second piece.
                for piece in (head + b"Content-Length: 900\r\n\r\n", body, body, body):
                    client.sendall(piece)
                    time.sleep(0.15)
                answer = HTTPResponse(client)
                answer.begin()
                contents.append((answer.status, json.load(answer)["error"]["code"]))
    assert contents == [(415, "unsupported_type"), (421, "wrong_host")]


def test_a_body_that_never_ends_is_answered_and_cut_off(model: Path) -> None:
    port = free_port()
    head = b"POST /v1/verify HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n"
    with (
        served(model, port, "--threshold", "0.6", "--body-seconds", "0.3"),
        socket.create_connection(("127.0.0.1", port), timeout=20) as client,
    ):
        client.sendall(head + b'Content-Length: 5000\r\n\r\n{"probe": "')
        with client.makefile("rb") as answer:
            content = answer.read()
    assert content.startswith(b"HTTP/1.1 408") and b"body_too_slow" in content


def wait_for(happened: object) -> None:
    assert callable(happened)
    for _ in range(500):
        if happened():
            return
        time.sleep(0.02)
    raise AssertionError("it did not happen within ten seconds")
