"""What the command line does around every command."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

LOGGING = """
import logging, sys
from pathlib import Path
from onnxfr.cli import app, run

@app.app.command()
def work(file: Path):
    with run._logging_to(file):
        log = logging.getLogger("onnxfr.runs")
        for level in ("debug", "info", "warning"):
            getattr(log, level)(level)

app.run()
"""


@pytest.mark.parametrize(
    ("words", "shown"), [((), ["warning"]), (("--verbose",), ["info", "warning"])]
)
def test_a_runs_log_has_everything_and_the_screen_what_was_asked(
    tmp_path: Path, words: tuple[str, ...], shown: list[str]
) -> None:
    file = tmp_path / "run.log"
    told = _python(LOGGING, *words, "work", str(file))
    assert [line.split()[-1] for line in told.stderr.splitlines()] == shown
    logged = [line.split()[-1] for line in file.read_text().splitlines()]
    assert logged == ["debug", "info", "warning"]


def _python(script: str, *words: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-c", script, *words], capture_output=True, text=True, check=False
    )
