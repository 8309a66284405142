"""What the command line settles before anything heavy is imported."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest

SCRIPT = """
import os, sys
sys.argv = ["onnxfr", "--version"]
import onnxfr.cli
assert "torch" not in sys.modules, "too late: torch has read its settings"
try:
    onnxfr.cli.main()
except SystemExit:
    pass
print(os.environ.get("GOMP_SPINCOUNT"))
"""


@pytest.mark.parametrize(
    ("own", "kept"),
    [({}, "3000"), ({"GOMP_SPINCOUNT": "7"}, "7"), ({"OMP_WAIT_POLICY": "ACTIVE"}, "None")],
)
def test_threads_sleep_soon_unless_the_user_chose(own: dict[str, str], kept: str) -> None:
    names = ("GOMP_SPINCOUNT", "OMP_WAIT_POLICY")
    plain = {name: value for name, value in os.environ.items() if name not in names}
    told = subprocess.run(
        [sys.executable, "-c", SCRIPT], env=plain | own, capture_output=True, text=True, check=True
    )
    assert told.stdout.split()[-1] == kept
