"""Which kernel torch takes for convolutions of one pixel on a single thread.

With one thread and fewer than sixteen pictures torch leaves oneDNN out for them, as its heuristics
were measured on older processors. A window of one pixel has nothing to spread, so naming a dilation
changes no number it sums, and torch sends every dilated convolution to oneDNN: up to three times as
fast. Whether it is on a given machine, ``torch_layout`` measures.
"""

from __future__ import annotations

from torch import Tensor, fx

from onnxfr.models.graph.ops.convolution import CONVOLVE

_WEIGHT, _DILATIONS, _OPERANDS = 1, 5, 7


def spread_pointwise(module: fx.GraphModule, dilation: int) -> int:
    """Write a dilation into every convolution of one pixel, in place; return how many there are."""
    found = 0
    for node in module.graph.nodes:
        if node.op != "call_function" or node.target not in CONVOLVE.values():
            continue
        kernel = _kernel(module, node)
        if len(node.args) == _OPERANDS and kernel and set(kernel) == {1}:
            node.update_arg(_DILATIONS, (dilation,) * len(kernel))
            found += 1
    if found:
        module.recompile()
    return found


def _kernel(module: fx.GraphModule, convolution: fx.Node) -> tuple[int, ...]:
    """Return the window's size, nothing if the weight is computed from the picture."""
    weight = convolution.args[_WEIGHT]
    if not isinstance(weight, fx.Node) or weight.op != "get_attr":
        return ()
    stored = getattr(module, str(weight.target), None)
    return tuple(stored.shape[2:]) if isinstance(stored, Tensor) else ()
