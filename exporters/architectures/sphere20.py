"""Sphere20, the network of SphereFace (Liu et al., CVPR 2017) and CosFace (Wang et al., CVPR 2018).

SphereFace's public weights have a bias in every convolution, CosFace's only in the strided ones.
RobFR counts SphereFace's 10,574-class classifier and leaves CosFace's out.
"""

from __future__ import annotations

from functools import partial

from torch import Tensor, nn

from onnxfr.exporters.architectures.base import (
    Architecture,
    KeyMap,
    Reported,
    prefixes,
    register,
)
from onnxfr.models.preprocessing import Preprocessing

SPHEREFACE = "Liu et al., SphereFace: Deep Hypersphere Embedding for Face Recognition, CVPR 2017"
COSFACE = "Wang et al., CosFace: Large Margin Cosine Loss for Deep Face Recognition, CVPR 2018"
STAGES = ((64, 1), (128, 2), (256, 4), (512, 1))
"""Channels and number of residual pairs of each stage."""

CASIA_CLASSES = 10_574


class Sphere20(nn.Module):
    """Each stage: a strided convolution, then residual pairs, all with PReLU."""

    def __init__(self, *, bias: bool) -> None:
        super().__init__()
        inputs = 3
        for stage, (outputs, pairs) in enumerate(STAGES, start=1):
            self._add(stage, 1, nn.Conv2d(inputs, outputs, 3, 2, 1))
            for index in range(2, 2 + 2 * pairs):
                self._add(stage, index, nn.Conv2d(outputs, outputs, 3, 1, 1, bias=bias))
            inputs = outputs
        self.fc5 = nn.Linear(512 * 7 * 6, 512)

    def _add(self, stage: int, index: int, conv: nn.Conv2d) -> None:
        self.add_module(f"conv{stage}_{index}", conv)
        self.add_module(f"relu{stage}_{index}", nn.PReLU(conv.out_channels))

    def _layer(self, x: Tensor, stage: int, index: int) -> Tensor:
        conv = self.get_submodule(f"conv{stage}_{index}")
        out: Tensor = self.get_submodule(f"relu{stage}_{index}")(conv(x))
        return out

    def forward(self, x: Tensor) -> Tensor:
        """Return the embedding, not normalised."""
        for stage, (_, pairs) in enumerate(STAGES, start=1):
            x = self._layer(x, stage, 1)
            for first in range(2, 2 + 2 * pairs, 2):
                x = x + self._layer(self._layer(x, stage, first), stage, first + 1)
        out: Tensor = self.fc5(x.flatten(1))
        return out


def _cosface() -> KeyMap:
    """Return the map of cosface_pytorch: ``layer2.3.conv1`` is our ``conv2_4``."""
    pairs = [("fc", "fc5")]
    for stage, (_, count) in enumerate(STAGES, start=1):
        pairs += [(f"layer{stage}.0", f"conv{stage}_1"), (f"layer{stage}.1", f"relu{stage}_1")]
        for pair in range(count):
            for half in (1, 2):
                ours = f"{stage}_{1 + 2 * pair + half}"
                pairs.append((f"layer{stage}.{2 + pair}.conv{half}", f"conv{ours}"))
                pairs.append((f"layer{stage}.{2 + pair}.prelu{half}", f"relu{ours}"))
    return KeyMap("cosface_pytorch", prefixes(pairs))


register(
    Architecture(
        name="sphere20",
        build=partial(Sphere20, bias=True),
        input_size=(112, 96),
        embedding_dim=512,
        paper=SPHEREFACE,
        reported=(
            Reported(
                "RobFR Table 1: SphereFace, counted with its CASIA classifier",
                "28.08",
                512 * CASIA_CLASSES,
            ),
        ),
        preprocessing=Preprocessing(color="bgr", scaling="pm1-128"),
        discard=("fc6",),
    )
)
register(
    Architecture(
        name="sphere20_cosface",
        build=partial(Sphere20, bias=False),
        input_size=(112, 96),
        embedding_dim=512,
        paper=COSFACE,
        reported=(Reported("RobFR Table 1: CosFace", "22.67"),),
        preprocessing=Preprocessing(color="rgb", scaling="pm1-128"),
        key_maps=(_cosface(),),
    )
)
