"""The certificate that lies beside a model: what was measured about its two engines."""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any, Literal

from onnxfr.errors import EngineError
from onnxfr.models.card import CERTIFICATE_FILE, write_whole

Level = Literal["green", "yellow", "red"]
VERSION = 1


@dataclass(frozen=True)
class Flag:
    """One finding with its traffic light and a sentence a buyer can read."""

    name: str
    level: Level
    sentence: str


@dataclass(frozen=True)
class Certificate:
    """Everything measured about one model's two engines."""

    model: str
    sha256: str
    status: Level
    parity: dict[str, float | None]
    gradient: dict[str, Any]
    batch: dict[str, float]
    deterministic: bool
    norm: dict[str, float]
    second_opinion: dict[str, Any]
    latency_ms: dict[str, float]
    peak_memory_mb: float
    precision: str
    instruction_set: str
    pictures: str
    flags: tuple[Flag, ...] = field(default=())
    version: int = VERSION

    def to_json(self) -> dict[str, Any]:
        """Return the certificate with plain values only."""
        return asdict(self)


def write_certificate(certificate: Certificate, folder: Path) -> Path:
    """Store the certificate beside the model, whole or not at all."""
    path = folder / CERTIFICATE_FILE
    write_whole(path, json.dumps(certificate.to_json(), indent=2) + "\n")
    return path


def read_certificate(folder: Path, sha256: str) -> dict[str, Any] | None:
    """Return the stored certificate, or None where the model with this digest was never checked."""
    try:
        stored: dict[str, Any] = json.loads((folder / CERTIFICATE_FILE).read_text("utf-8"))
    except FileNotFoundError:
        return None
    except (OSError, ValueError) as error:
        raise EngineError(f"{folder / CERTIFICATE_FILE} is damaged: {error}; check again") from None
    return stored if stored.get("sha256") == sha256 else None
