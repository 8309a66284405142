"""What an evaluator contributes to a report: one file in ``sections/`` that registers a class."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar, Literal

import pyarrow as pa
from markupsafe import Markup

from onnxfr.evaluators.base import Result
from onnxfr.registry import Registry

Level = Literal["info", "caution", "problem"]


@dataclass(frozen=True)
class Verdict:
    """One finding in a sentence that a buyer understands."""

    level: Level
    sentence: str
    model: str = ""
    section: str = ""
    """The name of its section, filled in by the report."""


@dataclass(frozen=True)
class Headline:
    """One row of the first screen's table; ``value`` and ``interval`` are ready to read."""

    model: str
    data: str
    measure: str
    value: str
    interval: str
    observations: str
    note: str = ""


@dataclass(frozen=True)
class View:
    """All that a section may use: its evaluator's records and results, and the run's manifest."""

    records: pa.Table
    results: tuple[Result, ...]
    manifest: Mapping[str, Any]


class Section(ABC):
    """One evaluator's part of the report. Every method is a pure function of the view."""

    title: ClassVar[str]
    order: ClassVar[int]
    """Sections with a smaller number come first."""

    @abstractmethod
    def verdicts(self, view: View) -> list[Verdict]:
        """Return the findings, most important first."""

    @abstractmethod
    def headlines(self, view: View) -> list[Headline]:
        """Return the few rows that belong on the first screen."""

    @abstractmethod
    def body(self, view: View) -> Markup:
        """Return the section's HTML, without its heading."""


SECTIONS: Registry[type[Section]] = Registry("report section", "onnxfr.evaluators.report.sections")
"""Sections by the name of the evaluator they show; an evaluator without one gets a plain table."""
