"""Small layers several families share."""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor, nn

Activation = Callable[[int], nn.Module]


def prelu(channels: int) -> nn.Module:
    """Return a PReLU with one slope per channel."""
    return nn.PReLU(channels)


def relu(channels: int) -> nn.Module:
    """Return a ReLU; the channel count is ignored."""
    return nn.ReLU()


def relu6(channels: int) -> nn.Module:
    """Return a ReLU6; the channel count is ignored."""
    return nn.ReLU6()


class ConvBlock(nn.Module):
    """Convolution, batch normalisation and, unless linear, an activation."""

    def __init__(
        self,
        inputs: int,
        outputs: int,
        kernel: int | tuple[int, int] = 1,
        stride: int = 1,
        padding: int = 0,
        groups: int = 1,
        activation: Activation | None = None,
    ) -> None:
        super().__init__()
        self.conv = nn.Conv2d(inputs, outputs, kernel, stride, padding, groups=groups, bias=False)
        self.bn = nn.BatchNorm2d(outputs)
        self.act = activation(outputs) if activation else nn.Identity()

    def forward(self, x: Tensor) -> Tensor:
        """Apply the three layers."""
        out: Tensor = self.act(self.bn(self.conv(x)))
        return out


def conv_bn(
    inputs: int,
    outputs: int,
    kernel: int = 1,
    stride: int = 1,
    groups: int = 1,
    activation: Activation | None = None,
) -> list[nn.Module]:
    """Return the layers of a size-keeping convolution block, to be spliced into a Sequential."""
    layers: list[nn.Module] = [
        nn.Conv2d(inputs, outputs, kernel, stride, kernel // 2, groups=groups, bias=False),
        nn.BatchNorm2d(outputs),
    ]
    return [*layers, activation(outputs)] if activation else layers


def channel_shuffle(x: Tensor, groups: int) -> Tensor:
    """Interleave the channels of ``groups`` groups.

    The sizes are plain integers because only the batch is dynamic in an exported graph.
    """
    channels, height, width = (int(size) for size in x.shape[1:])
    x = x.reshape(-1, groups, channels // groups, height, width)
    return torch.transpose(x, 1, 2).reshape(-1, channels, height, width)
