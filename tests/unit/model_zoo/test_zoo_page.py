"""docs/zoo.md is what the cards say."""

from __future__ import annotations

import importlib.util
from pathlib import Path

from onnxfr.model_zoo import zoo_cards

ROOT = Path(__file__).parents[3]


def test_the_page_is_up_to_date() -> None:
    place = ROOT / "benchmarks" / "zoo_table.py"
    spec = importlib.util.spec_from_file_location("zoo_table", place)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    wanted = module.page(zoo_cards().values())
    found = (ROOT / "docs" / "zoo.md").read_text(encoding="utf-8")
    assert found == wanted, "the cards changed: run python benchmarks/zoo_table.py"
    assert all(f"`{name}`" in found for name in zoo_cards())
