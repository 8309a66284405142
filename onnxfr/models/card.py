"""The card that travels with a normal-form model: facts, provenance, thresholds and their origin.

A card is TOML so that a vendor can read and a reviewer can diff it. A field that nobody knows says
``"unknown"`` rather than being left out: an empty field in a report is a question, not a hole.
"""

from __future__ import annotations

import secrets
import tomllib
from pathlib import Path
from typing import Any, Literal

import tomlkit
from pydantic import BaseModel, ConfigDict, Field, ValidationError, field_validator

from onnxfr.errors import CardError
from onnxfr.models.preprocessing import Preprocessing

CARD_FILE = "card.toml"
MODEL_FILE = "model.onnx"
CERTIFICATE_FILE = "certificate.json"


class _Part(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True)


class Source(_Part):
    """Where the vendor's file came from; ``sha256`` is that of the file as received."""

    file: str = "unknown"
    sha256: str = "unknown"
    package: str = "unknown"
    url: str = "unknown"

    @field_validator("file")
    @classmethod
    def _printable(cls, name: str) -> str:
        # A file's name may hold bytes that are no text, which a card cannot.
        return name.encode("utf-8", "replace").decode()


class ThresholdEntry(_Part):
    """A cosine threshold; ``origin`` such as ``lfw@10fold`` says how it was chosen."""

    value: float = Field(ge=-1.0, le=1.0)
    origin: str = Field(min_length=3)


class ReportedAccuracy(_Part):
    """A clean accuracy somebody states for the model, in percent."""

    data: str
    protocol: str
    value: float = Field(ge=0.0, le=100.0)
    by: str = "unknown"


class Repair(_Part):
    """One change made to the vendor's graph; ``max_abs`` is what it did to unit embeddings."""

    name: str
    detail: str
    max_abs: float | None = None


class Card(_Part):
    """Everything known about one model."""

    name: str = Field(pattern=r"^[A-Za-z0-9][A-Za-z0-9._-]{0,99}$")
    sha256: str = Field(pattern=r"^[0-9a-f]{64}$")
    licence: str = "unknown"
    framework: str = "unknown"
    architecture: str = "unknown"
    training_set: str = "unknown"
    loss: str = "unknown"
    input_height: int = Field(ge=8, le=4096)
    input_width: int = Field(ge=8, le=4096)
    embedding_dim: int = Field(ge=1)
    opset: int = Field(ge=1)
    precision: Literal["fp32", "fp16", "int8", "mixed"] = "fp32"
    output: str = "unknown"
    head: Literal["embedding", "logits"] = "embedding"
    batch: Literal["dynamic", "loop"] = "dynamic"
    template: str = "arcface"
    instruction_set: str = "unknown"
    source: Source = Source()
    preprocessing: Preprocessing
    thresholds: tuple[ThresholdEntry, ...] = ()
    reported: tuple[ReportedAccuracy, ...] = ()
    repairs: tuple[Repair, ...] = ()
    notes: tuple[str, ...] = ()

    @property
    def input_size(self) -> tuple[int, int]:
        """Height and width of the pictures the model takes."""
        return self.input_height, self.input_width

    def threshold(self, origin: str | None = None) -> ThresholdEntry:
        """Return the threshold of an origin, or the first one listed."""
        for entry in self.thresholds:
            if origin is None or entry.origin == origin:
                return entry
        known = ", ".join(t.origin for t in self.thresholds) or "none"
        raise CardError(
            f"card {self.name!r} has no threshold of origin {origin or 'any'!r} (it has: {known}); "
            "measure one with 'onnxfr verify' or give --threshold"
        )


def read_card(path: Path) -> Card:
    """Read a card file, naming the offending field when it is malformed."""
    try:
        raw = tomllib.loads(path.read_text(encoding="utf-8-sig"))
    except FileNotFoundError:
        raise CardError(f"no card at {path}; create one with 'onnxfr import'") from None
    except (OSError, UnicodeDecodeError, tomllib.TOMLDecodeError) as error:
        raise CardError(f"{path} is not a readable TOML card: {error}") from None
    return parse_card(raw, str(path))


def parse_card(raw: dict[str, Any], where: str) -> Card:
    """Validate the contents of a card; ``where`` names it in the error."""
    try:
        return Card.model_validate(raw)
    except ValidationError as error:
        problems = "; ".join(
            f"{'.'.join(str(p) for p in e['loc'])}: {e['msg']}" for e in error.errors()[:5]
        )
        raise CardError(f"{where} is not a valid card: {problems}") from None


def card_to_toml(card: Card) -> str:
    """Return the card as TOML text, fields in a fixed order."""
    return tomlkit.dumps(card.model_dump(mode="json", exclude_none=True))


def write_card(card: Card, path: Path) -> None:
    """Write the card so that a reader sees the old one or the new one, never half of it."""
    write_whole(path, card_to_toml(card))


def write_whole(path: Path, text: str) -> None:
    """Replace a file in one step; several processes may write it at once."""
    temporary = path.with_name(f".{path.name}-{secrets.token_hex(6)}")
    try:
        temporary.write_text(text, encoding="utf-8")
        temporary.replace(path)
    finally:
        temporary.unlink(missing_ok=True)
