"""Key maps of the public checkpoints, checked against their layouts written down independently."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor

from onnxfr.errors import UnsupportedModel
from onnxfr.exporters.architectures import ARCHITECTURES
from onnxfr.exporters.architectures.matching import detect_architecture, fit
from onnxfr.exporters.pytorch import load_architecture

State = dict[str, Tensor]


def empty(*shape: int) -> Tensor:
    return torch.empty(shape, device="meta")


def norm(name: str, channels: int) -> State:
    leaves = ("weight", "bias", "running_mean", "running_var")
    return {f"{name}.{leaf}": empty(channels) for leaf in leaves}


def arcface_torch_mobilefacenet() -> State:
    """Lay out the keys of arcface_torch's MobileFaceNet (blocks 1, 4, 6, 2; scale 2)."""
    state: State = {}

    def block(name: str, ins: int, outs: int, kernel: int, groups: int, *, linear: bool) -> None:
        state[f"{name}.layers.0.weight"] = empty(outs, ins // groups, kernel, kernel)
        state.update(norm(f"{name}.layers.1", outs))
        if not linear:
            state[f"{name}.layers.2.weight"] = empty(outs)

    def depthwise(name: str, ins: int, outs: int, inner: int) -> None:
        block(f"{name}.layers.0", ins, inner, 1, 1, linear=False)
        block(f"{name}.layers.1", inner, inner, 3, inner, linear=False)
        block(f"{name}.layers.2", inner, outs, 1, 1, linear=True)

    block("layers.0", 3, 128, 3, 1, linear=False)
    block("layers.1", 128, 128, 3, 64, linear=False)
    depthwise("layers.2", 128, 128, 128)
    for index in range(4):
        depthwise(f"layers.3.layers.{index}", 128, 128, 128)
    depthwise("layers.4", 128, 256, 256)
    for index in range(6):
        depthwise(f"layers.5.layers.{index}", 256, 256, 256)
    depthwise("layers.6", 256, 256, 512)
    for index in range(2):
        depthwise(f"layers.7.layers.{index}", 256, 256, 256)
    block("conv_sep", 256, 512, 1, 1, linear=False)
    block("features.layers.0", 512, 512, 7, 512, linear=True)
    state["features.layers.2.weight"] = empty(512, 512)
    return state | norm("features.layers.3", 512)


def cosface_pytorch_sphere20() -> State:
    """Lay out the keys of cosface_pytorch's sphere net: four layers of blocks, one linear."""
    state: State = {"fc.weight": empty(512, 512 * 7 * 6), "fc.bias": empty(512)}
    before = 3
    for layer, (width, blocks) in enumerate(((64, 1), (128, 2), (256, 4), (512, 1)), start=1):
        state[f"layer{layer}.0.weight"] = empty(width, before, 3, 3)
        state[f"layer{layer}.0.bias"] = empty(width)
        state[f"layer{layer}.1.weight"] = empty(width)
        for block in range(2, 2 + blocks):
            for half in (1, 2):
                state[f"layer{layer}.{block}.conv{half}.weight"] = empty(width, width, 3, 3)
                state[f"layer{layer}.{block}.prelu{half}.weight"] = empty(width)
        before = width
    return state


def facex_zoo_training_file() -> State:
    """Lay out FaceX-Zoo's MobileFaceNet as saved in training, with its margin head."""
    state: State = {}

    def block(name: str, ins: int, outs: int, kernel: int, groups: int, *, act: bool) -> None:
        state[f"{name}.conv.weight"] = empty(outs, ins // groups, kernel, kernel)
        state.update(norm(f"{name}.bn", outs))
        if act:
            state[f"{name}.prelu.weight"] = empty(outs)

    def depthwise(name: str, ins: int, outs: int, inner: int) -> None:
        block(f"{name}.conv", ins, inner, 1, 1, act=True)
        block(f"{name}.conv_dw", inner, inner, 3, inner, act=True)
        block(f"{name}.project", inner, outs, 1, 1, act=False)

    block("conv1", 3, 64, 3, 1, act=True)
    block("conv2_dw", 64, 64, 3, 64, act=True)
    depthwise("conv_23", 64, 64, 128)
    depthwise("conv_34", 64, 128, 256)
    depthwise("conv_45", 128, 128, 512)
    for run, count, width, inner in (("3", 4, 64, 128), ("4", 6, 128, 256), ("5", 2, 128, 256)):
        for index in range(count):
            depthwise(f"conv_{run}.model.{index}", width, width, inner)
    block("conv_6_sep", 128, 512, 1, 1, act=True)
    block("conv_6_dw", 512, 512, 7, 512, act=False)
    state["linear.weight"] = empty(512, 512)
    state |= norm("bn", 512)
    wrapped = {f"module.backbone.{key}": value for key, value in state.items()}
    return wrapped | {"module.head.weight": empty(512, 72_778)}


@pytest.mark.parametrize(
    ("state", "name", "convention"),
    [
        (arcface_torch_mobilefacenet(), "mobilefacenet_insightface", "arcface_torch"),
        (cosface_pytorch_sphere20(), "sphere20_cosface", "cosface_pytorch"),
        (facex_zoo_training_file(), "mobilefacenet", "facex-zoo"),
    ],
)
def test_public_layouts_match_completely(state: State, name: str, convention: str) -> None:
    assert detect_architecture(state) == name
    found = fit(state, ARCHITECTURES.get(name))
    assert found.complete
    assert found.convention == convention
    assert len(found.state_dict) + len(found.discarded) == len(state)


@pytest.mark.parametrize(
    ("name", "key", "shape"),
    [
        ("iresnet100", "layer3.29.conv2.weight", (256, 256, 3, 3)),
        ("iresnet50", "features.running_var", (512,)),
        ("ir_50", "body.3.shortcut_layer.0.weight", (128, 64, 1, 1)),
        ("ir_se_50", "body.23.res_layer.5.fc2.weight", (512, 32, 1, 1)),
        ("adaface_ir_101", "body.48.res_layer.5.running_mean", (512,)),
        ("inception_resnet_v1", "repeat_2.9.branch1.2.conv.weight", (128, 128, 7, 1)),
        ("inception_resnet_v1", "last_linear.weight", (512, 1792)),
        ("transface_s", "senet.0.weight", (144, 512 * 144)),
        ("sphere20", "conv3_9.bias", (256,)),
        ("shufflenet_v1", "stage3.ShuffleUnit_Stage3_7.g_conv_1x1_expand.conv1x1.bias", (480,)),
        ("shufflenet_v2", "features.4.banch1.3.weight", (116,)),
        ("openface_nn4_small2", "layer21.seq_list.1.2_conv.weight", (96, 736, 1, 1)),
    ],
)
def test_own_names_are_those_of_public_checkpoints(
    name: str, key: str, shape: tuple[int, ...]
) -> None:
    assert ARCHITECTURES.get(name).shapes()[key] == shape


def test_training_classifiers_are_set_aside() -> None:
    shapes = ARCHITECTURES.get("inception_resnet_v1").shapes()
    state = {key: empty(*shape) for key, shape in shapes.items()}
    state |= {"logits.weight": empty(8631, 512), "logits.bias": empty(8631)}
    found = fit(state, ARCHITECTURES.get("inception_resnet_v1"))
    assert found.complete
    assert set(found.discarded) == {"logits.weight", "logits.bias"}


def test_a_wrong_shape_names_both_shapes() -> None:
    shapes = ARCHITECTURES.get("mobilefacenet").shapes()
    state = {key: empty(*shape) for key, shape in shapes.items()}
    state["project.weight"] = empty(128, 512)
    found = fit(state, ARCHITECTURES.get("mobilefacenet"))
    assert found.misshapen == ("project.weight (128, 512) for (512, 512)",)


def test_an_unknown_checkpoint_says_what_is_known() -> None:
    with pytest.raises(UnsupportedModel, match=r"--arch.*iresnet50"):
        load_architecture({"strange.weight": torch.zeros(3)})


def test_the_wrong_architecture_is_refused_with_the_keys() -> None:
    with pytest.raises(UnsupportedModel, match=r"missing: conv1\.weight"):
        load_architecture({"strange.weight": torch.zeros(3)}, "iresnet18")
