"""IResNet-18/34/50/100: improved residual network for faces (Deng et al., ArcFace, CVPR 2019).

Names follow the public arcface_torch checkpoints. The last BatchNorm keeps its scale, which is
fixed to one in training, so the count equals the published one (43.59 M for 50 layers).
"""

from __future__ import annotations

from functools import partial

from torch import Tensor, nn

from onnxfr.exporters.architectures.base import Architecture, Reported, register
from onnxfr.models.preprocessing import Preprocessing

PAPER = "Deng et al., ArcFace: Additive Angular Margin Loss for Deep Face Recognition, CVPR 2019"
MS1MV2_CLASSES = 85_742


class Block(nn.Module):
    """BN, conv, BN, PReLU, strided conv, BN, plus the shortcut."""

    def __init__(self, inputs: int, outputs: int, stride: int) -> None:
        super().__init__()
        self.bn1 = nn.BatchNorm2d(inputs)
        self.conv1 = nn.Conv2d(inputs, outputs, 3, 1, 1, bias=False)
        self.bn2 = nn.BatchNorm2d(outputs)
        self.prelu = nn.PReLU(outputs)
        self.conv2 = nn.Conv2d(outputs, outputs, 3, stride, 1, bias=False)
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
        shortcut: Tensor = x if self.downsample is None else self.downsample(x)
        x = self.prelu(self.bn2(self.conv1(self.bn1(x))))
        x = self.bn3(self.conv2(x))
        return x + shortcut


class IResNet(nn.Module):
    """Four stages of ``depths`` blocks on a 112x112 face, then one fully connected layer."""

    def __init__(self, depths: tuple[int, int, int, int], embedding_dim: int = 512) -> None:
        super().__init__()
        self.conv1 = nn.Conv2d(3, 64, 3, 1, 1, bias=False)
        self.bn1 = nn.BatchNorm2d(64)
        self.prelu = nn.PReLU(64)
        self.layer1 = _stage(64, 64, depths[0])
        self.layer2 = _stage(64, 128, depths[1])
        self.layer3 = _stage(128, 256, depths[2])
        self.layer4 = _stage(256, 512, depths[3])
        self.bn2 = nn.BatchNorm2d(512)
        self.fc = nn.Linear(512 * 7 * 7, embedding_dim)
        self.features = nn.BatchNorm1d(embedding_dim)

    def forward(self, x: Tensor) -> Tensor:
        """Return the embedding, not normalised."""
        x = self.prelu(self.bn1(self.conv1(x)))
        x = self.layer4(self.layer3(self.layer2(self.layer1(x))))
        x = self.bn2(x).flatten(1)
        out: Tensor = self.features(self.fc(x))
        return out


def _stage(inputs: int, outputs: int, depth: int) -> nn.Sequential:
    rest = [Block(outputs, outputs, 1) for _ in range(depth - 1)]
    return nn.Sequential(Block(inputs, outputs, 2), *rest)


_TOPOFR = Reported(
    "OODFace Table 1: TopoFR, counted with its MS1MV2 classifier", "87.5", 512 * MS1MV2_CLASSES
)
_DEPTHS: dict[str, tuple[tuple[int, int, int, int], tuple[Reported, ...]]] = {
    "iresnet18": ((2, 2, 2, 2), ()),
    "iresnet34": ((3, 4, 6, 3), ()),
    "iresnet50": ((3, 4, 14, 3), (_TOPOFR,)),
    "iresnet100": ((3, 13, 30, 3), (Reported("OODFace Table 1: ElasticFace", "65.2"),)),
}

for _name, (_depths, _reported) in _DEPTHS.items():
    register(
        Architecture(
            name=_name,
            build=partial(IResNet, _depths),
            input_size=(112, 112),
            embedding_dim=512,
            paper=PAPER,
            reported=_reported,
            preprocessing=Preprocessing(color="rgb", scaling="pm1"),
        )
    )
