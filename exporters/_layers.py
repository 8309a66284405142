"""The layers face networks are made of, written once for all readers of foreign formats.

Everything is NCHW. Pads are (top, left, bottom, right). Pooling that rounds up, or counts padded
pixels in its own way, is written with explicit pads and divisors: engines disagree about those.
"""

from __future__ import annotations

from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from onnxfr.errors import UnreadableModel, UnsupportedModel
from onnxfr.exporters._graph_writer import Attribute, GraphWriter, Packed

Pads = tuple[int, int, int, int]
Pair = tuple[int, int]
Array = NDArray[Any]
PoolKind = Literal["max", "average"]
MAX_WINDOW = 4096


def conv2d(
    graph: GraphWriter,
    x: str,
    weight: Array | Packed,
    bias: Array | Packed | None,
    *,
    stride: Pair = (1, 1),
    pads: Pads = (0, 0, 0, 0),
    dilation: Pair = (1, 1),
    group: int = 1,
    name: str = "",
) -> str:
    """Convolve with a weight of shape (out, in / group, height, width)."""
    channels = graph.sides(x)[0]
    if weight.ndim != 4 or group < 1 or channels != weight.shape[1] * group:
        raise UnreadableModel(
            f"convolution {name!r} has a weight of shape {weight.shape} in {group} groups, "
            f"which does not fit {channels} channels"
        )
    if len(weight) % group or (bias is not None and bias.shape != (len(weight),)):
        raise UnreadableModel(f"convolution {name!r} has {len(weight)} filters in {group} groups")
    inputs = [x, graph.weight(weight, f"{name}.weight")]
    if bias is not None:
        inputs.append(graph.weight(bias, f"{name}.bias"))
    _check_window((weight.shape[2], weight.shape[3]), stride, pads, dilation)
    attributes: dict[str, Attribute] = {
        "kernel_shape": weight.shape[2:],
        "strides": stride,
        "pads": pads,
        "dilations": dilation,
        "group": group,
    }
    return graph.add("Conv", inputs, attributes, name)


def batch_norm(
    graph: GraphWriter,
    x: str,
    *,
    scale: Array,
    bias: Array,
    mean: Array,
    variance: Array,
    eps: float,
    name: str = "",
) -> str:
    """Normalise with stored statistics, one per channel."""
    parts = {"scale": scale, "bias": bias, "mean": mean, "variance": variance}
    channels = graph.sides(x)[0]
    for part, values in parts.items():
        if values.shape != (channels,):
            raise UnreadableModel(
                f"normalisation {name!r} has a {part} of shape {values.shape} for {channels} "
                "channels"
            )
    inputs = [x, *(graph.weight(values, f"{name}.{part}") for part, values in parts.items())]
    return graph.add("BatchNormalization", inputs, {"epsilon": eps}, name)


def per_channel(graph: GraphWriter, x: str, values: Array) -> Array:
    """Return one value per channel (or one for all) in a shape that broadcasts over ``x``."""
    sides = graph.sides(x)
    flat = np.asarray(values).reshape(-1)
    if len(flat) not in (1, sides[0]):
        raise UnreadableModel(f"{len(flat)} values are given for {sides[0]} channels")
    return flat.reshape(-1, *(1,) * (len(sides) - 1))


def scale_shift(
    graph: GraphWriter, x: str, scale: Array | None, shift: Array | None, name: str = ""
) -> str:
    """Multiply and add, per channel."""
    last = x
    if scale is not None:
        last = graph.add("Mul", [last, graph.weight(per_channel(graph, x, scale))], name=name)
    if shift is not None:
        last = graph.add("Add", [last, graph.weight(per_channel(graph, x, shift))], name=name)
    return last


def prelu(graph: GraphWriter, x: str, slope: Array, name: str = "") -> str:
    """Rectify with a learned slope per channel, or one for all."""
    return graph.add("PRelu", [x, graph.weight(per_channel(graph, x, slope), name)], name=name)


def gelu(graph: GraphWriter, x: str, *, tanh: bool = False, name: str = "") -> str:
    """Weigh by the normal distribution's function, or by its approximation with tanh."""
    if tanh:
        cube = graph.add("Mul", [graph.add("Mul", [x, x]), x])
        inner = graph.add("Add", [x, graph.add("Mul", [cube, graph.number(0.044715)])])
        curve = graph.add("Tanh", [graph.add("Mul", [inner, graph.number(np.sqrt(2 / np.pi))])])
    else:
        curve = graph.add("Erf", [graph.add("Mul", [x, graph.number(np.sqrt(0.5))])])
    half = graph.add("Mul", [x, graph.number(0.5)])
    return graph.add("Mul", [half, graph.add("Add", [curve, graph.number(1.0)])], name=name)


def flatten(graph: GraphWriter, x: str) -> str:
    """Make one row per picture."""
    return x if len(graph.shape(x)) == 2 else graph.add("Flatten", [x], {"axis": 1})


def dense(
    graph: GraphWriter,
    x: str,
    weight: Array | Packed,
    bias: Array | Packed | None,
    name: str = "",
) -> str:
    """Multiply flattened rows with a weight of shape (out, in)."""
    inputs = [flatten(graph, x), graph.weight(weight, f"{name}.weight")]
    if bias is not None:
        if bias.shape != weight.shape[:1]:
            raise UnreadableModel(f"dense layer {name!r}: bias {bias.shape}, weight {weight.shape}")
        inputs.append(graph.weight(bias, f"{name}.bias"))
    return graph.add("Gemm", inputs, {"transB": 1}, name)


def l2_normalise(graph: GraphWriter, x: str, eps: float, axes: tuple[int, ...]) -> str:
    """Divide by the root of the sum of squares plus ``eps``."""
    squares = graph.add("Mul", [x, x])
    total = graph.add("ReduceSum", [squares, graph.integers(axes)], {"keepdims": 1})
    raised = graph.add("Add", [total, graph.weight(np.float32(eps).reshape(1))])
    return graph.add("Div", [x, graph.add("Sqrt", [raised])])


def global_pool(graph: GraphWriter, x: str, kind: PoolKind) -> str:
    """Pool each channel to one number, keeping four axes."""
    return graph.add("GlobalMaxPool" if kind == "max" else "GlobalAveragePool", [x])


def pool(
    graph: GraphWriter,
    x: str,
    kind: PoolKind,
    kernel: Pair,
    stride: Pair,
    pads: Pads = (0, 0, 0, 0),
    *,
    rounds_up: bool = False,
    counts_pads: bool = True,
    name: str = "",
) -> str:
    """Pool with explicit pads; a window added by rounding up starts inside the picture."""
    height, width = graph.sides(x)[1:]
    _check_window(kernel, stride, pads, (1, 1))
    top, left, bottom, right = pads
    rows = _windows(height, kernel[0], stride[0], top, bottom, rounds_up)
    columns = _windows(width, kernel[1], stride[1], left, right, rounds_up)
    end = (
        max(0, (rows - 1) * stride[0] + kernel[0] - height - top),
        max(0, (columns - 1) * stride[1] + kernel[1] - width - left),
    )
    attributes = {"kernel_shape": kernel, "strides": stride}
    if kind == "max":
        return graph.add("MaxPool", [x], {**attributes, "pads": (top, left, *end)}, name)
    if any((top, left, *end)):
        amounts = graph.integers((0, 0, top, left, 0, 0, *end))
        x = graph.add("Pad", [x, amounts], {"mode": "constant"})
    mean = graph.add("AveragePool", [x], attributes, name)
    reach = (pads[2], pads[3]) if counts_pads else (0, 0)
    start = (top, left) if counts_pads else (0, 0)
    valid = np.outer(
        _covered(rows, kernel[0], stride[0], top, start[0], height + reach[0]),
        _covered(columns, kernel[1], stride[1], left, start[1], width + reach[1]),
    )
    if (valid == kernel[0] * kernel[1]).all():
        return mean
    factors = (kernel[0] * kernel[1] / np.maximum(valid, 1)).astype(np.float32)
    return graph.add("Mul", [mean, graph.weight(factors)])


def same_pads(sides: Pair, kernel: Pair, stride: Pair, dilation: Pair = (1, 1)) -> Pads:
    """Return the pads by which a window of stride s gives ``ceil(side / s)`` answers.

    An odd pixel goes to the end, as TensorFlow and ``SAME_UPPER`` do.
    """
    _check_window(kernel, stride, (0, 0, 0, 0), dilation)
    total = [
        max(0, (-(-side // s) - 1) * s + (k - 1) * d + 1 - side)
        for side, k, s, d in zip(sides, kernel, stride, dilation, strict=True)
    ]
    top, left = total[0] // 2, total[1] // 2
    return top, left, total[0] - top, total[1] - left


def _windows(side: int, kernel: int, stride: int, before: int, after: int, up: bool) -> int:
    room = side + before + after - kernel
    if room < 0:
        raise UnreadableModel(f"a window of {kernel} does not fit into {side + before + after}")
    count = (-(-room // stride) if up else room // stride) + 1
    if up and count > 1 and (count - 1) * stride >= side + before:
        count -= 1
    return count


def _covered(
    count: int, kernel: int, stride: int, before: int, extended: int, end: int
) -> NDArray[np.int64]:
    """Return how many pixels from ``-extended`` to ``end`` each window of one axis holds."""
    first = np.arange(count, dtype=np.int64) * stride - before
    return np.minimum(first + kernel, end) - np.maximum(first, -extended)


def _check_window(kernel: Pair, stride: Pair, pads: Pads, dilation: Pair) -> None:
    positive = (*kernel, *stride, *dilation)
    if min(positive) < 1 or max(*positive, *pads) > MAX_WINDOW or min(pads) < 0:
        raise UnsupportedModel(
            f"a window of {kernel}, stride {stride}, pads {pads}, dilation {dilation} is absurd"
        )
