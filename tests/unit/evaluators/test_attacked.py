"""Games to records: what is stored about a pair, and how randomised models are judged."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import cv2
import numpy as np
import pytest
from toy_faces import Dice

from onnxfr.attacks import make_attack
from onnxfr.data.pairs import open_pairs
from onnxfr.errors import NonFiniteAnswer, SpecError
from onnxfr.evaluators.attacked import (
    EOT_SAMPLES,
    PICTURES,
    Rules,
    answered,
    fight,
    games_for,
    needs_of,
    records_of,
)
from onnxfr.evaluators.games import blocks_of, clean_threshold, load_games, rows_of
from onnxfr.evaluators.planning import plan_run
from onnxfr.models.wrapper import load_model
from onnxfr.runs.cells import DataRef, ModelRef
from onnxfr.runs.context import Context
from onnxfr.runs.spec import make_spec
from onnxfr.threat import Threat
from onnxfr.types import Embeddings, Goal, Images

World = tuple[Context, ModelRef, DataRef]


@pytest.fixture
def world(tmp_path: Path, toy_model: Path, toy_faces: Path) -> World:
    context = Context(tmp_path)
    return context, context.identify(str(toy_model)), context.describe(f"folder:{toy_faces}")


def rules_of(world: World, goal: Goal = Goal.DODGE, eps: float | None = 8 / 255) -> Rules:
    threshold = clean_threshold(*world, "oracle", align="no")
    return Rules(goal=goal, threat=Threat(norm="linf", eps=eps), threshold=threshold)


def test_blocks_of_a_small_draw_begin_a_larger_one(toy_faces: Path) -> None:
    pairs = open_pairs(f"folder:{toy_faces}")
    few = blocks_of(pairs, Goal.DODGE, 8, 3, 4)
    more = blocks_of(pairs, Goal.DODGE, 14, 3, 4)
    assert [len(block) for block in more] == [4, 4, 4, 2]
    assert more[:2] == few
    assert {name for block in more for name in block} == set(rows_of(pairs, Goal.DODGE, 14, 3))


@pytest.mark.parametrize("goal", Goal)
def test_records_say_all_about_a_pair(world: World, goal: Goal) -> None:
    context, model, data = world
    rules = rules_of(world, goal)
    rows = rows_of(context.pairs(data), goal, 6)
    attack = make_attack("bim")
    games = games_for(context, model, data, rows, attack, align="no")
    fought = fight(load_model(model.ref), games.probe, attack, rules)
    assert not fought.randomised and fought.rules.samples == 1
    records = records_of(context.pairs(data), games, fought, shown=rows[:1])
    assert [record["pair"] for record in records] == list(games.probe.ids)
    for k, record in enumerate(records):
        assert record["same"] == (goal is Goal.DODGE)
        assert record["linf"] == pytest.approx(fought.result.distance[k], abs=1e-6)
        assert record["linf"] <= 8 / 255 + 1e-6
        assert record["threshold_origin"].endswith("@oracle")
        assert (record["gradients_to_win"] is not None) == (record["won"] or record["won_clean"])
        shown = record["pair"] == rows[0]
        assert all((record[name] is not None) == shown for name in PICTURES)
    face = cv2.imdecode(np.frombuffer(records[0]["clean_picture"], np.uint8), cv2.IMREAD_COLOR)
    assert face.shape == (112, 112, 3)


def test_pairs_without_a_game_are_recorded_too(world: World, tmp_path: Path) -> None:
    context, model, data = world
    games = load_games(context, model, data, range(2), align="no")
    games.unplayable[5] = "no face"
    fought = fight(load_model(model.ref), games.probe, make_attack("fgsm"), rules_of(world))
    record = records_of(context.pairs(data), games, fought)[-1]
    assert (record["outcome"], record["reason"]) == ("unplayable", "no face")


def test_a_randomised_model_is_recognised_and_judged_over_fresh_draws(world: World) -> None:
    context, model, data = world
    rules = rules_of(world)
    games = load_games(
        context, model, data, rows_of(context.pairs(data), Goal.DODGE, 4), align="no"
    )
    fought = fight(Dice(load_model(model.ref)), games.probe, make_attack("bim(steps=3)"), rules)
    assert fought.randomised and fought.rules.samples == EOT_SAMPLES
    honest = rules.oracle(load_model(model.ref), games.probe).verify(fought.result.images)
    np.testing.assert_allclose(fought.result.margin, honest, atol=0.05)


def test_what_an_attack_needs_is_known_through_sums_and_searches() -> None:
    assert needs_of(make_attack("smallest:lgc+dim")) == {"landmarks"}
    assert needs_of(make_attack("admix")) == {"pool"}
    assert needs_of(make_attack("bim")) == set()


@pytest.mark.parametrize(
    ("name", "setting"),
    [
        ("white_box", "attacks"),
        ("api", "attacks"),
        ("corruption_attack", "attacks_on_corrupted"),
    ],
)
def test_an_attack_that_needs_a_surrogate_is_refused_before_the_work(
    world: World, name: str, setting: str
) -> None:
    context, model, data = world
    asked = {"name": name, "params": {setting: ["qeba(space=surrogate)"]}}
    spec = {"models": [model.ref], "data": [data.spec], "evaluators": [asked]}
    with pytest.raises(SpecError, match="query and its setting surrogate"):
        plan_run(make_spec(spec, Path.cwd()), context)


def test_missing_landmarks_are_told_with_the_remedy(world: World) -> None:
    context, model, data = world
    with pytest.raises(SpecError, match="accept-licence"):
        games_for(context, model, data, range(1), make_attack("lgc"), align="no")
    games = games_for(context, model, data, range(1), make_attack("admix"), align="no")
    assert games.probe.pool is not None


class Blind(Dice):
    """Has no finite answer for dark pictures."""

    def embed(self, images: Images) -> Embeddings:
        dark = np.flatnonzero(images.mean(axis=(1, 2, 3)) < 0.05)
        if dark.size:
            raise NonFiniteAnswer(f"NaN in {dark.size} of {len(images)} rows")
        return self.inner.embed(images)


@pytest.mark.parametrize("side", ["images", "references"])
@pytest.mark.parametrize("place", [0, 3, 5])
def test_a_pair_without_a_finite_answer_is_left_out_wherever_it_stands(
    world: World, side: str, place: int
) -> None:
    context, ref, data = world
    rows = rows_of(context.pairs(data), Goal.DODGE, 6)
    games, model = load_games(context, ref, data, rows), Blind(context.model(ref))
    assert answered(model, games) is games
    pictures = getattr(games.probe, side).copy()
    pictures[place] = 0
    games = replace(games, probe=replace(games.probe, **{side: pictures}))
    fair = answered(model, games)
    assert len(fair.probe) == len(fair.rows) == 5 and games.rows[place] not in fair.rows
    rules = replace(rules_of(world), threat=Threat(norm="linf", eps=8 / 255, max_queries=20))
    fought = fight(model, fair.probe, make_attack("square"), rules)
    records = records_of(context.pairs(data), fair, fought)
    assert [r["outcome"] for r in records] == ["played"] * 5 + ["unplayable"]
    assert "no finite answer" in records[-1]["reason"]
    # And where one slips through, it spoils no other pair and is never won.
    result = fight(model, games.probe, make_attack("square"), rules).result
    others = np.delete(np.arange(6), place)
    assert not result.won[place] or side == "images"
    np.testing.assert_array_equal(result.won[others], fought.result.won)
