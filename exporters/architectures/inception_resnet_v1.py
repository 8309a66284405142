"""Inception-ResNet-v1, the FaceNet network (Szegedy et al., AAAI 2017; Schroff et al., CVPR 2015).

Names follow facenet-pytorch. RobFR counts the 8,631-class VGGFace2 classifier of that checkpoint,
which is of no use for embeddings and left out here. BatchNorm's epsilon is TensorFlow's 1e-3.
"""

from __future__ import annotations

import torch
from torch import Tensor, nn

from onnxfr.exporters.architectures.base import Architecture, Reported, register
from onnxfr.models.preprocessing import Preprocessing

PAPER = "Szegedy et al., Inception-v4, Inception-ResNet and Residual Connections, AAAI 2017"
VGGFACE2_CLASSES = 8_631


class BasicConv2d(nn.Module):
    """Convolution, BatchNorm, ReLU."""

    def __init__(
        self,
        inputs: int,
        outputs: int,
        kernel: int | tuple[int, int],
        stride: int = 1,
        padding: int | tuple[int, int] = 0,
    ) -> None:
        super().__init__()
        self.conv = nn.Conv2d(inputs, outputs, kernel, stride, padding, bias=False)
        self.bn = nn.BatchNorm2d(outputs, eps=0.001)

    def forward(self, x: Tensor) -> Tensor:
        """Apply the three layers."""
        return torch.relu(self.bn(self.conv(x)))


class Block35(nn.Module):
    """Inception-ResNet-A."""

    def __init__(self) -> None:
        super().__init__()
        self.branch0 = BasicConv2d(256, 32, 1)
        self.branch1 = nn.Sequential(BasicConv2d(256, 32, 1), BasicConv2d(32, 32, 3, padding=1))
        self.branch2 = nn.Sequential(
            BasicConv2d(256, 32, 1),
            BasicConv2d(32, 32, 3, padding=1),
            BasicConv2d(32, 32, 3, padding=1),
        )
        self.conv2d = nn.Conv2d(96, 256, 1)

    def forward(self, x: Tensor) -> Tensor:
        """Add 0.17 times the branches."""
        branches = torch.cat((self.branch0(x), self.branch1(x), self.branch2(x)), 1)
        return torch.relu(x + 0.17 * self.conv2d(branches))


class Block17(nn.Module):
    """Inception-ResNet-B."""

    def __init__(self) -> None:
        super().__init__()
        self.branch0 = BasicConv2d(896, 128, 1)
        self.branch1 = nn.Sequential(
            BasicConv2d(896, 128, 1),
            BasicConv2d(128, 128, (1, 7), padding=(0, 3)),
            BasicConv2d(128, 128, (7, 1), padding=(3, 0)),
        )
        self.conv2d = nn.Conv2d(256, 896, 1)

    def forward(self, x: Tensor) -> Tensor:
        """Add 0.10 times the branches."""
        branches = torch.cat((self.branch0(x), self.branch1(x)), 1)
        return torch.relu(x + 0.10 * self.conv2d(branches))


class Block8(nn.Module):
    """Inception-ResNet-C; the last one is unscaled and linear."""

    def __init__(self, scale: float = 0.20, *, linear: bool = False) -> None:
        super().__init__()
        self.scale, self.linear = scale, linear
        self.branch0 = BasicConv2d(1792, 192, 1)
        self.branch1 = nn.Sequential(
            BasicConv2d(1792, 192, 1),
            BasicConv2d(192, 192, (1, 3), padding=(0, 1)),
            BasicConv2d(192, 192, (3, 1), padding=(1, 0)),
        )
        self.conv2d = nn.Conv2d(384, 1792, 1)

    def forward(self, x: Tensor) -> Tensor:
        """Add the scaled branches."""
        branches = torch.cat((self.branch0(x), self.branch1(x)), 1)
        out: Tensor = x + self.scale * self.conv2d(branches)
        return out if self.linear else torch.relu(out)


class Mixed6a(nn.Module):
    """Reduction-A."""

    def __init__(self) -> None:
        super().__init__()
        self.branch0 = BasicConv2d(256, 384, 3, 2)
        self.branch1 = nn.Sequential(
            BasicConv2d(256, 192, 1),
            BasicConv2d(192, 192, 3, padding=1),
            BasicConv2d(192, 256, 3, 2),
        )

    def forward(self, x: Tensor) -> Tensor:
        """Join two strided branches and a pooled one."""
        pooled = nn.functional.max_pool2d(x, 3, 2)
        return torch.cat((self.branch0(x), self.branch1(x), pooled), 1)


class Mixed7a(nn.Module):
    """Reduction-B."""

    def __init__(self) -> None:
        super().__init__()
        self.branch0 = nn.Sequential(BasicConv2d(896, 256, 1), BasicConv2d(256, 384, 3, 2))
        self.branch1 = nn.Sequential(BasicConv2d(896, 256, 1), BasicConv2d(256, 256, 3, 2))
        self.branch2 = nn.Sequential(
            BasicConv2d(896, 256, 1),
            BasicConv2d(256, 256, 3, padding=1),
            BasicConv2d(256, 256, 3, 2),
        )

    def forward(self, x: Tensor) -> Tensor:
        """Join three strided branches and a pooled one."""
        pooled = nn.functional.max_pool2d(x, 3, 2)
        return torch.cat((self.branch0(x), self.branch1(x), self.branch2(x), pooled), 1)


class InceptionResNetV1(nn.Module):
    """Stem, 5 + 10 + 6 residual inception blocks, mean, 512-d embedding."""

    def __init__(self) -> None:
        super().__init__()
        self.conv2d_1a = BasicConv2d(3, 32, 3, 2)
        self.conv2d_2a = BasicConv2d(32, 32, 3)
        self.conv2d_2b = BasicConv2d(32, 64, 3, padding=1)
        self.maxpool_3a = nn.MaxPool2d(3, 2)
        self.conv2d_3b = BasicConv2d(64, 80, 1)
        self.conv2d_4a = BasicConv2d(80, 192, 3)
        self.conv2d_4b = BasicConv2d(192, 256, 3, 2)
        self.repeat_1 = nn.Sequential(*(Block35() for _ in range(5)))
        self.mixed_6a = Mixed6a()
        self.repeat_2 = nn.Sequential(*(Block17() for _ in range(10)))
        self.mixed_7a = Mixed7a()
        self.repeat_3 = nn.Sequential(*(Block8() for _ in range(5)))
        self.block8 = Block8(scale=1.0, linear=True)
        self.last_linear = nn.Linear(1792, 512, bias=False)
        self.last_bn = nn.BatchNorm1d(512, eps=0.001)

    def forward(self, x: Tensor) -> Tensor:
        """Return the embedding, not normalised."""
        x = self.conv2d_2b(self.conv2d_2a(self.conv2d_1a(x)))
        x = self.conv2d_4b(self.conv2d_4a(self.conv2d_3b(self.maxpool_3a(x))))
        x = self.repeat_2(self.mixed_6a(self.repeat_1(x)))
        x = self.block8(self.repeat_3(self.mixed_7a(x)))
        out: Tensor = self.last_bn(self.last_linear(torch.mean(x, dim=(2, 3))))
        return out


register(
    Architecture(
        name="inception_resnet_v1",
        build=InceptionResNetV1,
        input_size=(160, 160),
        embedding_dim=512,
        paper=PAPER,
        reported=(
            Reported(
                "RobFR Table 1: FaceNet, counted with its VGGFace2 classifier",
                "27.91",
                (512 + 1) * VGGFACE2_CLASSES,
            ),
        ),
        preprocessing=Preprocessing(color="rgb", scaling="pm1-128"),
        discard=("logits",),
    )
)
