"""What is sent in each encoding, and bodies that no service could understand."""

from __future__ import annotations

import re
from pathlib import Path
from urllib.parse import parse_qs

import pytest
from pydantic import BaseModel

from onnxfr.errors import RemoteError
from onnxfr.models.remote.adapter import (
    Adapter,
    Answer,
    Pace,
    Picture,
    Price,
    Rule,
    Step,
    parse_adapter,
)
from onnxfr.models.remote.filling import make_request

VALUES: dict[str, bytes | str] = {
    "probe": b"P\x00",
    "reference": b"R",
    "parameter.set": "my set",
    "parameter.quoted": 'a"\r\nb',
}


@pytest.mark.parametrize("table", [Adapter, Step, Picture, Rule, Answer, Pace, Price])
def test_every_key_of_an_adapter_is_explained(table: type[BaseModel]) -> None:
    docs = Path(__file__).parents[4].joinpath("docs", "service.md").read_text(encoding="utf-8")
    format_ = docs.partition("### Adapters")[2].partition("## The evaluator")[0]
    missing = [name for name in table.model_fields if not re.search(rf"\b{name}\b", format_)]
    assert not missing


def adapter_with(encoding: str, body: str) -> Adapter:
    return parse_adapter(
        'name = "a"\ndescription = "d"\ntested = "no"\n[answer]\ndecision = "match"\n'
        '[parameters]\nset = ""\nquoted = ""\n'
        f'[[steps]]\nurl = "http://127.0.0.1:1/"\nencoding = "{encoding}"\nbody = {body}\n',
        "mine.toml",
    )


def sent(encoding: str, body: str) -> bytes:
    return make_request(adapter_with(encoding, body).steps[0], VALUES, 0.0).content


@pytest.mark.parametrize(
    ("encoding", "body", "message"),
    [
        ("raw", '{ a = "${probe}" }', "one text"),
        ("raw", "true", "one text"),
        ("form", '{ a = { b = "${probe}" } }', "no further table"),
        ("form", '{ a = ["${probe}"] }', "no list"),
        ("form", '"${probe}"', "table of texts"),
        ("multipart", '{ a = { b = "${probe}" } }', "no further table"),
        ("multipart", '["${probe}"]', "table of texts"),
        ("json", "{ a = 2026-01-01 }", "write dates"),
        ("json", "{ a = [nan] }", "finite"),
        ("form", "{ a = 07:30:00 }", "write dates"),
        ("form", "{ a = inf }", "finite"),
    ],
)
def test_a_body_that_would_be_sent_as_python_writes_it_is_refused(
    encoding: str, body: str, message: str
) -> None:
    with pytest.raises(RemoteError, match=message) as told:
        adapter_with(encoding, body)
    assert "steps.0" in str(told.value)


def test_settings_in_a_form_are_written_as_services_write_them() -> None:
    body = '{ a = "${probe}", on = true, off = false, n = 3, x = 0.5, "${parameter.set}" = "v" }'
    assert parse_qs(sent("form", body).decode()) == {
        "a": ["UAA="],
        "on": ["true"],
        "off": ["false"],
        "n": ["3"],
        "x": ["0.5"],
        "my set": ["v"],
    }


def test_so_are_those_in_parts() -> None:
    whole = sent("multipart", '{ on = true, "${parameter.set}" = "${probe}", n = 3 }')
    assert b'name="on"\r\n\r\ntrue\r\n' in whole and b'name="n"\r\n\r\n3\r\n' in whole
    picture = b'name="my set"; filename="my set"\r\nContent-Type: application/octet-stream\r\n\r\n'
    assert picture + b"P\x00\r\n" in whole
    quoted = sent("multipart", '{ "${parameter.quoted}" = "${probe}" }')
    assert b'name="a%22%0D%0Ab"; filename="a%22%0D%0Ab"\r\n' in quoted


def test_names_in_query_and_headers_are_filled_in_too() -> None:
    step = adapter_with("raw", '"${probe}"').steps[0]
    names = {"x-${parameter.set}": "1"}
    request = make_request(step.model_copy(update={"query": names, "headers": names}), VALUES, 0.0)
    assert request.url.endswith("/?x-my+set=1") and request.headers["x-my set"] == "1"


def test_a_raw_body_is_a_picture_or_a_text_around_one() -> None:
    assert sent("raw", '"${probe}"') == b"P\x00"
    assert sent("raw", '"<a>${probe}</a>"') == b"<a>UAA=</a>"
    assert sent("json", '{ a = [true, 1, "${probe}"] }') == b'{"a": [true, 1, "UAA="]}'
