from __future__ import annotations

import csv
import json
import re
from dataclasses import replace
from pathlib import Path
from typing import Any

import jsonschema
import pyarrow as pa
import pytest
from toy_faces import make_faces, make_run

from onnxfr.data.pairs import open_pairs
from onnxfr.errors import CodeError
from onnxfr.evaluators.base import Result
from onnxfr.evaluators.planning import summarise_run
from onnxfr.evaluators.report.legend import top_margin
from onnxfr.evaluators.report.page import Content, page
from onnxfr.evaluators.report.section import SECTIONS, View
from onnxfr.evaluators.report.summary import FIELDS, source_name, summary_schema
from onnxfr.evaluators.report.svg import Chart, linear_axis, thin
from onnxfr.evaluators.report.write import read_content, write_report
from onnxfr.evaluators.verification import Verification
from onnxfr.runs.store import RunStore


@pytest.fixture(scope="module")
def content(toy_run: Path) -> Content:
    return read_content(RunStore.open(toy_run))


def _with_certificate(content: Content, certificate: dict[str, Any] | None) -> str:
    model = {**content.manifest["models"][0], "certificate": certificate}
    return page(replace(content, manifest={**content.manifest, "models": [model]}))


def test_a_report_is_a_page_a_summary_and_tables(toy_run: Path, tmp_path: Path) -> None:
    written = write_report(RunStore.open(toy_run), tmp_path)
    assert {file.name for file in tmp_path.iterdir()} == {
        "report.html",
        "summary.json",
        "results.csv",
        "records-verification.csv",
    }
    assert written.verdicts
    summary = json.loads(written.summary.read_text(encoding="utf-8"))
    with (tmp_path / "results.csv").open(encoding="utf-8", newline="") as file:
        rows = list(csv.DictReader(file))
    assert len(rows) == len(summary["results"])
    assert tuple(rows[0]) == FIELDS
    header = (tmp_path / "records-verification.csv").read_text(encoding="utf-8").splitlines()[0]
    assert '"score"' in header
    assert "face" not in header


def test_an_evaluator_that_cannot_be_summarised_is_named(
    toy_run: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(Verification, "summarise", lambda *_: 1 // 0)
    store = RunStore.open(toy_run)
    for read in (read_content, summarise_run):
        with pytest.raises(CodeError, match=r"ZeroDivisionError: .*, in evaluator verification"):
            read(store)


def test_the_summary_meets_its_schema_and_the_schema_can_refuse(
    toy_run: Path, tmp_path: Path
) -> None:
    write_report(RunStore.open(toy_run), tmp_path)
    summary = json.loads((tmp_path / "summary.json").read_text(encoding="utf-8"))
    schema = summary_schema()
    jsonschema.Draft202012Validator.check_schema(schema)
    jsonschema.validate(summary, schema)
    wanted = {"evaluator", "model", "method", "goal", "norm", "condition", "metric"}
    assert wanted | {"value", "low", "high", "n"} <= set(summary["results"][0])
    for broken in (
        {**summary, "version": 2},
        {**summary, "results": [{**summary["results"][0], "value": "much"}]},
        {**summary, "extra": 1},
    ):
        with pytest.raises(jsonschema.ValidationError):
            jsonschema.validate(broken, schema)


def test_the_same_run_gives_the_same_bytes(toy_run: Path, tmp_path: Path) -> None:
    for name in ("first", "second"):
        write_report(RunStore.open(toy_run), tmp_path / name)
    for file in (tmp_path / "first").iterdir():
        assert file.read_bytes() == (tmp_path / "second" / file.name).read_bytes()


def test_the_page_needs_nothing_from_outside(content: Content, toy_run: Path) -> None:
    html = page(content)
    loaded = re.findall(r'(?:src|href)="([^"]*)"', html)
    assert loaded
    assert all(target.startswith(("data:", "#")) for target in loaded)
    assert not re.search(r"https?://|@import|url\(", html)
    assert str(toy_run.parent) not in html
    assert str(Path.home()) not in html.replace("Home", "")


def test_the_first_screen_says_what_how_well_and_how_sure(content: Content) -> None:
    html = page(content)
    order = [html.index(f'id="{name}"') for name in ("verdict", "certificate", "headline")]
    assert order == sorted(order)
    accuracy = next(
        r for r in content.results() if r.metric == "accuracy" and r.protocol == "kfold10"
    )
    assert accuracy.value is not None and accuracy.low is not None and accuracy.high is not None
    first_screen = html[: html.index('id="verification"')]
    assert f"{100 * accuracy.value:.2f} %" in first_screen
    assert f"{100 * accuracy.low:.2f} – {100 * accuracy.high:.2f} %" in first_screen
    assert "not checked" in first_screen


def test_charts_and_example_faces_are_there_with_alternative_texts(content: Content) -> None:
    html = page(content)
    assert html.count('<svg class="chart"') == 4
    assert html.count('role="img" aria-label="') == 4
    faces = re.findall(r'<img src="data:image/jpeg;base64,[^"]+" alt="([^"]+)"', html)
    assert len(faces) == 24
    assert all(alt.startswith("Face p") for alt in faces)


def test_names_from_outside_are_escaped(tmp_path: Path, toy_model: Path) -> None:
    evil = "x<script>alert(1)</script>&"
    faces = make_faces(tmp_path / "faces", people=3)
    run = make_run(tmp_path / "run", toy_model, f"folder:{faces}", tmp_path / "cache")
    content = read_content(RunStore.open(run))
    data = [{**content.manifest["data"][0], "name": evil}]
    models = [{**content.manifest["models"][0], "name": '"><img src=x onerror=alert(1)>'}]
    manifest = {**content.manifest, "data": data, "models": models}
    view = content.views["verification"]
    column = view.records.schema.get_field_index("data")
    renamed = view.records.set_column(column, "data", pa.array([evil] * view.records.num_rows))
    results = tuple(replace(result, data=evil) for result in view.results)
    html = page(
        replace(
            content, manifest=manifest, views={"verification": View(renamed, results, manifest)}
        )
    )
    assert "<script>alert" not in html
    assert "<img src=x" not in html
    assert "&lt;script&gt;alert(1)" in html


def test_the_certificate_is_shown_only_if_it_is_this_models(content: Content) -> None:
    sha = content.manifest["models"][0]["sha256"]
    flags = [{"name": "parity", "level": "yellow", "sentence": "They nearly agree."}]
    good = {"sha256": sha, "status": "yellow", "flags": flags, "pictures": "real faces"}
    shown = _with_certificate(content, good)
    assert "They nearly agree." in shown
    assert "yellow, usable with care" in shown
    other = _with_certificate(content, {**good, "sha256": "0" * 64})
    assert "They nearly agree." not in other
    assert "another version of the model file" in other
    assert "onnxfr check" in _with_certificate(content, None)


def test_an_evaluator_without_a_section_gets_a_table(content: Content) -> None:
    assert "toy_question" not in SECTIONS
    result = Result(evaluator="toy_question", model="m", metric="median_cost", value=0.031, n=7)
    view = View(pa.table({"row": [1]}), (result,), content.manifest)
    html = page(replace(content, views={**content.views, "toy_question": view}))
    assert "Toy question" in html
    assert "0.031" in html[html.index("Toy question") :]


def test_failures_and_gaps_are_said_first(content: Content) -> None:
    html = page(
        replace(
            content,
            failed={"k": "no such <file>"},
            missing=2,
            unfinished={"x": "no call was left"},
        )
    )
    first = html[: html.index('id="certificate"')]
    assert "1 of 1 planned cells failed, so the numbers are incomplete" in first
    assert "2 of 1 planned cells have no records" in first
    assert "1 of 1 planned cells hold less than was asked for (no call was left)" in first
    assert "no such &lt;file&gt;" in html


def test_faces_beside_their_place_are_told_on_the_first_screen(content: Content) -> None:
    manifest = {**content.manifest, "placement": {"lfw:x": "The faces sit <left>."}}
    html = page(replace(content, manifest=manifest))
    first = html[: html.index('id="certificate"')]
    assert "The faces sit &lt;left&gt;." in first and "no records to judge" not in first
    assert "no records to judge" in page(replace(content, manifest=manifest, views={}))


def test_a_run_without_records_still_gives_a_page(content: Content) -> None:
    html = page(replace(content, views={}))
    assert "There are no records to judge yet." in html


def test_faces_left_out_of_the_records_are_left_out_of_the_page(
    tmp_path: Path, toy_model: Path, toy_faces: Path
) -> None:
    run = make_run(
        tmp_path / "run", toy_model, f"folder:{toy_faces}", tmp_path / "cache", {"examples": 0}
    )
    html = page(read_content(RunStore.open(run)))
    assert "<img" not in html
    assert "Hardest genuine" not in html


@pytest.mark.parametrize(
    ("spec", "shown"),
    [
        ("lfw:/home/me/faces/lfw_112", "lfw:lfw_112"),
        ("folder:/a/b/,genuine=10", "folder:b,genuine=10"),
        ("lfw:/a/b,pairs=/secret/pairs.txt", "lfw:b"),
        ("orl", "orl"),
    ],
)
def test_paths_of_the_machine_stay_on_the_machine(spec: str, shown: str) -> None:
    assert source_name(spec) == shown


def test_invisible_points_of_a_line_are_dropped() -> None:
    assert thin([(0, 0), (0.01, 0.02), (5, 0), (9, 0), (9, 3)]) == [(0, 0), (9, 0), (9, 3)]


def test_charts_keep_what_lies_outside_at_the_edge() -> None:
    chart = Chart("t", "d", linear_axis("x", 0, 1), linear_axis("y", 0, 1))
    assert chart.at(-5, 2) == (chart.left, chart.top)
    assert "&lt;b&gt;" in Chart("<b>", "d", linear_axis("x", 0, 1), linear_axis("y", 0, 1)).render()


def test_pairs_without_a_score_are_listed_with_the_reason(tmp_path: Path, toy_model: Path) -> None:
    faces = make_faces(tmp_path / "faces", people=4)
    (faces / "p2" / "1.png").write_bytes(b"no picture at all")
    run = make_run(tmp_path / "run", toy_model, f"folder:{faces}", tmp_path / "cache")
    html = page(read_content(RunStore.open(run)))
    assert "pairs were left out because a picture could not be read" in html
    assert "Pairs without a score" in html
    assert "p2/1.png" in html[html.index("Pairs without a score") :]


def test_groups_of_people_get_their_table(tmp_path: Path, toy_model: Path, toy_faces: Path) -> None:
    pairs = open_pairs(f"folder:{toy_faces}")
    lines = ["left,right,same,group"]
    for row, (a, b) in enumerate(zip(pairs.left, pairs.right, strict=True)):
        names = [toy_faces / pairs.images[i].id for i in (a, b)]
        group = "north <1>" if row % 2 else "south"
        lines.append(f"{names[0]},{names[1]},{int(pairs.same[row])},{group}")
    table = tmp_path / "pairs.csv"
    table.write_text("\n".join(lines) + "\n", encoding="utf-8")
    run = make_run(
        tmp_path / "run", toy_model, f"csv:{table},aligned=yes", tmp_path / "cache", {"flip": True}
    )
    content = read_content(RunStore.open(run))
    html = page(content)
    assert "Groups, all at threshold" in html
    assert "north &lt;1&gt;" in html
    assert "toy (flip)" in html
    frr = [r for r in content.results() if r.metric == "frr" and r.condition == "group=south"]
    assert len(frr) == 1 and frr[0].n > 0


def test_a_legend_has_room_for_long_names() -> None:
    names = ["bim", "surfree (primed by sface)", "surfree (primed by edgeface_xxs)", "y" * 60]
    assert top_margin([]) == top_margin(names[:2]) == 34
    top = top_margin(names)
    chart = Chart("t", "d", linear_axis("x", 0, 1), linear_axis("y", 0, 1), top=top)
    for name in names:
        chart.line([(0, 0), (1, 1)], "red", label=name)
    drawn = chart.render()
    assert all(f">{name}</text>" in drawn for name in names[:3]) and "y…y" in drawn
    places = [
        (float(x), float(y))
        for x, y, label in re.findall(r'<text x="([\d.]+)" y="([\d.]+)"[^>]*>([^<]+)<', drawn)
        if label in names or "…" in label
    ]
    assert len({y for _, y in places}) == 3 and max(y for _, y in places) < top
    assert min(x for x, _ in places) > 0
