"""A journal and what services say in it."""

from __future__ import annotations

from pathlib import Path

from onnxfr.models.remote.journal import Journal
from onnxfr.models.remote.reading import Kind, Verdict

YES = Verdict(Kind.JUDGED, True, 91.5, 60.0, "v1")
NO_FACE = Verdict(Kind.REJECTED, detail="no_face")


def journal(path: Path, budget: int | None = 10, digest: str = "d") -> Journal:
    return Journal(path, adapter="a", digest=digest, budget=budget)
