"""What the operators of graph formats work on: computed values by name, stored numbers as arrays.

Graph formats compute shapes and unpack weights with the same operators that compute answers. An
operator whose inputs are all stored is therefore written into a graph of its own, evaluated at once
and becomes stored numbers itself, so that every operator is described only once.

The batch is free in what we write. Where a graph asks for the size of it, ``BATCH`` stands in and
may be moved about, but not computed with.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray
from onnx.reference import ReferenceEvaluator

from onnxfr.errors import UnreadableModel, UnsafeFile, UnsupportedModel
from onnxfr.exporters._graph_writer import GraphWriter

Array = NDArray[Any]
Operand = str | Array
Operands = Sequence[Operand]

BATCH = 2**31 - 19
"""Stands for the batch in lists of sizes: larger than any size, no index and no end of a slice."""


def named(graph: GraphWriter, operand: Operand) -> str:
    """Return the operand as a value of the graph, storing it if need be."""
    return operand if isinstance(operand, str) else graph.weight(operand)


def stored(operands: Operands, place: int, what: str) -> Array:
    """Return an input whose numbers must be known; ``what`` names the operator."""
    operand = operands[place] if place < len(operands) else None
    if operand is None or isinstance(operand, str):
        raise UnsupportedModel(f"{what}: input {place} must be stored, it is computed or missing")
    return operand


def integers(operands: Operands, place: int, what: str) -> tuple[int, ...]:
    """Return a stored list of whole numbers."""
    return tuple(int(value) for value in stored(operands, place, what).reshape(-1))


def sizes_of(graph: GraphWriter, operand: Operand) -> Array:
    """Return the sizes of a value, with ``BATCH`` where the first is free."""
    if not isinstance(operand, str):
        return np.asarray(operand.shape, dtype=np.int64)
    shape = graph.shape(operand)
    if any(side is None for side in shape[1:]):
        raise UnsupportedModel(f"the size of {operand!r} cannot be told: {shape}")
    return np.asarray([BATCH if side is None else side for side in shape], dtype=np.int64)


def reshape(graph: GraphWriter, operand: Operand, target: Sequence[int], what: str) -> str:
    """Write a reshape in which 0 copies a size; a batch of one stated in the file is freed."""
    x = named(graph, operand)
    shape = graph.shape(x)
    wanted = list(target if isinstance(operand, str) else for_one(target))
    if any(side == BATCH for side in wanted[1:]):
        raise UnsupportedModel(f"{what}: moves the batch to another axis")
    if shape and shape[0] is None and wanted and wanted[0] in (1, BATCH, -1):
        rest, sides = wanted[1:], graph.sides(x)
        given = math.prod(side if side else sides[k] for k, side in enumerate(rest))
        if -1 in rest or given == math.prod(sides):
            wanted[0] = 0
    if any(side == BATCH for side in wanted):
        raise UnsupportedModel(f"{what}: gives the batch axis other values than pictures")
    return graph.add("Reshape", [x, graph.integers(wanted)], name=what)


def for_one(target: Sequence[int]) -> tuple[int, ...]:
    """Return sizes with a batch of one: stored numbers are the same for every picture."""
    return tuple(1 if side == BATCH else side for side in target)


def _for_each_picture(graph: GraphWriter, operand: Operand, pictures: str, axis: int) -> str:
    """Repeat stored numbers of a batch of one, such as a class token, for each of ``pictures``."""
    x = named(graph, operand)
    if isinstance(operand, str) or graph.shape(pictures)[0] is not None or operand.shape[0] != 1:
        return x
    parts = [graph.integers([number]) for number in (0, 1, axis)]
    nothing = graph.add("Mul", [graph.add("Slice", [pictures, *parts]), graph.number(0)])
    return graph.add("Add", [nothing, x])


def concat(graph: GraphWriter, operands: Operands, axis: int, name: str) -> str:
    """Join values along an axis, stored ones repeated for each picture."""
    pictures = next((each for each in operands if isinstance(each, str)), None)
    if pictures is None or axis == 0:
        names = [named(graph, each) for each in operands]
    else:
        names = [_for_each_picture(graph, each, pictures, axis) for each in operands]
    return graph.add("Concat", names, {"axis": axis}, name)


def fold(
    write: Callable[[GraphWriter], Sequence[Operand]],
    inputs: Sequence[Array],
    most: int,
    what: str,
    *,
    moves_only: bool,
) -> tuple[Array, ...]:
    """Return what an operator answers to stored inputs, if that is at most ``most`` numbers.

    One that does not only move numbers is refused where the size of the batch is among them.
    """
    if not moves_only and any(each.dtype.kind == "i" and (each == BATCH).any() for each in inputs):
        raise UnsupportedModel(f"{what}: computes with the size of the batch, which is free here")
    graph = GraphWriter("folded")
    found = list(write(graph))
    wanted = {f"answer{k}": each for k, each in enumerate(found) if isinstance(each, str)}
    for value in wanted.values():
        sides = graph.shape(value)
        if any(side is None for side in sides):
            raise UnsupportedModel(f"{what}: computes stored numbers of unknown shape")
        if math.prod(side for side in sides if side is not None) > most:
            raise UnsafeFile(f"{what}: blows stored numbers up to {sides}")
    if wanted:
        answers = iter(_evaluate(graph, wanted, what))
        found = [next(answers) if isinstance(each, str) else each for each in found]
    return tuple(np.asarray(each) for each in found)


def _evaluate(graph: GraphWriter, outputs: dict[str, str], what: str) -> list[Array]:
    model = graph.build(outputs)
    try:
        with np.errstate(all="ignore"):
            return list(ReferenceEvaluator(model).run(None, {}))
    except Exception as error:
        raise UnreadableModel(f"{what}: cannot be computed from stored numbers: {error}") from error
