"""The medians benchmark: draws that grow, files that hold everything, an order that is tested."""

from __future__ import annotations

import sys
from argparse import Namespace
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType

import pytest

from onnxfr.errors import SpecError

BENCHMARKS = Path(__file__).parents[3] / "benchmarks"


@pytest.fixture(scope="module")
def benchmark_script() -> Iterator[ModuleType]:
    """The script, imported the way Python runs it: with its folder on the path."""
    sys.path.insert(0, str(BENCHMARKS))
    try:
        import robfr_medians

        yield robfr_medians
    finally:
        sys.path.remove(str(BENCHMARKS))


def options(folder: Path, model: Path, faces: Path, pairs: int, **settings: object) -> Namespace:
    given = {
        "folder": folder,
        "model": [str(model)],
        "data": f"folder:{faces}",
        "attack": ["smallest:bim(steps=4)", "smallest:fgsm"],
        "pairs": pairs,
        "cw": "cw(steps=20,bisections=1)",
        "cw_pairs": 2,
        "block": 3,
        "minutes": 10.0,
    }
    return Namespace(**given | settings)


def test_a_grown_draw_is_the_same_as_one_made_at_once(
    tmp_path: Path, benchmark_script: ModuleType, toy_model: Path, toy_faces: Path
) -> None:
    grown, whole = tmp_path / "grown", tmp_path / "whole"
    for pairs in (2, 2, 6):
        benchmark_script.work(options(grown, toy_model, toy_faces, pairs))
    benchmark_script.work(options(whole, toy_model, toy_faces, 6))
    (path,) = grown.glob("*.json")
    first, second = (
        benchmark_script.Measured.read(folder / path.name) for folder in (grown, whole)
    )
    assert first.pairs == second.pairs
    assert [len(names) for names in first.pairs.values()] == [6, 6]
    assert len(first.attacks) == 2 * (2 + 2 + 1)
    for entry in first.attacks:
        twin = second.entry(entry.method, entry.norm, entry.goal, entry.parameters)
        assert len(entry.distance) == (2 if entry.name == "cw" else 6)
        # Another batch size rounds gradients differently, which a search repeats to its precision.
        assert entry.cost == pytest.approx(twin.cost, rel=0.03)


def test_no_time_means_no_work_and_a_changed_attack_is_measured_anew(
    tmp_path: Path, benchmark_script: ModuleType, toy_model: Path, toy_faces: Path
) -> None:
    benchmark_script.work(options(tmp_path, toy_model, toy_faces, 2, minutes=-1.0))
    assert not list(tmp_path.glob("*.json"))
    benchmark_script.work(options(tmp_path, toy_model, toy_faces, 2, cw_pairs=0))
    (path,) = tmp_path.glob("*.json")
    measured = benchmark_script.Measured.read(path)
    old = measured.attacks[0]
    assert measured.entry(old.method, old.norm, old.goal, old.parameters) is old
    assert measured.entry(old.method, old.norm, old.goal, {"steps": 5}).distance == []
    measured.seed += 1
    measured.write(path)
    with pytest.raises(SpecError, match="another seed"):
        benchmark_script.work(options(tmp_path, toy_model, toy_faces, 3, cw_pairs=0))


def test_the_order_is_judged_on_shared_pairs(benchmark_script: ModuleType) -> None:
    from _measured_medians import Found, compare

    strong = Found("smallest:bim", "linf", "dodge", {}, [0.0, 1.0, 1.0, 2.0, 9.0], [0, 1, 1, 1, 1])
    weak = Found("smallest:fgsm", "linf", "dodge", {}, [0.0, 2.0, None, 1.5], [0, 1, 1, 1])
    found = compare(strong, weak)
    assert (found.closer, found.equal, found.farther) == (2, 1, 1)
    assert found.medians == (1.0, 1.75)
    assert found.p == pytest.approx(0.5)
