"""A self-hosted service that tells distances, the way DeepFace's own does, as a target."""

from __future__ import annotations

import base64
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from fastapi import FastAPI, Request
from fastapi.responses import JSONResponse

sys.path.insert(0, str(Path(__file__).parent))
sys.path.insert(0, str(Path(__file__).parents[1] / "unit" / "evaluators"))

from remote_games import free_port, pattern_probe, running
from toy_faces import make_model

from onnxfr.attacks import make_attack
from onnxfr.data.images import decode, to_images
from onnxfr.models.remote.adapter import Adapter, Answer, parse_adapter
from onnxfr.models.remote.model import RemoteModel
from onnxfr.models.remote.reading import Kind
from onnxfr.models.wrapper import OnnxModel, load_model
from onnxfr.oracle import Oracle
from onnxfr.probe import Probe
from onnxfr.threat import Threat
from onnxfr.types import Goal, Images

THRESHOLD = 0.7
DOCS = (Path(__file__).parents[2] / "docs" / "service.md").read_text(encoding="utf-8")
ANSWERS: dict[str, dict[str, Any]] = {
    "as documented": {},
    "no decision": {"decision": None},
    "fixed": {"decision": None, "threshold_path": None, "threshold": THRESHOLD},
}


def adapter_for(port: int, **changes: Any) -> Adapter:
    """Return the adapter that the documentation shows, with another way to read the answer."""
    text = next(part for part in DOCS.split("```toml\n") if part.startswith('name = "my_deepface"'))
    adapter = parse_adapter(text.partition("```")[0], "docs/service.md")
    answer = Answer.model_validate(adapter.answer.model_dump() | changes)
    adapter = adapter.with_parameters({"url": f"http://127.0.0.1:{port}"})
    return adapter.model_copy(update={"answer": answer})


def distances(model: OnnxModel, images: Images, references: Images) -> np.ndarray[Any, Any]:
    return 1 - np.einsum("ij,ij->i", model.embed(images), model.embed(references))


def service(model: OnnxModel) -> FastAPI:
    app = FastAPI()

    @app.post("/verify")
    async def verify(request: Request) -> Any:
        asked = await request.json()
        probe, reference = (
            to_images([decode(base64.b64decode(asked[name].partition(",")[2]), name)])
            for name in ("img1", "img2")
        )
        if probe.mean() < 0.02:
            return JSONResponse({"error": "Exception while verifying: no face"}, 400)
        far = float(distances(model, probe, reference)[0])
        return JSONResponse({"verified": far < THRESHOLD, "distance": far, "threshold": THRESHOLD})

    return app


@pytest.fixture(scope="module")
def toy(tmp_path_factory: pytest.TempPathFactory) -> OnnxModel:
    return load_model(make_model(tmp_path_factory.mktemp("model") / "toy"), threads=1)


@pytest.mark.parametrize("changes", ANSWERS.values(), ids=ANSWERS)
def test_decisions_and_margins_are_the_services_own(
    toy: OnnxModel, tmp_path: Path, changes: dict[str, Any]
) -> None:
    probe = mixed_pairs()
    assert probe.references is not None
    far, port = distances(toy, probe.images, probe.references), free_port()
    with running(service(toy), port):
        model = RemoteModel(adapter_for(port, **changes), tmp_path / "j")
        verdicts = model.verdicts(probe.images, probe.references)
        (dark,) = model.verdicts(np.zeros_like(probe.images[:1]), probe.references[:1])
    assert dark is not None and dark.kind is Kind.REJECTED
    told = [each for each in verdicts if each is not None]
    assert [each.match for each in told] == (far < THRESHOLD).tolist()
    assert {each.match for each in told} == {True, False}
    margins = [each.margin(model.adapter.answer) for each in told]
    np.testing.assert_allclose(margins, (THRESHOLD - far) / 2, atol=1e-6)


@pytest.mark.parametrize("goal", [Goal.IMPERSONATE, Goal.DODGE])
def test_a_score_attack_comes_closer_and_wins(toy: OnnxModel, tmp_path: Path, goal: Goal) -> None:
    probe, threat = mixed_pairs(), Threat(norm="linf", eps=32 / 255, max_queries=60)
    assert probe.references is not None
    before, port = distances(toy, probe.images, probe.references), free_port()
    attacked = before < THRESHOLD if goal is Goal.DODGE else before >= THRESHOLD
    with running(service(toy), port):
        model = RemoteModel(adapter_for(port, **ANSWERS["fixed"]), tmp_path / "j")
        oracle = Oracle(model, probe, threat, goal=goal)
        result = make_attack("square")(oracle, probe, threat, seed=1)
    after = distances(toy, np.round(result.images * 255).astype(np.float32) / 255, probe.references)
    progress = after - before if goal is Goal.DODGE else before - after
    assert (progress[attacked] > 0.02).all()
    assert result.won.any() and (result.won_clean == ~attacked).all()
    accepted = after < THRESHOLD
    np.testing.assert_array_equal(
        result.won[attacked], (accepted != (goal is Goal.DODGE))[attacked]
    )


def mixed_pairs() -> Probe:
    """Return six pairs, of which the last three are mixed with their references."""
    probe = pattern_probe(6)
    assert probe.references is not None
    images = probe.images.copy()
    images[3:] = 0.55 * images[3:] + 0.45 * probe.references[3:]
    return Probe(np.round(images * 255).astype(np.float32) / 255, probe.ids, probe.references)
