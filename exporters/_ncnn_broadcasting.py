"""How ncnn lines up operands of different rank, said in ONNX's way.

ONNX lines axes up at the end. ncnn begins at the channels: a vector as long as there are channels
is one number per channel, as the gate of a squeeze-and-excitation block is, whatever the width.
"""

from __future__ import annotations

from collections.abc import Sequence

from onnxfr.exporters._graph_writer import GraphWriter


def lined_up(graph: GraphWriter, values: Sequence[str]) -> list[str]:
    """Return the values with one number of axes; the first axis of each is the batch."""
    shapes = [graph.shape(value) for value in values]
    widest = max(shapes, key=len)
    return [
        value if len(shape) in (0, len(widest)) else _widened(graph, value, shape, widest)
        for value, shape in zip(values, shapes, strict=True)
    ]


def _widened(
    graph: GraphWriter, value: str, shape: Sequence[int | None], widest: Sequence[int | None]
) -> str:
    """Add axes of length one: behind, or before a vector that fits the width only."""
    missing = len(widest) - len(shape)
    along_width = len(shape) == 2 and shape[1] != widest[1] and shape[1] == widest[-1]
    first = 1 if along_width else len(shape)
    return graph.add("Unsqueeze", [value, graph.integers(range(first, first + missing))])
