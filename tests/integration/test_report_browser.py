"""Opens a real report in a real browser: no console errors, pictures present, fits a phone."""

from __future__ import annotations

import html
import importlib.util
import json
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

from onnxfr.evaluators.report.write import write_report
from onnxfr.runs.store import RunStore

_BROWSERS = ("chromium", "chromium-browser", "google-chrome", "google-chrome-stable")
_FLAGS = (
    "--headless",
    "--no-sandbox",
    "--disable-gpu",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
    "--hide-scrollbars",
)
_PROBE = """
<script>
addEventListener("load", function () {
  document.querySelectorAll("details").forEach(function (each) { each.open = true; });
  var root = document.documentElement;
  var wide = [];
  document.querySelectorAll("body *").forEach(function (each) {
    if (each.getBoundingClientRect().right > innerWidth + 1) {
      wide.push(each.tagName + "." + each.className);
    }
  });
  parent.postMessage(JSON.stringify({
    inner: innerWidth,
    scroll: root.scrollWidth,
    wide: wide.slice(0, 10),
    images: Array.from(document.images).map(function (i) { return i.naturalWidth; }),
    charts: Array.from(document.querySelectorAll("svg.chart")).map(function (s) {
      return s.getBoundingClientRect().width;
    })
  }), "*");
});
</script>
"""
_FRAME = """<!doctype html><body style="margin:0">
<iframe src="probed.html" style="border:0;width:{width}px;height:800px"></iframe>
<pre id="answer"></pre>
<script>
addEventListener("message", function (e) {{
  document.getElementById("answer").textContent = e.data;
}});
</script></body>"""


def _toy_faces() -> ModuleType:
    place = Path(__file__).parents[1] / "unit" / "evaluators" / "toy_faces.py"
    spec = importlib.util.spec_from_file_location("toy_faces", place)
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules.setdefault("toy_faces", module)
    spec.loader.exec_module(module)
    return module


@pytest.fixture(scope="module")
def browser() -> str:
    found = next((path for name in _BROWSERS if (path := shutil.which(name))), None)
    if found is None:
        if os.environ.get("ONNXFR_REQUIRE_BROWSER"):
            pytest.fail("ONNXFR_REQUIRE_BROWSER is set, but no Chromium is on the PATH")
        pytest.skip(f"no browser on the PATH; looked for {', '.join(_BROWSERS)}")
    return found


@pytest.fixture(scope="module")
def report(tmp_path_factory: pytest.TempPathFactory) -> Path:
    toys, folder = _toy_faces(), tmp_path_factory.mktemp("browser")
    # A long name without a break is what breaks narrow layouts.
    model = toys.make_model(folder / ("a_model_with_quite_a_long_name_" * 2))
    faces = toys.make_faces(folder / "faces")
    run = toys.make_run(folder / "run", model, f"folder:{faces}", folder / "cache")
    return write_report(RunStore.open(run), folder / "report").page


@pytest.fixture(scope="module")
def corrupted(tmp_path_factory: pytest.TempPathFactory) -> Path:
    toys, folder = _toy_faces(), tmp_path_factory.mktemp("corrupted")
    models = [
        toys.make_model(folder / f"{number}_a_model_with_quite_a_long_name", seed=number)
        for number in range(2)
    ]
    # With fewer people some resamples have nothing right, and a model without RCE has no bars.
    faces = toys.make_faces(folder / "faces", people=6, pictures=3)
    run = toys.make_run(
        folder / "run",
        models,
        f"folder:{faces}",
        folder / "cache",
        evaluators=[{"name": "corruption", "params": {"chains": ["resize:0.5>jpeg:30>webp:20"]}}],
    )
    return write_report(RunStore.open(run), folder / "report").page


@pytest.fixture(scope="module")
def together(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The page of attacks and corruptions together."""
    toys, folder = _toy_faces(), tmp_path_factory.mktemp("together")
    model = toys.make_model(folder / "a_model_with_quite_a_long_name")
    faces = toys.make_faces(folder / "faces")
    params = {
        "attacks": ["bim(steps=3)"],
        "attacks_on_corrupted": ["smallest:fgsm", "pgd(steps=2)"],
        "chains": ["resize:0.5>jpeg:30>webp:20"],
        "pairs": 4,
    }
    run = toys.make_run(
        folder / "run",
        model,
        f"folder:{faces}",
        folder / "cache",
        evaluators=[{"name": "corruption_attack", "params": params}],
    )
    return write_report(RunStore.open(run), folder / "report").page


def _open(browser: str, page: Path, profile: Path, *extra: str) -> tuple[str, list[str]]:
    """Return the page's final DOM and whatever reached the console."""
    done = subprocess.run(
        [
            browser,
            *_FLAGS,
            f"--user-data-dir={profile}",
            "--enable-logging=stderr",
            "--v=0",
            "--virtual-time-budget=4000",
            *extra,
            "--dump-dom",
            page.as_uri(),
        ],
        capture_output=True,
        text=True,
        timeout=300,
        check=True,
    )
    console = [line for line in done.stderr.splitlines() if "CONSOLE" in line]
    return done.stdout, console


def _probe(browser: str, page: Path, folder: Path, width: int) -> dict[str, Any]:
    text = page.read_text(encoding="utf-8")
    (folder / "probed.html").write_text(text.replace("</body>", f"{_PROBE}</body>"), "utf-8")
    frame = folder / "frame.html"
    frame.write_text(_FRAME.format(width=width), encoding="utf-8")
    dom, _ = _open(browser, frame, folder / "profile", "--window-size=1400,900")
    found = re.search(r'<pre id="answer">(.*?)</pre>', dom, re.DOTALL)
    assert found and found[1], "the page never finished loading"
    answer: dict[str, Any] = json.loads(html.unescape(found[1]))
    return answer


def test_the_page_opens_without_a_word_on_the_console(
    browser: str, report: Path, tmp_path: Path
) -> None:
    dom, console = _open(browser, report, tmp_path / "profile")
    assert console == []
    assert 'id="verdict"' in dom


def test_the_console_check_can_fail(browser: str, tmp_path: Path) -> None:
    page = tmp_path / "bad.html"
    page.write_text("<!doctype html><script>undefined_function()</script>", encoding="utf-8")
    _, console = _open(browser, page, tmp_path / "profile")
    assert any("undefined_function" in line for line in console)


@pytest.mark.parametrize("width", [390, 1280])
def test_pictures_are_there_and_nothing_sticks_out(
    browser: str, report: Path, tmp_path: Path, width: int
) -> None:
    seen = _probe(browser, report, tmp_path, width)
    assert seen["inner"] == width
    assert len(seen["images"]) == 24
    assert min(seen["images"]) > 0
    assert len(seen["charts"]) == 4
    assert min(seen["charts"]) > 250
    assert seen["wide"] == []
    assert seen["scroll"] <= width


@pytest.mark.parametrize("width", [390, 1280])
def test_tables_wheels_and_strips_of_corruptions_fit_too(
    browser: str, corrupted: Path, tmp_path: Path, width: int
) -> None:
    seen = _probe(browser, corrupted, tmp_path, width)
    # Twenty corruptions clean and at five severities, and a chain clean and sent.
    assert len(seen["images"]) == 20 * 6 + 2
    assert min(seen["images"]) > 0
    # Per model a wheel, bars and five families; together both, and each corruption.
    assert len(seen["charts"]) == 2 * (1 + 1 + 5) + 2 + 20
    assert min(seen["charts"]) > 250
    assert seen["wide"] == []
    assert seen["scroll"] <= width


def test_the_page_prints(browser: str, report: Path, tmp_path: Path) -> None:
    target = tmp_path / "report.pdf"
    command = [browser, *_FLAGS, f"--user-data-dir={tmp_path / 'profile'}"]
    subprocess.run(
        [*command, f"--print-to-pdf={target}", report.as_uri()],
        capture_output=True,
        timeout=300,
        check=True,
    )
    assert target.read_bytes().startswith(b"%PDF")
    assert target.stat().st_size > 50_000


@pytest.mark.parametrize("width", [390, 1280])
def test_maps_and_strips_of_attacks_under_corruption_fit_too(
    browser: str, together: Path, tmp_path: Path, width: int
) -> None:
    seen = _probe(browser, together, tmp_path, width)
    # Two goals: six corruptions at their gravest, five faces if the attack is first, else four.
    assert len(seen["images"]) == 2 * 6 * (5 + 4)
    assert min(seen["images"]) > 0
    assert len(seen["charts"]) == 2 * 2
    assert min(seen["charts"]) > 250
    assert seen["wide"] == []
    assert seen["scroll"] <= width
