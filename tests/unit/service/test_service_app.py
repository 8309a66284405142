"""The service's answers to good, bad and too large questions."""

from __future__ import annotations

import asyncio
import io
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import httpx
import numpy as np
import pytest
from PIL import Image
from service_games import OTHER, SAME, app_of, ask, encoded, pattern, question, talk

from onnxfr.alignment.aligner import Aligner
from onnxfr.alignment.detector import Detector
from onnxfr.errors import EngineError, NonFiniteAnswer
from onnxfr.models.wrapper import FRModel, OnnxModel
from onnxfr.service.verifier import ScoreScale, Verifier
from onnxfr.types import Embeddings, Images


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


def test_the_version_changes_with_every_setting_that_changes_answers(toy: OnnxModel) -> None:
    def detector(sha256: str = "a", min_score: float = 0.6) -> Detector:
        return cast(Detector, SimpleNamespace(sha256=sha256, min_score=min_score))

    settings: list[dict[str, Any]] = [
        {},
        {"max_pixels": 2000},
        {"scale": ScoreScale()},
        {"aligner": Aligner("whole")},
        {"aligner": Aligner("whole", (128, 128))},
        {"aligner": Aligner("arcface", detector=detector())},
        {"aligner": Aligner("dlib", (112, 112), detector=detector())},
        {"aligner": Aligner("arcface", detector=detector(), min_face=40)},
        {"aligner": Aligner("arcface", detector=detector(sha256="b"))},
        {"aligner": Aligner("arcface", detector=detector(min_score=0.9))},
    ]
    versions = [Verifier(toy, 0.6, **each).version for each in settings]
    assert len(set(versions)) == len(settings)
    again = Aligner("arcface", detector=detector())
    assert Verifier(toy, 0.6, aligner=again).version == versions[5]


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


@pytest.mark.parametrize("side", [8001, 15_000])
def test_a_picture_above_what_can_ever_be_read_is_too_large(toy: OnnxModel, side: int) -> None:
    sink = io.BytesIO()
    Image.new("1", (side, side)).save(sink, "PNG")
    app = app_of(toy, aligner=Aligner("whole"), max_pixels=100_000_000)
    answer = ask(app, json=question(encoded(pattern(1)), sink.getvalue()))
    assert answer.status_code == 422 and answer.json()["error"]["code"] == "too_large"


def test_crops_that_wait_for_the_model_are_small(toy: OnnxModel) -> None:
    large = question(encoded(pattern(1, side=1100)), encoded(pattern(1)))
    answer = ask(app_of(toy, max_pixels=16_000_000), json=large)
    assert answer.status_code == 422 and answer.json()["error"]["code"] == "too_large"


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
