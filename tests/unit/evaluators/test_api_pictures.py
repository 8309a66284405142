"""Whole pictures for services: whom an attacker is offered as a stranger."""

from __future__ import annotations

from pathlib import Path

from toy_faces import make_faces

from onnxfr.evaluators.api_pictures import pool_of, read_pairs
from onnxfr.runs.context import Context


def test_the_owners_of_the_pool_are_known_as_the_pairs_people_are(tmp_path: Path) -> None:
    context, faces = Context(tmp_path / "cache"), make_faces(tmp_path / "faces", 24, 2)
    pairs = context.pairs(context.describe(f"folder:{faces}"))
    asked = read_pairs(pairs, range(8))
    pool, owners = pool_of(pairs, asked[0].probe.shape, seed=1)
    assert pool is not None and len(pool) == len(owners) == len(set(owners.tolist())) == 18
    for each in asked:
        own = [k for k, owner in enumerate(owners) if owner in each.people]
        pictures = {each.left_identity, each.right_identity}
        assert len(own) <= len(pictures)
        assert (each.people[0] == each.people[1]) == each.same == (len(pictures) == 1)
