"""Which measurement of a card a set of pairs is compared with."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from onnxfr.cli.zoo_verifying import data_name, expected
from onnxfr.data.pairs import PairSet, open_pairs
from onnxfr.model_zoo import zoo_card


def pairs_of(folds: tuple[int, ...] | None, aligned: bool | None) -> PairSet:
    count = 20 if folds is None else 2 * len(folds)
    ids = None if folds is None else np.repeat(np.array(folds, dtype=np.int64), 2)
    zero = np.zeros(count, dtype=np.intp)
    same = np.arange(count) % 2 == 0
    return PairSet("lfw", (), zero, zero, same, fold=ids, aligned=aligned)


@pytest.mark.parametrize(
    ("folds", "aligned", "name"),
    [
        (tuple(range(10)), True, "lfw"),
        (None, None, "lfw"),
        (tuple(range(10)), False, "lfw-raw"),
        ((0,), False, "lfw-raw-fold1"),
        ((0, 2), True, "lfw-fold1+3"),
    ],
)
def test_raw_pictures_and_parts_are_data_of_their_own(
    folds: tuple[int, ...] | None, aligned: bool | None, name: str
) -> None:
    assert data_name(pairs_of(folds, aligned)) == name


def test_the_real_folders_have_the_names_cards_use(shared_data: Path) -> None:
    raw = open_pairs(f"lfw:{shared_data / 'lfw_250_fold1'},folds=1")
    assert data_name(raw) == "lfw-raw-fold1"
    stated = expected(zoo_card("dlib_resnet29"), data_name(raw), "oracle")
    assert stated is not None
    assert stated.value == 99.0
    assert expected(zoo_card("sface"), data_name(raw), "oracle") is None
