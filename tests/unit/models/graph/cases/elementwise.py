"""Arithmetic, activations, comparisons."""

from __future__ import annotations

from typing import Any

import numpy as np

f32, i64 = np.float32, np.int64
per_channel = np.linspace(0.3, 1.7, 3, dtype=f32).reshape(3, 1, 1)


def cases(case: Any, op: Any, x: Any) -> None:
    for name in ("Abs", "Atan", "Cos", "Exp", "Neg", "Sin", "Erf", "Sinh", "Cosh", "Asinh"):
        case(op(name, x), since=9)
    for name in ("Tanh", "Sigmoid", "Relu", "Softplus", "Softsign", "Elu", "Selu", "LeakyRelu"):
        case(op(name, x))
    for name in ("Sqrt", "Log", "Reciprocal"):
        case(op(name, x), low=0.2)
    for name in ("Acos", "Asin", "Atanh", "Tan"):
        case(op(name, x), since=9, low=-0.9, high=0.9)
    case(op("Acosh", x), since=9, low=1.2)
    whole = {"since": 14, "low": 0, "high": 120, "through": True}
    for to, kind in ((2, np.uint8), (3, np.int8)):
        for name in ("Add", "Sub", "Mul", "Div"):
            # past a Reshape, where nothing but the operator's definition tells the type
            narrow = op("Reshape", op("Cast", x, to=to), np.array([0, -1], i64))
            case(op("Cast", op(name, narrow, kind(100 if name == "Add" else 7)), to=1), **whole)
    case(op("Ceil", x), grad=False)
    case(op("Floor", x), grad=False)
    case(op("Sign", x), since=9, grad=False)
    case(op("Round", x), since=11, grad=False)
    case(op("Round", op("Mul", op("Floor", op("Mul", x, f32(4))), f32(0.5))), since=11, grad=False)
    for name in ("Add", "Sub", "Mul", "Div", "Pow"):
        case(op(name, x, per_channel), low=0.2)
        case(op(name, x, f32(1.5)), low=0.2)
        case(op(name, per_channel, x), low=0.2)
        case(op(name, x, op("Sigmoid", x)), low=0.2)
    case(op("Pow", x, i64(3)), since=12)
    case(op("Pow", x, np.array([2], f32)))
    case(op("Mod", x, f32(0.7), fmod=1), since=10)
    numbers = np.arange(-4, 5, dtype=i64)
    counted = op("Shape", x)
    case(
        op("Add", op("Cast", op("Mod", numbers, i64(3)), to=1), op("ReduceMean", x)),
        since=10,
        until=17,
    )
    case(op("Div", op("Mul", counted, np.array([-3, 2, 5, 7], i64)), i64(2)), grad=False)
    case(op("Pow", counted, i64(2)), since=12, grad=False)
    for name in ("Sum", "Max", "Min", "Mean"):
        case(op(name, x, per_channel, op("Sin", x)), since=8)
        case(op(name, x), since=8)
    case(op("Clip", x, min=-0.5, max=0.7), until=10)
    case(op("Clip", x, min=-0.5), until=10)
    case(op("Clip", x), until=10)
    case(op("Clip", x, f32(-0.5), f32(0.7)), since=11)
    case(op("Clip", x, None, f32(0.7)), since=11)
    case(op("Clip", x), since=11)
    case(op("Clip", x, op("ReduceMin", op("Mul", x, f32(0.3)), keepdims=0)), since=11)
    case(op("Elu", x, alpha=0.3))
    case(op("LeakyRelu", x, alpha=0.3))
    case(op("Selu", x, alpha=1.5, gamma=0.8))
    case(op("Celu", x, alpha=0.7), since=12)
    case(op("HardSigmoid", x))
    case(op("HardSigmoid", x, alpha=0.3, beta=0.1))
    case(op("HardSwish", x), since=14, low=-5, high=5)
    case(op("Mish", x), since=18)
    case(op("Shrink", x, lambd=0.6, bias=0.2), since=9)
    case(op("ThresholdedRelu", x, alpha=0.4), since=10)
    case(op("Gelu", x), since=20)
    case(op("Gelu", x, approximate="tanh"), since=20)
    case(op("Swish", x), since=24)
    case(op("Swish", x, alpha=0.6), since=24)
    for slope in (
        f32(0.2),
        f32([0.2]),
        per_channel,
        per_channel[None],
        np.full((1, 1, 6), 0.3, f32),
    ):
        case(op("PRelu", x, slope), since=9)
    case(op("PRelu", x, per_channel))
    case(op("PRelu", op("Flatten", x), np.linspace(0, 1, 90, dtype=f32)))
    case(op("PRelu", x, op("Sigmoid", op("ReduceMean", x, keepdims=0))), since=9, until=17)
    for name in ("Softmax", "LogSoftmax"):
        case(op(name, x))
        for axis in (0, 1, 2, 3):
            case(op(name, x, axis=axis))
    case(op("Hardmax", x), grad=False)
    case(op("Hardmax", x, axis=2), grad=False)
    for name in ("Equal", "Less", "Greater"):
        case(op(name, x, f32(0.3)), since=11, grad=False)
        case(op(name, x, op("Sin", x)), since=11, grad=False)
    case(op("Less", x, f32(0.3)), grad=False)
    case(op("Greater", x, f32(0.3)), grad=False)
    case(op("Equal", op("Shape", x), np.array([2, 3, 4, 6], i64)), grad=False)
    above, below = op("Greater", x, f32(0.3)), op("Less", x, f32(0.9))
    for name in ("And", "Or", "Xor"):
        case(op(name, above, below), grad=False)
    case(op("Not", above), grad=False)
    case(op("LessOrEqual", x, f32(0.3)), since=12, grad=False)
    case(op("GreaterOrEqual", x, f32(0.3)), since=12, grad=False)
    case(op("Where", above, op("Sin", x), per_channel), since=9)
    case(op("IsNaN", op("Log", x)), since=9, grad=False)
    case(op("IsInf", op("Div", x, f32(0))), since=10, grad=False)
    case(op("IsInf", op("Div", x, f32(0)), detect_negative=0), since=10, grad=False)
    case(op("IsInf", op("Div", x, f32(0)), detect_positive=0), since=10, grad=False)
    bits = np.array([5, 12, 6], np.int32)
    whole = op("Cast", op("Mul", x, f32(50)), to=6)
    for name in ("BitwiseAnd", "BitwiseOr", "BitwiseXor"):
        case(op(name, whole, bits), since=18, grad=False, shape=(3,))
    case(op("BitwiseNot", whole), since=18, grad=False)
    shifted = op("Cast", op("Abs", op("Mul", x, f32(50))), to=13)
    for way in ("LEFT", "RIGHT"):
        case(op("BitShift", shifted, np.uint64(2), direction=way), since=11, grad=False)
    case(op("Gelu", x, domain="ms"))
    case(op("QuickGelu", x, domain="ms"))
    case(op("FastGelu", x, domain="ms"), atol=1e-5)
    case(op("FastGelu", x, np.linspace(0, 1, 6, dtype=f32), domain="ms"), atol=1e-5)
    case(op("BiasGelu", x, np.linspace(0, 1, 6, dtype=f32), domain="ms"))
