"""nn4.small2, the network of OpenFace (Amos et al., CMU-CS-16-118; Schroff et al., CVPR 2015).

Names follow the public PyTorch port of the Torch7 weights. Branches of unequal size are padded
with zeros around, as Torch7's depth concatenation does; the result has unit length, as published.
"""

from __future__ import annotations

from collections import OrderedDict

import numpy as np
import torch
from torch import Tensor, nn

from onnxfr.exporters.architectures.base import Architecture, Reported, register
from onnxfr.models.preprocessing import Preprocessing

PAPER = "Amos et al., OpenFace: A general-purpose face recognition library, CMU-CS-16-118, 2016"


class ResponseNorm(nn.Module):
    """Divide by the energy of five neighbouring channels (alpha 1e-4, beta 0.75).

    The neighbourhood sum is a 1x1 convolution with a banded constant: torch's own layer exports as
    a dozen nodes with a branch.
    """

    def forward(self, x: Tensor) -> Tensor:
        """Normalise across channels."""
        channels = int(x.shape[1])
        place = np.arange(channels)
        band = np.abs(place[:, None] - place[None, :]) <= 2
        weight = torch.from_numpy(band[:, :, None, None].astype(np.float64)).to(x)
        energy = nn.functional.conv2d(x * x, weight)
        return x / (1.0 + 1e-4 / 5 * energy) ** 0.75


class RootMeanPool(nn.Module):
    """Square root of the sum of squares of each 3x3 window."""

    def forward(self, x: Tensor) -> Tensor:
        """Pool with stride 3; the floor keeps the gradient finite where a window is all zero."""
        return torch.sqrt(nn.functional.avg_pool2d(x * x, 3, 3) * 9.0 + 1e-20)


def _max_pool() -> nn.Module:
    return nn.MaxPool2d(3, 2)


class Inception(nn.Module):
    """Reduced 3x3 and 5x5 convolutions, a pooled branch, a 1x1 branch.

    ``reduce`` gives the 1x1 widths: one per convolution, then pool, then the plain 1x1; None means
    the pooled input passes as it is, or that the 1x1 branch is absent.
    """

    def __init__(
        self,
        inputs: int,
        outputs: tuple[int, ...],
        reduce: tuple[int | None, ...],
        pool: nn.Module,
        stride: int = 1,
    ) -> None:
        super().__init__()
        branches: list[nn.Module] = []
        for kernel, width, inner in zip((3, 5), outputs, reduce, strict=False):
            assert inner is not None
            branches.append(
                nn.Sequential(
                    OrderedDict[str, nn.Module](
                        {
                            "1_conv": nn.Conv2d(inputs, inner, 1),
                            "2_bn": nn.BatchNorm2d(inner),
                            "3_relu": nn.ReLU(),
                            "4_conv": nn.Conv2d(inner, width, kernel, stride, kernel // 2),
                            "5_bn": nn.BatchNorm2d(width),
                            "6_relu": nn.ReLU(),
                        }
                    )
                )
            )
        pooled, plain = (*reduce, None)[len(outputs) : len(outputs) + 2]
        pool_layers = OrderedDict[str, nn.Module]({"1_pool": pool})
        if pooled is not None:
            pool_layers |= {"2_conv": nn.Conv2d(inputs, pooled, 1)}
            pool_layers |= {"3_bn": nn.BatchNorm2d(pooled), "4_relu": nn.ReLU()}
        branches.append(nn.Sequential(pool_layers))
        if plain is not None:
            layers = {"1_conv": nn.Conv2d(inputs, plain, 1), "2_bn": nn.BatchNorm2d(plain)}
            branches.append(
                nn.Sequential(OrderedDict[str, nn.Module](layers, **{"3_relu": nn.ReLU()}))
            )
        self.seq_list = nn.ModuleList(branches)

    def forward(self, x: Tensor) -> Tensor:
        """Concatenate the branches, the smaller ones centred in zeros."""
        parts: list[Tensor] = [branch(x) for branch in self.seq_list]
        height = max(int(part.shape[2]) for part in parts)
        width = max(int(part.shape[3]) for part in parts)
        return torch.cat([_centred(part, height, width) for part in parts], dim=1)


def _centred(x: Tensor, height: int, width: int) -> Tensor:
    spare_y, spare_x = height - int(x.shape[2]), width - int(x.shape[3])
    if not spare_y and not spare_x:
        return x
    left, top = spare_x // 2, spare_y // 2
    return nn.functional.pad(x, (left, spare_x - left, top, spare_y - top))


class NN4Small2(nn.Module):
    """Stem with local response normalisation, seven inception modules, 128-d embedding."""

    def __init__(self) -> None:
        super().__init__()
        self.layer1 = nn.Conv2d(3, 64, 7, 2, 3)
        self.layer2 = nn.BatchNorm2d(64)
        self.layer6 = nn.Conv2d(64, 64, 1)
        self.layer7 = nn.BatchNorm2d(64)
        self.layer9 = nn.Conv2d(64, 192, 3, 1, 1)
        self.layer10 = nn.BatchNorm2d(192)
        self.pool = nn.MaxPool2d(3, 2, 1)
        self.lrn = ResponseNorm()
        self.layer14 = Inception(192, (128, 32), (96, 16, 32, 64), _max_pool())
        self.layer15 = Inception(256, (128, 64), (96, 32, 64, 64), RootMeanPool())
        self.layer16 = Inception(320, (256, 64), (128, 32, None, None), _max_pool(), 2)
        self.layer17 = Inception(640, (192, 64), (96, 32, 128, 256), RootMeanPool())
        self.layer18 = Inception(640, (256, 128), (160, 64, None, None), _max_pool(), 2)
        self.layer19 = Inception(1024, (384,), (96, 96, 256), RootMeanPool())
        self.layer21 = Inception(736, (384,), (96, 96, 256), _max_pool())
        self.layer25 = nn.Linear(736, 128)

    def forward(self, x: Tensor) -> Tensor:
        """Return the embedding with unit length."""
        x = self.lrn(self.pool(torch.relu(self.layer2(self.layer1(x)))))
        x = torch.relu(self.layer7(self.layer6(x)))
        x = self.pool(self.lrn(torch.relu(self.layer10(self.layer9(x)))))
        for number in (14, 15, 16, 17, 18, 19, 21):
            x = self.get_submodule(f"layer{number}")(x)
        x = self.layer25(torch.mean(x, dim=(2, 3)))
        return x / torch.sqrt(torch.sum(x * x, dim=1, keepdim=True) + 1e-6)


register(
    Architecture(
        name="openface_nn4_small2",
        build=NN4Small2,
        input_size=(96, 96),
        embedding_dim=128,
        paper=PAPER,
        reported=(Reported("OpenFace, table of models", "3.733968"),),
        preprocessing=Preprocessing(color="rgb", scaling="0-1"),
    )
)
