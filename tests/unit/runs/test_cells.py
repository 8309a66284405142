from __future__ import annotations

import hashlib
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from onnxfr.errors import SpecError
from onnxfr.runs import provenance
from onnxfr.runs.cells import Cell, Cost, DataRef, ModelRef, chunks, take_rows

MODEL = ModelRef("a.onnx", "1" * 64, "a")
DATA = DataRef("lfw:x", "f1", 10, "lfw")
CELL = Cell(
    evaluator="verification",
    version=1,
    model=MODEL,
    data=DATA,
    method="pgd",
    params={"steps": 10},
    condition={"eps": 0.1},
    rows=range(0, 5),
    seed=3,
    code="0.1",
)


@pytest.mark.parametrize(
    "change",
    [
        {"evaluator": "other"},
        {"version": 2},
        {"model": replace(MODEL, sha256="2" * 64)},
        {"model": replace(MODEL, name="b")},
        {"model": replace(MODEL, template="dlib")},
        {"others": (MODEL,)},
        {"data": replace(DATA, fingerprint="f2")},
        {"data": replace(DATA, name="lfw-b")},
        {"method": "bim"},
        {"params": {"steps": 11}},
        {"condition": {"eps": 0.2}},
        {"rows": range(0, 6)},
        {"rows": ("a|b",)},
        {"rows": None},
        {"seed": 4},
        {"code": "0.2"},
    ],
)
def test_whatever_decides_the_records_decides_the_key(change: dict[str, Any]) -> None:
    assert replace(CELL, **change).key != CELL.key


@pytest.mark.parametrize(
    "change",
    [
        {"model": replace(MODEL, ref="/elsewhere/a.onnx")},
        {"data": replace(DATA, spec="lfw:/elsewhere")},
        {"priority": 9.0},
        {"cost": Cost(images=5)},
        {"params": {"steps": 10}},
    ],
)
def test_places_and_estimates_do_not_change_the_key(change: dict[str, Any]) -> None:
    other = replace(CELL, **change)
    assert other.key == CELL.key
    assert other == CELL
    assert len({other, CELL}) == 1


def test_the_key_is_the_same_on_every_machine_and_day() -> None:
    content = (
        '{"code":"0.1","condition":{"eps":0.1},"data":["f1","lfw"],"evaluator":"verification",'
        '"method":"pgd","model":["' + "1" * 64 + '","a",""],"others":[],"params":{"steps":10},'
        '"rows":{"start":0,"stop":5},"seed":3,"version":1}'
    )
    assert CELL.key == hashlib.sha256(content.encode()).hexdigest()[:32]


@pytest.mark.parametrize(
    ("condition", "told"),
    [({"eps": 8 / 255}, "eps=8/255"), ({"eps": "4/255"}, "eps=4/255"), ({"eps": None}, "")],
)
def test_a_label_gives_budgets_as_people_write_them(condition: dict[str, Any], told: str) -> None:
    words = replace(CELL, condition=condition, rows=None).label.split()
    assert words == ["verification", "a", "pgd", *told.split()]


def test_later_edits_of_the_given_dictionary_do_not_reach_the_cell() -> None:
    params = {"steps": [1, 2]}
    cell = replace(CELL, params=params)
    before = cell.key
    params["steps"].append(3)
    assert replace(cell).key == before


@pytest.mark.parametrize("value", [float("nan"), float("inf"), object(), {1, 2}])
def test_values_that_are_not_json_are_refused(value: object) -> None:
    with pytest.raises(SpecError, match="plain JSON"):
        replace(CELL, params={"x": value})


def test_rows_are_cut_without_gap_or_overlap() -> None:
    cut = list(chunks(11, 4))
    assert [row for part in cut for row in part] == list(range(11))
    assert max(map(len, cut)) == 4
    assert list(chunks(0, 4)) == []
    with pytest.raises(SpecError):
        list(chunks(3, 0))


def test_rows_are_found_by_range_by_id_or_all() -> None:
    ids = ["a", "b", "c"]
    assert take_rows(ids, None) == [0, 1, 2]
    assert take_rows(ids, range(1, 3)) == [1, 2]
    assert take_rows(ids, ("c", "a")) == [2, 0]
    with pytest.raises(SpecError, match="3 pairs"):
        take_rows(ids, range(2, 4))
    with pytest.raises(SpecError, match="'z'"):
        take_rows(ids, ("z",))
    with pytest.raises(SpecError, match="consecutive"):
        replace(CELL, rows=range(0, 10, 2))


def test_a_wheel_and_an_editable_install_are_the_same_code(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """In a wheel the mapped folders lie inside the package, in a checkout beside it."""
    wheel, checkout = tmp_path / "wheel" / "onnxfr", tmp_path / "checkout"
    for name in ("a.py", "evaluators/b.py", "exporters/c.py", "model_zoo/d.py"):
        inside = checkout / ("onnxfr" if name == "a.py" else "") / name
        for path in (wheel / name, inside):
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(name, encoding="utf-8")
    layouts = (
        {"onnxfr": wheel, "onnxfr.evaluators": wheel / "evaluators"},
        {"onnxfr": checkout / "onnxfr", "onnxfr.evaluators": checkout / "evaluators"},
    )
    versions = []
    for layout in layouts:
        monkeypatch.setattr(
            provenance.importlib,
            "import_module",
            lambda name, layout=layout: SimpleNamespace(__path__=[str(layout[name])]),
        )
        versions.append(provenance.code_version.__wrapped__(("onnxfr", "onnxfr.evaluators")))
    assert versions[0] == versions[1]
    assert versions[0] != provenance.code_version.__wrapped__(("onnxfr",))
