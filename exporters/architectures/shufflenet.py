"""ShuffleNet V1 and V2 with face heads (Zhang et al., CVPR 2018; Ma et al., ECCV 2018).

The first convolution is not strided, because a face is 112x112, and the end is a global depthwise
convolution over the 7x7 map and a 512-d linear layer: the head that gives RobFR's Table 1. As in
the RobFR checkpoints, V1 ungroups both pointwise convolutions of its very first unit, where the
paper ungroups only the first of them.
"""

from __future__ import annotations

from collections import OrderedDict

import torch
from torch import Tensor, nn

from onnxfr.exporters.architectures._blocks import channel_shuffle, conv_bn, relu
from onnxfr.exporters.architectures.base import Architecture, Reported, register
from onnxfr.models.preprocessing import Preprocessing

V1 = "Zhang et al., ShuffleNet: An Extremely Efficient CNN for Mobile Devices, CVPR 2018"
V2 = "Ma et al., ShuffleNet V2: Practical Guidelines for Efficient CNN Design, ECCV 2018"


def _grouped(inputs: int, outputs: int, groups: int, *, active: bool) -> nn.Sequential:
    layers = OrderedDict[str, nn.Module](
        conv1x1=nn.Conv2d(inputs, outputs, 1, groups=groups),
        batch_norm=nn.BatchNorm2d(outputs),
    )
    if active:
        layers["relu"] = nn.ReLU()
    return nn.Sequential(layers)


class ShuffleUnit(nn.Module):
    """Grouped bottleneck with a channel shuffle; a strided unit concatenates its pooled input."""

    def __init__(self, inputs: int, outputs: int, groups: int, *, grouped: bool = True) -> None:
        super().__init__()
        self.groups = groups
        self.strided = inputs != outputs
        inner = outputs // 4
        pointwise = groups if grouped else 1
        grown = outputs - inputs if self.strided else outputs
        self.g_conv_1x1_compress = _grouped(inputs, inner, pointwise, active=True)
        stride = 2 if self.strided else 1
        self.depthwise_conv3x3 = nn.Conv2d(inner, inner, 3, stride, 1, groups=inner)
        self.bn_after_depthwise = nn.BatchNorm2d(inner)
        self.g_conv_1x1_expand = _grouped(inner, grown, pointwise, active=False)

    def forward(self, x: Tensor) -> Tensor:
        """Apply the unit."""
        out = channel_shuffle(self.g_conv_1x1_compress(x), self.groups)
        out = self.bn_after_depthwise(self.depthwise_conv3x3(out))
        out = self.g_conv_1x1_expand(out)
        if self.strided:
            pooled = nn.functional.avg_pool2d(x, 3, 2, 1)
            return torch.relu(torch.cat((pooled, out), 1))
        return torch.relu(x + out)


class ShuffleNetV1(nn.Module):
    """Three stages of shuffle units."""

    def __init__(self, groups: int = 3) -> None:
        super().__init__()
        self.conv1 = nn.Conv2d(3, 24, 3, 1, 1)
        self.maxpool = nn.MaxPool2d(3, 2, 1)
        self.stage2 = self._stage(2, 24, 240, 4, groups)
        self.stage3 = self._stage(3, 240, 480, 8, groups)
        self.stage4 = self._stage(4, 480, 960, 4, groups)
        self.linear7 = nn.Conv2d(960, 960, 7, groups=960, bias=False)
        self.fc = nn.Linear(960, 512)

    @staticmethod
    def _stage(stage: int, inputs: int, outputs: int, units: int, groups: int) -> nn.Sequential:
        name = f"ShuffleUnit_Stage{stage}"
        first = ShuffleUnit(inputs, outputs, groups, grouped=stage > 2)
        layers = OrderedDict[str, nn.Module]({f"{name}_0": first})
        for index in range(1, units):
            layers[f"{name}_{index}"] = ShuffleUnit(outputs, outputs, groups)
        return nn.Sequential(layers)

    def forward(self, x: Tensor) -> Tensor:
        """Return the embedding, not normalised."""
        x = self.maxpool(self.conv1(x))
        x = self.linear7(self.stage4(self.stage3(self.stage2(x))))
        out: Tensor = self.fc(x.flatten(1))
        return out


class SplitUnit(nn.Module):
    """V2 unit: half the channels pass through; a strided unit transforms both halves."""

    def __init__(self, inputs: int, outputs: int) -> None:
        super().__init__()
        self.width = half = outputs // 2
        self.strided = inputs != outputs
        stride = 2 if self.strided else 1
        entering = inputs if self.strided else half
        self.banch2 = nn.Sequential(
            *conv_bn(entering, half, activation=relu),
            *conv_bn(half, half, 3, stride, half),
            *conv_bn(half, half, activation=relu),
        )
        if self.strided:
            self.banch1 = nn.Sequential(
                *conv_bn(inputs, inputs, 3, stride, inputs),
                *conv_bn(inputs, half, activation=relu),
            )

    def forward(self, x: Tensor) -> Tensor:
        """Apply the unit."""
        if self.strided:
            kept, changed = self.banch1(x), self.banch2(x)
        else:
            kept, passing = torch.split(x, self.width, dim=1)
            changed = self.banch2(passing)
        return channel_shuffle(torch.cat((kept, changed), 1), 2)


class ShuffleNetV2(nn.Module):
    """Three stages of split units."""

    def __init__(self) -> None:
        super().__init__()
        self.conv1 = nn.Sequential(*conv_bn(3, 24, 3, 1, activation=relu))
        self.maxpool = nn.MaxPool2d(3, 2, 1)
        units: list[nn.Module] = []
        inputs = 24
        for outputs, repeats in ((116, 4), (232, 8), (464, 4)):
            for _ in range(repeats):
                units.append(SplitUnit(inputs, outputs))
                inputs = outputs
        self.features = nn.Sequential(*units)
        self.conv_last = nn.Sequential(*conv_bn(inputs, 1024, activation=relu))
        self.linear7 = nn.Conv2d(1024, 1024, 7, groups=1024, bias=False)
        self.classifier = nn.Sequential(nn.Linear(1024, 512))

    def forward(self, x: Tensor) -> Tensor:
        """Return the embedding, not normalised."""
        x = self.conv_last(self.features(self.maxpool(self.conv1(x))))
        out: Tensor = self.classifier(self.linear7(x).flatten(1))
        return out


register(
    Architecture(
        name="shufflenet_v1",
        build=ShuffleNetV1,
        input_size=(112, 112),
        embedding_dim=512,
        paper=V1,
        reported=(Reported("RobFR Table 1: ShuffleNetV1", "1.46"),),
        preprocessing=Preprocessing(color="bgr", scaling="pm1-128"),
    )
)
register(
    Architecture(
        name="shufflenet_v2",
        build=ShuffleNetV2,
        input_size=(112, 112),
        embedding_dim=512,
        paper=V2,
        reported=(Reported("RobFR Table 1: ShuffleNetV2", "1.83"),),
        preprocessing=Preprocessing(color="bgr", scaling="pm1-128"),
    )
)
