"""The command line around services: lists, one question, references."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from PIL import Image
from typer.testing import CliRunner

from onnxfr.cli.remote import remote_app
from onnxfr.errors import NotAuthorised, RemoteError, SpecError, UnknownName
from onnxfr.models.remote import adapter
from onnxfr.models.remote.adapter import adapter_names
from onnxfr.models.remote.reference import absolute, complete, open_remote, parse_reference


def test_the_list_names_every_adapter_and_its_secrets() -> None:
    rows = json.loads(CliRunner().invoke(remote_app, ["list", "--json"]).stdout)
    assert [row["name"] for row in rows] == adapter_names()
    aws = next(row for row in rows if row["name"] == "aws_compare_faces")
    assert aws["secrets"] == ["AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY", "AWS_SESSION_TOKEN"]
    assert aws["optional_secrets"] == ["AWS_SESSION_TOKEN"]
    ours = next(row for row in rows if row["name"] == "onnxfr")
    assert ours["secrets"] == ours["optional_secrets"] == ["ONNXFR_API_KEY"]
    said = CliRunner().invoke(remote_app, ["list"]).stdout
    assert "wants ONNXFR_API_KEY (where it is needed)" in said


def test_one_question_to_an_outside_service_needs_permission(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    Image.fromarray(np.zeros((64, 64, 3), np.uint8)).save("a.png")
    asked = CliRunner().invoke(remote_app, ["ask", "azure_face", "a.png", "a.png"])
    assert isinstance(asked.exception, NotAuthorised)
    assert not (tmp_path / "journal.jsonl").exists()


def test_a_journal_named_on_the_command_line_may_be_called_anything(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    Image.fromarray(np.zeros((64, 64, 3), np.uint8)).save("a.png")
    Path("lr=1,seed=2").mkdir()
    asked = CliRunner().invoke(
        remote_app,
        [
            *("ask", "onnxfr,url=http://127.0.0.1:1", "a.png", "a.png"),
            *("--journal", "lr=1,seed=2/j.jsonl"),
        ],
    )
    assert isinstance(asked.exception, RemoteError) and "onnxfr" in str(asked.exception)
    assert (tmp_path / "lr=1,seed=2" / "j.jsonl").exists()


def test_folders_with_a_comma_in_their_name_hold_journals_and_adapters() -> None:
    place = Path("/home/Doe, Jane/a,b")
    said = parse_reference(complete("remote:onnxfr,url=http://127.0.0.1:1", place, authorised=True))
    assert said.adapter == "onnxfr" and said.parameters == {"url": "http://127.0.0.1:1"}
    assert said.journal == place / "journal-onnxfr.jsonl" and said.authorised
    own = parse_reference(f"remote:{place / 'my.toml'},budget=3,journal={place / 'j'},authorised")
    assert (own.adapter, own.journal) == (str(place / "my.toml"), place / "j")
    assert own.budget == 3 and own.authorised and parse_reference(str(own)) == own


@pytest.mark.parametrize(
    "folder",
    [
        "lr=1,seed=2",
        "lr=1,seed=2/a,b=3",
        "a,b",
        "50%2C=1,x",
        "100%25",
        "100%",
        "a=1/b",
        "journal=1,budget=2",
    ],
)
def test_a_folder_may_be_called_anything(tmp_path: Path, folder: str) -> None:
    place = tmp_path / folder
    text = complete("remote:onnxfr,url=http://127.0.0.1:1", place, budget=3, authorised=True)
    said = parse_reference(text)
    assert said.journal == place / "journal-onnxfr.jsonl" and said.budget == 3 and said.authorised
    assert parse_reference(complete(text, tmp_path)) == said and str(said) == text
    box = Path(adapter.__file__).parent / "adapters" / "onnxfr.toml"
    place.mkdir(parents=True)
    (place / "my,own=1.toml").write_bytes(box.read_bytes())
    own = replace(said, adapter=str(place / "my,own=1.toml"), journal=place / "j,k")
    assert parse_reference(str(own)) == own and own.read().name == "onnxfr"
    assert parse_reference(absolute(str(own), tmp_path)) == own
    model = open_remote(text)
    assert model.journal.path == place / "journal-onnxfr.jsonl"
    model.close()


def test_references_survive_being_written_down(tmp_path: Path) -> None:
    text = f"remote:onnxfr,url=http://127.0.0.1:1,budget=7,journal={tmp_path / 'j'},authorised"
    said = parse_reference(text)
    assert str(said) == text
    assert said.budget == 7 and said.authorised and said.parameters["url"].endswith(":1")
    assert complete("sface", tmp_path) == "sface"
    filled = parse_reference(complete("remote:onnxfr", tmp_path, budget=3))
    assert filled.budget == 3 and filled.journal == tmp_path / "journal-onnxfr.jsonl"
    assert absolute("remote:mine.toml", tmp_path) == f"remote:{tmp_path.resolve() / 'mine.toml'}"
    named = parse_reference("remote:onnxfr,name=front.door-2,price=0.5")
    assert parse_reference(str(named)) == named and named.read().name == "front.door-2"
    filled = parse_reference(complete(str(named), tmp_path))
    assert filled.journal == tmp_path / "journal-front.door-2.jsonl"
    for wrong in (
        "remote:onnxfr,fast",
        "remote:onnxfr,budget=many",
        "remote:onnxfr,budget=\u00b2",
        "remote:onnxfr,budget=" + "9" * 5000,
        "remote:onnxfr,name=",
        "remote:onnxfr,name=../x",
        "remote:onnxfr,name=Front Door",
    ):
        with pytest.raises(SpecError, match="no option"):
            parse_reference(wrong)
    with pytest.raises(UnknownName, match="aws_compare_faces"):
        open_remote(f"remote:nobody,journal={tmp_path / 'j'}")
