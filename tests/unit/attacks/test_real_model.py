"""A real MobileFaceNet and real faces: attacks win as they should, and no red flag is raised."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from onnxfr import checks
from onnxfr.attacks import make_attack
from onnxfr.attacks._check_games import slopes
from onnxfr.data.images import decode, to_images
from onnxfr.models.admission import admit
from onnxfr.models.wrapper import OnnxModel, load_model
from onnxfr.oracle import Oracle
from onnxfr.probe import Probe
from onnxfr.threat import Threat
from onnxfr.types import Goal, Norm

THRESHOLD = 0.275
PAIRS = 2


@pytest.fixture(scope="module")
def y1(shared_data: Path, tmp_path_factory: pytest.TempPathFactory) -> OnnxModel:
    folder = tmp_path_factory.mktemp("models") / "y1"
    source = shared_data / "models" / "onnx" / "mobilefacenet_y1_from_mxnet.onnx"
    admit(source, folder, preprocess="rgb,0-255")
    return load_model(folder, threads=1)


@pytest.fixture(scope="module")
def probes(shared_data: Path) -> dict[Goal, Probe]:
    lines = (shared_data / "pairs.txt").read_text().splitlines()[1:]

    def pictures(named: list[tuple[str, str]]) -> np.ndarray:
        paths = [shared_data / "lfw_112" / n / f"{n}_{int(k):04d}.jpg" for n, k in named]
        return to_images([decode(path.read_bytes(), path.name) for path in paths])

    found = {}
    for goal, count in ((Goal.DODGE, 3), (Goal.IMPERSONATE, 4)):
        rows = [line.split() for line in lines if len(line.split()) == count][:PAIRS]
        left = [(row[0], row[1]) for row in rows]
        right = [(row[-2] if count == 4 else row[0], row[-1]) for row in rows]
        ids = tuple("/".join(row) for row in rows)
        found[goal] = Probe(pictures(left), ids, references=pictures(right))
    return found


def play(model: OnnxModel, probe: Probe, threat: Threat, goal: Goal) -> Oracle:
    return Oracle(model, probe, threat, goal=goal, threshold=THRESHOLD, device="cpu")


@pytest.mark.parametrize("goal", list(Goal))
def test_bim_wins_every_pair_at_the_usual_budget_and_survives_a_file(
    y1: OnnxModel, probes: dict[Goal, Probe], goal: Goal
) -> None:
    threat = Threat(eps=8 / 255)
    result = make_attack("bim", {"steps": 5})(
        play(y1, probes[goal], threat, goal), probes[goal], threat, seed=0
    )
    assert not result.won_clean.any()
    assert result.won.all() and result.won_8bit.all()
    assert result.margin.min() > 0.2


@pytest.mark.parametrize(("norm", "most"), [("linf", 4.0), ("l2", 2.5)])
def test_minima_are_a_few_grey_levels(
    y1: OnnxModel, probes: dict[Goal, Probe], norm: Norm, most: float
) -> None:
    goal, threat = Goal.DODGE, Threat(norm=norm)
    result = make_attack("fmn", {"steps": 25})(
        play(y1, probes[goal], threat, goal), probes[goal], threat, seed=0
    )
    assert result.won.all()
    assert (result.cost * 255 > 0.2).all() and (result.cost * 255 < most).all()


def test_gradients_of_the_converted_graph_say_how_served_scores_move(
    y1: OnnxModel, probes: dict[Goal, Probe]
) -> None:
    goal = Goal.IMPERSONATE
    oracle = play(y1, probes[goal], Threat(), goal)
    flag = checks.finite_differences(*slopes(oracle, probes[goal], "linf"))
    assert flag.light == "green", flag


def test_sums_and_dropout_run_on_a_real_graph(y1: OnnxModel, probes: dict[Goal, Probe]) -> None:
    goal, threat = Goal.IMPERSONATE, Threat(eps=8 / 255)
    for text in ("cim+dim+tim", "dfanet"):
        oracle = play(y1, probes[goal], threat, goal)
        result = make_attack(text, {"steps": 4})(oracle, probes[goal], threat, seed=0)
        assert (result.margin > oracle.verify(probes[goal].images)).all()


def test_dropout_leaves_the_surrogate_worth_asking(
    y1: OnnxModel, probes: dict[Goal, Probe]
) -> None:
    threat, goal = Threat(eps=4 / 255), Goal.DODGE
    margins = {
        name: make_attack(name, {"steps": 8})(
            play(y1, probes[goal], threat, goal), probes[goal], threat, seed=0
        ).margin
        for name in ("mim", "dfanet")
    }
    assert (margins["dfanet"] > 0).all()
    assert (margins["dfanet"] > 0.6 * margins["mim"]).all()
