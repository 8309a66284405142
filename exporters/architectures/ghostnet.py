"""GhostNet with a face head (Han et al., CVPR 2020; Alansari et al., GhostFaceNets, 2023).

No table of the benchmark prints its size; it keeps the converter honest about ghost modules
(concatenation of cheap depthwise features).
"""

from __future__ import annotations

import torch
from torch import Tensor, nn

from onnxfr.exporters.architectures._blocks import conv_bn, relu
from onnxfr.exporters.architectures.base import Architecture, register
from onnxfr.exporters.architectures.mobilenet import HardGate

PAPER = "Han et al., GhostNet: More Features from Cheap Operations, CVPR 2020"
PLAN = (
    (3, 16, 16, False, 1),
    (3, 48, 24, False, 2),
    (3, 72, 24, False, 1),
    (5, 72, 40, True, 2),
    (5, 120, 40, True, 1),
    (3, 240, 80, False, 2),
    (3, 200, 80, False, 1),
    (3, 184, 80, False, 1),
    (3, 184, 80, False, 1),
    (3, 480, 112, True, 1),
    (3, 672, 112, True, 1),
    (5, 672, 160, True, 2),
    (5, 960, 160, False, 1),
    (5, 960, 160, True, 1),
    (5, 960, 160, False, 1),
    (5, 960, 160, True, 1),
)
"""Kernel, inner channels, output channels, gate, stride (Table 2 of the paper)."""


class GhostModule(nn.Module):
    """Half the features by a 1x1 convolution, the other half from them by a depthwise one."""

    def __init__(self, inputs: int, outputs: int, *, active: bool) -> None:
        super().__init__()
        half = outputs // 2
        activation = relu if active else None
        self.primary = nn.Sequential(*conv_bn(inputs, half, activation=activation))
        self.cheap = nn.Sequential(*conv_bn(half, half, 3, groups=half, activation=activation))

    def forward(self, x: Tensor) -> Tensor:
        """Concatenate both halves."""
        primary = self.primary(x)
        return torch.cat((primary, self.cheap(primary)), dim=1)


class GhostBottleneck(nn.Module):
    """Ghost expansion, strided depthwise convolution, gate, ghost projection, shortcut."""

    def __init__(self, inputs: int, row: tuple[int, int, int, bool, int]) -> None:
        super().__init__()
        kernel, inner, outputs, gated, stride = row
        layers: list[nn.Module] = [GhostModule(inputs, inner, active=True)]
        if stride > 1:
            layers += conv_bn(inner, inner, kernel, stride, inner)
        if gated:
            layers.append(HardGate(inner, max(8, (inner // 4 + 2) // 4 * 4)))
        self.main = nn.Sequential(*layers, GhostModule(inner, outputs, active=False))
        self.shortcut: nn.Module = nn.Identity()
        if stride != 1 or inputs != outputs:
            depthwise = conv_bn(inputs, inputs, kernel, stride, inputs)
            self.shortcut = nn.Sequential(*depthwise, *conv_bn(inputs, outputs))

    def forward(self, x: Tensor) -> Tensor:
        """Add both paths."""
        out: Tensor = self.main(x) + self.shortcut(x)
        return out


class GhostNet(nn.Module):
    """The plan of Table 2, then a global depthwise convolution over 4x4 and a linear embedding."""

    def __init__(self) -> None:
        super().__init__()
        layers: list[nn.Module] = [nn.Sequential(*conv_bn(3, 16, 3, 2, activation=relu))]
        inputs = 16
        for row in PLAN:
            layers.append(GhostBottleneck(inputs, row))
            inputs = row[2]
        layers.append(nn.Sequential(*conv_bn(inputs, 960, activation=relu)))
        self.features = nn.Sequential(*layers)
        self.pool = nn.Conv2d(960, 960, 4, groups=960, bias=False)
        self.fc = nn.Linear(960, 512)

    def forward(self, x: Tensor) -> Tensor:
        """Return the embedding, not normalised."""
        out: Tensor = self.fc(self.pool(self.features(x)).flatten(1))
        return out


register(
    Architecture(
        name="ghostnet",
        build=GhostNet,
        input_size=(112, 112),
        embedding_dim=512,
        paper=PAPER,
    )
)
