"""Quantised operators; answers may differ by one step where a sum lies between two."""

from __future__ import annotations

from typing import Any

import numpy as np
from onnx import TensorProto, helper

f32, u8, i8, i32 = np.float32, np.uint8, np.int8, np.int32
rng = np.random.default_rng(7)
ONE_STEP: dict[str, Any] = {"atol": 1.001, "rtol": 0.0, "through": True}


def cases(case: Any, op: Any, x: Any) -> None:
    scale, zero = f32(0.02), u8(110)
    q = op("QuantizeLinear", x, scale, zero)
    signed = op("QuantizeLinear", x, scale, i8(3))
    case(q, since=10, through=True)
    case(signed, since=10, through=True)
    case(op("QuantizeLinear", x, scale), since=10, through=True)
    case(op("DequantizeLinear", q, scale, zero), since=10, through=True)
    case(
        op("QuantizeLinear", x, f32([0.01, 0.02, 0.03]), u8([1, 90, 200]), axis=1),
        since=13,
        through=True,
    )
    case(
        op("DequantizeLinear", signed, f32([0.01, 0.02, 0.03]), i8([1, 0, -9]), axis=1),
        since=13,
        through=True,
    )
    case(op("QuantizeLinear", x, scale, np.uint16(900)), since=21, through=True)
    case(op("QuantizeLinear", x, scale, output_dtype=TensorProto.INT8), since=21, through=True)
    narrow = helper.make_tensor("", TensorProto.INT4, [], [2])
    case(
        op("DequantizeLinear", op("QuantizeLinear", x, f32(0.3), narrow), f32(0.3), narrow),
        since=21,
        through=True,
    )
    weights = rng.integers(-128, 128, (6, 4)).astype(i8)
    blocks = rng.uniform(0.01, 0.02, (3, 4)).astype(f32)
    case(
        op("MatMul", x, op("DequantizeLinear", weights, blocks, axis=0, block_size=2)),
        since=21,
        label="blocked",
    )
    case(op("QuantizeLinear", x, scale, zero, domain="ms"), through=True, label="ms")
    case(op("DequantizeLinear", q, scale, zero, domain="ms"), since=10, through=True, label="ms")
    for pick in (0, 1, 2):
        case(
            op("DynamicQuantizeLinear", x, outputs=3, pick=pick), since=11, through=True, atol=1e-5
        )
    case(
        op("Transpose", op("MaxPool", q, kernel_shape=[2, 2])),
        since=12,
        through=True,
        label="carried",
    )
    products(case, op, x, q, signed)
    layers(case, op, q)


def products(case: Any, op: Any, x: Any, q: Any, signed: Any) -> None:
    weights = rng.integers(0, 255, (6, 4)).astype(u8)
    case(op("MatMulInteger", q, weights, u8(110), u8(120)), since=10, through=True)
    case(op("MatMulInteger", q, weights), since=10, through=True)
    kernel = rng.integers(0, 255, (4, 3, 3, 3)).astype(u8)
    case(op("ConvInteger", q, kernel, u8(110), u8(120), pads=[1, 1, 1, 1]), since=10, through=True)
    case(op("ConvInteger", q, kernel, u8(110)), since=10, through=True)
    scales = [f32(0.02), u8(110)]
    result = [f32(0.3), u8(100)]
    case(
        op("QLinearMatMul", q, *scales, weights, f32(0.01), u8(120), *result), since=10, **ONE_STEP
    )
    bias = rng.integers(-900, 900, 4).astype(i32)
    for padding in ({}, {"pads": [1, 1, 1, 1], "strides": [2, 2]}):
        for extra in ((), (bias,)):
            fixed = (kernel, f32(0.01), u8(120), *result, *extra)
            case(op("QLinearConv", q, *scales, *fixed, **padding), since=10, **ONE_STEP)
    thirds = rng.uniform(0.01, 0.02, 4).astype(f32)
    small = rng.integers(-60, 60, (4, 3, 3, 3)).astype(i8)
    fixed = (small, thirds, np.zeros(4, i8), *result, bias)
    case(op("QLinearConv", q, *scales, *fixed, pads=[1, 1, 1, 1]), since=10, **ONE_STEP)
    flat = op("Flatten", q)
    rows = rng.integers(0, 255, (90, 4)).astype(u8)
    case(
        op("QGemm", flat, *scales, rows, f32(0.01), u8(120), bias, *result, domain="ms"),
        since=10,
        **ONE_STEP,
    )
    case(
        op(
            "QGemm",
            flat,
            *scales,
            rows.T.copy(),
            f32(0.01),
            u8(120),
            None,
            *result,
            domain="ms",
            transB=1,
        ),
        since=10,
        **ONE_STEP,
    )
    case(
        op("QGemm", flat, *scales, rows, f32(0.01), u8(120), bias, domain="ms"),
        since=10,
        through=True,
        atol=1e-4,
    )


def layers(case: Any, op: Any, q: Any) -> None:
    a, b = (f32(0.02), u8(110)), (f32(0.03), u8(90))
    ms: dict[str, Any] = {"domain": "ms"}
    spec: dict[str, Any] = {"since": 10, **ONE_STEP}
    case(op("QLinearAdd", q, *a, q, *a, *b, **ms), **spec)
    case(op("QLinearMul", q, *a, q, *a, *b, **ms), **spec)
    case(op("QLinearLeakyRelu", q, *a, *b, alpha=0.2, **ms), **spec)
    case(op("QLinearSigmoid", q, *a, f32(1 / 256), u8(0), **ms), **spec)
    case(op("QLinearSoftmax", q, *a, f32(1 / 256), u8(0), axis=-1, opset=13, **ms), **spec)
    case(op("QLinearGlobalAveragePool", q, *a, *b, **ms), **spec)
    case(op("QLinearAveragePool", q, *a, *b, kernel_shape=[2, 2], **ms), **spec)
    case(op("QLinearConcat", *b, q, *a, q, *b, axis=1, **ms), **spec)
