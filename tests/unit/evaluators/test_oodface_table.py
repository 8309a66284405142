"""What we measured beside OODFace: how runs are merged, and that the kept numbers hang together."""

from __future__ import annotations

import json
from importlib.util import module_from_spec, spec_from_file_location
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
from toy_faces import make_run

from onnxfr.corruptions import oodface_names

ROOT = Path(__file__).parents[3]
MEASURED = ROOT / "benchmarks" / "measured" / "oodface.json"


@pytest.fixture(scope="module")
def script() -> ModuleType:
    place = ROOT / "benchmarks" / "corruption_oodface.py"
    spec = spec_from_file_location("corruption_oodface", place)
    assert spec and spec.loader
    module = module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def entry(model: str, pairs: int, **more: Any) -> dict[str, Any]:
    return {"model": model, "pairs": pairs, **more}


def test_a_larger_sample_replaces_a_smaller_one_and_never_the_other_way(
    script: ModuleType,
) -> None:
    kept = [entry("a", 100, clean=1), entry("b", 1000, clean=2)]
    merged = script.merge(kept, [entry("a", 1000, clean=3), entry("b", 100, clean=4)])
    assert merged == [entry("a", 1000, clean=3), entry("b", 1000, clean=2)]
    assert script.merge(merged, [entry("a", 1000, clean=5)])[0]["clean"] == 5
    assert [each["model"] for each in script.merge(merged, [entry("0", 1)])] == ["0", "a", "b"]


def test_the_paper_names_our_twenty_corruptions(script: ModuleType) -> None:
    assert set(script.PRINTED) == set(oodface_names())


def test_the_order_of_the_paper_correlates_with_itself_and_its_reverse(script: ModuleType) -> None:
    same = {name: [value] * 5 for name, value in script.PRINTED.items()}
    assert script.correlation(same) == pytest.approx(1.0)
    assert script.correlation({k: [-v for v in vs] for k, vs in same.items()}) == pytest.approx(-1)
    assert script.easier_at_five(same) == []
    same["fog"] = [80.0, 85.0, 84.0, 83.0, 82.0]
    assert script.easier_at_five(same) == ["fog 80.00 < 82.00"]


def test_a_finished_run_gives_an_entry_and_its_tables(
    script: ModuleType, tmp_path: Path, toy_model: Path, other_model: Path, toy_faces: Path
) -> None:
    params = {"apply_to": "both", "thresholds": ["oracle", "frozen"], "examples": 0}
    run = make_run(
        tmp_path / "run",
        [toy_model, other_model],
        f"folder:{toy_faces}",
        tmp_path / "cache",
        evaluators=[{"name": "corruption", "params": params}],
        max_pairs=12,
    )
    entries = script.measure(run)
    assert [each["model"] for each in entries] == ["toy", "other"]
    for each in entries:
        assert each["pairs"] == 12
        assert set(each["accuracy"]) == set(oodface_names())
        value, low, high = each["acc_cor"]["oracle"]
        assert sum(script.means(each["accuracy"])) / 20 == pytest.approx(value, abs=0.01)
        assert low <= value <= high
        assert each["worst_fmr"][0] in oodface_names()
    told = script.report(entries)
    assert f"| toy | 12 | {entries[0]['clean']:.2f} |" in told
    assert "mean of 2 models against the paper" in told


def test_kept_measurements_hang_together(script: ModuleType) -> None:
    if not MEASURED.is_file():
        pytest.skip("nothing measured yet: python benchmarks/corruption_oodface.py RUN")
    for each in json.loads(MEASURED.read_text(encoding="utf-8")):
        means = script.means(each["accuracy"])
        value, low, high = each["acc_cor"]["oracle"]
        assert sum(means) / 20 == pytest.approx(value, abs=0.01), each["model"]
        assert low <= value <= high <= 100
        assert script.correlation(each["accuracy"]) == pytest.approx(each["spearman"], abs=1e-4)
        assert script.easier_at_five(each["accuracy"]) == each["easier_at_five"]
        assert len(each["sha256"]) == 64
