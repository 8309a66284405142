"""The service's answers to good, bad, too large and too many questions."""

from __future__ import annotations

import asyncio
import io
import json
import logging
from pathlib import Path
from typing import Any

import httpx
import numpy as np
import pytest
from fastapi import FastAPI
from PIL import Image
from service_games import ask, encoded, pattern, question, talk

from onnxfr.alignment.aligner import Aligner
from onnxfr.alignment.detector import Detector
from onnxfr.errors import EngineError, NonFiniteAnswer, SpecError
from onnxfr.models.wrapper import FRModel, OnnxModel
from onnxfr.service.app import build_app
from onnxfr.service.keys import KeyEntry, Limits
from onnxfr.service.query_watch import WatchSettings
from onnxfr.service.running import serve
from onnxfr.service.settings import ServiceSettings
from onnxfr.service.verifier import ScoreScale, Verifier
from onnxfr.types import Embeddings, Images

KEY = "k" * 16


def app_of(model: FRModel, threshold: float = 0.6, **options: Any) -> FastAPI:
    scale = options.pop("scale", None)
    aligner = options.pop("aligner", None)
    verifier = Verifier(
        model, threshold, scale=scale, aligner=aligner, max_pixels=options.pop("max_pixels", 10**6)
    )
    return build_app(verifier, ServiceSettings(**options))


SAME = question(encoded(pattern(1)), encoded(pattern(1, 1)))
OTHER = question(encoded(pattern(1)), encoded(pattern(2)))


def test_decisions_come_without_scores(toy: OnnxModel) -> None:
    app = app_of(toy)
    same, other = ask(app, json=SAME).json(), ask(app, json=OTHER).json()
    assert same["match"] is True and other["match"] is False
    assert set(same) == {"id", "match", "version"}


def test_scores_are_on_the_vendors_scale_and_rounded(toy: OnnxModel) -> None:
    app = app_of(toy, scale=ScoreScale(0, 100, 1))
    answer = ask(app, json=SAME).json()
    probe, reference = pattern(1)[None], pattern(1, 1)[None]
    images = [x.transpose(0, 3, 1, 2).astype(np.float32) / 255 for x in (probe, reference)]
    cosine = float(toy.similarity(images[0], images[1])[0])
    assert answer["score"] == pytest.approx(50 * (cosine + 1), abs=0.051)
    assert answer["score"] == round(answer["score"], 1)
    assert answer["threshold"] == 80.0


def test_files_and_base64_give_the_same_answer(toy: OnnxModel) -> None:
    app = app_of(toy, scale=ScoreScale(decimals=6))
    files = {"probe": encoded(pattern(1)), "reference": encoded(pattern(1, 1))}
    assert ask(app, files=files).json()["score"] == ask(app, json=SAME).json()["score"]


def test_the_version_changes_with_the_threshold(toy: OnnxModel) -> None:
    versions = {ask(app_of(toy, t), json=SAME).json()["version"] for t in (0.6, 0.6, 0.7)}
    assert len(versions) == 2


@pytest.mark.parametrize(
    ("request_", "status", "code"),
    [
        ({"json": {"probe": "AAAA"}}, 400, "bad_fields"),
        ({"json": {**SAME, "extra": "1"}}, 400, "bad_fields"),
        ({"json": ["probe", "reference"]}, 400, "bad_fields"),
        ({"json": {**SAME, "probe": 3}}, 400, "bad_fields"),
        ({"json": {**SAME, "probe": "not base64!"}}, 400, "bad_base64"),
        ({"json": {**SAME, "probe": "QUJD"}}, 422, "unreadable"),
        ({"content": b"{", "headers": {"content-type": "application/json"}}, 400, "bad_json"),
        (
            {"content": b"[" * 100_000, "headers": {"content-type": "application/json"}},
            400,
            "bad_json",
        ),
        ({"content": b"hello", "headers": {"content-type": "text/plain"}}, 415, "unsupported_type"),
        ({"files": {"probe": b"1"}}, 400, "bad_fields"),
        ({"data": {"probe": "a"}, "files": {"reference": b"x"}}, 400, "bad_fields"),
        (
            {"content": b"--x", "headers": {"content-type": "multipart/form-data"}},
            400,
            "bad_multipart",
        ),
    ],
)
def test_what_holds_no_two_pictures_is_refused_by_name(
    toy: OnnxModel, request_: dict[str, Any], status: int, code: str
) -> None:
    answer = ask(app_of(toy), **request_)
    assert (answer.status_code, answer.json()["error"]["code"]) == (status, code)


def test_bodies_over_the_limit_are_not_read(toy: OnnxModel) -> None:
    app = app_of(toy, max_bytes=5000)
    big = question(b"x" * 4000, b"y" * 4000)
    assert ask(app, json=big).status_code == 413

    async def drip(client: httpx.AsyncClient) -> httpx.Response:
        async def parts() -> Any:
            for _ in range(100):
                yield b" " * 100

        return await client.post(
            "/v1/verify", content=parts(), headers={"content-type": "application/json"}
        )

    assert talk(app, drip).status_code == 413


def test_bombs_and_specks_are_refused_before_decoding(toy: OnnxModel) -> None:
    sink = io.BytesIO()
    Image.new("L", (4000, 4000)).save(sink, "PNG")
    assert len(sink.getvalue()) < 40_000
    app = app_of(toy)
    for blob, code in ((sink.getvalue(), "too_large"), (encoded(pattern(1, side=20)), "too_small")):
        answer = ask(app, json=question(encoded(pattern(1)), blob))
        assert answer.status_code == 422
        assert answer.json()["error"] == {
            "code": code,
            "picture": "reference",
            "message": answer.json()["error"]["message"],
        }


def test_crops_that_wait_for_the_model_are_small(toy: OnnxModel) -> None:
    large = question(encoded(pattern(1, side=1100)), encoded(pattern(1)))
    answer = ask(app_of(toy, max_pixels=16_000_000), json=large)
    assert answer.status_code == 422 and answer.json()["error"]["code"] == "too_large"


def test_keys_limits_and_quotas(toy: OnnxModel) -> None:
    keys = {
        "fast": KeyEntry(key=KEY),
        "slow": KeyEntry(key="s" * 16, per_second=0.5),
        "few": KeyEntry(key="f" * 16, per_day=2),
    }
    app = app_of(toy, keys=keys, limits=Limits())

    async def story(client: httpx.AsyncClient) -> dict[str, list[httpx.Response]]:
        found: dict[str, list[httpx.Response]] = {}
        for key in ("", "nobody" * 4, KEY, "s" * 16, "f" * 16):
            headers = {"X-Api-Key": key} if key else {}
            found[key] = [
                await client.post("/v1/verify", json=SAME, headers=headers) for _ in range(4)
            ]
        return found

    found = talk(app, story)
    codes = {key: [answer.status_code for answer in answers] for key, answers in found.items()}
    assert codes[""] == codes["nobody" * 4] == [401] * 4
    assert codes[KEY] == [200] * 4
    assert codes["s" * 16] == [200, 429, 429, 429]
    assert codes["f" * 16] == [200, 200, 429, 429]
    assert 1 <= int(found["s" * 16][1].headers["retry-after"]) <= 2
    assert 1 <= int(found["f" * 16][2].headers["retry-after"]) <= 86_400


def test_concurrent_questions_share_batches_and_keep_their_answers(toy: OnnxModel) -> None:
    app = app_of(toy, scale=ScoreScale(decimals=6), max_batch=16)
    questions = [question(encoded(pattern(k)), encoded(pattern(k % 3, 1))) for k in range(40)]

    async def story(client: httpx.AsyncClient) -> tuple[list[float], list[float]]:
        alone = [(await client.post("/v1/verify", json=q)).json()["score"] for q in questions]
        answers = await asyncio.gather(*(client.post("/v1/verify", json=q) for q in questions))
        return alone, [answer.json()["score"] for answer in answers]

    alone, together = talk(app, story)
    np.testing.assert_allclose(alone, together, atol=1e-3)
    assert 2 < app.state.service.batcher.largest <= 16


def test_a_full_queue_asks_to_come_back(toy: OnnxModel) -> None:
    app = app_of(toy, max_waiting=1, max_batch=2)

    async def story(client: httpx.AsyncClient) -> list[httpx.Response]:
        return await asyncio.gather(*(client.post("/v1/verify", json=SAME) for _ in range(30)))

    answers = talk(app, story)
    busy = [answer for answer in answers if answer.status_code == 503]
    assert {answer.status_code for answer in answers} == {200, 503}
    assert all(answer.headers["retry-after"] == "1" for answer in busy)


class Moody(FRModel):
    """Has no finite answer for dark pictures, and fails the batch they are in."""

    differentiable = False

    def __init__(self, inner: OnnxModel) -> None:
        self.inner, self.card = inner, inner.card

    def embed(self, images: Images) -> Embeddings:
        if (images.mean((1, 2, 3)) < 0.01).any():
            raise NonFiniteAnswer("NaN")
        return self.inner.embed(images)

    def embed_grad(self, images: Any) -> Any:
        raise NotImplementedError


def test_a_model_that_answers_nan_refuses_that_question_only(toy: OnnxModel) -> None:
    app = app_of(Moody(toy))
    dark = question(encoded(np.zeros((112, 112, 3), np.uint8)), encoded(pattern(1)))

    async def story(client: httpx.AsyncClient) -> list[httpx.Response]:
        asked = [SAME, dark, OTHER, dark, SAME]
        return await asyncio.gather(*(client.post("/v1/verify", json=q) for q in asked))

    answers = talk(app, story)
    assert [answer.status_code for answer in answers] == [200, 422, 200, 422, 200]
    assert answers[1].json()["error"]["code"] == "no_score"


class Broken(Moody):
    """Fails for a reason that no picture is to blame for."""

    def embed(self, images: Images) -> Embeddings:
        raise EngineError("out of memory at 0x7f")


def test_a_broken_engine_is_no_verdict_on_a_picture(toy: OnnxModel) -> None:
    answer = ask(app_of(Broken(toy)), json=SAME)
    assert (answer.status_code, answer.json()["error"]["code"]) == (500, "engine")
    assert "0x7f" not in answer.text


def test_pictures_without_a_face_are_rejected(toy: OnnxModel, shared_data: Path) -> None:
    detector = Detector(shared_data / "models" / "detectors" / "yunet_n_dynamic.onnx")
    app = app_of(toy, aligner=Aligner(detector=detector))
    face = next((shared_data / "lfw_250_fold1").rglob("*.jpg")).read_bytes()
    assert ask(app, json=question(face, face)).json()["match"] is True
    answer = ask(app, json=question(face, encoded(np.full((250, 250, 3), 90, np.uint8))))
    assert answer.status_code == 422
    assert answer.json()["error"]["code"] == "no_face"
    assert answer.json()["error"]["picture"] == "reference"


def test_a_blocked_client_stays_out_and_others_do_not(toy: OnnxModel) -> None:
    keys = {"honest": KeyEntry(key=KEY), "walker": KeyEntry(key="w" * 16)}
    app = app_of(toy, keys=keys, watch=WatchSettings(action="block", neighbours=5, memory=50))
    start, end = pattern(1).astype(float), pattern(2).astype(float)
    steps = [encoded((start + (end - start) * k / 400).astype(np.uint8)) for k in range(30)]

    async def story(client: httpx.AsyncClient) -> tuple[list[int], list[int]]:
        walk = [
            await client.post(
                "/v1/verify",
                json=question(step, encoded(pattern(3))),
                headers={"X-Api-Key": "w" * 16},
            )
            for step in steps
        ]
        honest = [
            await client.post(
                "/v1/verify",
                json=question(encoded(pattern(k)), encoded(pattern(k, 1))),
                headers={"X-Api-Key": KEY},
            )
            for k in range(30)
        ]
        return [a.status_code for a in walk], [a.status_code for a in honest]

    walk, honest = talk(app, story)
    assert honest == [200] * 30
    assert walk.index(403) < 12 and set(walk[walk.index(403) :]) == {403}


def test_a_flagged_client_is_served_and_reported(
    toy: OnnxModel, caplog: pytest.LogCaptureFixture
) -> None:
    app = app_of(toy, watch=WatchSettings(action="flag", neighbours=5, memory=50))
    start, end = pattern(1).astype(float), pattern(2).astype(float)
    steps = [encoded((start + (end - start) * k / 400).astype(np.uint8)) for k in range(12)]

    async def story(client: httpx.AsyncClient) -> list[int]:
        asked = [question(step, encoded(pattern(3))) for step in steps]
        return [(await client.post("/v1/verify", json=each)).status_code for each in asked]

    with caplog.at_level(logging.INFO, "onnxfr.service"):
        assert talk(app, story) == [200] * 12
    alarms = [record for record in caplog.records if record.msg == "query_attack"]
    assert alarms and alarms[0].fields["client"] == "anonymous"  # type: ignore[attr-defined]


def test_no_more_bodies_are_read_than_may_be_held(toy: OnnxModel) -> None:
    app = app_of(toy, max_waiting=3)
    release = asyncio.Event()

    async def slow() -> Any:
        yield b'{"probe": "'
        await release.wait()
        yield b'"}'

    async def story(client: httpx.AsyncClient) -> tuple[list[int], int]:
        kind = {"content-type": "application/json"}
        held = [
            asyncio.create_task(client.post("/v1/verify", content=slow(), headers=kind))
            for _ in range(3)
        ]
        while app.state.service._under_way < 3:
            await asyncio.sleep(0.01)
        refused = await client.post("/v1/verify", json=SAME)
        release.set()
        answers = await asyncio.gather(*held)
        after = await client.post("/v1/verify", json=SAME)
        assert refused.status_code == 503 and refused.headers["retry-after"] == "1"
        return [answer.status_code for answer in answers], after.status_code

    assert talk(app, story) == ([400] * 3, 200)


def test_the_log_is_json_without_pictures_or_keys(
    toy: OnnxModel, caplog: pytest.LogCaptureFixture
) -> None:
    from onnxfr.service.logs import JsonLines

    app = app_of(toy, keys={"alice": KeyEntry(key=KEY)})
    with caplog.at_level(logging.INFO, "onnxfr.service"):
        ask(app, json=SAME, headers={"X-Api-Key": KEY})
    lines = [JsonLines().format(record) for record in caplog.records if record.msg == "verify"]
    content = json.loads(lines[0])
    assert content["client"] == "alice" and content["status"] == 200 and content["ms"] > 0
    assert KEY not in lines[0] and SAME["probe"][:20] not in lines[0]


def test_outside_addresses_need_keys(toy: OnnxModel) -> None:
    with pytest.raises(SpecError, match="--keys"):
        serve(Verifier(toy, 0.5), ServiceSettings(), host="0.0.0.0", port=0, ready=lambda url: None)
