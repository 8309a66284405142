from __future__ import annotations

import pytest

from onnxfr.cli.listing import KINDS


@pytest.mark.parametrize("kind", sorted(KINDS))
def test_every_listed_thing_is_told_in_words(kind: str) -> None:
    assert all(row["what"] for row in KINDS[kind]())


@pytest.mark.parametrize("kind", ["evaluators", "exporters", "presets"])
def test_the_words_tell_one_thing_from_another(kind: str) -> None:
    told = [row["what"] for row in KINDS[kind]()]
    assert len(set(told)) == len(told) > 1
