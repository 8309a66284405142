"""MobileNet V1, V2, V3 with face heads (Howard et al. 2017, 2019; Sandler et al. 2018).

V1 and V2 end as in RobFR: a global depthwise convolution over the 4x4 map, then a 512-d linear
layer; that head gives exactly the sizes of its Table 1. V3 has no such table and serves the
converter's coverage (hard-swish, squeeze-excite).
"""

from __future__ import annotations

import torch
from torch import Tensor, nn

from onnxfr.exporters.architectures._blocks import Activation, conv_bn, relu, relu6
from onnxfr.exporters.architectures.base import Architecture, Reported, register
from onnxfr.models.preprocessing import Preprocessing

V1 = "Howard et al., MobileNets: Efficient CNNs for Mobile Vision Applications, 2017"
V2 = "Sandler et al., MobileNetV2: Inverted Residuals and Linear Bottlenecks, CVPR 2018"
V3 = "Howard et al., Searching for MobileNetV3, ICCV 2019"


class MobileNetV1(nn.Module):
    """Thirteen depthwise-separable convolutions."""

    PLAN = ((64, 1), (128, 2), (128, 1), (256, 2), (256, 1), (512, 2)) + ((512, 1),) * 5
    LAST = ((1024, 2), (1024, 1))

    def __init__(self) -> None:
        super().__init__()
        stages = [nn.Sequential(*conv_bn(3, 32, 3, 2, activation=relu))]
        inputs = 32
        for outputs, stride in self.PLAN + self.LAST:
            depthwise = conv_bn(inputs, inputs, 3, stride, inputs, relu)
            stages.append(nn.Sequential(*depthwise, *conv_bn(inputs, outputs, activation=relu)))
            inputs = outputs
        self.model = nn.Sequential(*stages)
        self.linear7 = nn.Conv2d(1024, 1024, 4, groups=1024, bias=False)
        self.fc = nn.Linear(1024, 512)

    def forward(self, x: Tensor) -> Tensor:
        """Return the embedding, not normalised."""
        out: Tensor = self.fc(self.linear7(self.model(x)).flatten(1))
        return out


class InvertedResidual(nn.Module):
    """Expand, depthwise, project; the shortcut joins where the shapes allow."""

    def __init__(self, inputs: int, outputs: int, stride: int, expansion: int) -> None:
        super().__init__()
        inner = inputs * expansion
        layers = conv_bn(inputs, inner, activation=relu6) if expansion != 1 else []
        layers += conv_bn(inner, inner, 3, stride, inner, relu6) + conv_bn(inner, outputs)
        self.conv = nn.Sequential(*layers)
        self.residual = stride == 1 and inputs == outputs

    def forward(self, x: Tensor) -> Tensor:
        """Apply the block."""
        out: Tensor = self.conv(x)
        return x + out if self.residual else out


class MobileNetV2(nn.Module):
    """Seven groups of inverted residuals."""

    PLAN = (
        (1, 16, 1, 1),
        (6, 24, 2, 2),
        (6, 32, 3, 2),
        (6, 64, 4, 2),
        (6, 96, 3, 1),
        (6, 160, 3, 2),
        (6, 320, 1, 1),
    )

    def __init__(self) -> None:
        super().__init__()
        layers: list[nn.Module] = [nn.Sequential(*conv_bn(3, 32, 3, 2, activation=relu6))]
        inputs = 32
        for expansion, outputs, repeats, stride in self.PLAN:
            for index in range(repeats):
                step = stride if index == 0 else 1
                layers.append(InvertedResidual(inputs, outputs, step, expansion))
                inputs = outputs
        layers.append(nn.Sequential(*conv_bn(inputs, 1280, activation=relu6)))
        self.features = nn.Sequential(*layers)
        self.linear7 = nn.Conv2d(1280, 1280, 4, groups=1280, bias=False)
        self.classifier = nn.Sequential(nn.Dropout(0.2), nn.Linear(1280, 512))

    def forward(self, x: Tensor) -> Tensor:
        """Return the embedding, not normalised."""
        out: Tensor = self.classifier(self.linear7(self.features(x)).flatten(1))
        return out


def hard_swish(channels: int) -> nn.Module:
    """Return a hard-swish; the channel count is ignored."""
    return nn.Hardswish()


class HardGate(nn.Module):
    """Squeeze-excite whose gate is a hard sigmoid."""

    def __init__(self, channels: int, inner: int) -> None:
        super().__init__()
        self.reduce = nn.Conv2d(channels, inner, 1)
        self.expand = nn.Conv2d(inner, channels, 1)

    def forward(self, x: Tensor) -> Tensor:
        """Return ``x`` times its gate."""
        pooled = torch.mean(x, dim=(2, 3), keepdim=True)
        gate = nn.functional.hardsigmoid(self.expand(torch.relu(self.reduce(pooled))))
        return x * gate


class V3Block(nn.Module):
    """Inverted residual with a free inner width, kernel size, gate and activation."""

    def __init__(self, inputs: int, row: tuple[int, int, int, bool, Activation, int]) -> None:
        super().__init__()
        kernel, inner, outputs, gated, activation, stride = row
        layers = conv_bn(inputs, inner, activation=activation) if inner != inputs else []
        layers += conv_bn(inner, inner, kernel, stride, inner, activation)
        if gated:
            layers.append(HardGate(inner, max(8, (inner // 4 + 4) // 8 * 8)))
        self.conv = nn.Sequential(*layers, *conv_bn(inner, outputs))
        self.residual = stride == 1 and inputs == outputs

    def forward(self, x: Tensor) -> Tensor:
        """Apply the block."""
        out: Tensor = self.conv(x)
        return x + out if self.residual else out


class MobileNetV3(nn.Module):
    """The Large plan of Table 1, with a 512-d linear embedding after the mean."""

    PLAN: tuple[tuple[int, int, int, bool, Activation, int], ...] = (
        (3, 16, 16, False, relu, 1),
        (3, 64, 24, False, relu, 2),
        (3, 72, 24, False, relu, 1),
        (5, 72, 40, True, relu, 2),
        (5, 120, 40, True, relu, 1),
        (5, 120, 40, True, relu, 1),
        (3, 240, 80, False, hard_swish, 2),
        (3, 200, 80, False, hard_swish, 1),
        (3, 184, 80, False, hard_swish, 1),
        (3, 184, 80, False, hard_swish, 1),
        (3, 480, 112, True, hard_swish, 1),
        (3, 672, 112, True, hard_swish, 1),
        (5, 672, 160, True, hard_swish, 2),
        (5, 960, 160, True, hard_swish, 1),
        (5, 960, 160, True, hard_swish, 1),
    )

    def __init__(self) -> None:
        super().__init__()
        layers: list[nn.Module] = [nn.Sequential(*conv_bn(3, 16, 3, 2, activation=hard_swish))]
        inputs = 16
        for row in self.PLAN:
            layers.append(V3Block(inputs, row))
            inputs = row[2]
        layers.append(nn.Sequential(*conv_bn(inputs, 960, activation=hard_swish)))
        self.features = nn.Sequential(*layers)
        self.fc = nn.Linear(960, 512)

    def forward(self, x: Tensor) -> Tensor:
        """Return the embedding, not normalised."""
        out: Tensor = self.fc(torch.mean(self.features(x), dim=(2, 3)))
        return out


register(
    Architecture(
        name="mobilenet",
        build=MobileNetV1,
        input_size=(112, 112),
        embedding_dim=512,
        paper=V1,
        reported=(Reported("RobFR Table 1: MobileNet", "3.75"),),
        preprocessing=Preprocessing(color="bgr", scaling="pm1-128"),
    )
)
register(
    Architecture(
        name="mobilenet_v2",
        build=MobileNetV2,
        input_size=(112, 112),
        embedding_dim=512,
        paper=V2,
        reported=(Reported("RobFR Table 1: MobileNetV2", "2.90"),),
        preprocessing=Preprocessing(color="bgr", scaling="pm1-128"),
    )
)
register(
    Architecture(
        name="mobilenet_v3",
        build=MobileNetV3,
        input_size=(112, 112),
        embedding_dim=512,
        paper=V3,
    )
)
