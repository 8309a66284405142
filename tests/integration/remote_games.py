"""A service in its own process, and an attack on it that asks for decisions only."""

from __future__ import annotations

import signal
import socket
import subprocess
import sys
import tempfile
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar

import cv2
import numpy as np
import uvicorn
from starlette.types import ASGIApp

from onnxfr.attacks.base import Attack, AttackResult
from onnxfr.models.remote.adapter import Adapter, read_adapter
from onnxfr.models.remote.model import RemoteModel
from onnxfr.models.wrapper import FRModel
from onnxfr.oracle import Oracle
from onnxfr.probe import Probe
from onnxfr.rng import RowRng
from onnxfr.service.app import build_app
from onnxfr.service.settings import ServiceSettings
from onnxfr.service.verifier import Verifier
from onnxfr.threat import Threat
from onnxfr.types import Access, Goal, Images

COMMAND = [sys.executable, "-P", "-c", "from onnxfr.cli import main; main()"]


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


@contextmanager
def served(
    model: Path, port: int, *options: str, log: Path | None = None
) -> Iterator[subprocess.Popen[str]]:
    """Run ``onnxfr serve`` until the end of the block; it must end well when told to."""
    # Not a pipe: a log that nobody reads would stop the service once the pipe is full.
    with tempfile.TemporaryFile("w+") if log is None else log.open("w+") as lines:
        process = subprocess.Popen(
            [*COMMAND, "serve", str(model), "--no-align", "--port", str(port), *options],
            stdout=subprocess.PIPE,
            stderr=lines,
            text=True,
        )
        assert process.stdout is not None
        try:
            line = process.stdout.readline()
            assert f" http://127.0.0.1:{port}/" in line, line
            yield process
        finally:
            process.send_signal(signal.SIGTERM)
            process.wait(20)
            process.stdout.close()
            lines.seek(0)
            assert "Traceback" not in lines.read()
        assert process.returncode in (0, -signal.SIGTERM)


@contextmanager
def served_here(model: FRModel, threshold: float, port: int) -> Iterator[None]:
    """Run a service in a thread of this process."""
    with running(build_app(Verifier(model, threshold), ServiceSettings()), port):
        yield


@contextmanager
def running(app: ASGIApp, port: int, **options: Any) -> Iterator[None]:
    """Run an application in a thread of this process."""
    server = uvicorn.Server(uvicorn.Config(app, port=port, log_level="error", **options))
    thread = threading.Thread(target=server.run)
    thread.start()
    try:
        yield
    finally:
        server.should_exit = True
        thread.join(10)


@dataclass(frozen=True)
class Walk(Attack):
    """Bisects from the reference towards the clean picture, then tries small random steps."""

    name: ClassVar[str] = "walk"
    access: ClassVar[Access] = Access.DECISION
    norms: ClassVar[tuple[str, ...]] = ("l2",)  # type: ignore[assignment]
    seeks: ClassVar[str] = "smallest"  # type: ignore[assignment]
    steps: int = 12

    def run(self, oracle: Oracle, probe: Probe, threat: Threat, rng: RowRng) -> Images:
        assert probe.references is not None
        low, high = np.zeros(len(probe)), np.ones(len(probe))
        won = probe.references.copy()
        for _ in range(8):
            middle = (low + high) / 2
            share = middle[:, None, None, None].astype(np.float32)
            tried = (1 - share) * probe.images + share * probe.references
            wins = oracle.decide(tried)
            high, low = np.where(wins, middle, high), np.where(wins, low, middle)
            won[wins] = tried[wins]
        for _ in range(self.steps):
            noise = 0.02 * rng.normal(probe.images.shape[1:])
            tried = np.clip(0.98 * won + 0.02 * probe.images + noise, 0, 1).astype(np.float32)
            wins = oracle.decide(tried)
            won[wins] = tried[wins]
        return won


def pattern_probe(rows: int = 4) -> Probe:
    """Return pairs of different people as smooth colour patterns."""
    noise = np.random.default_rng(7)
    pictures = np.stack(
        [cv2.resize(noise.random((5, 5, 3)), (112, 112)) for _ in range(2 * rows)]
    ).transpose(0, 3, 1, 2)
    pictures = (np.round(pictures * 255) / 255).astype(np.float32)
    return Probe(
        images=np.ascontiguousarray(pictures[:rows]),
        ids=tuple(f"pair{k}" for k in range(rows)),
        references=np.ascontiguousarray(pictures[rows:]),
    )


def adapter_for(url: str, **pace: float) -> Adapter:
    adapter = read_adapter("onnxfr").with_parameters({"url": url})
    return adapter.model_copy(update={"pace": adapter.pace.model_copy(update=pace)})


def attack_remotely(
    url: str, journal: Path, budget: int | None, **pace: float
) -> tuple[AttackResult, RemoteModel]:
    """Run the walk against a service."""
    model = RemoteModel(adapter_for(url, **pace), journal, budget=budget)
    probe, threat = pattern_probe(), Threat(norm="l2")
    oracle = Oracle(model, probe, threat, goal=Goal.IMPERSONATE)
    return Walk()(oracle, probe, threat, seed=3), model
