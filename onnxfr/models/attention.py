"""Where a model looks when it compares two faces: class activation maps of the pair's cosine.

Grad-CAM (Selvaraju et al. 2017) weights the channels of the last spatial feature map by the mean
gradient of a class score. An embedding has no classes, so the score is the cosine with a reference
face, which makes the map one of the *pair*. Face networks also end in a layer that weighs every
place on its own (a global depthwise convolution, a fully connected layer), where a mean over places
says little: like HiResCAM (Draelos and Carin 2020) we multiply gradient and activation place by
place, which for a linear rest of the network is the exact contribution of each place.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any
from weakref import WeakKeyDictionary

import numpy as np
import torch
from numpy.typing import NDArray
from torch import fx
from torch.nn import functional

from onnxfr.errors import UnsupportedModel
from onnxfr.models.geometry import fit
from onnxfr.models.wrapper import FRModel, OnnxModel
from onnxfr.types import Embeddings, Images

_SMALLEST_SIDE = 3
_MOST_BEHIND = 0.25
_FEW_LAYERS = 2
"""A map with more weighted layers behind it than these two allow is the beginning of a network."""
_names: WeakKeyDictionary[fx.GraphModule, str] = WeakKeyDictionary()
_WEIGHTED = ("conv", "linear", "matmul", "addmm", "einsum", "bmm", "baddbmm")


@dataclass(frozen=True)
class AttentionMap:
    """What one model attends to in some pictures.

    ``maps`` is ``(N, H, W)`` in [0, 1] at the size of the pictures, each row scaled to its own
    largest value; ``similarity`` the cosine that was explained; ``grid`` the size of the feature
    map, which tells how coarse the answer is.
    """

    maps: NDArray[np.float32]
    similarity: NDArray[np.float32]
    grid: tuple[int, int]


def attention(model: FRModel, images: Images, references: Embeddings) -> AttentionMap:
    """Return what makes each picture similar to its reference, for a model with a spatial map.

    Args:
        model: a plain ONNX model with a differentiable form.
        images: the pictures, of any size.
        references: the embedding that each picture is compared with.
    """
    if not isinstance(model, OnnxModel):
        raise UnsupportedModel(
            f"{model.name!r} is no plain ONNX model, its feature maps are out of reach; "
            "look at one of the models it is made of"
        )
    module = model.torch_module(torch.float32, torch.device("cpu"))
    if not isinstance(module, fx.GraphModule):
        raise UnsupportedModel(f"{model.name!r} has no graph to look into")
    pictures = torch.from_numpy(np.ascontiguousarray(images))
    if module not in _names:
        _names[module] = _last_map(module, model.name, model.card.input_size)
    step = 1 if model.card.batch == "loop" else len(pictures)
    maps, similarity, grid = [], [], (0, 0)
    for at in range(0, len(pictures), max(step, 1)):
        shown = fit(pictures[at : at + step], model.card.input_size)
        wanted = torch.from_numpy(np.ascontiguousarray(references[at : at + step]))
        found, cosine = _weighted_activation(module, _names[module], shown, wanted)
        grid = int(found.shape[-2]), int(found.shape[-1])
        maps.append(_spread(found, tuple(pictures.shape[-2:]), tuple(shown.shape[-2:])))
        similarity.append(cosine)
    if not maps:
        empty = np.zeros((0, *images.shape[-2:]), dtype=np.float32)
        return AttentionMap(empty, np.zeros(0, dtype=np.float32), grid)
    return AttentionMap(torch.cat(maps).numpy(), torch.cat(similarity).numpy(), grid)


class _Watcher(fx.Interpreter):
    """Runs a graph and notes the shape of every value."""

    def __init__(self, module: fx.GraphModule) -> None:
        super().__init__(module)
        self.shapes: dict[str, tuple[int, ...]] = {}

    def run_node(self, n: fx.Node) -> Any:
        result = super().run_node(n)
        if isinstance(result, torch.Tensor):
            self.shapes[n.name] = tuple(result.shape)
        return result


class _Catcher(fx.Interpreter):
    """Runs a graph and makes one of its values a leaf that gradients reach."""

    def __init__(self, module: fx.GraphModule, name: str) -> None:
        super().__init__(module)
        self._name = name
        self.caught: torch.Tensor | None = None

    def run_node(self, n: fx.Node) -> Any:
        result = super().run_node(n)
        if n.name == self._name:
            self.caught = result = result.detach().requires_grad_()
        return result


def _last_map(module: fx.GraphModule, model: str, size: tuple[int, int]) -> str:
    """Return the name of the last value that still has height and width."""
    watcher = _Watcher(module)
    with torch.no_grad():
        watcher.run(torch.full((1, 3, *size), 0.5))
    nodes = [node for node in module.graph.nodes if node.op == "call_function"]
    spatial = [
        at
        for at, node in enumerate(nodes)
        if _is_map(watcher.shapes.get(node.name, ()), size) and _depends_on_input(node)
    ]
    weighted = [at for at, node in enumerate(nodes) if _is_weighted(node)]
    last = spatial[-1] if spatial else -1
    behind = sum(at > last for at in weighted)
    if last < 0 or behind > max(_FEW_LAYERS, _MOST_BEHIND * len(weighted)):
        raise UnsupportedModel(
            f"{model!r} has no spatial feature map near its end (a transformer of patch tokens, "
            "or a network without convolutions); attention maps are not available for it"
        )
    return str(nodes[last].name)


def _is_map(shape: tuple[int, ...], size: tuple[int, int]) -> bool:
    if len(shape) != 4 or shape[0] != 1 or shape[1] <= 3:
        return False
    return all(_SMALLEST_SIDE <= side <= whole for side, whole in zip(shape[2:], size, strict=True))


def _depends_on_input(node: fx.Node) -> bool:
    return any(source.op != "get_attr" for source in node.all_input_nodes)


def _is_weighted(node: fx.Node) -> bool:
    name = getattr(node.target, "__name__", str(node.target))
    return any(word in name for word in _WEIGHTED)


def _weighted_activation(
    module: fx.GraphModule, name: str, images: torch.Tensor, references: torch.Tensor
) -> tuple[torch.Tensor, torch.Tensor]:
    catcher = _Catcher(module, name)
    with torch.enable_grad():
        cosine = (catcher.run(images) * references).sum(1)
        assert catcher.caught is not None, "the map is a value of this very graph"
        gradient = torch.autograd.grad(cosine.sum(), catcher.caught)[0]
    product = (gradient * catcher.caught.detach()).sum(1)
    return product.clamp_min(0.0), cosine.detach()


def _spread(coarse: torch.Tensor, size: tuple[int, ...], seen: tuple[int, ...]) -> torch.Tensor:
    """Enlarge maps to the pictures; columns that the model did not see are 0."""
    fine = functional.interpolate(
        coarse[:, None], size=(size[0], round(seen[1] * size[0] / seen[0])), mode="bicubic"
    ).clamp_min(0.0)
    fine = fit(fine, (size[0], size[1]))[:, 0]
    return fine / fine.amax((1, 2), keepdim=True).clamp_min(1e-12)
