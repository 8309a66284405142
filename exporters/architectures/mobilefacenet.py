"""MobileFaceNet and its common variants (Chen et al., CCBR 2018).

One network, the dialects of public checkpoints as key maps. The variants differ in the map that
the global depthwise convolution sees, in the embedding size, in PReLU against ReLU6, and
InsightFace's widens the trunk while keeping the depthwise groups of the original.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial

from torch import Tensor, nn

from onnxfr.exporters.architectures._blocks import Activation, ConvBlock, prelu, relu, relu6
from onnxfr.exporters.architectures.base import (
    Architecture,
    KeyMap,
    Reported,
    prefixes,
    register,
)
from onnxfr.models.preprocessing import Preprocessing

PAPER = "Chen et al., MobileFaceNets: Efficient CNNs for Real-Time Face Verification, CCBR 2018"
STAGES = ((64, 128, 5), (128, 256, 1), (128, 256, 6), (128, 512, 1), (128, 256, 2))
"""Output channels, channels inside the bottleneck, repeats; stages 0, 1 and 3 start strided."""

STRIDED = (0, 1, 3)


@dataclass(frozen=True)
class Variant:
    """What distinguishes one public MobileFaceNet from another."""

    pooled: tuple[int, int] = (7, 7)
    embedding_dim: int = 512
    activation: Activation = prelu
    separable_stem: bool = False
    head_bias: bool = False
    width: int = 1
    repeats: tuple[int, int, int] = (4, 6, 2)


class Bottleneck(nn.Module):
    """Inverted residual: expand, depthwise, project; a shortcut where the shapes allow."""

    def __init__(
        self, inputs: int, inner: int, outputs: int, stride: int, activation: Activation
    ) -> None:
        super().__init__()
        self.expand = ConvBlock(inputs, inner, activation=activation)
        self.depthwise = ConvBlock(inner, inner, 3, stride, 1, inner, activation)
        self.project = ConvBlock(inner, outputs)
        self.residual = stride == 1 and inputs == outputs

    def forward(self, x: Tensor) -> Tensor:
        """Apply the bottleneck."""
        out: Tensor = self.project(self.depthwise(self.expand(x)))
        return x + out if self.residual else out


class MobileFaceNet(nn.Module):
    """Stem, depthwise stem, bottlenecks, global depthwise convolution, linear embedding."""

    def __init__(self, variant: Variant) -> None:
        super().__init__()
        act, wide = variant.activation, variant.width
        stem = 64 * wide
        self.stem = ConvBlock(3, stem, 3, 2, 1, activation=act)
        depthwise_act = relu if variant.separable_stem else act
        self.depthwise = ConvBlock(stem, stem, 3, 1, 1, 64, depthwise_act)
        self.pointwise = (
            ConvBlock(stem, stem, activation=relu) if variant.separable_stem else nn.Identity()
        )
        first, middle, last = variant.repeats
        counts = (1 + first, 1, middle, 1, last)
        blocks: list[nn.Module] = []
        inputs = stem
        for stage, ((outputs, inner, _), count) in enumerate(zip(STAGES, counts, strict=True)):
            for index in range(count):
                stride = 2 if index == 0 and stage in STRIDED else 1
                blocks.append(Bottleneck(inputs, inner, outputs * wide, stride, act))
                inputs = outputs * wide
        self.blocks = nn.Sequential(*blocks)
        self.expand = ConvBlock(inputs, 512, activation=act)
        self.pool = ConvBlock(512, 512, variant.pooled, groups=512)
        self.project = nn.Linear(512, variant.embedding_dim, bias=variant.head_bias)
        self.bn = nn.BatchNorm1d(variant.embedding_dim)

    def forward(self, x: Tensor) -> Tensor:
        """Return the embedding, not normalised."""
        x = self.pointwise(self.depthwise(self.stem(x)))
        x = self.pool(self.expand(self.blocks(x)))
        out: Tensor = self.bn(self.project(x.flatten(1)))
        return out


def _chain(*steps: Callable[[str], str]) -> Callable[[str], str]:
    def rename(key: str) -> str:
        for step in steps:
            key = step(key)
        return key

    return rename


def _inside(block_names: dict[str, str]) -> Callable[[str], str]:
    """Return a renamer of the part after ``blocks.N.``; longer names are tried first."""
    ordered = sorted(block_names.items(), key=lambda pair: -len(pair[0]))

    def rename(key: str) -> str:
        parts = key.split(".", 2)
        if len(parts) < 3 or parts[0] != "blocks":
            return key
        for old, new in ordered:
            if parts[2].startswith(f"{old}."):
                return ".".join((*parts[:2], new + parts[2][len(old) :]))
        return key

    return rename


_PRELU = [(f"{part}.prelu", f"{part}.act") for part in ("stem", "depthwise", "expand")]


def _facex_zoo() -> KeyMap:
    """Return the map of FaceX-Zoo, face.evoLVe and InsightFace_Pytorch checkpoints."""
    runs = [("conv_3", 1, 4), ("conv_4", 6, 6), ("conv_5", 13, 2)]
    outer = [(f"{n}.model.{i}", f"blocks.{at + i}") for n, at, count in runs for i in range(count)]
    outer += [("conv_23", "blocks.0"), ("conv_34", "blocks.5"), ("conv_45", "blocks.12")]
    outer += [("conv1", "stem"), ("conv2_dw", "depthwise"), ("conv_6_sep", "expand")]
    outer += [("conv_6_dw", "pool"), ("linear", "project"), ("output_layer.linear", "project")]
    outer += [("output_layer.conv_6_dw", "pool"), ("output_layer.bn", "bn")]
    inner = {"conv_dw.prelu": "depthwise.act", "conv.prelu": "expand.act"}
    inner |= {"conv_dw": "depthwise", "conv": "expand", "project": "project"}
    return KeyMap("facex-zoo", _chain(prefixes(outer), prefixes(_PRELU), _inside(inner)))


def _sequential_blocks() -> KeyMap:
    """Return the map of Xiaoccer's MobileFaceNet and of the RobFR checkpoints made from it."""
    outer = [("conv1", "stem"), ("dw_conv1", "depthwise"), ("conv2", "expand")]
    outer += [("linear7", "pool"), ("linear1.conv", "project"), ("linear1.bn", "bn")]
    places = ["expand.conv", "expand.bn", "expand.act", "depthwise.conv", "depthwise.bn"]
    places += ["depthwise.act", "project.conv", "project.bn"]
    inner = {f"conv.{index}": place for index, place in enumerate(places)}
    return KeyMap("xiaoccer", _chain(prefixes(outer), prefixes(_PRELU), _inside(inner)))


def _foamliu() -> KeyMap:
    outer = [("conv1.0", "stem.conv"), ("conv1.1", "stem.bn"), ("features", "blocks")]
    outer += [("dw_conv.depthwise", "depthwise.conv"), ("dw_conv.bn1", "depthwise.bn")]
    outer += [("dw_conv.pointwise", "pointwise.conv"), ("dw_conv.bn2", "pointwise.bn")]
    outer += [("conv2.0", "expand.conv"), ("conv2.1", "expand.bn"), ("conv3", "project")]
    outer += [("gdconv.depthwise", "pool.conv"), ("gdconv.bn", "pool.bn")]
    inner = {"conv.0.0": "expand.conv", "conv.0.1": "expand.bn"}
    inner |= {"conv.1.0": "depthwise.conv", "conv.1.1": "depthwise.bn"}
    inner |= {"conv.2": "project.conv", "conv.3": "project.bn"}
    return KeyMap("foamliu", _chain(prefixes(outer), _inside(inner)))


def _insightface(repeats: tuple[int, int, int]) -> KeyMap:
    """Return the map of arcface_torch's ``layers.N.layers...`` names."""
    first, middle, last = repeats
    single = {2: 0, 4: 1 + first, 6: 2 + first + middle}
    runs = {3: (1, first), 5: (2 + first, middle), 7: (3 + first + middle, last)}
    outer = [("layers.0.layers.0", "stem.conv"), ("layers.0.layers.1", "stem.bn")]
    outer += [("layers.0.layers.2", "stem.act"), ("layers.1.layers.0", "depthwise.conv")]
    outer += [("layers.1.layers.1", "depthwise.bn"), ("layers.1.layers.2", "depthwise.act")]
    outer += [(f"layers.{at}.layers", f"blocks.{block}") for at, block in single.items()]
    for at, (start, count) in runs.items():
        outer += [(f"layers.{at}.layers.{i}.layers", f"blocks.{start + i}") for i in range(count)]
    outer += [("conv_sep.layers.0", "expand.conv"), ("conv_sep.layers.1", "expand.bn")]
    outer += [("conv_sep.layers.2", "expand.act"), ("features.layers.0.layers.0", "pool.conv")]
    outer += [("features.layers.0.layers.1", "pool.bn"), ("features.layers.2", "project")]
    outer += [("features.layers.3", "bn")]
    inner = {
        f"{part}.layers.{index}": f"{place}.{leaf}"
        for part, place in enumerate(("expand", "depthwise", "project"))
        for index, leaf in enumerate(("conv", "bn", "act"))
    }
    return KeyMap("arcface_torch", _chain(prefixes(outer), _inside(inner)))


_IMAGENET = Preprocessing(color="rgb", scaling="imagenet")
_MOBILEFACE = (Reported("RobFR Table 1: MobileFace", "1.20"),)


def _entry(
    name: str,
    variant: Variant,
    key_maps: tuple[KeyMap, ...],
    preprocessing: Preprocessing,
    reported: tuple[Reported, ...] = (),
) -> None:
    height, width = variant.pooled
    register(
        Architecture(
            name=name,
            build=partial(MobileFaceNet, variant),
            input_size=(16 * height, 16 * width),
            embedding_dim=variant.embedding_dim,
            paper=PAPER,
            reported=reported,
            preprocessing=preprocessing,
            key_maps=key_maps,
            discard=("head", "output"),
        )
    )


_BOTH = (_facex_zoo(), _sequential_blocks())
_FOAMLIU = Variant(embedding_dim=128, activation=relu6, separable_stem=True, head_bias=True)
_SMALL = Variant(width=2)

_entry(
    "mobilefacenet", Variant(), _BOTH, Preprocessing(color="bgr", scaling="pm1-128"), _MOBILEFACE
)
_entry(
    "mobilefacenet_128",
    Variant(embedding_dim=128),
    _BOTH,
    Preprocessing(color="rgb", scaling="pm1-128"),
)
_entry(
    "mobilefacenet_112x96",
    Variant(pooled=(7, 6), embedding_dim=128),
    _BOTH,
    Preprocessing(color="rgb", scaling="pm1-128"),
)
_entry("mobilefacenet_foamliu", _FOAMLIU, (_foamliu(),), _IMAGENET)
_entry(
    "mobilefacenet_insightface",
    _SMALL,
    (_insightface(_SMALL.repeats),),
    Preprocessing(color="rgb", scaling="pm1"),
)
