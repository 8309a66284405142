"""Galleries and the faces that open them."""

from __future__ import annotations

import numpy as np
import pytest
from attack_games import tiny_probe

from onnxfr.attacks.decision.master_face import search_master_faces
from onnxfr.errors import AccessDenied, DataError, NonFiniteAnswer, SpecError
from onnxfr.gallery import Gallery
from onnxfr.models.wrapper import FRModel, OnnxModel
from onnxfr.types import Access, Embeddings, Images


def faces(count: int, seed: int) -> Images:
    return tiny_probe(count, seed=seed).images


def gallery(tiny: OnnxModel, share: float = 0.1, **settings: object) -> Gallery:
    """Return forty people, with a threshold that a natural face passes for ``share`` of them."""
    people, pool = faces(40, 1), faces(30, 2)
    cosines = tiny.embed(pool) @ tiny.embed(people).T
    threshold = float(np.quantile(cosines, 1 - share))
    return Gallery(tiny, people, threshold, **settings)  # type: ignore[arg-type]


def test_a_gallery_tells_who_matches_and_counts_pictures(tiny: OnnxModel) -> None:
    shelf = gallery(tiny, max_queries=50)
    matched = shelf.match(faces(40, 1))
    assert matched.shape == (40, 40) and matched.diagonal().all()
    assert shelf.queries == 40 and shelf.left == 10
    with pytest.raises(AccessDenied, match="10 questions are left"):
        shelf.match(faces(11, 5))
    assert shelf.queries == 40
    with pytest.raises(AccessDenied, match="not how well"):
        shelf.margins(faces(1, 5))
    with pytest.raises(DataError, match="person"):
        Gallery(tiny, faces(1, 1)[:0], 0.5)
    with pytest.raises(SpecError, match="max_queries"):
        Gallery(tiny, faces(1, 1), 0.5, max_queries=0)


@pytest.mark.parametrize("access", [Access.DECISION, Access.SCORE])
def test_a_master_face_matches_more_than_any_natural_one(tiny: OnnxModel, access: Access) -> None:
    shelf = gallery(tiny, access=access)
    found = search_master_faces(shelf, faces(30, 2), faces=2, queries=400)
    assert found.coverage[0] > found.natural
    assert found.coverage[1] >= found.coverage[0]
    assert (shelf.match(found.pictures) == found.matched).all()
    assert found.queries <= 800
    again = search_master_faces(gallery(tiny, access=access), faces(30, 2), faces=2, queries=400)
    assert (again.pictures == found.pictures).all()


class Moody(FRModel):
    """Has no finite answer for bright pictures."""

    differentiable = False

    def __init__(self, inner: OnnxModel, limit: float) -> None:
        self.inner, self.card, self.limit = inner, inner.card, limit

    def embed(self, images: Images) -> Embeddings:
        if (images.mean((1, 2, 3)) > self.limit).any():
            raise NonFiniteAnswer("NaN in some rows")
        return self.inner.embed(images)

    def embed_grad(self, images: object) -> object:  # type: ignore[override]
        raise NotImplementedError


@pytest.mark.parametrize("access", [Access.DECISION, Access.SCORE])
def test_a_picture_without_an_embedding_matches_nobody(tiny: OnnxModel, access: Access) -> None:
    pool = faces(30, 2)
    brightness = np.sort(pool.mean((1, 2, 3)))
    moody = Moody(tiny, float(brightness[20]))
    people = faces(40, 1)
    people = people[people.mean((1, 2, 3)) < moody.limit]
    shelf = Gallery(moody, people, -1.0, access=access)
    told = shelf.match(pool)
    assert told[pool.mean((1, 2, 3)) <= moody.limit].all()
    assert not told[pool.mean((1, 2, 3)) > moody.limit].any()
    found = search_master_faces(shelf, pool, queries=100)
    assert found.coverage[-1] == 1
    with pytest.raises(NonFiniteAnswer):
        Gallery(moody, pool, 0.5)


def gallery_used_up(tiny: OnnxModel) -> Gallery:
    shelf = gallery(tiny, max_queries=3)
    shelf.match(faces(3, 5))
    return shelf


@pytest.mark.parametrize("queries", [1, 7, 30, 31])
def test_the_pools_own_questions_are_within_the_cap(tiny: OnnxModel, queries: int) -> None:
    shelf = gallery(tiny)
    found = search_master_faces(shelf, faces(30, 2), faces=1, queries=queries, population=1)
    assert found.queries == shelf.queries == queries


def test_the_search_keeps_to_what_the_gallery_allows(tiny: OnnxModel) -> None:
    for cap in (1, 30, 75):
        shelf = gallery(tiny, max_queries=cap)
        found = search_master_faces(shelf, faces(30, 2), faces=2, queries=1000)
        assert shelf.queries <= cap and found.queries == shelf.queries
        assert len(found.pictures) >= 1
    with pytest.raises(AccessDenied, match="no question is left"):
        search_master_faces(gallery_used_up(tiny), faces(30, 2))
    with pytest.raises(DataError, match="two"):
        search_master_faces(gallery(tiny), faces(1, 2))
