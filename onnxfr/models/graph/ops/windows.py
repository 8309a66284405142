"""How convolutions and poolings slide: strides, dilations and ONNX's four ways to write padding."""

from __future__ import annotations

from dataclasses import dataclass

from onnxfr.models.graph.node import Node
from onnxfr.models.graph.values import Value, dimensions


@dataclass(frozen=True)
class Window:
    """A sliding window; ``begins`` and ``ends`` are the pads of each spatial axis.

    A negative pad cuts.
    """

    kernel: tuple[int, ...]
    strides: tuple[int, ...]
    dilations: tuple[int, ...]
    begins: tuple[int, ...]
    ends: tuple[int, ...]

    @property
    def even(self) -> bool:
        """Whether both ends of each axis are padded alike, as torch's own padding needs it."""
        return self.begins == self.ends

    @property
    def torch_padding(self) -> tuple[int, ...]:
        """What to hand to torch's operation: nothing if the padding is written apart."""
        return self.begins if self.even else (0,) * len(self.begins)

    @property
    def uneven(self) -> tuple[int, ...]:
        """The pads to write apart, in the order of ``torch.nn.functional.pad``; empty if none."""
        return () if self.even else self.pad_order

    @property
    def pad_order(self) -> tuple[int, ...]:
        """All pads in the order of ``torch.nn.functional.pad``."""
        pairs = zip(reversed(self.begins), reversed(self.ends), strict=True)
        return tuple(size for pair in pairs for size in pair)

    @property
    def reach(self) -> tuple[int, ...]:
        """The extent of the dilated kernel along each axis."""
        pairs = zip(self.kernel, self.dilations, strict=True)
        return tuple((size - 1) * step + 1 for size, step in pairs)


def read_window(
    node: Node, x: Value, kernel: tuple[int, ...] | None = None, *, pools: bool = False
) -> Window:
    """Read a node's window; ``kernel`` is taken where the node itself names none."""
    kernel = node.integers("kernel_shape") or kernel
    if not kernel:
        raise node.unsupported("its kernel size is not fixed")
    rank = len(kernel)
    strides = node.integers("strides") or (1,) * rank
    dilations = node.integers("dilations") or (1,) * rank
    mode = node.choice("auto_pad", "NOTSET", "VALID", "SAME_UPPER", "SAME_LOWER")
    pads = (0,) * (2 * rank)
    if mode == "NOTSET":
        pads = node.integers("pads") or pads
    if not rank == len(strides) == len(dilations) == len(pads) / 2 or min(strides) < 1:
        raise node.unsupported("strides, dilations and pads do not fit the kernel")
    window = Window(kernel, strides, dilations, pads[:rank], pads[rank:])
    return _same_size(node, x, window, mode, pools) if mode.startswith("SAME") else window


def _same_size(node: Node, x: Value, window: Window, mode: str, pools: bool) -> Window:
    """Pad so that the result is ceil(size / stride) wide.

    The specification counts the dilated kernel, and so does onnxruntime where it convolves. Where
    it pools it counts the kernel without its dilation, and cuts where the stride is longer.
    """
    sizes = dimensions(x.shape, 2)
    if sizes is None:
        raise node.unsupported("auto_pad needs an input of fixed size")
    extents = window.kernel if pools else window.reach
    begins, ends = [], []
    for size, extent, stride in zip(sizes, extents, window.strides, strict=True):
        total = (-(-size // stride) - 1) * stride + extent - size
        total = total if pools else max(0, total)
        odd = 0 if mode == "SAME_UPPER" else 1
        begin = int((total + odd) / 2)  # halves towards zero, as C does
        begins.append(begin)
        ends.append(total - begin)
    return Window(window.kernel, window.strides, window.dilations, tuple(begins), tuple(ends))
