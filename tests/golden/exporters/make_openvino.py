"""Makes the tiny OpenVINO model in this folder and OpenVINO's own answers.

Run in a throw-away environment with openvino: ``python make_openvino.py``.
"""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import openvino as ov
from make import picture, w
from openvino import opset13 as op

HERE = Path(__file__).parent


def ints(*values: int) -> ov.Node:
    return op.constant(np.array(values, dtype=np.int64))


def half(*shape: int) -> ov.Node:
    """Weights as compressed models store them."""
    return op.convert(op.constant(w(*shape).astype(np.float16)), "f32")


def network() -> ov.Model:
    data = op.parameter(ov.PartialShape([-1, 3, 16, 16]), np.float32, name="data")
    data.output(0).set_names({"data"})
    x = op.subtract(data, op.constant(np.full((1, 3, 1, 1), 127.5, np.float32)))
    x = op.multiply(x, op.constant(np.full((1, 3, 1, 1), 1 / 128, np.float32)))
    x = op.convolution(x, half(8, 3, 3, 3), [2, 2], [0, 0], [0, 0], [1, 1], "same_upper")
    x = op.add(x, op.constant(w(1, 8, 1, 1)))
    x = op.prelu(x, op.constant(w(8)))
    y = op.group_convolution(x, half(8, 1, 1, 3, 3), [1, 1], [1, 1], [1, 1], [1, 1])
    y = op.hswish(y)
    steps = [op.constant(np.full(s, v, np.float32)) for s, v in
             (((1, 8, 1, 1), -1.0), ((1, 8, 1, 1), 2.0), ((), -0.99), ((), 2.02))]  # fmt: skip
    y = op.fake_quantize(y, *steps, levels=256)
    gate = op.sigmoid(op.reduce_mean(x, ints(2, 3), keep_dims=True))
    x = op.add(op.multiply(x, gate), y)
    small = op.avg_pool(x, [2, 2], [0, 0], [1, 1], [3, 3], True, "ceil")
    large = op.interpolate(small, np.array([8, 8]), "linear_onnx", "sizes", axes=ints(2, 3),
                           coordinate_transformation_mode="half_pixel")  # fmt: skip
    left, right = op.split(op.concat([x, large], 1), op.constant(np.int64(1)), 2).outputs()
    x = op.maximum(op.clamp(left, -0.5, 3.0), op.gelu(right, "erf"))
    x = op.pad(x, ints(0, 0, 1, 0), ints(0, 0, 0, 1), "constant", op.constant(np.float32(0.25)))
    x = op.max_pool(x, [2, 2], [1, 1], [0, 0], [0, 0], [3, 3], "floor").output(0)
    x = op.strided_slice(x, ints(0, 0, 0, 1), ints(0, 0, 4, 4), ints(1, 1, 1, 1), [1, 1, 1, 0],
                         [1, 1, 0, 0])  # fmt: skip
    x = op.mvn(x, ints(1, 2, 3), True, 1e-5, "inside_sqrt")
    batch = op.gather(op.shape_of(x), ints(0), ints(0))
    x = op.reshape(x, op.concat([batch, ints(8 * 4 * 3)], 0), False)
    x = op.matmul(x, half(16, 96), False, True)
    tokens = op.reshape(x, ints(0, 4, 4), True)
    weights = op.softmax(op.matmul(tokens, op.transpose(tokens, ints(0, 2, 1)), False, False), 2)
    x = op.reshape(op.matmul(weights, tokens, False, False), ints(-1, 16), False)
    x = op.normalize_l2(x, ints(1), 1e-12, "add")
    x.output(0).set_names({"embedding"})
    return ov.Model([op.result(x)], [data], "tiny")


def main() -> None:
    folder = HERE / "openvino"
    folder.mkdir(exist_ok=True)
    path = folder / "tiny.xml"
    ov.save_model(network(), str(path), compress_to_fp16=False)
    text = path.read_text()
    path.write_text(text[: text.index("\t<rt_info>")] + "</net>\n")
    hint = {"INFERENCE_PRECISION_HINT": "f32"}
    runtime = ov.Core().compile_model(str(path), "CPU", hint)
    answer = np.asarray(runtime([picture()])[0])
    (HERE / "answers_openvino.json").write_text(json.dumps(answer.tolist(), indent=1) + "\n")


if __name__ == "__main__":
    main()
