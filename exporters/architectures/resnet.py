"""ResNet-50 with RobFR's face head (He et al., CVPR 2016).

A 112x112 face leaves a 4x4 map of 2,048 channels; BatchNorm, one 512-d linear layer over the whole
map and a last BatchNorm follow. That head holds 16.8 of the 40.29 million parameters.
"""

from __future__ import annotations

import torch
from torch import Tensor, nn

from onnxfr.exporters.architectures.base import Architecture, Reported, register
from onnxfr.models.preprocessing import Preprocessing

PAPER = "He et al., Deep Residual Learning for Image Recognition, CVPR 2016"


class Bottleneck(nn.Module):
    """1x1, strided 3x3, 1x1 with four times the channels, plus the shortcut."""

    def __init__(self, inputs: int, inner: int, stride: int) -> None:
        super().__init__()
        outputs = 4 * inner
        self.conv1 = nn.Conv2d(inputs, inner, 1, bias=False)
        self.bn1 = nn.BatchNorm2d(inner)
        self.conv2 = nn.Conv2d(inner, inner, 3, stride, 1, bias=False)
        self.bn2 = nn.BatchNorm2d(inner)
        self.conv3 = nn.Conv2d(inner, outputs, 1, bias=False)
        self.bn3 = nn.BatchNorm2d(outputs)
        self.downsample = (
            nn.Sequential(
                nn.Conv2d(inputs, outputs, 1, stride, bias=False), nn.BatchNorm2d(outputs)
            )
            if stride != 1 or inputs != outputs
            else None
        )

    def forward(self, x: Tensor) -> Tensor:
        """Add the residual branch to the shortcut."""
        shortcut = x if self.downsample is None else self.downsample(x)
        x = torch.relu(self.bn1(self.conv1(x)))
        x = torch.relu(self.bn2(self.conv2(x)))
        return torch.relu(self.bn3(self.conv3(x)) + shortcut)


class ResNet50(nn.Module):
    """The 3-4-6-3 trunk and the face head."""

    def __init__(self) -> None:
        super().__init__()
        self.conv1 = nn.Conv2d(3, 64, 7, 2, 3, bias=False)
        self.bn1 = nn.BatchNorm2d(64)
        self.maxpool = nn.MaxPool2d(3, 2, 1)
        self.layer1 = _stage(64, 64, 3, 1)
        self.layer2 = _stage(256, 128, 4, 2)
        self.layer3 = _stage(512, 256, 6, 2)
        self.layer4 = _stage(1024, 512, 3, 2)
        self.bn_o1 = nn.BatchNorm2d(2048)
        self.fc = nn.Linear(2048 * 4 * 4, 512)
        self.bn_o2 = nn.BatchNorm1d(512)

    def forward(self, x: Tensor) -> Tensor:
        """Return the embedding, not normalised."""
        x = self.maxpool(torch.relu(self.bn1(self.conv1(x))))
        x = self.layer4(self.layer3(self.layer2(self.layer1(x))))
        out: Tensor = self.bn_o2(self.fc(self.bn_o1(x).flatten(1)))
        return out


def _stage(inputs: int, inner: int, depth: int, stride: int) -> nn.Sequential:
    rest = [Bottleneck(4 * inner, inner, 1) for _ in range(depth - 1)]
    return nn.Sequential(Bottleneck(inputs, inner, stride), *rest)


register(
    Architecture(
        name="resnet50",
        build=ResNet50,
        input_size=(112, 112),
        embedding_dim=512,
        paper=PAPER,
        reported=(Reported("RobFR Table 1: ResNet50", "40.29"),),
        preprocessing=Preprocessing(color="bgr", scaling="pm1-128"),
    )
)
