"""``onnxfr zoo`` as a user meets it."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from typer.testing import CliRunner

from onnxfr.cli.zoo import zoo_app
from onnxfr.cli.zoo_verifying import expected, verdict
from onnxfr.errors import LicenceError, SpecError, UnknownName
from onnxfr.model_zoo import zoo_card, zoo_cards

RUNNER = CliRunner()


@pytest.fixture(autouse=True)
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ONNXFR_CACHE", str(tmp_path / "cache"))


def test_list_json_has_every_card_with_the_agreed_fields() -> None:
    answer = RUNNER.invoke(zoo_app, ["list", "--json"])
    assert answer.exit_code == 0
    rows = json.loads(answer.stdout)
    assert [row["name"] for row in rows] == list(zoo_cards())
    for row in rows:
        assert {"name", "framework", "arch", "licence", "obtainable", "reported"} <= set(row)
        assert row["installed"] is False


def test_list_filters_by_framework() -> None:
    rows = json.loads(RUNNER.invoke(zoo_app, ["list", "--framework", "mxnet", "--json"]).stdout)
    assert [row["name"] for row in rows] == ["sface"]
    answer = RUNNER.invoke(zoo_app, ["list", "--framework", "abacus"])
    assert isinstance(answer.exception, UnknownName)
    assert "mxnet" in str(answer.exception)


def test_list_for_people_names_every_model() -> None:
    answer = RUNNER.invoke(zoo_app, ["list"])
    assert all(name in answer.stdout for name in zoo_cards())


def test_list_tells_measured_from_claimed_accuracies() -> None:
    lines = RUNNER.invoke(zoo_app, ["list"]).stdout.splitlines()
    accuracy = {line.split()[0]: line.split()[2] for line in lines if len(line.split()) > 3}
    assert accuracy["sface"] == "99.25"
    assert accuracy["dlib_resnet29"] == "99.38*"


def test_get_refuses_before_anything_is_downloaded() -> None:
    answer = RUNNER.invoke(zoo_app, ["get", "w600k_mbf"])
    assert isinstance(answer.exception, LicenceError)
    answer = RUNNER.invoke(zoo_app, ["get", "sface", "w600k_mbf", "--from-file", "x"])
    assert isinstance(answer.exception, SpecError)
    answer = RUNNER.invoke(zoo_app, ["get", "sface", "--jobs", "0"])
    assert isinstance(answer.exception, SpecError)


def test_get_of_several_reports_each_failure_and_fails() -> None:
    answer = RUNNER.invoke(zoo_app, ["get", "w600k_mbf", "robfr_facenet"])
    assert answer.exit_code == LicenceError.exit_code
    assert "w600k_mbf" in answer.stderr
    assert "robfr_facenet" in answer.stderr


def test_verify_needs_an_installed_model() -> None:
    answer = RUNNER.invoke(zoo_app, ["verify", "--data", "orl"])
    assert isinstance(answer.exception, SpecError)


def test_only_our_own_measurement_is_to_be_reproduced() -> None:
    found = expected(zoo_card("sface"), "lfw")
    assert found is not None
    assert (found.value, found.by) == (99.25, "onnxfr")
    assert expected(zoo_card("sface"), "calfw") is None
    assert expected(zoo_card("dlib_resnet29"), "lfw") is None


@pytest.mark.parametrize(
    ("ok", "said"), [(True, ": as stated"), (False, "NOT as stated"), (None, "no measurement")]
)
def test_verdict_in_words(ok: bool | None, said: str) -> None:
    row = {
        "name": "sface",
        "data": "lfw",
        "accuracy": 99.2,
        "interval": [98.9, 99.4],
        "threshold": 0.324,
        "expected": None if ok is None else 99.25,
        "ok": ok,
    }
    assert said in verdict(row)
