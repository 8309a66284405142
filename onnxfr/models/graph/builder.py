"""Writes the torch.fx graph, folding away whatever is already known.

The generated Python holds only names made here, our own callables and numbers: no string of a
model file ever becomes a name, an attribute or a line of code.
"""

from __future__ import annotations

import operator
from collections.abc import Callable, Sequence
from typing import Any, cast

import torch
from torch import Tensor, fx, nn

from onnxfr.errors import UnsafeFile
from onnxfr.models.graph.values import BATCHES, FAR, Affine, Value

LARGEST_FOLDED_TENSOR = 2**28

LARGEST_FAR_TENSOR = 2**20
"""What grows beyond this in the largest trial batch is followed by its shape only."""

_META = torch.device("meta")

SMALL = 4096

_MODEST: set[Callable[..., Any]] = {
    torch.add,
    torch.cat,
    torch.index_select,
    torch.mul,
    torch.select,
    torch.sub,
    torch.unsqueeze,
    torch.Tensor.reshape,
    torch.Tensor.to,
}
"""Functions that cannot make a giant of small inputs."""


def modest(function: Callable[..., Tensor]) -> Callable[..., Tensor]:
    """Mark a function whose result is no larger than the product of its inputs."""
    _MODEST.add(function)
    return function


_NOT_FROM_SHAPES = (RuntimeError, NotImplementedError, IndexError, ValueError, TypeError)
"""What torch raises where shapes do not suffice, or a batch size does not fit the graph."""


class Builder:
    """One network under construction.

    Args:
        image_shape: (C, H, W) if the file fixes them.
        batch: the only batch size the file allows; None if it allows any. Other sizes are not tried
            then: a graph of fixed batch need not make sense for them.
    """

    def __init__(self, image_shape: tuple[int, ...] | None, batch: int | None = None) -> None:
        self.graph = fx.Graph()
        self._root = nn.Module()
        self._buffers: dict[int, tuple[Tensor, fx.Node]] = {}
        self._sizes: dict[Affine, fx.Node] = {}
        image = self.graph.placeholder("image")
        self._image = image
        self._batches = BATCHES if batch is None else (batch,) * len(BATCHES)
        trials = None
        if image_shape is not None:
            trials = tuple(torch.empty(n, *image_shape, device=_META) for n in self._batches)
        self.image = Value(trials, image)
        self.anchor = Value.constant_of(torch.empty(0))
        """An empty tensor that knows the network's float type and device."""

    def emit(self, function: Callable[..., Any], *args: Any, **kwargs: Any) -> Value:
        """Return the value of ``function`` applied to values, sizes and plain Python numbers."""
        results = self._try(function, args, kwargs)
        trials = None if results is None else tuple(result for (result,) in results)
        return self.emit_known(trials, function, *args, **kwargs)

    def emit_shaped(
        self, like: Value, function: Callable[..., Any], *args: Any, **kwargs: Any
    ) -> Value:
        """Like :meth:`emit` for a result of the shape and type of ``like``, which saves the trials.

        For many operations torch finds the shape by slow Python code that takes seconds to load.
        """
        if like.real:
            return self.emit(function, *args, **kwargs)
        return self.emit_known(like.trials, function, *args, **kwargs)

    def emit_broadcast(self, function: Callable[..., Any], left: Value, right: Any) -> Value:
        """Like :meth:`emit` for arithmetic on two values, of which ``right`` may be a number."""
        other = right if isinstance(right, Value) else left
        if left.trials is None or other.trials is None or (left.real and other.real):
            return self.emit(function, left, right)
        pairs = zip(left.trials, other.trials, strict=True)
        trials = tuple(broadcast(mine, theirs) for mine, theirs in pairs)
        return self.emit_known(trials, function, left, right)

    def emit_known(
        self,
        trials: tuple[Tensor, ...] | None,
        function: Callable[..., Any],
        *args: Any,
        **kwargs: Any,
    ) -> Value:
        """Like :meth:`emit` for a result whose trials are already worked out."""
        value = Value(trials)
        if value.constant is None:
            value.place = self._call(function, args, kwargs)
            value.place.meta["shape"] = value.shape
        return value

    def emit_many(
        self, count: int, function: Callable[..., Any], *args: Any, **kwargs: Any
    ) -> list[Value]:
        """Like :meth:`emit` for a function that returns ``count`` tensors."""
        results = self._try(function, args, kwargs)
        if results is not None:
            values = [Value(tuple(result[i] for result in results)) for i in range(count)]
        else:
            values = [Value(None) for _ in range(count)]
        if any(value.constant is None for value in values):
            several = self._call(function, args, kwargs)
            for index, value in enumerate(values):
                if value.constant is None:
                    value.place = self.graph.call_function(operator.getitem, (several, index))
        return values

    def finish(self, output: Value) -> fx.GraphModule:
        """Close the graph and return it as a frozen module."""
        self.graph.output(self._place(output))
        self.graph.eliminate_dead_code()
        self.graph.lint()
        module = fx.GraphModule(self._root, self.graph, class_name="ConvertedNetwork")
        return module.eval().requires_grad_(False)

    def _try(
        self, function: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any]
    ) -> list[tuple[Tensor, ...]] | None:
        """Run the trials; None if too little is known or the function needs the pixels."""
        values = _values_in((*args, *kwargs.values()))
        if any(value.trials is None for value in values):
            return None
        linear = _affine_in((*args, *kwargs.values()))
        if all(value.constant is not None for value in values) and not linear:
            return [self._run(function, args, kwargs, 0)] * len(BATCHES)
        try:
            return [self._run(function, args, kwargs, trial) for trial in range(len(BATCHES))]
        except _NOT_FROM_SHAPES:
            return None

    def _run(
        self,
        function: Callable[..., Any],
        args: tuple[Any, ...],
        kwargs: dict[str, Any],
        trial: int,
    ) -> tuple[Tensor, ...]:
        values = _values_in((*args, *kwargs.values()))
        only_shapes = not all(value.real for value in values)

        def tensor_of(value: Value) -> Tensor:
            assert value.trials is not None
            tensor = value.trials[trial]
            return tensor.to(_META) if only_shapes else tensor

        def run(read: Callable[[Value], Tensor]) -> Any:
            at = self._batches[trial]
            with torch.no_grad():
                return function(*_fill(args, read, at), **_fill(kwargs, read, at))

        small = sum(value.trials[trial].numel() for value in values if value.trials) <= SMALL
        if not only_shapes and not (small and function in _MODEST):
            shapes = _shapes(lambda: run(lambda value: tensor_of(value).to(_META)))
            largest = max((shape.numel() for shape in shapes), default=0)
            if self._batches[trial] == FAR and largest > LARGEST_FAR_TENSOR:
                return shapes
            refuse_giant(largest)
        return _several(run(tensor_of))

    def _call(
        self, function: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any]
    ) -> fx.Node:
        return self.graph.call_function(
            function,
            cast(tuple[Any, ...], self._written(args)),
            cast(dict[str, Any], self._written(kwargs)),
        )

    def _written(self, argument: Any) -> Any:
        """Put an argument in the terms of the finished graph."""
        if isinstance(argument, Value):
            return self._place(argument)
        if isinstance(argument, Affine):
            return self._size(argument)
        if isinstance(argument, tuple | list):
            return type(argument)(self._written(entry) for entry in argument)
        if isinstance(argument, dict):
            return {key: self._written(entry) for key, entry in argument.items()}
        return argument

    def _place(self, value: Value) -> fx.Node:
        if value.place is not None:
            return value.place
        tensor = value.constant
        assert tensor is not None
        if id(tensor) not in self._buffers:
            name = f"constant_{len(self._buffers)}"
            self._root.register_buffer(name, tensor.detach().contiguous())
            with self.graph.inserting_after(self._image):
                self._buffers[id(tensor)] = (tensor, self.graph.get_attr(name))
        return self._buffers[id(tensor)][1]

    def _size(self, size: Affine) -> fx.Node:
        """Return the run-time integer, computed once per network however often it is used."""
        if size not in self._sizes:
            if size == Affine(1, 0):
                with self.graph.inserting_after(self._image):
                    node = self.graph.call_function(torch.Tensor.size, (self._image, 0))
            else:
                node = self._size(Affine(1, 0))
                if size.slope != 1:
                    node = self.graph.call_function(operator.mul, (node, size.slope))
                if size.offset:
                    node = self.graph.call_function(operator.add, (node, size.offset))
            self._sizes[size] = node
        return self._sizes[size]


def _several(result: Any) -> tuple[Tensor, ...]:
    return (result,) if isinstance(result, Tensor) else tuple(result)


def _shapes(run: Callable[[], Any]) -> tuple[Tensor, ...]:
    """Return results without content, nothing where shapes do not suffice.

    So a few bytes of a hostile file can be refused before they are unfolded into gigabytes.
    """
    try:
        with _META:
            return _several(run())
    except _NOT_FROM_SHAPES:
        return ()


def refuse_giant(count: int) -> None:
    """Raise if a constant would hold more numbers than any sensible network needs."""
    if count > LARGEST_FOLDED_TENSOR:
        raise UnsafeFile(
            f"a constant of the model unfolds into {count} numbers, expected at most "
            f"{LARGEST_FOLDED_TENSOR}; no face-recognition network needs that"
        )


def broadcast(left: Tensor, right: Tensor) -> Tensor:
    """Return a tensor without content of the shape and type that arithmetic would give."""
    shape = broadcast_shape(left.shape, right.shape)
    return torch.empty(shape, dtype=torch.promote_types(left.dtype, right.dtype), device=_META)


def broadcast_shape(left: Sequence[int], right: Sequence[int]) -> list[int]:
    """Return the shape both shapes broadcast to."""
    rank = max(len(left), len(right))
    longer = (1,) * (rank - len(left)) + tuple(left)
    other = (1,) * (rank - len(right)) + tuple(right)
    return [b if a == 1 else a for a, b in zip(longer, other, strict=True)]


def _values_in(arguments: Any) -> list[Value]:
    if isinstance(arguments, Value):
        return [arguments]
    if isinstance(arguments, tuple | list):
        return [value for entry in arguments for value in _values_in(entry)]
    return []


def _affine_in(arguments: Any) -> bool:
    if isinstance(arguments, tuple | list):
        return any(_affine_in(entry) for entry in arguments)
    return isinstance(arguments, Affine)


def _fill(argument: Any, tensor_of: Callable[[Value], Tensor], batch: int) -> Any:
    """Replace values and sizes by what they are in one trial."""
    if isinstance(argument, Value):
        return tensor_of(argument)
    if isinstance(argument, Affine):
        return argument.at(batch)
    if isinstance(argument, tuple | list):
        return type(argument)(_fill(entry, tensor_of, batch) for entry in argument)
    if isinstance(argument, dict):
        return {key: _fill(entry, tensor_of, batch) for key, entry in argument.items()}
    return argument
