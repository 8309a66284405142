"""VGGFace-16 (Parkhi et al., Deep Face Recognition, BMVC 2015).

The embedding is the second fully connected layer after its ReLU (4,096 values), the usual choice;
the 2,622-class layer is left out.
"""

from __future__ import annotations

import torch
from torch import Tensor, nn

from onnxfr.exporters.architectures.base import (
    Architecture,
    KeyMap,
    Reported,
    prefixes,
    register,
)
from onnxfr.models.preprocessing import Preprocessing

PAPER = "Parkhi et al., Deep Face Recognition, BMVC 2015"
STAGES = ((64, 2), (128, 2), (256, 3), (512, 3), (512, 3))


class VGGFace16(nn.Module):
    """Thirteen convolutions and two fully connected layers."""

    def __init__(self) -> None:
        super().__init__()
        inputs = 3
        for stage, (outputs, depth) in enumerate(STAGES, start=1):
            for index in range(1, depth + 1):
                self.add_module(f"conv{stage}_{index}", nn.Conv2d(inputs, outputs, 3, 1, 1))
                inputs = outputs
        self.fc6 = nn.Linear(512 * 7 * 7, 4096)
        self.fc7 = nn.Linear(4096, 4096)

    def forward(self, x: Tensor) -> Tensor:
        """Return the embedding, not normalised."""
        for stage, (_, depth) in enumerate(STAGES, start=1):
            for index in range(1, depth + 1):
                x = torch.relu(self.get_submodule(f"conv{stage}_{index}")(x))
            x = nn.functional.max_pool2d(x, 2, 2)
        x = torch.relu(self.fc6(x.flatten(1)))
        return torch.relu(self.fc7(x))


_UNDERSCORED = [
    (f"conv_{stage}_{index}", f"conv{stage}_{index}")
    for stage, (_, depth) in enumerate(STAGES, start=1)
    for index in range(1, depth + 1)
]

register(
    Architecture(
        name="vggface16",
        build=VGGFace16,
        input_size=(224, 224),
        embedding_dim=4096,
        paper=PAPER,
        reported=(
            Reported(
                "public VGGFace weights with the 2,622-class layer", "145.002878", 4097 * 2622
            ),
        ),
        preprocessing=Preprocessing(
            color="bgr",
            scaling="custom",
            mean=(129.1863 / 255, 104.7624 / 255, 93.5940 / 255),
            std=(1 / 255, 1 / 255, 1 / 255),
        ),
        key_maps=(KeyMap("vgg-face.pytorch", prefixes(_UNDERSCORED)),),
        discard=("fc8",),
    )
)
