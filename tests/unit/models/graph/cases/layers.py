"""Convolutions, poolings, normalisations, matrix products, attention."""

from __future__ import annotations

from typing import Any

import numpy as np

f32, i64 = np.float32, np.int64
rng = np.random.default_rng(5)


def r(*shape: int) -> Any:
    return rng.normal(size=shape).astype(f32)


def pos(*shape: int) -> Any:
    return rng.uniform(0.5, 1.5, shape).astype(f32)


def convolutions(case: Any, op: Any, x: Any) -> None:
    w, b = r(4, 3, 3, 2), r(4)
    for attributes in (
        {},
        {"pads": [1, 1, 1, 1], "strides": [2, 1]},
        {"pads": [0, 1, 2, 0]},
        {"auto_pad": "SAME_UPPER", "strides": [2, 2]},
        {"auto_pad": "SAME_LOWER", "strides": [2, 2]},
        {"auto_pad": "VALID", "dilations": [2, 2]},
        {"kernel_shape": [3, 2], "dilations": [1, 2], "pads": [1, 1, 1, 1]},
    ):
        case(op("Conv", x, w, b, **attributes))
    case(op("Conv", x, w))
    case(op("Conv", x, r(6, 1, 3, 3), group=3))
    case(op("Conv", x, r(2, 3, 2)), shape=(3, 7))
    case(op("Conv", x, r(2, 3, 2, 2, 2)), shape=(3, 4, 4, 4))
    case(op("Conv", x, op("Mul", op("ReduceMean", x, keepdims=0), w)), until=17)
    layer = op("Conv", x, w, b)
    case(op("Add", op("Mul", layer, pos(4, 1, 1)), r(1, 4, 1, 1)), label="conv")
    case(op("Mul", r(1), op("Conv", x, w)), label="conv")
    case(op("Add", layer, layer), label="conv")
    norm = [pos(4), r(4), r(4), pos(4)]
    case(op("BatchNormalization", layer, *norm))
    case(op("BatchNormalization", op("Conv", x, w), *norm, epsilon=1e-3))
    case(op("Mul", op("BatchNormalization", layer, *norm), pos(4, 1, 1)))
    k = r(3, 2, 3, 2)
    for attributes in (
        {},
        {"strides": [2, 2], "output_padding": [1, 1]},
        {"strides": [2, 2], "pads": [1, 0, 0, 1]},
        {"strides": [2, 3], "pads": [1, 1, 1, 1], "output_padding": [1, 0]},
        {"strides": [2, 2], "auto_pad": "SAME_UPPER"},
        {"strides": [2, 2], "auto_pad": "SAME_LOWER"},
        {"strides": [2, 2], "output_shape": [10, 11]},
        {"dilations": [2, 1]},
    ):
        case(op("ConvTranspose", x, k, r(2), **attributes))
    case(op("ConvTranspose", x, r(3, 1, 2, 2), group=3))
    case(op("FusedConv", x, w, b, domain="ms", activation="Relu"))
    case(op("FusedConv", x, w, b, domain="ms", activation="LeakyRelu", activation_params=[0.1]))
    case(op("FusedConv", x, w, b, domain="ms", activation="Clip", activation_params=[-1.0, 1.0]))
    case(op("FusedConv", x, w, None, layer, domain="ms"))


def poolings(case: Any, op: Any, x: Any) -> None:
    for attributes in (
        {"kernel_shape": [2, 2], "strides": [2, 2]},
        {"kernel_shape": [3, 3], "strides": [2, 2], "pads": [1, 1, 1, 1]},
        {"kernel_shape": [3, 2], "pads": [0, 1, 2, 0]},
        {"kernel_shape": [3, 3], "strides": [2, 2], "auto_pad": "SAME_UPPER"},
        {"kernel_shape": [2, 3], "strides": [2, 2], "auto_pad": "SAME_LOWER"},
    ):
        case(op("MaxPool", x, **attributes))
        case(op("AveragePool", x, **attributes))
        case(op("AveragePool", x, count_include_pad=1, **attributes))
        case(op("LpPool", x, p=2, **attributes), since=11)
    for attributes in (
        {"kernel_shape": [2, 2], "strides": [2, 2]},
        {"kernel_shape": [3, 3], "strides": [2, 2], "pads": [1, 1, 1, 1]},
        {"kernel_shape": [3, 3], "strides": [3, 2], "pads": [0, 0, 1, 1]},
    ):
        case(op("MaxPool", x, ceil_mode=1, **attributes), since=10)
        case(op("AveragePool", x, ceil_mode=1, **attributes), since=10)
        case(op("AveragePool", x, ceil_mode=1, count_include_pad=1, **attributes), since=19)
    case(op("MaxPool", x, kernel_shape=[2, 2], dilations=[2, 2]), since=10)
    case(op("AveragePool", x, kernel_shape=[2, 2], dilations=[2, 2]), since=19)
    for mode in ("SAME_UPPER", "SAME_LOWER"):
        # where onnxruntime's pads are not those of the specification
        dilated = {"kernel_shape": [2, 3], "dilations": [2, 2], "auto_pad": mode}
        case(op("MaxPool", x, strides=[1, 2], **dilated), since=10)
        case(op("AveragePool", x, strides=[1, 2], **dilated), since=19)
        case(op("LpPool", x, p=1, strides=[1, 2], **dilated), since=18)
        short = {"kernel_shape": [1, 2], "strides": [3, 3], "auto_pad": mode}
        case(op("AveragePool", x, **short), since=19, shape=(3, 9, 9))
        case(op("AveragePool", x, ceil_mode=1, **short), since=19, shape=(3, 9, 9))
        case(op("LpPool", x, p=1, **short), since=11, shape=(3, 9, 9))
    case(op("MaxPool", x, kernel_shape=[3]), shape=(3, 8))
    case(op("AveragePool", x, kernel_shape=[3], pads=[1, 1]), shape=(3, 8))
    case(op("LpPool", x, kernel_shape=[2, 2], p=1))
    for name, until in (
        ("GlobalAveragePool", {}),
        ("GlobalMaxPool", {}),
        ("GlobalLpPool", {"until": 21}),
    ):
        case(op(name, x), **until)
        case(op(name, x), shape=(3, 7), **until)
    case(op("GlobalLpPool", x, p=1), until=21)
    for size in (1, 3, 5):
        case(op("LRN", x, size=size, alpha=0.5, beta=0.6, bias=1.2), shape=(6, 3, 4))


def normalisations(case: Any, op: Any, x: Any) -> None:
    norm = [pos(3), r(3), r(3), pos(3)]
    case(op("BatchNormalization", x, *norm))
    case(op("BatchNormalization", op("GlobalAveragePool", x), *norm, epsilon=1e-3))
    case(op("BatchNormalization", x, *norm), shape=(3,))
    case(op("BatchNormalization", x, *norm), shape=(3, 4))
    case(op("BatchNormalization", op("Gemm", x, r(4, 3), r(3)), *norm), shape=(4,))
    case(op("BatchNormalization", op("MatMul", x, r(4, 7)), *norm), shape=(3, 4))
    case(
        op("BatchNormalization", x, op("ReduceMean", x, axes=[0, 2, 3], keepdims=0), *norm[1:]),
        until=17,
    )
    case(op("InstanceNormalization", x, pos(3), r(3), epsilon=1e-3))
    case(
        op("GroupNormalization", x, pos(2), r(2), num_groups=2), since=18, until=20, shape=(4, 3, 3)
    )
    case(op("GroupNormalization", x, pos(4), r(4), num_groups=2), since=21, shape=(4, 3, 3))
    case(op("LayerNormalization", x, pos(6), r(6)), since=17)
    case(op("LayerNormalization", x, pos(5, 6), axis=2, epsilon=1e-3), since=17)
    case(op("LayerNormalization", x, pos(6), r(6), outputs=3, pick=1), since=17)
    case(op("LayerNormalization", x, pos(6), r(6), outputs=3, pick=2), since=17)
    case(op("LayerNormalization", x, pos(6), r(6)), until=16)
    skip = op("Sin", x)
    case(op("SkipLayerNormalization", x, skip, pos(6), r(6), r(6), domain="ms"), shape=(5, 6))
    case(op("SkipLayerNormalization", x, skip, pos(6), domain="ms"), shape=(5, 6))
    case(op("SimplifiedLayerNormalization", x, pos(6), axis=-1, epsilon=1e-3))
    case(op("RMSNormalization", x, pos(6)), since=23)
    case(op("RMSNormalization", x, pos(5, 6), axis=2), since=23)
    for p in (1, 2):
        case(op("LpNormalization", x, p=p))
        case(op("LpNormalization", x, p=p, axis=1))
    case(op("LpNormalization", op("Relu", op("Sub", x, f32(1.9))), axis=1), grad=False, high=1.5)
    case(op("MeanVarianceNormalization", x), since=9, atol=1e-5)
    case(op("MeanVarianceNormalization", x, axes=[2, 3]), since=9, atol=1e-5)


def products(case: Any, op: Any, x: Any) -> None:
    for bias in (r(5), r(1), r(1, 5), f32(0.4)):
        case(op("Gemm", x, r(4, 5), bias, alpha=0.5, beta=2.0), shape=(4,))
    case(op("Gemm", x, r(5, 4), r(5), transB=1), shape=(4,))
    case(op("Gemm", x, r(4, 5)), since=11, shape=(4,))
    case(op("Gemm", x, op("Sin", x), transA=1, alpha=0.3), since=11, shape=(4,))
    case(
        op("Gemm", x, op("Sin", x), op("Cos", op("ReduceSum", x)), transB=1),
        since=11,
        until=12,
        shape=(4,),
    )
    case(op("FusedGemm", x, r(4, 5), r(5), domain="ms", activation="Relu"), shape=(4,))
    case(op("MatMul", x, r(6, 4)))
    case(op("MatMul", x, r(3, 6, 4)))
    case(op("MatMul", x, op("Transpose", x, perm=[0, 1, 3, 2])))
    case(op("MatMul", r(4, 5), x))
    case(op("MatMul", x, r(6)))
    case(op("Add", op("MatMul", x, r(6, 4)), r(4)), label="matmul")
    case(op("Mul", op("MatMul", x, r(6, 5)), r(5, 1)), label="matmul")
    case(op("FusedMatMul", x, op("Sin", x), domain="ms", transB=1, alpha=0.4))
    case(op("FusedMatMul", x, op("Sin", x), domain="ms", transA=1))
    case(op("Einsum", x, r(6, 4), equation="nchw,wd->nchd"), since=12)
    case(op("Einsum", x, op("Sin", x), equation="...ij, ...kj -> ...ik"), since=12)
    case(op("Einsum", x, equation="nchw->nwc"), since=12)
    case(op("Det", x), since=11, shape=(2, 3, 3))


def attentions(case: Any, op: Any, x: Any) -> None:
    k, v = op("Sin", x), op("Cos", x)
    heads = {"q_num_heads": 2, "kv_num_heads": 2}
    mask = np.array(rng.uniform(size=(5, 5)) > 0.3) | np.eye(5, dtype=bool)
    case(op("Attention", x, k, v), since=23)
    case(op("Attention", x, k, v, r(5, 5), scale=0.3), since=23)
    case(op("Attention", x, k, v, mask), since=23)
    case(op("Attention", x, k, v, is_causal=1), since=23)
    case(op("Attention", x, k, v, softcap=0.7), since=23)
    case(op("Attention", x, k, v, **heads), since=23, shape=(5, 6))
    fewer = op("Slice", k, i64([0]), i64([1]), i64([1]))
    case(op("Attention", x, fewer, fewer), since=23, shape=(4, 5, 6))
    ms = {"domain": "ms", "num_heads": 2}
    case(op("MultiHeadAttention", x, k, v, **ms), shape=(5, 6))
    case(op("MultiHeadAttention", x, k, v, r(18), scale=0.5, **ms), shape=(5, 6))
    case(op("Attention", x, r(6, 18), r(18), **ms), shape=(5, 6), label="ms")
    case(op("Attention", x, r(6, 18), r(18), unidirectional=1, **ms), shape=(5, 6), label="ms")


def cases(case: Any, op: Any, x: Any) -> None:
    for group in (convolutions, poolings, normalisations, products, attentions):
        group(case, op, x)
