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


FAILING = """
import errno
from onnxfr.cli import app
from onnxfr.errors import CodeError, DataError

@app.app.command()
def work(kind: str):
    if kind == "ours":
        raise DataError("as it is")
    if kind == "disk":
        raise OSError(errno.ENOSPC, "No space left on device", "a.png")
    try:
        1 / 0
    except ZeroDivisionError as error:
        raise CodeError("in attack mine") from error

app.run()
"""
HINT = "; 'onnxfr --verbose ...' shows the trace"


@pytest.mark.parametrize(
    ("kind", "line"),
    [
        ("ours", "error: as it is"),
        ("disk", f"error: a.png: No space left on device{HINT}"),
        ("code", f"error: in attack mine{HINT}"),
    ],
)
def test_a_failure_is_one_line_and_its_trace_is_for_those_who_ask(kind: str, line: str) -> None:
    told = _python(FAILING, "work", kind)
    assert (told.returncode, told.stderr.splitlines()) == (2, [line])
    verbose = _python(FAILING, "--verbose", "work", kind)
    assert verbose.returncode == 2
    assert verbose.stderr.splitlines()[0] == line.removesuffix(HINT)
    assert "Traceback" in verbose.stderr
    assert ("ZeroDivisionError" in verbose.stderr) == (kind == "code")


def _python(script: str, *words: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-c", script, *words], capture_output=True, text=True, check=False
    )
