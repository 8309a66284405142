"""The faces of a transfer evaluation as the page shows them: strips and attention maps."""

from __future__ import annotations

from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from onnxfr.budgets import write_eps
from onnxfr.evaluators.attacked import PICTURES
from onnxfr.evaluators.report.example_pairs import data_uri

_STRIPS = 12
CAPTIONS = ("clean", "attacked", "change, enlarged", "reference")


def strips(records: pa.Table, data: str, budget: str, attack: str) -> list[dict[str, Any]]:
    """Return clean, attacked, amplified difference and reference of the pairs that keep them."""
    rows = [
        row
        for row in _rows(records, data, budget, attack)
        if all(row[name] is not None for name in PICTURES)
    ]
    shown: list[dict[str, Any]] = []
    for first in _one_of_each(rows):
        fooled = _fooled(records, first)
        shown.append(
            {
                "faces": [
                    (data_uri(first[name]), caption)
                    for name, caption in zip(PICTURES, CAPTIONS, strict=True)
                ],
                "source": first["source"],
                "goal": first["goal"],
                "left": first["left"],
                "right": first["right"],
                "gain": f"{first['difference_gain']:.0f}",
                "fooled": fooled,
                "linf": f"{255 * first['linf']:.1f}",
                "psnr": "–" if first["psnr"] is None else f"{first['psnr']:.1f}",
                "ssim": f"{first['ssim']:.3f}",
            }
        )
    return shown[:_STRIPS]


def attention_maps(records: pa.Table, data: str, budget: str, attack: str) -> list[dict[str, Any]]:
    """Return for each target where it looks in a clean and in an attacked face.

    The attacked face is the one of another model that moved the score most; of the model itself
    where there is no other.
    """
    found: dict[tuple[str, str], dict[str, Any]] = {}
    for row in _rows(records, data, budget, attack):
        if row["clean_attention"] is None and row["attention_note"] is None:
            continue
        key = (row["target"], row["goal"])
        if key not in found or _rank(row) > _rank(found[key]):
            found[key] = row
    by_model: dict[str, dict[str, Any]] = {}
    for (target, goal), row in found.items():
        entry = by_model.setdefault(target, {"model": target, "goals": [], "note": None})
        if row["clean_attention"] is None:
            entry["note"] = row["attention_note"]
            continue
        entry["goals"].append(
            {
                "goal": goal,
                "clean": data_uri(row["clean_attention"]),
                "attacked": data_uri(row["adversarial_attention"]),
                "source": row["source"],
                "before": f"{row['score_clean']:.2f}",
                "after": f"{row['score_8bit']:.2f}",
                "fooled": row["won_8bit"],
            }
        )
    return list(by_model.values())


def _rank(row: dict[str, Any]) -> tuple[bool, float]:
    return not row["inside"], abs(row["score_8bit"] - row["score_clean"])


def _rows(records: pa.Table, data: str, budget: str, attack: str) -> list[dict[str, Any]]:
    norm = budget.partition(" ")[0]
    mask = (
        (pc.field("data") == data)
        & (pc.field("norm") == norm)
        & (pc.field("method") == attack)
        & (pc.field("outcome") == "played")
        & (
            pc.field("clean_picture").is_valid()
            | pc.field("clean_attention").is_valid()
            | pc.field("attention_note").is_valid()
        )
    )
    rows: list[dict[str, Any]] = records.filter(mask).to_pylist()
    return [row for row in rows if f"{norm} {write_eps(row['eps'])}" == budget]


def _one_of_each(rows: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Return the first pair of every source and goal, goals side by side."""
    first: dict[tuple[str, str], dict[str, Any]] = {}
    for row in rows:
        first.setdefault((row["source"], row["goal"]), row)
    return list(first.values())


def _fooled(records: pa.Table, example: dict[str, Any]) -> str:
    """Return the names of the models that this very picture fools."""
    mask = pc.field("outcome") == "played"
    for name in ("pair", "method", "source", "goal", "norm", "eps", "data"):
        mask = mask & (pc.field(name) == example[name])
    rows = records.filter(mask).to_pylist()
    names = [row["target"] for row in rows if row["won_8bit"]]
    return ", ".join(names) or "nobody"
