"""A hook on every convolution of the differentiable graph, for attacks that disturb features."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import fx

from onnxfr.errors import UnsupportedModel
from onnxfr.models.geometry import fit
from onnxfr.models.wrapper import FRModel

FeatureHook = Callable[[int, torch.Tensor, slice], torch.Tensor]
"""``(number of the convolution, its output, whose) -> what the network goes on with``."""

_CONVOLUTIONS = {
    torch.conv1d,
    torch.conv2d,
    torch.conv3d,
    torch.nn.functional.conv1d,
    torch.nn.functional.conv2d,
    torch.nn.functional.conv3d,
}


class _Hooked(fx.Interpreter):
    def __init__(self, module: fx.GraphModule, hook: FeatureHook, pictures: slice) -> None:
        super().__init__(module)
        self._hook, self._pictures = hook, pictures
        self.calls = 0

    def call_function(self, target: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        result = super().call_function(target, args, kwargs)
        if target in _CONVOLUTIONS:
            result = self._hook(self.calls, result, self._pictures)
            self.calls += 1
        return result


def embed_hooked(model: FRModel, images: torch.Tensor, hook: FeatureHook) -> torch.Tensor:
    """Embed differentiably with ``hook`` applied to the output of each convolution."""
    convert = getattr(model, "torch_module", None)
    if convert is None:
        raise UnsupportedModel(
            f"{model.name!r} is no plain ONNX model, its inner features are out of reach; "
            "attack one of the models it is made of"
        )
    module = convert(images.dtype, images.device)
    fitted = fit(images, model.card.input_size)
    step = 1 if model.card.batch == "loop" else max(len(fitted), 1)
    rows = []
    for k in range(0, len(fitted), step):
        interpreter = _Hooked(module, hook, slice(k, k + step))
        rows.append(interpreter.run(fitted[k : k + step]))
        if not interpreter.calls:
            raise UnsupportedModel(
                f"{model.name!r} has no convolution whose features could be dropped"
            )
    return rows[0] if len(rows) == 1 else torch.cat(rows)
