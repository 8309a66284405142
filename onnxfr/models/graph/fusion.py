"""Chains of small operations that torch has as one: GELU and layer normalisation.

Exporters write GELU out below operator set 20 and layer normalisation below 17. Each link of such a
chain passes over memory once forward and once or twice backward; as one operation the same function
costs a third. The fused form differs by float rounding only (a stored square root of two is the
true one rounded), and whatever is not exactly such a chain, read by nobody else on the way, is left
as it was written.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any, NamedTuple

import torch
from torch import Tensor, fx
from torch.nn import functional as F

from onnxfr.models.graph.ops.elementwise import divide
from onnxfr.models.graph.ops.reduction import mean_over

_RELATIVE = 1e-6


class _Found(NamedTuple):
    """The last link of a chain, and the one operation that stands for all of it."""

    last: fx.Node
    function: Callable[..., Tensor]
    arguments: tuple[Any, ...]


def fuse(module: fx.GraphModule) -> int:
    """Put single operations in the place of chains; return how many were replaced."""
    finders = {torch.erf: _gelu, divide: _layer_norm}
    replaced = 0
    for node in list(module.graph.nodes):
        finder = finders.get(node.target) if node.op == "call_function" else None
        found = finder(node, module) if finder else None
        if found is not None:
            with module.graph.inserting_before(found.last):
                single = module.graph.call_function(found.function, found.arguments)
            found.last.replace_all_uses_with(single)
            replaced += 1
    if replaced:
        module.graph.eliminate_dead_code()
        module.graph.lint()
        module.recompile()
    return replaced


def _gelu(erf: fx.Node, module: fx.GraphModule) -> _Found | None:
    """Find ``x / 2 * (1 + erf(x / sqrt(2)))``, its three factors multiplied in any order."""
    x = _scaled(erf.args[0], math.sqrt(0.5), module)
    place = _only_reader(erf, torch.add)
    if x is None or place is None or not _is(_other(place, erf), 1.0, module):
        return None
    missing = {"x", "half"}
    while missing:
        product = _only_reader(place, torch.mul)
        if product is None:
            return None
        factor = _other(product, place)
        if factor is x:
            got = {"x"}
        elif _is(factor, 0.5, module):
            got = {"half"}
        elif _scaled(factor, 0.5, module) is x:
            got = {"x", "half"}
        else:
            return None
        if not got <= missing:
            return None
        missing -= got
        place = product
    return _Found(place, F.gelu, (x,))


def _layer_norm(quotient: fx.Node, module: fx.GraphModule) -> _Found | None:
    """Find ``(x - mean) / sqrt(variance + eps)`` over the last axis, weight and bias included."""
    centred, root = quotient.args
    x = _centred(centred)
    total = _call(root, torch.sqrt)
    total = _call(total.args[0], torch.add) if total is not None else None
    if x is None or total is None:
        return None
    eps = _number(total.args[1], module)
    variance = _call(total.args[0], mean_over)
    shape = x.meta.get("shape")
    if eps is None or variance is None or not shape or not isinstance(shape[-1], int):
        return None
    if variance.args[1:] != ((len(shape) - 1,), True) or _squared(variance.args[0]) is not centred:
        return None
    last = quotient
    constants: list[Any] = []
    for function in (torch.mul, torch.add):
        reader = _only_reader(last, function)
        constant = _other(reader, last) if reader is not None else None
        if reader is None or not _per_entry(constant, shape[-1], module):
            constants.append(None)
            break
        last = reader
        constants.append(constant)
    weight, bias = (*constants, None)[:2]
    return _Found(last, F.layer_norm, (x, (shape[-1],), weight, bias, eps))


def _centred(node: Any) -> fx.Node | None:
    """Return x if the node is x less its own mean over the last axis."""
    difference = _call(node, torch.sub)
    mean = _call(difference.args[1], mean_over) if difference is not None else None
    if difference is None or mean is None or mean.args[0] is not difference.args[0]:
        return None
    x = difference.args[0]
    shape = x.meta.get("shape") if isinstance(x, fx.Node) else None
    last_axis = shape is not None and mean.args[1:] == ((len(shape) - 1,), True)
    return x if isinstance(x, fx.Node) and last_axis else None


def _squared(node: Any) -> Any:
    power = _call(node, torch.pow)
    if power is not None:
        return power.args[0] if power.args[1] == 2.0 else None
    product = _call(node, torch.mul)
    return product.args[0] if product is not None and product.args[0] is product.args[1] else None


def _per_entry(node: Any, count: int, module: fx.GraphModule) -> bool:
    """Whether a node is a stored vector with one number for each entry of the last axis."""
    return (
        isinstance(node, fx.Node)
        and node.op == "get_attr"
        and _stored(node, module).shape == (count,)
    )


def _scaled(node: Any, factor: float, module: fx.GraphModule) -> fx.Node | None:
    """Return x if the node is x times a factor, or x divided by its inverse."""
    quotient = _call(node, divide)
    if quotient is not None:
        left, right = quotient.args
        return left if isinstance(left, fx.Node) and _is(right, 1 / factor, module) else None
    product = _call(node, torch.mul)
    if product is None:
        return None
    left, right = product.args
    if isinstance(left, fx.Node) and _is(right, factor, module):
        return left
    return right if isinstance(right, fx.Node) and _is(left, factor, module) else None


def _call(node: Any, function: Callable[..., Any]) -> fx.Node | None:
    """Return the node if it is a call of the function on two or more plain arguments."""
    called = isinstance(node, fx.Node) and node.op == "call_function" and node.target is function
    return node if called and not node.kwargs else None


def _only_reader(node: fx.Node, function: Callable[..., Any]) -> fx.Node | None:
    """Return the one node that reads this one, once, if it is a call of the function."""
    if len(node.users) != 1:
        return None
    reader = _call(next(iter(node.users)), function)
    return reader if reader is not None and reader.args.count(node) == 1 else None


def _other(node: fx.Node, one: fx.Node) -> Any:
    left, right = node.args
    return right if left is one else left


def _is(argument: Any, number: float, module: fx.GraphModule) -> bool:
    found = _number(argument, module)
    return found is not None and math.isclose(found, number, rel_tol=_RELATIVE)


def _number(argument: Any, module: fx.GraphModule) -> float | None:
    """Return a number written in the graph or stored as a constant that cannot add an axis."""
    if isinstance(argument, float | int):
        return float(argument)
    if isinstance(argument, fx.Node) and argument.op == "get_attr":
        tensor = _stored(argument, module)
        return float(tensor) if tensor.numel() == 1 and tensor.dim() <= 1 else None
    return None


def _stored(node: fx.Node, module: fx.GraphModule) -> Tensor:
    tensor: Tensor = getattr(module, str(node.target))
    return tensor
