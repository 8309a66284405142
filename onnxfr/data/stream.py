"""Reads many pictures in parallel, in order, in bounded memory; a bad one does not stop the rest.

Decoders release Python's lock, so threads serve; pictures travel in small blocks because handing
over a single 112x112 crop costs as much as decoding it.
"""

from __future__ import annotations

import os
from collections import deque
from collections.abc import Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor

from onnxfr.data.images import load_pixels
from onnxfr.data.pairs import PairSet, Problem, Rows
from onnxfr.errors import DataError
from onnxfr.types import Pixels

_BLOCK = 16
_AHEAD = 2

Item = tuple[int, Pixels | Problem]


def read_all(
    pairs: PairSet,
    indexes: Rows | None = None,
    *,
    strict: bool = False,
    workers: int | None = None,
) -> Iterator[Item]:
    """Yield ``(index, pixels)`` or ``(index, problem)`` for images, in the order asked.

    At most ``workers`` times three blocks of 16 pictures are held at once. ``strict`` raises the
    first problem instead of yielding it. Pass the problems to ``PairSet.without``.
    """
    wanted = range(len(pairs.images)) if indexes is None else [int(index) for index in indexes]
    threads = workers or min(8, os.cpu_count() or 1)
    blocks = (wanted[at : at + _BLOCK] for at in range(0, len(wanted), _BLOCK))
    waiting: deque[Future[list[Item]]] = deque()
    pool = ThreadPoolExecutor(threads, thread_name_prefix="onnxfr-read")
    try:
        for block in blocks:
            waiting.append(pool.submit(_read_block, pairs, block, strict))
            if len(waiting) > threads * _AHEAD:
                yield from waiting.popleft().result()
        while waiting:
            yield from waiting.popleft().result()
    finally:
        pool.shutdown(wait=True, cancel_futures=True)


def _read_block(pairs: PairSet, block: Sequence[int], strict: bool) -> list[Item]:
    items: list[Item] = []
    for index in block:
        source = pairs.images[index]
        try:
            items.append((index, load_pixels(source)))
        except DataError as error:
            if strict:
                raise
            items.append((index, Problem(source.id, _without_name(str(error), source.id))))
    return items


def _without_name(message: str, name: str) -> str:
    return message.removeprefix(f"{name}: ")
