from __future__ import annotations

import re
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from toy_faces import make_run

from onnxfr.evaluators.report.write import read_content, write_report
from onnxfr.runs.store import RunStore

CORRUPTIONS = ["contrast", "fog", "pixelate", "jpeg", "shot_noise", "gamma"]


@pytest.fixture(scope="module")
def run(
    tmp_path_factory: pytest.TempPathFactory, toy_model: Path, other_model: Path, toy_faces: Path
) -> Path:
    folder = tmp_path_factory.mktemp("corrupted")
    params = {"corruptions": CORRUPTIONS, "severities": [1, 5], "chains": ["jpeg:20"]}
    return make_run(
        folder / "run",
        [toy_model, other_model],
        f"folder:{toy_faces}",
        folder / "cache",
        evaluators=[{"name": "corruption", "params": {**params, "apply_to": "both"}}],
    )


@pytest.fixture(scope="module")
def page(run: Path) -> str:
    return write_report(RunStore.open(run), run / "report").page.read_text(encoding="utf-8")


def test_the_same_run_gives_the_same_page(run: Path, page: str) -> None:
    assert write_report(RunStore.open(run), run / "again").page.read_text("utf-8") == page


def test_tables_charts_and_strips_are_there(page: str) -> None:
    assert "All models on" in page
    assert "Average of 5" in page  # gamma and the chain are ours, not OODFace's
    for name in ("contrast", "shot noise", "gamma", "jpeg:20"):
        assert f"<td>{name}</td>" in page
    # Two radars and bars of single models, both together, lines by category and by corruption.
    assert page.count('<svg class="chart"') == 2 + 2 + 2 + 2 * 3 + 6
    assert page.count("data:image/jpeg;base64") == 7 * 3 - 1
    assert "threshold frozen on clean pairs" in page


def test_verdicts_and_headlines_speak_of_the_mean_and_of_the_comparison(run: Path) -> None:
    content = read_content(RunStore.open(run))
    sentences = [verdict.sentence for verdict in content.verdicts()]
    assert any("With both pictures corrupted (5 corruptions" in each for each in sentences)
    assert any("Holm" in each and "than toy on the same pairs" in each for each in sentences)


def test_the_table_shows_the_results(run: Path, page: str) -> None:
    results = read_content(RunStore.open(run)).results()
    (level,) = [
        each.value
        for each in results
        if (each.model, each.method, each.condition, each.metric, each.protocol)
        == ("toy", "fog", "severity=5", "accuracy", "fmr")
    ]
    assert level is not None
    row = re.search(r"<tr><td>fog</td>(?:<td>[\d.]+</td>){2}<td class", page)
    assert row is not None
    assert f"<td>{100 * level:.1f}</td><td class" in row[0]


def test_half_a_run_of_two_models_has_a_page(run: Path, tmp_path: Path) -> None:
    folder = shutil.copytree(run, tmp_path / "run")
    store = RunStore.open(folder)
    cells = store.manifest()["cells"]
    for cell in cells:
        gone = (cell["model_name"], cell["method"]) in (("other", "fog"), ("toy", "jpeg"))
        if gone:
            (store.cells / f"{cell['key']}.parquet").unlink()
    page = write_report(store, tmp_path / "report").page.read_text(encoding="utf-8")
    assert "planned cells have no records yet" in page
    together = page[page.index("All models on") : page.index("<h3>toy on")]
    fog = re.search(r"<tr><td>fog</td>(.*?)</tr>", together)
    jpeg = re.search(r"<tr><td>jpeg</td>(.*?)</tr>", together)
    assert fog is not None and re.match(r"<td>[\d.]+</td><td>–</td>", fog[1])
    assert jpeg is not None and re.match(r"<td>–</td><td>[\d.]+", jpeg[1])
    # A chart has the models that were asked; the wheel, what all of them were.
    (line,) = re.findall(r'aria-label="fog\. ([^"]*)"', together)
    assert "toy from" in line and "other" not in line
    (wheel,) = re.findall(r"<svg[^>]*aria-label=\"All models\..*?</svg>", together)
    assert "gamma" in wheel and "fog" not in wheel and "jpeg" not in wheel


def test_models_side_by_side_have_their_error_ratio(page: str) -> None:
    assert re.search(r"Errors, model 1 = 1 \(mCE\)</td><td>1</td><td>[\d.]+</td>", page)
    # Nobody could refuse a face here.
    assert "With the face detector in the loop" not in page


def test_real_rejections_are_told_as_rr_asa_and_aa(
    shared_data: Path, toy_model: Path, tmp_path: Path
) -> None:
    run = make_run(
        tmp_path / "run",
        toy_model,
        f"lfw:{shared_data / 'lfw_112'}",
        tmp_path / "cache",
        evaluators=[
            {
                "name": "corruption",
                "params": {"detect": True, "corruptions": ["salt_pepper"], "severities": [1, 5]},
            }
        ],
        max_pairs=8,
    )
    store = RunStore.open(run)
    page = write_report(store, run / "report").page.read_text(encoding="utf-8")
    assert "With the face detector in the loop" in page
    found = {
        each.metric: each
        for each in read_content(store).results()
        if each.metric in ("rr", "asa", "aa") and not each.condition
    }
    assert (found["rr"].value or 0.0) > 0
    row = page[page.index('Average of 1</td><td data-label="RR"') :][:300]
    for metric, label in (("rr", "RR"), ("asa", "ASA"), ("aa", "AA")):
        assert f'data-label="{label}">{100 * (found[metric].value or 0.0):.2f} %' in row


@pytest.fixture
def small_page(
    tmp_path: Path, toy_model: Path, toy_faces: Path
) -> Callable[[dict[str, list[Any]]], str]:
    """Make the page of a run with a few corruptions."""

    def make(params: dict[str, list[Any]]) -> str:
        run = make_run(
            tmp_path / "run",
            toy_model,
            f"folder:{toy_faces}",
            tmp_path / "cache",
            evaluators=[{"name": "corruption", "params": params}],
            max_pairs=40,
        )
        return write_report(RunStore.open(run), run / "report").page.read_text(encoding="utf-8")

    return make


def test_chains_have_numbers_and_pictures_but_no_severity(
    small_page: Callable[[dict[str, list[Any]]], str],
) -> None:
    page = small_page({"corruptions": ["fog", "jpeg"], "severities": [3, 5], "chains": ["jpeg:2"]})
    assert "(2 corruptions at severities 3, 5)" in page
    assert "<th>Corruption</th><th>3</th><th>5</th><th>Mean</th>" in page
    average = re.search(r"<td>Average of 2</td>((?:<td>[^<]*</td>)*)<td class", page)
    assert average is not None and re.fullmatch(r"(<td>[\d.]+</td>){2}", average[1])
    assert re.search(r'<td>jpeg:2</td><td></td><td></td><td class="strong">[\d.]+</td>', page)
    assert re.search(r'"title">jpeg:2</td><td data-label="FMR, mean">[\d.]+ %', page)
    assert 'alt="jpeg:2"' in page and 'alt="fog at severity 5"' in page
    assert "severity 1" not in page


def test_a_run_of_chains_alone_says_so(
    small_page: Callable[[dict[str, list[Any]]], str],
) -> None:
    page = small_page({"corruptions": [], "chains": ["jpeg:2", "webp:2"]})
    assert "(2 chains)" in page and "severity 1" not in page
    assert re.search(r'<td>webp:2</td><td>[\d.]+</td><td class="strong">', page)
