"""Games over an API whose calls run out: which pairs more calls could change."""

from __future__ import annotations

from typing import Any, cast

import numpy as np
import pytest

from onnxfr.evaluators import api_games
from onnxfr.evaluators.api_games import attack_pairs
from onnxfr.evaluators.api_pictures import Asked
from onnxfr.models.comparer import UNASKED, CallsSpent, Comparer
from onnxfr.models.remote.reading import Kind, Verdict
from onnxfr.runs.cells import Cell, DataRef, ModelRef
from onnxfr.types import Images


class Capped(Comparer):
    """Accepts bright pictures, but nobody as somebody dark; remembers its answers, as a journal."""

    def __init__(self, calls: float) -> None:
        self.calls, self.known = calls, dict[bytes, bool]()

    def verdicts(self, images: Images, references: Images) -> list[Verdict | None]:
        told: list[Verdict | None] = []
        for image, reference in zip(images, references, strict=True):
            key = image.tobytes() + reference.tobytes()
            if key not in self.known and self.calls > 0:
                self.calls -= 1
                self.known[key] = bool(image.mean() > 0.5 and reference.mean() > 0.5)
            answer = self.known.get(key)
            told.append(None if answer is None else Verdict(Kind.JUDGED, answer))
            self.unserved += answer is None
        return told

    def compare(self, images: Images, references: Images) -> Any:
        told = self.verdicts(images, references)
        if not any(told):
            raise CallsSpent
        return np.array(
            [UNASKED if each is None else 2 * cast(bool, each.match) - 1 for each in told]
        )


def games(monkeypatch: pytest.MonkeyPatch, calls: float) -> list[dict[str, Any]]:
    monkeypatch.setattr(api_games, "pool_of", lambda *_: (None, np.zeros(0, np.int32)))
    shape = 3, 8, 8
    faces = [np.full(shape, level, np.float32) for level in (0.1, 0.2, 0.2, 0.9)]
    asked = [
        Asked(name, False, name, "other", probe=faces[k], reference=reference)
        for k, (name, reference) in enumerate(
            [("stubborn", faces[0]), ("slow", faces[3]), ("late", faces[3])]
        )
    ]
    cell = Cell(
        evaluator="api",
        version=1,
        model=ModelRef("m", "0" * 64, "m"),
        data=DataRef("d", "f", 3, "d"),
        method="evolutionary",
        params={"norm": "l2", "eps": 0.1, "max_queries": 40, "jpeg": None},
        condition={"goal": "impersonate"},
    )
    judge = cast(Any, Capped(calls))
    return attack_pairs(judge, cast(Any, None), asked, cell)


def test_a_pair_that_ended_by_itself_is_not_cut_short_by_others(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    whole = {row["pair"]: row for row in games(monkeypatch, np.inf)}
    assert not any(row["short"] for row in whole.values())
    # No start wins: there is nothing more to ask.
    assert whole["stubborn"]["queries"] < 20 and not whole["stubborn"]["won"]
    assert whole["slow"]["queries"] == whole["late"]["queries"] == 40
    for calls, short in ((50, {"slow", "late"}), (12, {"stubborn", "slow", "late"})):
        rows = {row["pair"]: row for row in games(monkeypatch, calls)}
        assert {name for name, row in rows.items() if row["short"]} == short
        for name in rows.keys() - short:
            assert rows[name] == whole[name]
