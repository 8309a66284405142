"""Whole pictures for services: whom an attacker is offered as a stranger."""

from __future__ import annotations

from pathlib import Path

import cv2
import pytest
from toy_faces import make_faces

from onnxfr.evaluators import api_pictures
from onnxfr.evaluators.api_pictures import pool_of, read_pairs, read_portions
from onnxfr.runs.context import Context


def test_the_owners_of_the_pool_are_known_as_the_pairs_people_are(tmp_path: Path) -> None:
    context, faces = Context(tmp_path / "cache"), make_faces(tmp_path / "faces", 24, 2)
    pairs = context.pairs(context.describe(f"folder:{faces}"))
    asked = list(read_pairs(pairs, range(8)))
    pool, owners = pool_of(pairs, asked[0].probe.shape, seed=1)
    assert pool is not None and len(pool) == len(owners) == len(set(owners.tolist())) == 18
    for each in asked:
        own = [k for k, owner in enumerate(owners) if owner in each.people]
        pictures = {each.left_identity, each.right_identity}
        assert len(own) <= len(pictures)
        assert (each.people[0] == each.people[1]) == each.same == (len(pictures) == 1)


def test_strangers_of_any_size_are_offered_in_the_frame_of_the_probe(tmp_path: Path) -> None:
    context, faces = Context(tmp_path / "cache"), make_faces(tmp_path / "faces", 24, 2)
    for number, path in enumerate(sorted(faces.rglob("*.png"))):
        picture = cv2.imread(str(path))
        cv2.imwrite(str(path), cv2.resize(picture, (100 + number, 130 - number)))
    pairs = context.pairs(context.describe(f"folder:{faces}"))
    pool, owners = pool_of(pairs, (3, 90, 110), seed=1)
    assert pool is not None and pool.shape == (18, 3, 90, 110) and len(owners) == 18


@pytest.mark.parametrize(("most", "faces"), [(10**9, 18), (10 * 112 * 112, 10), (1, 3)])
def test_large_strangers_are_fewer(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, most: int, faces: int
) -> None:
    context, place = Context(tmp_path / "cache"), make_faces(tmp_path / "faces", 24, 2)
    pairs = context.pairs(context.describe(f"folder:{place}"))
    monkeypatch.setattr(api_pictures, "MOST_PIXELS", most)
    pool, _ = pool_of(pairs, (3, 112, 112), seed=1)
    assert pool is not None and len(pool) == faces


@pytest.mark.parametrize(("most", "sizes"), [(10**9, [6]), (50_000, [1] * 6), (60_000, [2] * 3)])
def test_large_pictures_are_held_in_portions(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, most: int, sizes: list[int]
) -> None:
    context, faces = Context(tmp_path / "cache"), make_faces(tmp_path / "faces", 6, 2)
    pairs = context.pairs(context.describe(f"folder:{faces}"))
    (each, *_) = whole = list(read_pairs(pairs, range(6)))
    assert (each.probe.size + each.reference.size) // 3 == 2 * 112 * 112 == 25_088
    monkeypatch.setattr(api_pictures, "MOST_PIXELS", most)
    portions = list(read_portions(pairs, range(6)))
    assert [len(portion) for portion in portions] == sizes
    assert [e.pair for portion in portions for e in portion] == [e.pair for e in whole]
    assert list(read_portions(pairs, [])) == []
