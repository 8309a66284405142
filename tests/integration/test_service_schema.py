"""The service keeps its own OpenAPI description, whatever Schemathesis thinks of to ask it."""

from __future__ import annotations

import json
import subprocess
import sys
from collections import Counter
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parent))
sys.path.insert(0, str(Path(__file__).parents[1] / "unit" / "evaluators"))

from remote_games import free_port, served
from toy_faces import make_model

KEY = "0123456789abcdef"
EXAMPLES = 40
MODES: dict[str, tuple[list[str], set[int]]] = {
    "decision": ([], {200, 400, 415, 422}),
    "score": (["--mode", "score", "--decimals", "4"], {200, 400, 415, 422}),
    "keys": (["--mode", "score", "--keys"], {200, 400, 401, 415, 422}),
    "quota": (["--keys", "--per-day", "12"], {200, 401, 429}),
}


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return make_model(tmp_path_factory.mktemp("model") / "toy")


@pytest.mark.parametrize("mode", MODES)
def test_schemathesis_finds_nothing(model: Path, tmp_path: Path, mode: str) -> None:
    options, statuses = MODES[mode]
    (tmp_path / "keys.toml").write_text(f'[alice]\nkey = "{KEY}"\n')
    if "--keys" in options:
        at = options.index("--keys") + 1
        options = [*options[:at], str(tmp_path / "keys.toml"), *options[at:]]
    port, log = free_port(), tmp_path / "log"
    with served(model, port, "--threshold", "0.6", *options, log=log):
        report = interrogate(f"http://127.0.0.1:{port}/openapi.json", tmp_path, 429 in statuses)
    assert report["failures"] == [] and report["errors"] == []
    assert report["complete"] and report["operations"]["tested"] == 2
    assert report["test_cases"]["generated"] > EXAMPLES
    # Every line of the log is JSON, and the questions went deep enough to mean something.
    lines = [json.loads(line) for line in log.read_text().splitlines()]
    seen = Counter(line["status"] for line in lines if line["event"] == "verify")
    assert statuses <= set(seen), seen


def interrogate(url: str, folder: Path, limited: bool) -> dict[str, object]:
    """Run Schemathesis with every check and return its report.

    Its pictures are mostly random bytes: 422 is a fair answer to a request of the right form.
    """
    expected = ["2xx", 422, *([429] if limited else [])]
    (folder / "schemathesis.toml").write_text(
        f"[checks.positive_data_acceptance]\nexpected-statuses = {json.dumps(expected)}\n"
    )
    place = folder / "report.json"
    command = f"--config-file schemathesis.toml run {url} --checks all --seed 1 --no-color"
    command += f" --max-examples {EXAMPLES} --header X-Api-Key:{KEY}"
    command += " --report json --report-json-path report.json"
    done = subprocess.run(
        [sys.executable, "-P", "-m", "schemathesis.cli", *command.split()],
        cwd=folder,
        capture_output=True,
        text=True,
        timeout=300,
    )
    assert done.returncode == 0, done.stdout
    found: dict[str, object] = json.loads(place.read_text())
    return found
