from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from toy_faces import make_faces

from onnxfr.data.images import load_pixels, to_images
from onnxfr.data.pairs import PairSet, open_pairs
from onnxfr.errors import SpecError
from onnxfr.evaluators.games import block_rows, clean_threshold, load_games, rows_of
from onnxfr.metrics.protocols import fixed_accuracy, oracle_accuracy
from onnxfr.metrics.thresholds import Threshold
from onnxfr.models.wrapper import load_model
from onnxfr.runs.cells import DataRef, ModelRef
from onnxfr.runs.context import Context
from onnxfr.types import Goal, Images

World = tuple[Context, ModelRef, DataRef]


@pytest.fixture
def world(tmp_path: Path, toy_model: Path, toy_faces: Path) -> World:
    context = Context(tmp_path)
    return context, context.identify(str(toy_model)), context.describe(f"folder:{toy_faces}")


def test_each_goal_starts_from_its_own_class_and_draws_are_nested(toy_faces: Path) -> None:
    pairs = open_pairs(f"folder:{toy_faces}")
    same = dict(zip(pairs.pair_ids(), pairs.same.tolist(), strict=True))
    assert all(same[name] for name in rows_of(pairs, Goal.DODGE))
    assert not any(same[name] for name in rows_of(pairs, Goal.IMPERSONATE))
    few, more = (rows_of(pairs, Goal.DODGE, limit, seed=3) for limit in (4, 9))
    assert len(few) == 4 and set(few) < set(more)
    assert few != rows_of(pairs, Goal.DODGE, 4, seed=4)


def test_a_game_holds_the_pictures_of_its_pair(world: World) -> None:
    context, model, data = world
    pairs = context.pairs(data)
    wanted = rows_of(pairs, Goal.IMPERSONATE, 5)
    games = load_games(context, model, data, wanted, align="no")
    assert games.probe.ids == wanted and not games.unplayable
    assert games.probe.references is not None
    scores = load_model(model.ref).similarity(games.probe.images, games.probe.references)
    every = load_games(context, model, data, None, align="no")
    assert every.probe.references is not None
    np.testing.assert_array_equal(every.probe.images[games.rows], games.probe.images)
    assert np.isfinite(scores).all()


def test_thresholds_are_those_of_the_whole_clean_data_set(world: World) -> None:
    context, model, data = world
    games = load_games(context, model, data, None, align="no")
    pairs = context.pairs(data)
    assert games.probe.references is not None
    scores = load_model(model.ref).similarity(games.probe.images, games.probe.references)
    best = clean_threshold(context, model, data, "oracle", align="no")
    # Added up in another order, scores differ by so much from those that set the threshold.
    found = fixed_accuracy(scores + 3e-7, pairs.same, best).accuracy.value
    assert found == pytest.approx(oracle_accuracy(scores, pairs.same).accuracy.value)
    assert best.origin.endswith("@oracle")
    frozen = clean_threshold(context, model, data, "fmr=0.05", align="no")
    assert (scores[~pairs.same] + 3e-7 > frozen.value).mean() <= 0.05
    assert clean_threshold(context, model, data, "fixed=0.25") == Threshold(0.25)
    for rule in ("fmr=x", "median", "fmr=0", "fixed=1.2", "fixed=nan", "oracle=1"):
        with pytest.raises(SpecError):
            clean_threshold(context, model, data, rule, align="no")


def test_the_pool_holds_other_people_and_hangs_on_the_seed_alone(world: World) -> None:
    context, model, data = world
    pools = [
        load_games(context, model, data, rows, align="no", pool_seed=seed).probe.pool
        for rows, seed in ((range(2), 1), (range(5, 9), 1), (range(2), 2))
    ]
    assert all(pool is not None and len(pool) == 8 for pool in pools)
    np.testing.assert_array_equal(pools[0], pools[1])
    assert not np.array_equal(pools[0], pools[2])


def _owners(pool: Images, pairs: PairSet) -> list[int]:
    """Return the picture that each face of a pool is."""
    faces = to_images([load_pixels(image) for image in pairs.images])
    return [int(np.abs(faces - face).max(axis=(1, 2, 3)).argmin()) for face in pool]


@pytest.mark.parametrize("named", [True, False])
def test_no_pair_is_offered_a_face_of_its_own_people(
    tmp_path: Path, toy_model: Path, named: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Where nobody is named, the genuine pairs tell which pictures show one person."""
    context, faces = Context(tmp_path / "cache"), make_faces(tmp_path / "faces", 24, 2)
    model, data = context.identify(str(toy_model)), context.describe(f"folder:{faces}")
    pairs = context.pairs(data)
    if not named:
        nobody = replace(pairs, images=tuple(replace(i, identity=None) for i in pairs.images))
        monkeypatch.setattr(context, "pairs", lambda ref: nobody)
    rows = rows_of(pairs, Goal.DODGE, 12) + rows_of(pairs, Goal.IMPERSONATE, 12)
    games = load_games(context, model, data, rows, align="no", pool_seed=1)
    assert games.probe.pool is not None and games.probe.strangers is not None
    people = [image.identity for image in pairs.images]
    shown = [people[k] for k in _owners(games.probe.pool, pairs)]
    assert len(set(shown)) == len(shown) == 18
    for row, strangers in zip(games.rows, games.probe.strangers, strict=True):
        own = {people[int(pairs.left[row])], people[int(pairs.right[row])]}
        assert strangers.tolist() == [who not in own for who in shown]
    assert 16 <= games.probe.strangers.sum(axis=1).min() < 18


def test_a_pair_with_a_broken_picture_has_no_game_and_a_reason(
    tmp_path: Path, toy_model: Path
) -> None:
    faces = make_faces(tmp_path / "faces", people=4)
    context = Context(tmp_path / "cache")
    data, model = context.describe(f"folder:{faces}"), context.identify(str(toy_model))
    (faces / "p0" / "0.png").write_bytes(b"no picture")
    games = load_games(context, model, data, None, align="no")
    assert games.unplayable and all("p0/0.png" in why for why in games.unplayable.values())
    assert len(games.rows) + len(games.unplayable) == data.pairs


def test_a_killed_process_never_loses_more_than_a_small_block() -> None:
    assert block_rows(500) == 50 and block_rows(3) == 3
    assert [block_rows(500, asked) for asked in (100, 5000, 20_000, 10**6)] == [50, 20, 8, 8]
