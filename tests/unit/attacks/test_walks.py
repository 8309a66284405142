"""The driver that answers many walks at once: full batches, exact caps, no mixing of rows."""

from __future__ import annotations

import numpy as np
import pytest
from attack_games import tiny_game, tiny_probe

from onnxfr.attacks._walks import Picture, Walk, drive
from onnxfr.models.wrapper import OnnxModel
from onnxfr.oracle import Oracle
from onnxfr.threat import Threat
from onnxfr.types import Goal, Images


def game(tiny: OnnxModel, rows: int, cap: int | None = None, batch: int = 8) -> Oracle:
    return tiny_game(tiny, tiny_probe(rows), Threat(max_queries=cap), Goal.DODGE, batch_size=batch)


class Answerer:
    """Answers a row's pictures by their first pixel and keeps the sizes of the batches."""

    def __init__(self) -> None:
        self.sizes: list[int] = []

    def __call__(self, images: Images, rows: np.ndarray) -> np.ndarray:
        self.sizes.append(len(images))
        return images[:, 0, 0, 0] + 1000 * rows


def asking(row: int, questions: list[int], heard: dict[int, list[float]]) -> Walk[Picture | None]:
    for count in questions:
        pictures = np.arange(count, dtype=np.float32).reshape(-1, 1, 1, 1)
        answers = yield np.broadcast_to(pictures, (count, 3, 1, 1))
        heard.setdefault(row, []).extend(answers.tolist())
    return np.full((3, 1, 1), row, np.float32)


def test_every_walk_hears_its_own_answers_in_order(tiny: OnnxModel) -> None:
    wanted = {0: [1, 5, 1], 1: [20], 2: [3, 3], 3: [1] * 6}
    heard: dict[int, list[float]] = {}
    ends = drive(game(tiny, 4), Answerer(), Threat(), lambda row: asking(row, wanted[row], heard))
    for row, counts in wanted.items():
        assert heard[row] == [1000 * row + k for count in counts for k in range(count)]
        end = ends[row]
        assert end is not None and end[0, 0, 0] == row


def test_batches_are_full_while_there_is_enough_to_ask(tiny: OnnxModel) -> None:
    ask = Answerer()
    drive(game(tiny, 30), ask, Threat(), lambda row: asking(row, [1, 13, 2, 7], {}))
    assert max(ask.sizes) == 8
    assert sum(size == 8 for size in ask.sizes) >= 0.95 * len(ask.sizes)
    assert sum(ask.sizes) == 30 * 23


def test_rows_beyond_a_batch_start_when_others_are_done(tiny: OnnxModel) -> None:
    live, most = 0, 0

    def counted(row: int) -> Walk[Picture | None]:
        nonlocal live, most
        live += 1
        most = max(most, live)
        yield np.zeros((1, 3, 1, 1), np.float32)
        yield np.zeros((1, 3, 1, 1), np.float32)
        live -= 1
        return None

    drive(game(tiny, 30), Answerer(), Threat(), counted)
    assert live == 0 and most <= 8


@pytest.mark.parametrize("cap", [1, 6, 7, 100])
def test_caps_are_spent_to_the_last_question_and_no_further(tiny: OnnxModel, cap: int) -> None:
    oracle = game(tiny, 3, cap)
    probe = tiny_probe(3)
    closed = []

    def greedy(row: int) -> Walk[Picture | None]:
        try:
            for _ in range(row + 40):
                yield np.repeat(probe.images[row : row + 1], 3, axis=0)
        finally:
            closed.append(row)
        return probe.images[row]

    ends = drive(oracle, oracle.decide, Threat(max_queries=cap), greedy)
    assert oracle.queries.tolist() == [cap] * 3
    assert ends == [None] * 3 and sorted(closed) == [0, 1, 2]


def test_what_was_asked_before_counts(tiny: OnnxModel) -> None:
    oracle = game(tiny, 2, cap=5)
    oracle.decide(tiny_probe(2).images[:1], np.array([0]))

    def greedy(row: int) -> Walk[Picture | None]:
        while True:
            yield tiny_probe(2).images[:1]

    drive(oracle, oracle.decide, Threat(max_queries=5), greedy)
    assert oracle.queries.tolist() == [5, 5]
