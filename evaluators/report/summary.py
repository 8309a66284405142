"""``summary.json`` and the CSV files: a run's numbers for programs."""

from __future__ import annotations

import csv
import io
import json
from collections.abc import Mapping, Sequence
from importlib import resources
from typing import Any

import pyarrow as pa
import pyarrow.csv

from onnxfr.evaluators.base import Result
from onnxfr.evaluators.report.section import Verdict

SUMMARY_VERSION = 1
FIELDS = (
    "evaluator",
    "model",
    "method",
    "goal",
    "norm",
    "condition",
    "metric",
    "value",
    "low",
    "high",
    "n",
    "data",
    "protocol",
    "threshold",
    "threshold_origin",
)
"""Columns of the tidy results, in this order in ``summary.json`` and ``results.csv``."""


def summary_schema() -> dict[str, Any]:
    """Return the JSON Schema that every ``summary.json`` of this version meets."""
    place = resources.files("onnxfr.evaluators.report").joinpath("summary.schema.json")
    schema: dict[str, Any] = json.loads(place.read_text(encoding="utf-8"))
    return schema


def summary_of(
    manifest: Mapping[str, Any],
    results: Sequence[Result],
    verdicts: Sequence[Verdict],
    failed: Mapping[str, str],
    *,
    missing: int = 0,
    unfinished: int = 0,
) -> dict[str, Any]:
    """Return the content of ``summary.json``."""
    return {
        "schema": "onnxfr-summary",
        "version": SUMMARY_VERSION,
        "run": {
            "protocol": manifest["protocol"],
            "fmr": manifest["fmr"],
            "seed": manifest["seed"],
            "code": manifest["code"],
            "cells": len(manifest["cells"]),
            "failed": len(failed),
            "missing": missing,
            "unfinished": unfinished,
        },
        "models": [
            {
                "name": model["name"],
                "sha256": model["sha256"],
                "certificate": (own_certificate(model) or {}).get("status"),
            }
            for model in manifest["models"]
        ],
        "data": [
            {
                "name": entry["name"],
                "source": source_name(entry["spec"]),
                "pairs": entry["pairs"],
                "fingerprint": entry["fingerprint"],
            }
            for entry in manifest["data"]
        ],
        "verdicts": [
            {"level": each.level, "model": each.model, "sentence": each.sentence}
            for each in verdicts
        ],
        "results": [tidy(result) for result in results],
    }


def own_certificate(model: Mapping[str, Any]) -> Mapping[str, Any] | None:
    """Return a model's certificate; one made for another version of its file proves nothing."""
    found: Mapping[str, Any] | None = model.get("certificate")
    return found if found and found.get("sha256") == model["sha256"] else None


def tidy(result: Result) -> dict[str, Any]:
    """Return one result with its columns in the documented order."""
    values = result.to_dict()
    return {name: values[name] for name in FIELDS}


def source_name(spec: str) -> str:
    """Return a data specification without the folders above it, which are nobody's business."""
    kind, colon, rest = spec.partition(":")
    place, comma, options = rest.partition(",")
    last = place.replace("\\", "/").rstrip("/").rpartition("/")[2]
    return f"{kind}{colon}{last}{comma}{options}" if "/" not in options else f"{kind}{colon}{last}"


def summary_text(content: Mapping[str, Any]) -> str:
    """Return JSON that a person can read and that is the same every time."""
    return json.dumps(content, indent=1, ensure_ascii=False, allow_nan=False) + "\n"


def results_csv(results: Sequence[Result]) -> str:
    """Return the tidy results as CSV."""
    sink = io.StringIO()
    writer = csv.DictWriter(sink, FIELDS, lineterminator="\n")
    writer.writeheader()
    writer.writerows(tidy(result) for result in results)
    return sink.getvalue()


def records_csv(records: pa.Table) -> bytes:
    """Return an evaluator's records as CSV, without the pictures."""
    plain = [field.name for field in records.schema if not pa.types.is_binary(field.type)]
    sink = pa.BufferOutputStream()
    pyarrow.csv.write_csv(records.select(plain), sink)
    content: bytes = sink.getvalue().to_pybytes()
    return content
