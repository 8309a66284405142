"""What every registered attack promises, for both goals and each of its norms."""

from __future__ import annotations

import dataclasses
import json
import sys
from functools import lru_cache
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

sys.path.insert(0, str(Path(__file__).parents[1] / "unit" / "attacks"))

from attack_games import SIDE, small, tiny_game, tiny_model, tiny_probe

from onnxfr.attacks import ATTACKS, Attack, AttackResult, make_attack
from onnxfr.errors import AccessDenied, AttackError, SpecError
from onnxfr.models.wrapper import OnnxModel
from onnxfr.oracle import Oracle
from onnxfr.probe import Probe
from onnxfr.threat import Threat
from onnxfr.types import Access, Goal, Norm

EPS = 0.06
ROWS = 3
ODD: dict[type, tuple[float, ...]] = {
    int: (0, -1),
    float: (float("nan"), -1.0, 0.0, 1.0, float("inf")),
}
"""Values that every number among the settings is given once."""
QUERIES = {Access.DECISION: 150, Access.SCORE: 300, Access.GRADIENT: None}
CASES = [
    (name, goal, norm) for name, kind in ATTACKS.items() for goal in Goal for norm in kind().norms
]

pytestmark = pytest.mark.usefixtures("one_thread")


@pytest.fixture
def one_thread() -> Any:
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)


@pytest.fixture(scope="session")
def model(tmp_path_factory: pytest.TempPathFactory) -> OnnxModel:
    return tiny_model(tmp_path_factory.getbasetemp())


def rules(attack: Attack, norm: Norm, **more: Any) -> Threat:
    cap = QUERIES[attack.access]
    budget = EPS if attack.seeks == "any" else None
    return Threat(norm=norm, **{"eps": budget, "max_queries": cap, **more})


@lru_cache(maxsize=128)
def played(model: OnnxModel, name: str, goal: Goal, norm: Norm) -> tuple[Probe, AttackResult]:
    probe, attack = tiny_probe(ROWS), small(name)
    threat = rules(attack, norm)
    return probe, attack(tiny_game(model, probe, threat, goal), probe, threat, seed=1)


@pytest.mark.parametrize("name", ATTACKS.names())
def test_is_its_parameters(name: str) -> None:
    attack = ATTACKS.get(name)()
    with pytest.raises(dataclasses.FrozenInstanceError):
        attack.anything = 1  # type: ignore[attr-defined]
    stored = json.loads(json.dumps(attack.parameters()))
    assert make_attack(name, stored) == attack
    assert attack.paper and attack.name == name
    assert ATTACKS.get(name).__module__.rsplit(".", 1)[1].lstrip("_") in (name, "search")


@pytest.mark.parametrize("name", ATTACKS.names())
def test_odd_settings_are_refused_or_work(model: OnnxModel, name: str) -> None:
    """An attack that asks nothing, or whose gradients say nothing, would read as robustness."""
    attack, probe = small(name), tiny_probe(1)
    threat = rules(attack, attack.norms[0], max_queries=30)
    for field in dataclasses.fields(attack):
        for odd in ODD.get(type(getattr(attack, field.name)), ()):
            try:
                changed = dataclasses.replace(attack, **{field.name: odd})
            except SpecError as refused:
                assert f"{name}: {field.name} is " in str(refused), refused
                continue
            result = changed(tiny_game(model, probe, threat, Goal.DODGE), probe, threat, seed=0)
            told = f"{field.name}={odd}"
            assert (result.queries + result.gradients > 0).all(), told
            assert not result.bad_gradients.any(), told
            assert np.isfinite(result.images).all() and np.isfinite(result.margin).all(), told


@pytest.mark.parametrize(("name", "goal", "norm"), CASES)
def test_stays_within_the_rules(model: OnnxModel, name: str, goal: Goal, norm: Norm) -> None:
    probe, result = played(model, name, goal, norm)
    threat = rules(small(name), norm)
    assert result.images.shape == probe.images.shape and result.images.dtype == np.float32
    assert np.isfinite(result.images).all()
    assert result.images.min() >= 0 and result.images.max() <= 1
    if threat.eps is not None:
        assert (threat.distance(probe.images, result.images) <= EPS + 1e-6).all()
    assert not result.won_clean.any()


@pytest.mark.parametrize(("name", "goal", "norm"), CASES)
def test_won_agrees_with_onnxruntime(model: OnnxModel, name: str, goal: Goal, norm: Norm) -> None:
    probe, result = played(model, name, goal, norm)
    threat = rules(small(name), norm)
    judge = tiny_game(model, probe, threat, goal)
    assert ((judge.verify(result.images) > 0) == result.won).all()
    files = threat.as_file(probe.images, result.images)
    assert ((judge.verify(files) > 0) == result.won_8bit).all()


@pytest.mark.parametrize(("name", "goal", "norm"), CASES)
def test_beats_noise_of_the_same_size(model: OnnxModel, name: str, goal: Goal, norm: Norm) -> None:
    probe, result = played(model, name, goal, norm)
    size = np.where(result.distance > 0, result.distance, EPS)
    noise = np.random.default_rng(0).standard_normal(probe.images.shape)
    threat = Threat(norm=norm, eps=size)
    direction = threat.steepest(torch.as_tensor(noise)).numpy() * size[:, None, None, None]
    noisy = np.clip(probe.images + direction, 0, 1).astype(np.float32)
    judge = tiny_game(model, probe, threat, goal)
    assert result.margin.mean() > judge.verify(noisy).mean()


@pytest.mark.parametrize(("name", "goal", "norm"), CASES)
def test_same_seed_same_bytes_and_nothing_else_touched(
    model: OnnxModel, name: str, goal: Goal, norm: Norm
) -> None:
    _, before = played(model, name, goal, norm)
    probe, attack = tiny_probe(ROWS), small(name)
    threat = rules(attack, norm)
    original = probe.images.copy()
    numpy_state, torch_state = np.random.get_state()[1], torch.get_rng_state()  # noqa: NPY002
    again = attack(tiny_game(model, probe, threat, goal), probe, threat, seed=1)
    assert again.images.tobytes() == before.images.tobytes()
    assert (again.queries == before.queries).all() and again.trace == before.trace
    assert (probe.images == original).all()
    assert (np.random.get_state()[1] == numpy_state).all()  # noqa: NPY002
    assert torch.equal(torch.get_rng_state(), torch_state)


@pytest.mark.parametrize(("name", "goal", "norm"), CASES)
def test_a_row_alone_is_the_row_in_the_batch(
    model: OnnxModel, name: str, goal: Goal, norm: Norm
) -> None:
    probe, together = played(model, name, goal, norm)
    attack = small(name)
    threat = rules(attack, norm)
    batch = tiny_game(model, probe, threat, goal)
    row = np.array([1])
    single = Oracle(
        model,
        probe.take(row),
        threat,
        goal=goal,
        threshold=batch._thresholds[0],
        dtype=torch.float64,
        device="cpu",
    )
    alone = attack(single, probe.take(row), threat, seed=1)
    np.testing.assert_allclose(alone.images[0], together.images[1], atol=2e-5)
    assert alone.queries[0] == together.queries[1]
    assert alone.gradients[0] == together.gradients[1]


@pytest.mark.parametrize("cap", [1, 37, 1000])
@pytest.mark.parametrize(("name", "goal", "norm"), CASES)
def test_keeps_to_its_cap(model: OnnxModel, name: str, goal: Goal, norm: Norm, cap: int) -> None:
    if cap == 1000 and norm == "l2" and goal is Goal.DODGE:
        pytest.skip("the longest case is run for the other goal")
    probe, attack = tiny_probe(2), small(name)
    threat = rules(attack, norm, max_queries=cap)
    result = attack(tiny_game(model, probe, threat, goal), probe, threat, seed=0)
    assert (result.queries <= cap).all() and (result.gradients <= cap).all()


@pytest.mark.parametrize("name", ATTACKS.names())
def test_asks_nothing_above_its_access(model: OnnxModel, name: str) -> None:
    probe, attack = tiny_probe(2), small(name)
    threat = rules(attack, attack.norms[0])
    oracle = tiny_game(model, probe, threat, Goal.DODGE, access=attack.access)
    attack(oracle, probe, threat, seed=0)
    if attack.access > Access.DECISION:
        weaker = Access(attack.access - 1)
        with pytest.raises(AccessDenied, match="needs"):
            attack(tiny_game(model, probe, threat, Goal.DODGE, access=weaker), probe, threat)


@pytest.mark.parametrize("name", ATTACKS.names())
def test_refuses_what_it_cannot_do(model: OnnxModel, name: str) -> None:
    probe, attack = tiny_probe(2), small(name)
    for norm in set(("linf", "l2")) - set(attack.norms):
        threat = rules(attack, norm)
        with pytest.raises(AttackError, match="works in"):
            attack(tiny_game(model, probe, threat, Goal.DODGE), probe, threat)
    if attack.seeks == "any":
        threat = Threat(norm=attack.norms[0])
        with pytest.raises(AttackError, match="eps"):
            attack(tiny_game(model, probe, threat, Goal.DODGE), probe, threat)
    for field in attack.needs:
        bare = dataclasses.replace(probe, **{field: None})
        threat = rules(attack, attack.norms[0])
        with pytest.raises(AttackError, match=field):
            attack(tiny_game(model, bare, threat, Goal.DODGE), bare, threat)


@pytest.mark.parametrize("name", ATTACKS.names())
def test_no_rows_are_no_trouble(model: OnnxModel, name: str) -> None:
    attack = small(name)
    none = tiny_probe(2).take(np.zeros(0, dtype=np.intp))
    threat = rules(attack, attack.norms[0])
    result = attack(tiny_game(model, none, threat, Goal.DODGE), none, threat)
    assert result.images.shape == (0, 3, SIDE, SIDE) and result.won.shape == (0,)


@pytest.mark.parametrize("name", [n for n, k in ATTACKS.items() if k().access >= Access.SCORE])
def test_changes_nothing_outside_the_region(model: OnnxModel, name: str) -> None:
    region = np.zeros((1, SIDE, SIDE), dtype=np.float32)
    region[:, 4:12, 4:12] = 1
    probe, attack = tiny_probe(2), small(name)
    threat = rules(attack, attack.norms[0], region=region)
    result = attack(tiny_game(model, probe, threat, Goal.DODGE), probe, threat, seed=0)
    outside = np.abs(result.images - probe.images) * (1 - region)
    assert outside.max() <= 1e-6
    assert (result.images != probe.images).any()
