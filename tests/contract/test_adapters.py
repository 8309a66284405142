"""What every adapter in the box promises, and how it reads the answers its vendor documents."""

from __future__ import annotations

import base64
import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from onnxfr.errors import NotAuthorised, RemoteError, SpecError
from onnxfr.models.remote import adapter
from onnxfr.models.remote.adapter import Adapter, adapter_names, parse_adapter, read_adapter
from onnxfr.models.remote.filling import make_request
from onnxfr.models.remote.model import RemoteModel
from onnxfr.models.remote.reading import Kind, TryAgain, check_given, read_answer
from onnxfr.models.remote.reference import parse_reference

NAMES = adapter_names()
every_adapter = pytest.mark.parametrize("name", NAMES)
OURS = {"onnxfr", "onnxfr_score"}


def _iflytek(**content: float) -> dict[str, Any]:
    text = base64.b64encode(json.dumps(content).encode()).decode()
    return {"header": {"code": 0}, "payload": {"face_compare_result": {"text": text}}}


def _chat(text: str) -> dict[str, Any]:
    return {"choices": [{"message": {"role": "assistant", "content": text}}]}


SAID = [
    ("onnxfr", 200, {"match": True, "version": "v"}, Kind.JUDGED, True),
    ("onnxfr", 422, {"error": {"code": "no_face"}}, Kind.REJECTED, None),
    (
        "onnxfr_score",
        200,
        {"match": False, "score": 40.0, "threshold": 60.0},
        Kind.JUDGED,
        False,
    ),
    ("aws_compare_faces", 200, {"FaceMatches": [{"Similarity": 97.5}]}, Kind.JUDGED, True),
    ("aws_compare_faces", 200, {"FaceMatches": [{"Similarity": 12.5}]}, Kind.JUDGED, False),
    ("aws_compare_faces", 200, {"FaceMatches": [], "UnmatchedFaces": [{}]}, Kind.JUDGED, False),
    ("aws_compare_faces", 400, {"__type": "InvalidParameterException"}, Kind.REJECTED, None),
    ("azure_face", 200, {"isIdentical": True, "confidence": 0.9}, Kind.JUDGED, True),
    ("azure_face", 400, {"error": {"code": "InvalidImageSize"}}, Kind.REJECTED, None),
    ("tencent_compare_face", 200, {"Response": {"Score": 77.0}}, Kind.JUDGED, True),
    (
        "tencent_compare_face",
        200,
        {"Response": {"Error": {"Code": "InvalidParameterValue.NoFaceInPhoto"}}},
        Kind.REJECTED,
        None,
    ),
    (
        "aliyun_compare_face",
        200,
        {"Data": {"Confidence": 65.5, "Thresholds": [61.0, 69.0, 75.0]}},
        Kind.JUDGED,
        False,
    ),
    ("aliyun_compare_face", 404, {"Code": "InvalidImage.NotFoundFace"}, Kind.REJECTED, None),
    ("iflytek_face_compare", 200, _iflytek(ret=0, score=0.9), Kind.JUDGED, True),
    ("iflytek_face_compare", 200, _iflytek(ret=-2), Kind.REJECTED, None),
    (
        "faceplusplus_compare",
        200,
        {"confidence": 70.0, "thresholds": {"1e-4": 69.1}, "faces1": [{}], "faces2": [{}]},
        Kind.JUDGED,
        True,
    ),
    ("faceplusplus_compare", 200, {"faces1": [{}], "faces2": []}, Kind.REJECTED, None),
    (
        "faceplusplus_compare",
        400,
        {"error_message": "INVALID_IMAGE_SIZE:image_base64_1"},
        Kind.REJECTED,
        None,
    ),
    ("vision_chat", 200, _chat("1"), Kind.JUDGED, True),
    ("vision_chat", 200, _chat(" 0.\n"), Kind.JUDGED, False),
    ("vision_chat", 200, _chat("I cannot identify people."), Kind.INVALID, None),
]


@pytest.fixture
def secrets(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in NAMES:
        for variable in read_adapter(name).secrets.values():
            monkeypatch.setenv(variable, "not-a-real-secret")


def test_an_adapter_saved_with_a_byte_order_mark_is_read(tmp_path: Path) -> None:
    box = Path(adapter.__file__).parent / "adapters" / "onnxfr.toml"
    (tmp_path / "mine.toml").write_bytes(b"\xef\xbb\xbf" + box.read_bytes())
    assert read_adapter(str(tmp_path / "mine.toml")) == read_adapter("onnxfr")


@every_adapter
def test_it_says_what_it_was_tried_on(name: str) -> None:
    adapter = read_adapter(name)
    assert adapter.name == name
    if name not in OURS:
        assert adapter.tested.startswith("never against")


@every_adapter
def test_its_requests_can_be_made_and_signed(name: str) -> None:
    adapter = read_adapter(name)
    values: dict[str, bytes | str] = {"probe": b"P", "reference": b"R", "joined": b"J"}
    values |= {f"secret.{key}": "s3cr3t" for key in adapter.secrets}
    values |= {f"parameter.{key}": text for key, text in adapter.parameters.items()}
    for step in adapter.steps:
        request = make_request(step, values, 1.7e9)
        assert request.url.startswith("http")
        whole = request.url + json.dumps(request.headers) + request.content.decode("latin-1")
        assert "${" not in whole
        values |= {f"captured.{key}": "id" for key in step.captures}


@every_adapter
def test_outside_services_want_the_users_word_a_budget_and_a_secret(
    name: str, tmp_path: Path, secrets: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    adapter = read_adapter(name)
    journal = tmp_path / "journal.jsonl"
    if name in OURS:
        RemoteModel(adapter, journal).open()
        return
    with pytest.raises(NotAuthorised, match="--i-am-authorised"):
        RemoteModel(adapter, journal, budget=10).open()
    with pytest.raises(SpecError, match="--max-calls"):
        RemoteModel(adapter, journal, authorised=True).open()
    for variable in adapter.secrets.values():
        monkeypatch.delenv(variable)
    with pytest.raises(RemoteError, match="environment variable"):
        RemoteModel(adapter, journal, budget=10, authorised=True).open()


@pytest.mark.parametrize(("name", "status", "content", "kind", "match"), SAID)
def test_it_reads_what_its_vendor_documents(
    name: str, status: int, content: Any, kind: Kind, match: bool | None
) -> None:
    adapter = read_adapter(name)
    verdict = read_answer(adapter, status, json.dumps(content).encode())
    assert (verdict.kind, verdict.match) == (kind, match)
    margin = verdict.margin(adapter.answer)
    assert np.isnan(margin) if match is None else (margin > 0) == match
    assert np.isnan(margin) or -1 <= margin <= 1


def test_every_adapter_has_its_answers_here() -> None:
    assert {said[0] for said in SAID} == set(NAMES)


@pytest.mark.parametrize(
    ("name", "status", "content", "charged"),
    [
        ("onnxfr", 429, {}, False),
        ("onnxfr", 503, {}, True),
        ("onnxfr", 408, {}, True),
        ("aws_compare_faces", 400, {"__type": "ThrottlingException"}, True),
        ("tencent_compare_face", 200, {"Response": {"Error": {"Code": "InternalError"}}}, True),
        ("aliyun_compare_face", 400, {"Code": "Throttling.User"}, True),
        ("azure_face", 429, {"error": {"code": "429"}}, False),
        ("faceplusplus_compare", 403, {"error_message": "CONCURRENCY_LIMIT_EXCEEDED"}, True),
    ],
)
def test_answers_not_given_are_known(name: str, status: int, content: Any, charged: bool) -> None:
    with pytest.raises(TryAgain) as again:
        check_given(read_adapter(name), status, json.dumps(content).encode(), 3.0)
    assert again.value.charged is charged and again.value.wait == 3.0


@every_adapter
def test_errors_nobody_explained_stop_the_run(name: str) -> None:
    with pytest.raises(RemoteError, match="status 401"):
        read_answer(read_adapter(name), 401, b'{"message": "who are you"}')


@pytest.mark.parametrize(
    ("name", "content"),
    [
        ("tencent_compare_face", {"Response": {"Error": {"Code": "AuthFailure.SignatureFailure"}}}),
        ("tencent_compare_face", {"Response": {"Error": {"Code": "LimitExceeded"}}}),
        ("iflytek_face_compare", {"header": {"code": 11200, "message": "no licence"}}),
    ],
)
def test_a_wrong_key_is_no_verdict_though_the_status_is_200(name: str, content: Any) -> None:
    with pytest.raises(RemoteError, match="no verdict"):
        read_answer(read_adapter(name), 200, json.dumps(content).encode())


@every_adapter
def test_prices_are_the_users_to_give(name: str) -> None:
    model = RemoteModel(read_adapter(name), Path("unused"))
    assert model.price(10)[0] == (0.0 if name in OURS else None)
    priced = parse_reference(f"remote:{name},price=0.002")
    assert parse_reference(str(priced)) == priced
    cost, _ = RemoteModel(priced.read(), Path("unused")).price(10)
    assert cost == pytest.approx(0.02 * priced.read().calls)
    # A journal goes on when only the price has changed.
    assert priced.read().digest() == read_adapter(name).digest()


def adapter_text(**changes: str) -> str:
    parts = {
        "head": 'name = "a"\ndescription = "d"\ntested = "no"',
        "steps": '[[steps]]\nurl = "http://127.0.0.1:1/"\nbody = { a = "${probe}" }',
        "answer": '[answer]\ndecision = "match"',
    }
    return "\n".join({**parts, **changes}.values())


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"head": 'name = "A B"\ndescription = "d"\ntested = "no"'}, "name"),
        ({"answer": '[answer]\nscore = "score"'}, "threshold"),
        ({"answer": '[answer]\ndecision = "x"\nscore_is = "distance"'}, "where the score"),
        ({"answer": '[answer]\nscore = "s"\nthreshold = 1\nscore_is = "far"'}, "score_is"),
        ({"head": 'name = "a"\ndescription = "d"\ntested = "no"\noptional_secrets = ["k"]'}, "k,"),
        ({"answer": '[answer]\ndecision = "x"\nscroe = "y"'}, "scroe"),
        ({"steps": "steps = []"}, "steps"),
        ({"answer": "[answer"}, "TOML"),
    ],
)
def test_mistakes_in_adapters_are_named(changes: dict[str, str], message: str) -> None:
    with pytest.raises(RemoteError, match=message):
        parse_adapter(adapter_text(**changes), "mine.toml")


def test_settings_that_came_later_leave_older_journals_valid() -> None:
    plain = parse_adapter(adapter_text(), "mine.toml")
    assert plain.digest() == "57e6a82665b658ba778c9db4d08be59d17c88d9b910152eab7ab554fba3210ea"
    far = '[answer]\ndecision = "match"\nscore = "s"\nscore_is = "{}"'
    kinds = [
        parse_adapter(adapter_text(answer=far.format(kind)), "mine.toml").digest()
        for kind in ("similarity", "distance")
    ]
    assert len({*kinds, plain.digest()}) == 3


def test_an_adapter_reaches_nothing_but_what_it_may() -> None:
    adapter: Adapter = parse_adapter(
        adapter_text(steps='[[steps]]\nurl = "http://127.0.0.1:1/${env.HOME}"'), "mine.toml"
    )
    with pytest.raises(RemoteError, match=r"env\.HOME"):
        make_request(adapter.steps[0], {"probe": b""}, 0.0)
