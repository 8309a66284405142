"""Connections that never come to a request end by themselves, and disturb no other."""

from __future__ import annotations

import socket
import sys
import time
from collections.abc import Iterator
from http.client import HTTPResponse
from pathlib import Path

import pytest
from fastapi import FastAPI

sys.path.insert(0, str(Path(__file__).parent))
sys.path.insert(0, str(Path(__file__).parents[1] / "unit" / "evaluators"))

from remote_games import free_port, running
from toy_faces import make_model

from onnxfr.models.wrapper import load_model
from onnxfr.service.app import build_app
from onnxfr.service.connections import MAX_HEAD, Connection, LastAnswers
from onnxfr.service.settings import ServiceSettings
from onnxfr.service.verifier import Verifier

SECONDS = 1
HEALTH = b"GET /v1/health HTTP/1.1\r\nHost: localhost\r\n"
VERIFY = b"POST /v1/verify HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n"


@pytest.fixture(scope="module")
def app(tmp_path_factory: pytest.TempPathFactory) -> FastAPI:
    model = load_model(make_model(tmp_path_factory.mktemp("model") / "toy"))
    return build_app(Verifier(model, 0.6), ServiceSettings())


@pytest.fixture(scope="module")
def port(app: FastAPI) -> Iterator[int]:
    port = free_port()
    with running(app, port, http=Connection, timeout_keep_alive=SECONDS):
        yield port


@pytest.fixture
def client(port: int) -> Iterator[socket.socket]:
    with connected(port) as client:
        yield client


def connected(port: int) -> socket.socket:
    for _ in range(500):
        try:
            return socket.create_connection(("127.0.0.1", port), timeout=20)
        except ConnectionRefusedError:
            time.sleep(0.02)
    raise AssertionError("nobody listens")


def status_of(client: socket.socket) -> int:
    """Read one answer to its end; return its status."""
    answer = HTTPResponse(client)
    answer.begin()
    answer.read()
    return answer.status


def rest_of(client: socket.socket) -> bytes:
    """Return what comes until the service ends the connection."""
    with client.makefile("rb") as answer:
        return answer.read()


def dribble(client: socket.socket, byte: bytes) -> float:
    """Send a byte now and then until nobody listens; return the seconds that took."""
    begin = time.monotonic()
    with pytest.raises(OSError):
        while time.monotonic() < begin + 10 * SECONDS:
            client.sendall(byte)
            time.sleep(0.05 * SECONDS)
    return time.monotonic() - begin


def test_a_connection_that_says_nothing_is_closed(client: socket.socket) -> None:
    assert rest_of(client) == b""


def test_a_head_that_never_ends_is_answered_and_cut_off(client: socket.socket) -> None:
    client.sendall(HEALTH + b"X: ")
    content = rest_of(client)
    assert content.startswith(b"HTTP/1.1 408 Request Timeout") and b"head_too_slow" in content


def test_a_head_that_arrives_byte_by_byte_gains_no_time(client: socket.socket) -> None:
    client.sendall(HEALTH + b"\r\n")
    assert status_of(client) == 200
    client.sendall(HEALTH + b"X: ")
    assert SECONDS / 2 < dribble(client, b"a") < 5 * SECONDS


def test_a_head_beyond_all_measure_is_refused(client: socket.socket) -> None:
    client.sendall(HEALTH + b"X: " + b"a" * 100_000 + b"\r\n\r\n")
    assert status_of(client) == 200
    client.sendall(HEALTH + b"X: " + b"a" * (MAX_HEAD + 1))
    content = rest_of(client)
    assert content.startswith(b"HTTP/1.1 431 ") and b"head_too_large" in content


def test_a_body_nobody_reads_holds_no_connection_for_ever(client: socket.socket) -> None:
    client.sendall(HEALTH + b"Content-Length: 5000000\r\n\r\n")
    assert status_of(client) == 200
    assert SECONDS / 2 < dribble(client, b"a") < 5 * SECONDS


def test_a_body_nobody_reads_leaves_the_connection_to_the_next_request(
    client: socket.socket,
) -> None:
    client.sendall(HEALTH + b"Content-Length: 3000000\r\n\r\n")
    assert status_of(client) == 200
    client.sendall(b"a" * 3_000_000 + HEALTH)
    time.sleep(0.2 * SECONDS)
    client.sendall(b"\r\n")
    assert status_of(client) == 200


def test_a_request_may_take_longer_than_its_head(client: socket.socket) -> None:
    client.sendall(VERIFY + b"Content-Length: 2\r\n\r\n{")
    time.sleep(1.5 * SECONDS)
    client.sendall(b"}" + HEALTH)
    assert status_of(client) == 400
    client.sendall(b"\r\n")
    assert status_of(client) == 200


def test_an_ending_service_keeps_no_connection_alive(app: FastAPI) -> None:
    port, ending = free_port(), [False]
    with (
        running(LastAnswers(app, lambda: ending[0]), port, http=Connection),
        connected(port) as client,
    ):
        client.sendall(HEALTH + b"\r\n")
        assert status_of(client) == 200
        ending[0] = True
        client.sendall(HEALTH + b"\r\n")
        content = rest_of(client)
    assert content.startswith(b"HTTP/1.1 200") and content.count(b"connection: close") == 1
