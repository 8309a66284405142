from __future__ import annotations

import threading
from pathlib import Path

import numpy as np
import pytest

from onnxfr.data import stream
from onnxfr.data.builder import PairBuilder
from onnxfr.data.images import load_pixels
from onnxfr.data.pairs import ImageSource, PairSet, Problem, open_pairs
from onnxfr.data.stream import read_all
from onnxfr.errors import DataError
from onnxfr.types import Pixels

BAD = {3: b"", 50: b"junk", 99: b"P5 5 5 255\nshort"}


@pytest.fixture
def pairs() -> PairSet:
    builder = PairBuilder("toy")
    for k in range(100):
        blob = BAD.get(k, b"P5 4 4 255\n" + bytes([k]) * 16)
        builder.image(ImageSource(f"{k}.pgm", blob=blob))
    for k in range(0, 100, 2):
        builder.pair(f"{k}.pgm", f"{k + 1}.pgm", True)
    return builder.build()


def test_bad_files_are_reported_in_their_place_and_the_rest_goes_on(pairs: PairSet) -> None:
    items = list(read_all(pairs, workers=3))
    assert [index for index, _ in items] == list(range(100))
    problems = {index: item for index, item in items if isinstance(item, Problem)}
    assert sorted(problems) == sorted(BAD)
    assert problems[50].name == "50.pgm"
    assert not problems[50].reason.startswith("50.pgm")
    good = [(index, item) for index, item in items if not isinstance(item, Problem)]
    assert all(item[0, 0, 0] == index for index, item in good)
    kept = pairs.without(problems)
    assert len(kept) == 47
    assert len(kept.problems) == 3


def test_strict_raises_the_first(pairs: PairSet) -> None:
    with pytest.raises(DataError, match=r"3\.pgm"):
        list(read_all(pairs, strict=True))


def test_any_order_can_be_asked_for(pairs: PairSet) -> None:
    wanted = [70, 2, 2, 41]
    assert [index for index, _ in read_all(pairs, wanted)] == wanted
    assert [index for index, _ in read_all(pairs, np.array(wanted))] == wanted
    assert list(read_all(pairs, [])) == []


def test_memory_is_bounded_and_threads_end(pairs: PairSet, monkeypatch: pytest.MonkeyPatch) -> None:
    started: list[str] = []

    def counting(source: ImageSource) -> Pixels:
        started.append(source.id)
        return load_pixels(source)

    monkeypatch.setattr(stream, "load_pixels", counting)
    reader = read_all(pairs, list(range(100)) * 20, workers=2)
    next(reader)
    limit = 16 * (2 * 2 + 1)
    assert len(started) <= limit
    reader.close()  # type: ignore[attr-defined]
    assert len(started) <= limit
    assert not [t for t in threading.enumerate() if t.name.startswith("onnxfr-read_")]


def test_real_faces_in_order(shared_data: Path) -> None:
    pairs = open_pairs(f"lfw:{shared_data}", pairs=100)
    for index, pixels in read_all(pairs):
        assert not isinstance(pixels, Problem)
        if index % 40 == 0:
            assert np.array_equal(pixels, load_pixels(pairs.images[index]))
