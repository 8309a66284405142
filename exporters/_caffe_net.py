"""Caffe's nets in both generations of the format: layers, phases and stored blobs."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from onnxfr.errors import UnreadableModel
from onnxfr.exporters._caffe_messages import Tree

Array = NDArray[Any]

V1_TYPES: dict[int | str, str] = {
    number: name
    for name, numbers in {
        "Concat": (3, "CONCAT"),
        "Convolution": (4, "CONVOLUTION"),
        "Data": (5, "DATA"),
        "Dropout": (6, "DROPOUT"),
        "Flatten": (8, "FLATTEN"),
        "ImageData": (12, "IMAGE_DATA"),
        "InnerProduct": (14, "INNER_PRODUCT"),
        "LRN": (15, "LRN"),
        "Pooling": (17, "POOLING"),
        "ReLU": (18, "RELU"),
        "Sigmoid": (19, "SIGMOID"),
        "Softmax": (20, "SOFTMAX"),
        "SoftmaxWithLoss": (21, "SOFTMAX_LOSS"),
        "Split": (22, "SPLIT"),
        "TanH": (23, "TANH"),
        "Eltwise": (25, "ELTWISE"),
        "Power": (26, "POWER"),
        "Accuracy": (1, "ACCURACY"),
    }.items()
    for number in numbers
}
SKIPPED = {
    "Input", "Data", "ImageData", "HDF5Data", "MemoryData", "DummyData", "AnnotatedData",
    "SoftmaxWithLoss", "Accuracy", "Silence", "ContrastiveLoss", "EuclideanLoss", "HingeLoss",
    "CenterLoss", "TripletLoss",
}  # fmt: skip
"""Layers that bring data in or judge answers while training."""


@dataclass(frozen=True)
class Layer:
    """One layer of either generation of the format."""

    kind: str
    name: str
    tree: Tree

    @property
    def bottoms(self) -> list[str]:
        """Names of the inputs."""
        return [str(v) for v in self.tree.get("bottom", ())]

    @property
    def tops(self) -> list[str]:
        """Names of the outputs."""
        return [str(v) for v in self.tree.get("top", ())]

    def messages(self, key: str) -> list[Tree]:
        """Return the nested messages of one name."""
        return [v for v in self.tree.get(key, ()) if isinstance(v, dict)]

    def part(self, key: str) -> Tree:
        """Return a nested message, empty where there is none."""
        return next(iter(self.messages(key)), {})

    def blobs(self) -> tuple[Array, ...]:
        """Return the stored arrays."""
        return tuple(_blob(tree, self.name) for tree in self.messages("blobs"))


def _blob(tree: Tree, name: str) -> Array:
    pieces = [p for key in ("data", "double_data") for p in tree.get(key, ())]
    if any(not isinstance(piece, np.ndarray) for piece in pieces):
        raise UnreadableModel(f"layer {name!r} has weights that are no numbers")
    data = np.concatenate(pieces).astype(np.float32) if pieces else np.zeros(0, np.float32)
    shapes = [shape for shape in tree.get("shape", ()) if isinstance(shape, dict)]
    if shapes:
        shape = tuple(int(v) for v in shapes[0].get("dim", ()))
    else:
        shape = tuple(int(tree.get(k, [1])[0]) for k in ("num", "channels", "height", "width"))
    if any(side < 0 for side in shape) or math.prod(shape) != data.size:
        raise UnreadableModel(f"layer {name!r} has {data.size} weights of the shape {shape}")
    return data.reshape(shape)
