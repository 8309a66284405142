"""EfficientNet-B0 with a linear face embedding (Tan and Le, ICML 2019).

No paper of the benchmark uses it; it keeps the converter honest about SiLU and squeeze-excite.
"""

from __future__ import annotations

import torch
from torch import Tensor, nn

from onnxfr.exporters.architectures._blocks import conv_bn
from onnxfr.exporters.architectures.base import Architecture, register

PAPER = "Tan and Le, EfficientNet: Rethinking Model Scaling for CNNs, ICML 2019"
PLAN = (
    (1, 16, 1, 1, 3),
    (6, 24, 2, 2, 3),
    (6, 40, 2, 2, 5),
    (6, 80, 3, 2, 3),
    (6, 112, 3, 1, 5),
    (6, 192, 4, 2, 5),
    (6, 320, 1, 1, 3),
)
"""Expansion, channels, repeats, stride, kernel of every stage."""


def silu(channels: int) -> nn.Module:
    """Return a SiLU; the channel count is ignored."""
    return nn.SiLU()


class Gate(nn.Module):
    """Squeeze-excite with SiLU inside."""

    def __init__(self, channels: int, inner: int) -> None:
        super().__init__()
        self.reduce = nn.Conv2d(channels, inner, 1)
        self.expand = nn.Conv2d(inner, channels, 1)

    def forward(self, x: Tensor) -> Tensor:
        """Return ``x`` times its gate."""
        pooled = torch.mean(x, dim=(2, 3), keepdim=True)
        return x * torch.sigmoid(self.expand(nn.functional.silu(self.reduce(pooled))))


class MBConv(nn.Module):
    """Inverted residual with a gate."""

    def __init__(self, inputs: int, outputs: int, stride: int, expansion: int, kernel: int) -> None:
        super().__init__()
        inner = inputs * expansion
        layers = conv_bn(inputs, inner, activation=silu) if expansion != 1 else []
        layers += conv_bn(inner, inner, kernel, stride, inner, silu)
        layers += [Gate(inner, max(1, inputs // 4)), *conv_bn(inner, outputs)]
        self.conv = nn.Sequential(*layers)
        self.residual = stride == 1 and inputs == outputs

    def forward(self, x: Tensor) -> Tensor:
        """Apply the block."""
        out: Tensor = self.conv(x)
        return x + out if self.residual else out


class EfficientNetB0(nn.Module):
    """The B0 plan, mean over the map, 512-d linear embedding."""

    def __init__(self) -> None:
        super().__init__()
        layers: list[nn.Module] = [nn.Sequential(*conv_bn(3, 32, 3, 2, activation=silu))]
        inputs = 32
        for expansion, outputs, repeats, stride, kernel in PLAN:
            for index in range(repeats):
                step = stride if index == 0 else 1
                layers.append(MBConv(inputs, outputs, step, expansion, kernel))
                inputs = outputs
        layers.append(nn.Sequential(*conv_bn(inputs, 1280, activation=silu)))
        self.features = nn.Sequential(*layers)
        self.fc = nn.Linear(1280, 512)

    def forward(self, x: Tensor) -> Tensor:
        """Return the embedding, not normalised."""
        out: Tensor = self.fc(torch.mean(self.features(x), dim=(2, 3)))
        return out


register(
    Architecture(
        name="efficientnet_b0",
        build=EfficientNetB0,
        input_size=(112, 112),
        embedding_dim=512,
        paper=PAPER,
    )
)
