"""The hardest pairs of a run as the page shows them, with their faces inside the page."""

from __future__ import annotations

import base64
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from onnxfr.evaluators.scored import Scored
from onnxfr.metrics.thresholds import Threshold

_SHOWN = 30
"""Pairs without a score that are listed; the CSV has all."""


def example_pairs(scored: Scored, threshold: Threshold) -> dict[str, list[dict[str, Any]]]:
    """Return the pairs whose faces the records hold, hardest first, by class."""
    rows = scored.rows.filter(scored.rows["left_face"].is_valid()).to_pylist()
    found: dict[str, list[dict[str, Any]]] = {"genuine": [], "impostor": []}
    for row in rows:
        if row["left_face"] is None or row["right_face"] is None:
            continue
        accepted = row["score"] > threshold.value
        right = accepted == row["same"]
        found["genuine" if row["same"] else "impostor"].append(
            {
                "left": data_uri(row["left_face"]),
                "right": data_uri(row["right_face"]),
                "left_id": row["left"],
                "right_id": row["right"],
                "left_name": short_name(row["left"]),
                "right_name": short_name(row["right"]),
                "score": row["score"],
                "right_decision": right,
                "decision": "accepted" if accepted else "refused",
            }
        )
    found["genuine"].sort(key=lambda example: example["score"])
    found["impostor"].sort(key=lambda example: -example["score"])
    return found


def unscored_pairs(records: pa.Table, scored: Scored) -> list[dict[str, str]]:
    """Return the first pairs that have no score, and why."""
    mine = (
        (pc.field("model") == scored.model)
        & (pc.field("method") == scored.method)
        & (pc.field("data") == scored.data)
        & (pc.field("outcome") != "scored")
    )
    rows = records.filter(mine).slice(0, _SHOWN).to_pylist()
    return [
        {
            "pair": f"{row['left']} · {row['right']}",
            "what": "left out" if row["outcome"] == "unreadable" else "rejected",
            "why": row["reason"] or row["outcome"],
        }
        for row in rows
    ]


def short_name(name: str) -> str:
    """Drop a folder that the file name repeats, as LFW's does."""
    folder, _, file = name.rpartition("/")
    parent = folder.rpartition("/")[2]
    return file if parent and file.startswith(parent) else name


def data_uri(jpeg: bytes) -> str:
    """Return a JPEG as an address that a page can hold."""
    return "data:image/jpeg;base64," + base64.b64encode(jpeg).decode("ascii")
