"""Adapters against stand-ins that speak the vendors' forms, and our own service with scores."""

from __future__ import annotations

import base64
import sys
import uuid
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from fastapi import FastAPI, Request
from fastapi.responses import JSONResponse

sys.path.insert(0, str(Path(__file__).parent))
sys.path.insert(0, str(Path(__file__).parents[1] / "unit" / "evaluators"))

from remote_games import free_port, pattern_probe, running, served
from toy_faces import make_model

from onnxfr.data.images import decode, to_images
from onnxfr.errors import RemoteError
from onnxfr.models.remote.adapter import read_adapter
from onnxfr.models.remote.model import RemoteModel
from onnxfr.models.remote.reading import Kind
from onnxfr.models.wrapper import OnnxModel, load_model
from onnxfr.oracle import Oracle
from onnxfr.probe import Probe
from onnxfr.service.app import build_app
from onnxfr.service.keys import KeyEntry
from onnxfr.service.settings import ServiceSettings
from onnxfr.service.verifier import ScoreScale, Verifier
from onnxfr.threat import Threat
from onnxfr.types import Goal, Images

KEY = "0123456789abcdef"


@pytest.fixture(scope="module")
def toy(tmp_path_factory: pytest.TempPathFactory) -> OnnxModel:
    return load_model(make_model(tmp_path_factory.mktemp("model") / "toy"), threads=1)


@pytest.fixture
def probe() -> Probe:
    return pattern_probe(5)


def remote(name: str, journal: Path, **parameters: str) -> RemoteModel:
    adapter = read_adapter(name).with_parameters(parameters)
    pace = adapter.pace.model_copy(update={"per_second": None, "retries": 1})
    return RemoteModel(adapter.model_copy(update={"pace": pace}), journal, budget=200)


def test_scores_come_through_rounded_as_the_service_tells_them(
    toy: OnnxModel, probe: Probe, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("ONNXFR_API_KEY", KEY)
    assert probe.references is not None
    port, threshold = free_port(), 0.2
    app = build_app(
        Verifier(toy, threshold, scale=ScoreScale()),
        ServiceSettings(keys={"me": KeyEntry(key=KEY)}),
    )
    with running(app, port):
        model = remote("onnxfr_score", tmp_path / "j", url=f"http://127.0.0.1:{port}")
        oracle = Oracle(model, probe, Threat(), goal=Goal.IMPERSONATE)
        margins = oracle.score(probe.images)
    expected = (toy.similarity(probe.images, probe.references) - threshold) / 2
    np.testing.assert_allclose(margins, expected, atol=2e-4)
    assert ((margins > 0) == (expected > 0)).all()


def test_our_own_service_asks_for_a_key_or_does_not(
    probe: Probe, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert probe.references is not None
    pairs = probe.images[:2], probe.references[:2]
    folder, port = make_model(tmp_path / "toy"), free_port()
    keys = tmp_path / "keys.toml"
    keys.write_text(f'[me]\nkey = "{KEY}"\n')
    url = f"http://127.0.0.1:{port}"
    monkeypatch.delenv("ONNXFR_API_KEY", raising=False)
    with served(folder, port, "--threshold", "0.2", "--keys", str(keys)):
        with pytest.raises(RemoteError, match=r"status 401.*unknown_key.*Check key"):
            remote("onnxfr", tmp_path / "a", url=url).verdicts(*pairs)
        monkeypatch.setenv("ONNXFR_API_KEY", KEY)
        told = remote("onnxfr", tmp_path / "a", url=url).verdicts(*pairs)
    expected = (load_model(folder, threads=1).similarity(*pairs) > 0.2).tolist()
    assert [each.match for each in told if each is not None] == expected
    monkeypatch.delenv("ONNXFR_API_KEY")
    with served(folder, port, "--threshold", "0.2", "--mode", "score"):
        told = remote("onnxfr_score", tmp_path / "b", url=url).verdicts(*pairs)
    assert [each.match for each in told if each is not None] == expected
    assert all(each is not None and each.score is not None for each in told)


def azure(model: OnnxModel) -> FastAPI:
    """Detect gives ids of embeddings (none for dark pictures), verify compares two of them."""
    app, known = FastAPI(), {}

    @app.post("/face/v1.2/detect")
    async def detect(request: Request) -> Any:
        assert request.headers["ocp-apim-subscription-key"] == KEY
        assert request.query_params["returnFaceId"] == "true"
        image = to_images([decode(await request.body(), "upload")])
        if image.mean() < 0.02:
            return JSONResponse([])
        name = str(uuid.uuid4())
        known[name] = model.embed(image)[0]
        return JSONResponse([{"faceId": name}])

    @app.post("/face/v1.2/verify")
    async def verify(request: Request) -> Any:
        asked = await request.json()
        score = float(known[asked["faceId1"]] @ known[asked["faceId2"]])
        return JSONResponse({"isIdentical": score > 0.2, "confidence": (score + 1) / 2})

    return app


def test_a_service_in_three_steps(
    toy: OnnxModel, probe: Probe, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("AZURE_FACE_KEY", KEY)
    assert probe.references is not None
    port = free_port()
    images = probe.images.copy()
    images[2] = 0.0
    with running(azure(toy), port):
        model = remote("azure_face", tmp_path / "j", endpoint=f"http://127.0.0.1:{port}")
        verdicts = model.verdicts(images, probe.references)
    kinds = [verdict.kind for verdict in verdicts if verdict is not None]
    assert kinds == [Kind.JUDGED, Kind.JUDGED, Kind.REJECTED, Kind.JUDGED, Kind.JUDGED]
    # The rejected picture cost one call of three; the other two were given back.
    assert model.journal.spent == 4 * 3 + 1


def chat(answers: list[str]) -> FastAPI:
    app = FastAPI()

    @app.post("/v1/chat/completions")
    async def complete(request: Request) -> Any:
        asked = await request.json()
        text, picture = asked["messages"][0]["content"]
        assert "Only 0 or 1" in text["text"]
        blob = base64.b64decode(picture["image_url"]["url"].partition(",")[2])
        both: Images = to_images([decode(blob, "joined")])
        assert both.shape[3] > 2 * both.shape[2]
        return JSONResponse({"choices": [{"message": {"content": answers.pop()}}]})

    return app


def test_a_chat_that_will_not_answer_is_counted(
    probe: Probe, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("VISION_CHAT_API_KEY", KEY)
    assert probe.references is not None
    port = free_port()
    with running(chat(["1", "0", "1.", "Sorry, no.", ""]), port):
        url = f"http://127.0.0.1:{port}/v1/chat/completions"
        model = remote("vision_chat", tmp_path / "j", url=url)
        verdicts = [model.verdicts(probe.images[[k]], probe.references[[k]])[0] for k in range(5)]
        oracle = Oracle(model, probe, Threat(), goal=Goal.DODGE)
        won = oracle.decide(probe.images)
    kinds = [verdict.kind for verdict in verdicts if verdict is not None]
    assert kinds == [Kind.INVALID, Kind.INVALID, Kind.JUDGED, Kind.JUDGED, Kind.JUDGED]
    assert won.tolist() == [False, False, False, True, False]
    assert oracle.refusals.tolist() == [1, 1, 0, 0, 0]
