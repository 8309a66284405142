"""IR-50/101, IR-SE-50 (Deng et al., CVPR 2019) and AdaFace's IR nets (Kim et al., CVPR 2022).

Names follow face.evoLVe and InsightFace_Pytorch checkpoints. AdaFace adds a BatchNorm between the
two convolutions, a last BatchNorm without scale, and answers with the unit feature and its length,
which that paper reads as image quality.
"""

from __future__ import annotations

from functools import partial

import torch
from torch import Tensor, nn

from onnxfr.exporters.architectures.base import (
    Architecture,
    Reported,
    register,
)
from onnxfr.models.preprocessing import Preprocessing

ARCFACE = "Deng et al., ArcFace: Additive Angular Margin Loss for Deep Face Recognition, CVPR 2019"
ADAFACE = "Kim et al., AdaFace: Quality Adaptive Margin for Face Recognition, CVPR 2022"
DEPTHS: dict[int, tuple[int, int, int, int]] = {
    18: (2, 2, 2, 2),
    34: (3, 4, 6, 3),
    50: (3, 4, 14, 3),
    101: (3, 13, 30, 3),
}


class SqueezeExcite(nn.Module):
    """Scale channels by a gate computed from their means (Hu et al., CVPR 2018)."""

    def __init__(self, channels: int, reduction: int = 16) -> None:
        super().__init__()
        self.fc1 = nn.Conv2d(channels, channels // reduction, 1, bias=False)
        self.fc2 = nn.Conv2d(channels // reduction, channels, 1, bias=False)

    def forward(self, x: Tensor) -> Tensor:
        """Return ``x`` times its gate."""
        pooled = torch.mean(x, dim=(2, 3), keepdim=True)
        return x * torch.sigmoid(self.fc2(torch.relu(self.fc1(pooled))))


class Unit(nn.Module):
    """Residual unit; ``inner_norm`` is AdaFace's extra BatchNorm, ``gated`` adds the SE gate."""

    def __init__(
        self, inputs: int, outputs: int, stride: int, *, gated: bool, inner_norm: bool
    ) -> None:
        super().__init__()
        self.shortcut_layer: nn.Module = (
            nn.MaxPool2d(1, stride)
            if inputs == outputs
            else nn.Sequential(
                nn.Conv2d(inputs, outputs, 1, stride, bias=False), nn.BatchNorm2d(outputs)
            )
        )
        layers: list[nn.Module] = [
            nn.BatchNorm2d(inputs),
            nn.Conv2d(inputs, outputs, 3, 1, 1, bias=False),
        ]
        if inner_norm:
            layers.append(nn.BatchNorm2d(outputs))
        layers += [
            nn.PReLU(outputs),
            nn.Conv2d(outputs, outputs, 3, stride, 1, bias=False),
            nn.BatchNorm2d(outputs),
        ]
        if gated:
            layers.append(SqueezeExcite(outputs))
        self.res_layer = nn.Sequential(*layers)

    def forward(self, x: Tensor) -> Tensor:
        """Add the residual branch to the shortcut."""
        out: Tensor = self.res_layer(x) + self.shortcut_layer(x)
        return out


class IR(nn.Module):
    """Stem, body of units, and a fully connected embedding over the 7x7 map."""

    def __init__(self, depth: int, *, gated: bool = False, adaface: bool = False) -> None:
        super().__init__()
        self.input_layer = nn.Sequential(
            nn.Conv2d(3, 64, 3, 1, 1, bias=False), nn.BatchNorm2d(64), nn.PReLU(64)
        )
        units: list[nn.Module] = []
        inputs = 64
        for outputs, count in zip((64, 128, 256, 512), DEPTHS[depth], strict=True):
            for index in range(count):
                stride = 2 if index == 0 else 1
                units.append(Unit(inputs, outputs, stride, gated=gated, inner_norm=adaface))
                inputs = outputs
        self.body = nn.Sequential(*units)
        self.output_layer = nn.Sequential(
            nn.BatchNorm2d(512),
            nn.Dropout(0.4),
            nn.Flatten(),
            nn.Linear(512 * 7 * 7, 512),
            nn.BatchNorm1d(512, affine=not adaface),
        )

    def forward(self, x: Tensor) -> Tensor:
        """Return the embedding, not normalised."""
        out: Tensor = self.output_layer(self.body(self.input_layer(x)))
        return out


class AdaFace(IR):
    """The IR net with AdaFace's two outputs."""

    def __init__(self, depth: int) -> None:
        super().__init__(depth, adaface=True)

    def forward(self, x: Tensor) -> tuple[Tensor, Tensor]:  # type: ignore[override]
        """Return the unit feature and the length it had."""
        feature = super().forward(x)
        length = torch.linalg.vector_norm(feature, dim=1, keepdim=True)
        return feature / length, length


_ROBFR_IR = tuple(
    Reported(f"RobFR Table 1: {name}", "43.57")
    for name in ("Softmax-IR", "SphereFace-IR", "AM-IR", "CosFace-IR", "ArcFace-IR")
)
_PLAIN: dict[str, tuple[int, bool, tuple[Reported, ...]]] = {
    "ir_50": (50, False, _ROBFR_IR),
    "ir_101": (101, False, ()),
    "ir_se_50": (50, True, (Reported("RobFR Table 1: ArcFace", "43.80"),)),
}
_ADAFACE: dict[str, tuple[int, tuple[Reported, ...]]] = {
    "adaface_ir_18": (18, ()),
    "adaface_ir_50": (50, (Reported("OODFace Table 1: AdaFace", "43.6"),)),
    "adaface_ir_101": (101, ()),
}

for _name, (_depth, _gated, _reported) in _PLAIN.items():
    register(
        Architecture(
            name=_name,
            build=partial(IR, _depth, gated=_gated),
            input_size=(112, 112),
            embedding_dim=512,
            paper=ARCFACE,
            reported=_reported,
            preprocessing=Preprocessing(color="rgb", scaling="pm1"),
        )
    )
for _name, (_depth, _reported) in _ADAFACE.items():
    register(
        Architecture(
            name=_name,
            build=partial(AdaFace, _depth),
            input_size=(112, 112),
            embedding_dim=512,
            paper=ADAFACE,
            reported=_reported,
            preprocessing=Preprocessing(color="bgr", scaling="pm1"),
            discard=("head",),
            outputs=("embedding", "norm"),
        )
    )
