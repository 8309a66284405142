"""Layout, indices, reductions, constants, resizing, sampling."""

from __future__ import annotations

from itertools import product
from typing import Any

import numpy as np
from onnx import TensorProto, helper, numpy_helper

f32, i64 = np.float32, np.int64
rng = np.random.default_rng(6)


def layout(case: Any, op: Any, x: Any) -> None:
    for target in ([-1, 90], [0, 15, 6], [0, -1], [0, 0, 30]):
        case(op("Reshape", x, i64(target)))
    batch = op("Slice", op("Shape", x), i64([0]), i64([1]))
    case(op("Reshape", x, op("Concat", batch, i64([6, 15]), axis=0)), since=10)
    case(op("Reshape", x, op("Concat", op("Mul", batch, i64([3])), i64([-1]), axis=0)), since=10)
    case(op("Reshape", x, op("Concat", batch, i64([90]), axis=0), allowzero=1), since=14)
    for axis in (0, 1, 2, 4, -1):
        case(op("Flatten", x, axis=axis), since=11 if axis < 0 else 9)
    case(op("Flatten", x))
    unit = (1, 5, 1)
    case(op("Squeeze", x, axes=[1, 3]), until=12, shape=unit)
    case(op("Squeeze", x, i64([1, -1])), since=13, shape=unit)
    case(op("Squeeze", op("ReduceSum", x, keepdims=1)), until=12, shape=unit)
    case(op("Unsqueeze", x, axes=[0, 3]), until=12)
    case(op("Unsqueeze", x, i64([2, -1])), since=13)
    case(op("Unsqueeze", x, i64([-1])), since=13)
    case(op("Transpose", x))
    case(op("Transpose", x, perm=[0, 2, 3, 1]))
    case(op("Transpose", x, perm=[0, 1, 2, 3]))
    case(op("Concat", x, op("Sin", x), axis=1))
    case(op("Concat", x, axis=-1), since=11)
    case(op("Split", x, axis=3, outputs=2, pick=1), until=17)
    case(op("Split", x, axis=3, split=[1, 5], outputs=2, pick=1), until=12)
    case(op("Split", x, i64([1, 5]), axis=3, outputs=2, pick=1), since=13)
    case(op("Split", x, axis=2, num_outputs=2, outputs=2, pick=1), since=18)
    case(op("Slice", x, starts=[1, 0], ends=[3, -1], axes=[1, 3]), until=9)
    case(op("Slice", x, starts=[0, 1], ends=[9999, 3]), until=9)
    for starts, ends, axes, steps in (
        ([1, 0], [3, -1], [1, 3], [1, 2]),
        ([-1], [-(2**62)], [2], [-1]),
        ([4], [0], [-1], [-2]),
        ([3], [1], [3], [1]),
        ([-3], [2**62], [3], [1]),
    ):
        case(op("Slice", x, i64(starts), i64(ends), i64(axes), i64(steps)), since=10)
    case(op("Slice", x, i64([0, 1]), i64([2, 3])), since=10)
    whole = op("Gather", op("Shape", x), i64([2]))
    case(op("Slice", x, i64([1]), whole, i64([3])), since=10)
    case(op("Expand", x, i64([2, 1, 1, 1, 6])), since=8)
    case(op("Expand", op("ReduceMean", x, axes=[2], keepdims=1), op("Shape", x)), since=8, until=17)
    ones = op("ConstantOfShape", op("Shape", x), value=numpy_helper.from_array(f32([1.5])))
    case(op("Mul", x, ones), since=9, label="filled")
    case(
        op("Expand", rng.normal(size=(1, 3)).astype(f32), op("Concat", batch, i64([3]), axis=0)),
        since=10,
        grad=False,
    )
    case(op("Tile", x, i64([1, 2, 1, 3])))
    case(op("Identity", x))
    case(op("Dropout", x))
    case(op("Dropout", x, ratio=0.7), until=11)
    case(op("Dropout", x, f32(0.7), outputs=2, pick=1), since=13, grad=False)
    case(op("DepthToSpace", x, blocksize=2), shape=(8, 2, 3))
    case(op("DepthToSpace", x, blocksize=2, mode="CRD"), since=11, shape=(8, 2, 3))
    case(op("SpaceToDepth", x, blocksize=2), shape=(3, 4, 6))


def padding(case: Any, op: Any, x: Any) -> None:
    pads = [0, 0, 1, 2, 0, 0, 2, 1]
    for mode in ("constant", "reflect", "edge"):
        case(op("Pad", x, pads=pads, mode=mode), until=10)
        case(op("Pad", x, i64(pads), mode=mode), since=11)
    case(op("Pad", x, pads=pads, value=0.4), until=10)
    case(op("Pad", x, i64(pads), f32(0.4)), since=11)
    case(op("Pad", x, i64([0, 1, -1, 0, 0, 0, -1, 2]), f32(0.4)), since=11)
    case(op("Pad", x, i64([2, 1]), f32(0.4), i64([2])), since=18)
    case(op("Pad", x, i64(pads), mode="wrap"), since=19)
    for mode in ("wrap", "edge", "reflect"):
        case(op("Pad", x, i64([0, 0, -1, 2, 0, 0, 2, -3]), mode=mode), since=19)


def indices(case: Any, op: Any, x: Any) -> None:
    for index in (i64(1), i64(-1), i64([2, 0]), i64([[2, -1], [0, 1]])):
        case(op("Gather", x, index, axis=1), since=11)
    case(op("Gather", x, i64([1, 2]), axis=3))
    case(op("Gather", op("Shape", x), i64(0)), grad=False)
    case(op("Gather", op("Shape", x, start=1), i64(1)), since=15, grad=False)
    places = rng.integers(-3, 3, (1, 3, 5, 6))
    full = op("Expand", places, op("Shape", x))
    case(op("GatherElements", x, full, axis=1), since=11)
    case(op("GatherND", op("Transpose", x), i64([[0, 1], [5, -2]])), since=11)
    case(op("GatherND", op("Shape", x, start=1), i64([1])), since=15, grad=False)
    case(
        op("GatherND", op("Reshape", x, i64([1, 3, -1])), i64([[[0], [2]]]), batch_dims=1), since=12
    )
    updates = rng.normal(size=(2, 6)).astype(f32)
    rows = i64([[0, 1, 2], [0, 0, -1]])
    case(op("ScatterND", x, rows, updates), since=11)
    for how in ("add", "mul"):
        case(op("ScatterND", x, rows, updates, reduction=how), since=16)
    for how in ("max", "min"):
        case(op("ScatterND", x, rows, updates, reduction=how), since=18)
    case(op("ScatterElements", x, full, op("Sin", x), axis=1, reduction="add"), since=16)
    unique = np.argsort(rng.normal(size=(1, 3, 5, 6)), axis=1)
    spread = op("Expand", unique, op("Shape", x))
    case(op("ScatterElements", x, spread, op("Sin", x), axis=1), since=11)
    case(op("Scatter", x, spread, op("Sin", x), axis=1), since=9, until=10)
    for axis in (-1, 0):
        hot = op("OneHot", i64([1, -1, 3]), i64(4), f32([0.1, 2.0]), axis=axis)
        case(op("Add", hot, op("ReduceMean", x, keepdims=0)), since=9, until=17)
    keep = np.array([True, False, True])
    case(op("Compress", x, keep, axis=1), since=9)
    case(op("Compress", x, keep), since=9)
    case(op("NonZero", op("Relu", x)), since=9, grad=False)
    case(
        op("Gather", op("Flatten", x), op("Squeeze", op("NonZero", f32([0, 1, 0, 2]))), axis=1),
        since=13,
    )
    rows = op("Slice", op("Transpose", x), i64([0]), i64([3]))
    case(op("ReverseSequence", rows, i64([2, 3, 1, 3, 2]), time_axis=0, batch_axis=1), since=10)
    case(op("ReverseSequence", rows, i64([2, 3, 1]), time_axis=1, batch_axis=0), since=10)


def reductions(case: Any, op: Any, x: Any) -> None:
    names = ("L1", "L2", "LogSum", "LogSumExp", "Max", "Mean", "Min", "Prod", "Sum", "SumSquare")
    for name in names:
        last = 12 if name == "Sum" else 17
        for attributes in ({}, {"axes": [1, 3]}, {"axes": [-1], "keepdims": 0}):
            since = 11 if attributes.get("axes") == [-1] else 7
            case(op(f"Reduce{name}", x, **attributes), since=since, until=last, low=0.2)
        case(op(f"Reduce{name}", x, i64([2, -1])), since=last + 1, low=0.2)
        case(op(f"Reduce{name}", x, i64([1]), keepdims=0), since=last + 1, low=0.2)
        case(op(f"Reduce{name}", x), since=last + 1, low=0.2)
    case(op("ReduceSum", x, noop_with_empty_axes=1), since=13)
    whole = op("Shape", x)
    for name in ("Prod", "Max", "Sum"):
        case(op(f"Reduce{name}", whole, keepdims=0), grad=False)
    for name in ("ArgMax", "ArgMin"):
        case(op(name, x), grad=False)
        case(op(name, x, axis=2, keepdims=0), grad=False)
        stairs = op("Floor", x)
        case(op(name, stairs, axis=2, select_last_index=1), since=12, grad=False)
    for pick in (0, 1):
        case(op("TopK", x, i64([3]), outputs=2, pick=pick), since=10, grad=pick == 0)
        case(
            op("TopK", x, i64([2]), axis=1, largest=0, outputs=2, pick=pick),
            since=11,
            grad=pick == 0,
        )
    for exclusive, reverse in product((0, 1), (0, 1)):
        for name, since in (("CumSum", 11), ("CumProd", 26)):
            case(op(name, x, i64(2), exclusive=exclusive, reverse=reverse), since=since)


def constants(case: Any, op: Any, x: Any) -> None:
    tensor = helper.make_tensor("", TensorProto.FLOAT, [6], np.linspace(0, 1, 6))
    half = helper.make_tensor("", TensorProto.FLOAT16, [6], np.linspace(0, 1, 6))
    case(op("Add", x, op("Constant", value=tensor)), label="constant")
    case(op("Add", x, op("Cast", op("Constant", value=half), to=1)), label="constant")
    case(op("Mul", x, op("Constant", value_float=0.5)), since=12, label="constant")
    case(
        op("Mul", x, op("Constant", value_floats=[0.5, 1, 2, 3, 4, 5])), since=12, label="constant"
    )
    case(op("Gather", x, op("Constant", value_int=1), axis=1), since=12, label="constant")
    case(op("Gather", x, op("Constant", value_ints=[1, 0]), axis=1), since=12, label="constant")
    case(op("Shape", x), grad=False)
    case(op("Shape", x, start=1, end=-1), since=15, grad=False)
    case(op("Size", x), grad=False)
    count = op("Cast", op("Size", x), to=1)
    case(op("Div", x, count), label="size")
    case(op("ConstantOfShape", op("Shape", x)), since=9, grad=False)
    size = op("Gather", op("Shape", x), i64(3))
    steps = op("Cast", op("Range", i64(0), size, i64(1)), to=1)
    case(op("Mul", x, steps), since=11, label="range")
    batch = op("Gather", op("Shape", x), i64(0))
    case(op("Range", i64(3), op("Add", batch, i64(9)), i64(2)), since=11, grad=False)
    case(op("Mul", x, op("Range", f32(0), f32(3), f32(0.5))), since=11, label="range")
    flat = op("Reshape", x, i64([-1, 15]))
    case(op("Mul", op("EyeLike", flat), flat), since=9)
    case(op("EyeLike", flat, k=1, dtype=7), since=9, grad=False)
    for upper in (0, 1):
        case(op("Trilu", x, upper=upper), since=14)
        case(op("Trilu", x, i64(-1), upper=upper), since=14)
    case(op("Cast", x, to=7), grad=False)
    case(op("Cast", op("Cast", x, to=11), to=1))
    case(op("Cast", op("Cast", x, to=10), to=1), atol=2e-3)
    case(op("Cast", op("Greater", x, f32(0.2)), to=1), grad=False)
    case(op("Cast", x, to=9), grad=False)
    case(op("Cast", op("Cast", x, to=2), to=1), low=0, high=255, through=True)
    case(op("Cast", op("Cast", x, to=3), to=1), low=-127, high=127, through=True)
    for to in (2, 3):
        real = op("Cast", op("Cast", x, to=to), to=1)
        case(op("Mul", real, f32(0.1)), low=0, high=127, through=True, label="real again")
    case(op("CastLike", op("Greater", x, f32(0.2)), x), since=15, grad=False)
    case(op("CastLike", x, np.int32(1)), since=15, grad=False)
    case(op("Gather", x, op("CastLike", f32([1.0]), i64(1)), axis=1), since=15)
    for kind in (np.int8, np.uint8):
        derived = op("Reshape", np.array([1, 2], kind), i64([2, 1]))
        narrow = op("CastLike", x, derived)
        case(op("Cast", narrow, to=1), since=15, low=0, high=120, through=True)


def resizing(case: Any, op: Any, x: Any) -> None:
    up, down = f32([1, 1, 2, 1.7]), f32([1, 1, 0.6, 0.5])
    sizes = i64([2, 3, 8, 4])
    for mode in ("nearest", "linear"):
        case(op("Upsample", x, mode=mode, scales=[1.0, 1.0, 2.0, 3.0]), until=8)
        case(op("Upsample", x, f32([1, 1, 2, 3]), mode=mode), since=9, until=9)
        case(op("Resize", x, up, mode=mode), since=10, until=10)
        case(op("Resize", x, down, mode=mode), since=10, until=10)
    for scales in (up, down):
        for way in ("half_pixel", "pytorch_half_pixel", "align_corners", "asymmetric"):
            for mode in ("linear", "cubic"):
                spec = {"mode": mode, "coordinate_transformation_mode": way}
                newest = {} if way == "half_pixel" else {"until": 11}
                case(op("Resize", x, f32([]), scales, **spec), since=11, atol=1e-5, **newest)
            for rounding in ("round_prefer_floor", "round_prefer_ceil", "floor", "ceil"):
                spec = {"nearest_mode": rounding, "coordinate_transformation_mode": way}
                case(op("Resize", x, f32([]), scales, **spec), since=13, until=13)
        for rounding in ("round_prefer_floor", "round_prefer_ceil", "floor", "ceil"):
            way = {"coordinate_transformation_mode": "half_pixel_symmetric"}
            near = op("Resize", x, None, scales, nearest_mode=rounding, **way)
            case(near, since=19, shape=(3, 7, 9))
        spec = {"mode": "linear", "coordinate_transformation_mode": "half_pixel_symmetric"}
        case(op("Resize", x, None, scales, **spec), since=19)
        case(op("Resize", x, None, scales, mode="cubic", exclude_outside=1), since=13, atol=1e-5)
        for mode in ("linear", "cubic"):
            case(op("Resize", x, None, scales, mode=mode, antialias=1), since=18, atol=1e-5)
            outside = {"antialias": 1, "exclude_outside": 1}
            case(op("Resize", x, None, scales, mode=mode, **outside), since=18, atol=1e-5)
    for mode in ("nearest", "linear", "cubic"):
        case(op("Resize", x, None, f32([1, 1, 1.1, 1.1]), mode=mode), since=13)
    batch = op("Slice", op("Shape", x), i64([0]), i64([2]))
    wanted = op("Concat", batch, i64([8, 4]), axis=0)
    case(op("Resize", x, f32([]), f32([]), wanted, mode="linear"), since=11)
    case(op("Resize", x, None, None, sizes[2:], mode="cubic", axes=[2, 3]), since=18, atol=1e-5)
    spec = {"coordinate_transformation_mode": "tf_crop_and_resize", "extrapolation_value": 0.3}
    region = f32([0, 0, 0.1, -0.2, 1, 1, 0.9, 1.1])
    case(op("Resize", x, region, up, mode="linear", **spec), since=11)
    spec = {"coordinate_transformation_mode": "tf_half_pixel_for_nn", "nearest_mode": "floor"}
    case(op("Resize", x, f32([]), up, **spec), since=11, until=11)


def sampling(case: Any, op: Any, x: Any) -> None:
    grid = rng.uniform(-1.1, 1.1, (1, 4, 4, 2)).astype(f32)
    places = op(
        "Expand",
        grid,
        op("Concat", op("Slice", op("Shape", x), i64([0]), i64([1])), i64([1, 1, 1]), axis=0),
    )
    kinds = (("bilinear", "linear"), ("nearest", "nearest"), ("bicubic", "cubic"))
    pads = (("zeros", 0), ("border", 1), ("reflection", 0))
    for (mode, new), (pad, aligned) in zip(kinds, pads, strict=True):
        spec = {"padding_mode": pad, "align_corners": aligned}
        case(op("GridSample", x, places, mode=mode, **spec), since=16, until=16, atol=1e-5)
        case(op("GridSample", x, places, mode=new, **spec), since=20, until=20, atol=1e-5)
    theta = op("Slice", op("Reshape", x, i64([-1, 2, 3])), i64([0]), i64([1]), i64([0]))
    for aligned in (0, 1):
        case(op("AffineGrid", theta, i64([1, 3, 4, 5]), align_corners=aligned), since=20)
    case(op("CenterCropPad", x, i64([7, 3]), axes=[2, 3]), since=18)
    case(op("CenterCropPad", x, i64([2, 9]), axes=[-2, -1]), since=18)


def cases(case: Any, op: Any, x: Any) -> None:
    for group in (layout, padding, indices, reductions, constants, resizing, sampling):
        group(case, op, x)
