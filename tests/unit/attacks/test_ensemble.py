"""Several models as one: thresholds subtracted first, four ways to join gradients, hooks."""

from __future__ import annotations

from typing import Any, get_args

import numpy as np
import pytest
import torch
from attack_games import Shattered, tiny_model, tiny_probe, tiny_threshold

from onnxfr.attacks import make_attack
from onnxfr.errors import SpecError, UnsupportedModel
from onnxfr.models.ensemble import Ensemble, Mode
from onnxfr.models.features import embed_hooked
from onnxfr.models.wrapper import OnnxModel
from onnxfr.oracle import Oracle
from onnxfr.threat import Threat
from onnxfr.types import Goal, Norm

THRESHOLDS = (0.9, 0.99)


@pytest.fixture(scope="module")
def members(tmp_path_factory: pytest.TempPathFactory) -> tuple[OnnxModel, OnnxModel]:
    place = tmp_path_factory.getbasetemp()
    return tiny_model(place, 0), tiny_model(place, 1)


def game(model: Ensemble | OnnxModel, threshold: float | None = None) -> Oracle:
    return Oracle(
        model,
        tiny_probe(4),
        Threat(eps=0.05),
        goal=Goal.IMPERSONATE,
        threshold=threshold,
        dtype=torch.float64,
        device="cpu",
    )


def parts(members: tuple[OnnxModel, OnnxModel]) -> tuple[np.ndarray, list[torch.Tensor]]:
    margins, slopes = [], []
    for model, threshold in zip(members, THRESHOLDS, strict=True):
        oracle = game(model, threshold)
        margins.append(oracle.score(tiny_probe(4).images))
        slopes.append(oracle.gradient(oracle.tensor(tiny_probe(4).images))[1])
    return np.stack(margins), slopes


@pytest.mark.parametrize("mode", ["margin", "loss", "alternating", "gradient"])
def test_margin_is_the_mean_margin_in_every_mode(
    members: tuple[OnnxModel, OnnxModel], mode: Mode
) -> None:
    together = game(Ensemble(members, THRESHOLDS, mode))
    expected = parts(members)[0].mean(0)
    images = tiny_probe(4).images
    np.testing.assert_allclose(together.score(images), expected, atol=1e-6)
    margin, _ = together.gradient(together.tensor(images))
    np.testing.assert_allclose(margin, expected, atol=3e-5)


def test_the_joined_embedding_says_the_same(members: tuple[OnnxModel, OnnxModel]) -> None:
    ensemble, probe = Ensemble(members, THRESHOLDS), tiny_probe(4)
    assert probe.references is not None
    found = ensemble.embed(probe.images)
    np.testing.assert_allclose(np.linalg.norm(found, axis=1), 1.0, rtol=1e-5)
    margin = ensemble.similarity(probe.images, probe.references) - ensemble.threshold
    np.testing.assert_allclose(margin, parts(members)[0].mean(0), atol=1e-6)
    assert ensemble.card.embedding_dim == 128


def test_each_mode_joins_gradients_in_its_way(members: tuple[OnnxModel, OnnxModel]) -> None:
    first, second = parts(members)[1]

    def joined(mode: Mode, turn: int = 0) -> torch.Tensor:
        oracle = game(Ensemble(members, THRESHOLDS, mode))
        return oracle.gradient(oracle.tensor(tiny_probe(4).images), turn=turn)[1]

    torch.testing.assert_close(joined("margin"), (first + second) / 2)
    torch.testing.assert_close(joined("alternating", 0), first)
    torch.testing.assert_close(joined("alternating", 3), second)
    unit = [g / g.abs().sum((1, 2, 3), keepdim=True) for g in (first, second)]
    length = (first.abs().sum((1, 2, 3)) + second.abs().sum((1, 2, 3))) / 2
    expected = (unit[0] + unit[1]) / 2 * length.reshape(-1, 1, 1, 1)
    torch.testing.assert_close(joined("gradient"), expected)
    assert not torch.allclose(joined("loss"), joined("margin"))


@pytest.mark.parametrize("mode", ["margin", "loss", "alternating", "gradient"])
def test_attacks_run_on_ensembles(members: tuple[OnnxModel, OnnxModel], mode: Mode) -> None:
    oracle, probe = game(Ensemble(members, THRESHOLDS, mode)), tiny_probe(4)
    before = oracle.verify(probe.images)
    result = make_attack("mim", {"steps": 6})(oracle, probe, Threat(eps=0.05), seed=0)
    tried = ~result.won_clean
    assert tried.any() and (result.margin[tried] > before[tried]).all()


@pytest.mark.parametrize("name", ["apgd", "pgd", "dim", "vmi"])
def test_members_take_turns_in_every_ascent(
    members: tuple[OnnxModel, OnnxModel], monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    """Members that never lead would not be attacked at all."""
    asked: list[str] = []

    def watched(model: OnnxModel) -> Any:
        plain = model.embed_grad

        def embed_grad(images: torch.Tensor) -> torch.Tensor:
            if torch.is_grad_enabled():
                asked.append(model.name)
            return plain(images)

        return embed_grad

    for member in members:
        monkeypatch.setattr(member, "embed_grad", watched(member))
    oracle, probe = game(Ensemble(members, (0.999, 0.999), "alternating")), tiny_probe(4)
    result = make_attack(name, {"steps": 6})(oracle, probe, oracle.threat)
    shares = [asked.count(member.name) for member in members]
    assert sum(shares) == result.gradients.max() and min(shares) >= sum(shares) // 2


@pytest.mark.parametrize("name", ["fab", "deepfool", "fmn", "brendel_bethge"])
@pytest.mark.parametrize("norm", ["linf", "l2"])
def test_every_mode_tells_how_fast_the_margin_grows(
    members: tuple[OnnxModel, OnnxModel], norm: Norm, name: str
) -> None:
    """Attacks that linearise the margin need the length of the gradient, not its sign alone."""
    probe, threat = tiny_probe(6), Threat(norm=norm)
    limits = [tiny_threshold(member, probe, Goal.DODGE) for member in members]
    found = {}
    for mode in get_args(Mode):
        model = Ensemble(members, limits, mode)
        oracle = Oracle(model, probe, threat, goal=Goal.DODGE, dtype=torch.float64, device="cpu")
        result = make_attack(name)(oracle, probe, threat, seed=0)
        assert result.won.all(), mode
        found[mode] = result.distance.mean()
    assert max(found.values()) < 1.2 * found["margin"]


def test_nonsense_is_refused(members: tuple[OnnxModel, OnnxModel]) -> None:
    with pytest.raises(SpecError, match="one threshold for each"):
        Ensemble(members, (0.1,))
    with pytest.raises(SpecError, match="mode"):
        Ensemble(members, THRESHOLDS, "mean")  # type: ignore[arg-type]


def test_hooks_see_every_convolution_and_an_idle_hook_changes_nothing(
    members: tuple[OnnxModel, OnnxModel],
) -> None:
    seen = []

    def watch(at: int, value: torch.Tensor, which: slice) -> torch.Tensor:
        assert which == slice(0, 2)
        seen.append((at, tuple(value.shape)))
        return value

    x = torch.as_tensor(tiny_probe(2).images)
    result = embed_hooked(members[0], x, watch)
    torch.testing.assert_close(result, members[0].embed_grad(x))
    assert seen == [(0, (2, 8, 8, 8)), (1, (2, 16, 4, 4))]
    with pytest.raises(UnsupportedModel, match="out of reach"):
        embed_hooked(Shattered(members[0]), x, watch)


@pytest.mark.parametrize("mode", ["margin", "loss", "alternating", "gradient"])
def test_members_may_look_through_shared_views(
    members: tuple[OnnxModel, OnnxModel], mode: Mode
) -> None:
    together = game(Ensemble(members, THRESHOLDS, mode))
    attack = make_attack("lgc+dim", {"steps": 2})
    result = attack(together, tiny_probe(4), together.threat)
    assert (result.gradients[~result.won_clean] == 2).all()
    assert not result.bad_gradients.any()
