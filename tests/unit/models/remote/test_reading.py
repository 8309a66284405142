"""Answers that no vendor documents: none may stop a run, each has been paid for."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest

sys.path.insert(0, str(Path(__file__).parent))

from toy_service import adapter_of

from onnxfr.errors import RemoteError
from onnxfr.models.remote.adapter import Step
from onnxfr.models.remote.looking import look, plain
from onnxfr.models.remote.reading import (
    Kind,
    NoUse,
    TryAgain,
    Verdict,
    check_given,
    read_answer,
)
from onnxfr.oracle import LOST

ADAPTER = adapter_of(
    "http://127.0.0.1/",
    answer='score = "score"\nthreshold = 0.5\nversion = "version"\nrejected = [{ path = "error" }]',
)


@pytest.mark.parametrize(
    ("body", "kind"),
    [
        (b'{"match": true, "score": 1' + b"0" * 400 + b"}", Kind.JUDGED),
        (b'{"match": true, "score": 1' + b"0" * 9000 + b"}", Kind.INVALID),
        (b'{"match": true, "score": 1e999}', Kind.JUDGED),
        (b'{"match": true, "version": "\\ud800"}', Kind.JUDGED),
        (b'{"error": "\\ud800' + b"x" * 5000 + b'"}', Kind.REJECTED),
        (b'{"error": ' + b"[" * 100_000 + b"]" * 100_000 + b"}", Kind.INVALID),
        (b"\xff\xfe", Kind.INVALID),
        ('{"match": true, "message": "成功"}'.encode("gbk"), Kind.JUDGED),
        (b'{\x00"match": true}\xff', Kind.INVALID),
    ],
    ids=[
        "large",
        "larger",
        "infinite",
        "half a character",
        "long",
        "deep",
        "no text",
        "gbk",
        "torn",
    ],
)
def test_whatever_comes_is_read_and_can_be_stored(body: bytes, kind: Kind) -> None:
    verdict = read_answer(ADAPTER, 200, body)
    assert verdict.kind is kind and len(verdict.detail) <= 303
    json.dumps([verdict.score, verdict.threshold], allow_nan=False)
    pa.array([verdict.detail, verdict.version])


def test_a_score_that_is_no_number_is_not_an_absent_one() -> None:
    """AWS leaves a similarity out where faces differ; NaN says that something broke."""
    rule = ADAPTER.answer.model_copy(update={"decision": None, "score_absent": 0.0})
    adapter = ADAPTER.model_copy(update={"answer": rule})
    assert read_answer(adapter, 200, b"{}").match is False
    assert read_answer(adapter, 200, b'{"score": null}').match is False
    assert read_answer(adapter, 200, b'{"score": NaN}').kind is Kind.INVALID
    assert read_answer(adapter, 200, b'{"score": 0.7}').match is True


@pytest.mark.parametrize(
    ("path", "silent", "senseless"),
    [
        ("faces[0].likeness", b'{"faces": []}', b'{"error": "who are you?"}'),
        ("data.likeness", b'{"data": {}}', b'{"message": "log in"}'),
        ("likeness", b"{}", b"<html>Please log in</html>"),
        ("text | json | likeness", b'{"text": "{}"}', b'{"text": "I cannot tell"}'),
        ("[0].likeness", b"[]", b'{"error": 1}'),
        ("likeness | strip", b"{}", b"busy"),
        ("a | base64 | json | b.c | strip", b'{"a": "eyJiIjoge319"}', b'{"a": "e30="}'),
    ],
)
def test_a_score_is_absent_only_from_what_could_hold_it(
    path: str, silent: bytes, senseless: bytes
) -> None:
    """Else a page that asks to log in would be a pair told apart, and dodging a success."""
    answer = ADAPTER.answer.model_copy(
        update={"decision": None, "score": path, "score_absent": 0.0, "rejected": ()}
    )
    adapter = ADAPTER.model_copy(update={"answer": answer})
    assert read_answer(adapter, 200, silent).match is False
    assert read_answer(adapter, 200, senseless).kind is Kind.INVALID


def test_what_a_rule_names_is_no_call_for_another_try() -> None:
    adapter = adapter_of(
        "http://127.0.0.1/",
        answer='rejected = [{ status = [500], path = "error", values = ["no face"] }, '
        '{ path = "face", absent = true }]\n'
        'failed = [{ path = "quota", values = [0] }, { status = [429], path = "unpaid" }]',
    )
    for status, body in (
        (500, b'{"error": "no face"}'),
        (503, b'{"quota": 0}'),
        (429, b'{"unpaid": 1}'),
    ):
        check_given(adapter, status, body, None)
    for status, body in ((500, b'{"error": "down"}'), (503, b"<html>busy</html>"), (429, b"{}")):
        with pytest.raises(TryAgain):
            check_given(adapter, status, body, None)
    assert read_answer(adapter, 500, b'{"error": "no face"}').kind is Kind.REJECTED
    with pytest.raises(NoUse):
        read_answer(adapter, 503, b'{"quota": 0}')
    with pytest.raises(NoUse):
        read_answer(adapter, 429, b'{"unpaid": 1}')


def test_a_rule_for_any_failure_takes_no_slow_down_for_one() -> None:
    adapter = adapter_of(
        "http://127.0.0.1/", answer='failed = [{ path = "error.code", unless = [0] }]'
    )
    for status in (408, 429, 503):
        with pytest.raises(TryAgain):
            check_given(adapter, status, b'{"error": {"code": "SLOW_DOWN"}}', None)
    with pytest.raises(NoUse):
        read_answer(adapter, 400, b'{"error": {"code": "WRONG"}}')


@pytest.mark.parametrize(
    "rule",
    [
        '{ status = [400], values = ["NO_FACE"] }',
        '{ begins = ["NO_FACE"] }',
        "{ status = [400], unless = [0] }",
        "{ status = [400], absent = true }",
        "{}",
    ],
)
def test_a_rule_that_would_fit_more_than_it_says_is_refused(rule: str) -> None:
    with pytest.raises(RemoteError, match="path"):
        adapter_of("http://127.0.0.1/", answer=f"rejected = [{rule}]")


def test_what_is_captured_goes_on_as_json_has_it() -> None:
    assert [plain(each) for each in ("a", b"b", 1, 1.5, True, {"a": None})] == [
        *("a", "b", "1", "1.5", "true", '{"a": null}')
    ]


def test_a_whole_number_is_the_same_however_it_is_written() -> None:
    adapter = adapter_of("http://127.0.0.1/", answer="yes = [1]\nno = [0]")
    said = [read_answer(adapter, 200, b'{"match": %s}' % text) for text in (b"1", b"1.0", b"0.0")]
    assert [each.match for each in said] == [True, True, False]
    for other in (b"true", b'"1"', b"1.5", b"null"):
        assert read_answer(adapter, 200, b'{"match": %s}' % other).kind is Kind.INVALID


def test_a_path_through_json_of_any_depth_finds_something_or_nothing() -> None:
    deep = "[" * 100_000 + "]" * 100_000
    assert not isinstance(look({"text": deep}, "text | json | [0]"), list)


@pytest.mark.parametrize(
    ("said", "score"),
    [
        ("87.30 %", 87.3),
        (" '12.5%'. ", 12.5),
        (".5", 0.5),
        ("-.5", -0.5),
        ("91,5", None),
        ("9\u00a0%", 9.0),
        (91.5, 91.5),
        ("very", None),
        (None, None),
    ],
)
def test_a_score_may_come_as_a_text_in_percent(said: object, score: float | None) -> None:
    rules = 'score = "confidence | strip"\nscore_range = [0, 100]\nthreshold = 65'
    adapter = adapter_of("http://127.0.0.1/", answer=rules)
    body = json.dumps({"match": True, "confidence": said}).encode()
    assert read_answer(adapter, 200, body).score == score


def test_a_text_in_base64_is_stripped_as_a_text() -> None:
    assert look({"a": "ICIxIi4="}, "a | base64 | strip") == "1"


@pytest.mark.parametrize(
    "rule",
    [
        'score = "s | stripp"\nthreshold = 1',
        'version = "text | base46 | json | version"',
        'version = "text | base64 | jsn | version"',
        'version = "text | base64 | version"',
        'version = "data | version"',
        'version = "text | json |"',
        'threshold_path = "t | percent"\nscore = "s"',
        'rejected = [{ path = "error | Strip" }]',
    ],
)
def test_a_filter_that_is_none_is_told_before_anything_is_paid_for(rule: str) -> None:
    with pytest.raises(RemoteError, match="is no filter; there are base64, json, strip"):
        adapter_of("http://127.0.0.1/", answer=rule)


def test_so_is_one_of_what_is_captured() -> None:
    urls = ("http://127.0.0.1/", "http://127.0.0.1/")
    step = adapter_of(*urls).steps[0]
    with pytest.raises(ValueError, match="is no filter"):
        Step.model_validate({**step.model_dump(), "captures": {"m": "text | base46"}})


def test_filters_where_they_belong_are_taken() -> None:
    rules = 'version = "json | a[0].b | base64 | json | c | strip"\nscore = "strip"\nthreshold = 1'
    answer = adapter_of("http://127.0.0.1/", answer=rules).answer
    assert answer.score == "strip" and answer.version is not None


def test_a_small_distance_is_the_same_person() -> None:
    rules = 'score = "d"\nscore_is = "distance"\nscore_range = [0, 2]\nthreshold = 0.5'
    adapter = adapter_of("http://127.0.0.1/", answer=rules)
    silent = adapter.model_copy(
        update={"answer": adapter.answer.model_copy(update={"decision": None})}
    )
    distances = [0.0, 0.3, 0.499, 0.5, 0.501, 1.7, 9.0]
    said = [read_answer(silent, 200, json.dumps({"d": each}).encode()) for each in distances]
    assert [each.match for each in said] == [True] * 3 + [False] * 4
    margins = np.array([each.margin(silent.answer) for each in said])
    assert (np.diff(margins) < 0).all() and margins[0] == 0.25 and margins[3] == 0
    assert (margins > LOST).all()
    rounded = read_answer(adapter, 200, b'{"match": true, "d": 0.5}')
    assert rounded.match and 0 < rounded.margin(adapter.answer) < 1e-5


def test_scores_outside_the_range_keep_their_order_and_are_verdicts() -> None:
    scores = [-500.0, -80.0, -3.0, -0.6, -0.2, 0.4, 0.6, 1.4, 1.6, 40.0, 900.0]
    said = [Verdict(Kind.JUDGED, score > 0.5, score, 0.5) for score in scores]
    margins = np.array([each.margin(ADAPTER.answer) for each in said], dtype=np.float32)
    assert (np.diff(margins) > 0).all() and (
        np.sign(margins) == np.sign(np.array(scores) - 0.5)
    ).all()
    assert (margins > LOST).all() and margins[4] == np.float32(-0.7)
    beyond = [Verdict(Kind.JUDGED, score > 0, score, 0.5) for score in (-1e300, -1e9, 1e300)]
    ends = np.array([each.margin(ADAPTER.answer) for each in beyond], dtype=np.float32)
    assert (np.abs(ends) < abs(LOST)).all(), "as far as that it would count as no verdict"
