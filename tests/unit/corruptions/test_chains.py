"""The chain grammar and what the steps do."""

from __future__ import annotations

import contextlib

import cv2
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray

from onnxfr.corruptions import CORRUPTIONS, Chain, apply_chain, corrupt, parse_chain
from onnxfr.corruptions.occluders import TEMPLATE
from onnxfr.errors import DataError, OnnxfrError, SpecError
from onnxfr.rng import stream


@pytest.fixture(scope="module")
def images() -> NDArray[np.uint8]:
    coarse = stream(0, "chain").integers(0, 256, (2, 8, 8, 3), dtype=np.uint8)
    return np.stack([cv2.resize(one, (112, 112)) for one in coarse])


def test_spelling_is_canonical_and_reads_back() -> None:
    chain = parse_chain("resize:.5>jpeg:30 >webp: 20 > fog@2")
    assert str(chain) == "resize:0.5 > jpeg:30 > webp:20 > fog@2"
    assert parse_chain(str(chain)) == chain


@pytest.mark.parametrize(
    ("text", "hint"),
    [
        ("", "not understood"),
        ("jpeg:30 >", "not understood"),
        ("jpeg", "jpeg:<JPEG quality>"),
        ("jepg:30", "not understood"),
        ("jpeg:0", "from 1 to 100"),
        ("jpeg:abc", "got 'abc'"),
        ("jpeg:nan", "from 1 to 100"),
        ("resize:inf", "from 0.05 to 4"),
        ("fog@9", "severity"),
        ("fog@x", "severity"),
    ],
)
def test_mistakes_are_named(text: str, hint: str) -> None:
    with pytest.raises(SpecError, match=hint.replace("(", r"\(")):
        parse_chain(text)


def test_an_unknown_corruption_gets_suggestions() -> None:
    with pytest.raises(OnnxfrError, match="gaussian_noise"):
        parse_chain("gausian_noise@2")


@settings(max_examples=50, deadline=None)
@given(st.text(max_size=40))
def test_any_text_parses_or_gives_our_error(text: str) -> None:
    with contextlib.suppress(OnnxfrError):
        assert isinstance(parse_chain(text), Chain)


def test_the_result_has_the_first_size_and_the_input_stays(images: NDArray[np.uint8]) -> None:
    before = images.copy()
    for batch in (images, np.ascontiguousarray(images[:, :, :90, 0])):
        out = apply_chain(batch, "resize:0.5 > jpeg:30 > webp:20", ids=["a", "b"])
        assert out.shape == batch.shape and out.dtype == np.uint8
        assert (out != batch).any() and not np.shares_memory(out, batch)
    assert (images == before).all()


def test_randomness_belongs_to_id_and_step(images: NDArray[np.uint8]) -> None:
    once = apply_chain(images, "noise:0.1", ids=["a", "b"])
    assert (apply_chain(images[1:], "noise:0.1", ids=["b"])[0] == once[1]).all()
    plain = np.full((1, 112, 112, 3), 128, dtype=np.uint8)
    first = apply_chain(plain, "noise:0.05", ids=["a"]).astype(int) - 128
    both = apply_chain(plain, "noise:0.05 > noise:0.05", ids=["a"]).astype(int) - 128
    assert np.corrcoef(first.ravel(), (both - first).ravel())[0, 1] == pytest.approx(0, abs=0.05)


def test_steps_may_be_registered_corruptions(images: NDArray[np.uint8]) -> None:
    chained = apply_chain(images, "contrast@2", ids=["a", "b"])
    assert (chained == corrupt(images, "contrast", 2, ids=["a", "b"])).all()


def test_a_corruption_after_too_much_shrinking_is_refused(images: NDArray[np.uint8]) -> None:
    with pytest.raises(DataError, match="move the step forward"):
        apply_chain(images, "resize:0.3 > fog@1", ids=["a", "b"])


def test_order_matters(images: NDArray[np.uint8]) -> None:
    one = apply_chain(images, "resize:0.5 > jpeg:10", ids=["a", "b"])
    other = apply_chain(images, "jpeg:10 > resize:0.5", ids=["a", "b"])
    assert (one != other).any()


def worn(picture: NDArray[np.uint8]) -> NDArray[np.intp]:
    """Left, top, right and bottom of what covers a grey picture."""
    rows, columns = np.nonzero(np.abs(picture.astype(int) - 128).max(axis=-1) > 40)
    return np.array([columns.min(), rows.min(), columns.max(), rows.max()])


def test_an_occluder_sits_on_the_landmarks_wherever_it_stands_in_the_chain() -> None:
    photo = np.full((1, 250, 230, 3), 128, dtype=np.uint8)
    points = (np.array(TEMPLATE, dtype=np.float32) * 0.9 + np.array([75, 90], np.float32))[None]
    alone = corrupt(photo, "sunglasses", 5, ids=["a"], landmarks=points)
    chained = apply_chain(photo, "sunglasses@5", ids=["a"], landmarks=points)
    assert (chained == alone).all()
    for before in ("jpeg:95", "resize:0.5", "resize:1.6"):
        sent = apply_chain(photo, f"{before} > sunglasses@5", ids=["a"], landmarks=points)
        assert np.abs(worn(sent[0]) - worn(alone[0])).max() <= 2, before


def test_a_resized_crop_without_landmarks_keeps_the_template_it_was_cut_for() -> None:
    crop = np.full((1, 256, 256, 3), 128, dtype=np.uint8)
    alone = corrupt(crop, "sunglasses", 5, ids=["a"])
    sent = apply_chain(crop, "resize:0.7 > sunglasses@5", ids=["a"])
    assert np.abs(worn(sent[0]) - worn(alone[0])).max() <= 2


def test_frost_photographs_and_landmarks_of_a_chain_are_used_and_checked() -> None:
    images = np.full((2, 112, 112, 3), 128, dtype=np.uint8)
    red = np.zeros((300, 300, 3), dtype=np.uint8)
    red[..., 0] = 255
    sent = apply_chain(images, "frost@3 > jpeg:95", ids=["a", "b"], frost_photographs=[red])
    assert sent[..., 0].min() > 200 and sent[..., 1:].max() < 120
    with pytest.raises(DataError, match="landmarks"):
        apply_chain(images, "jpeg:95", ids=["a", "b"], landmarks=np.zeros((1, 5, 2)))


def test_messenger_levels_are_chains_that_parse() -> None:
    entry = CORRUPTIONS.get("messenger")
    for severity in range(1, 6):
        (text,) = entry.parameters(severity)
        assert str(parse_chain(str(text))) == text
