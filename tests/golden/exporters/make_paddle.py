"""Makes the tiny PaddlePaddle models in this folder and PaddlePaddle's own answers.

Run in throw-away environments, once for each of the two graph formats: ``make_paddle.py old`` with
paddlepaddle 2.6 and ``make_paddle.py new`` with paddlepaddle 3.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path

import numpy as np
import paddle
from make import picture, w
from paddle import inference, nn
from paddle.nn import functional as F

OLD = sys.argv[1] == "old"
HERE = Path(__file__).parent


class Tiny(nn.Layer):  # type: ignore[misc]
    def __init__(self) -> None:
        super().__init__()
        self.conv = nn.Conv2D(3, 8, 3, stride=2, padding="SAME", bias_attr=False)
        self.norm = nn.BatchNorm2D(8, epsilon=1e-3)
        self.act = nn.PReLU(8)
        self.depth = nn.Conv2D(8, 8, 3, padding=1, groups=8)
        self.tokens = nn.LayerNorm(16)
        self.fc = nn.Linear(200, 16)
        self.last = nn.BatchNorm1D(16)
        self.drop = nn.Dropout(0.4)

    def forward(self, x: paddle.Tensor) -> paddle.Tensor:
        x = self.act(self.norm(self.conv((x - 127.5) * 0.0078125)))
        gate = F.hardsigmoid(F.adaptive_avg_pool2d(x, 1))
        y = F.hardswish(self.depth(x)) * gate
        small = F.avg_pool2d(F.relu6(y), 3, 2, ceil_mode=True)
        large = F.interpolate(small, size=[8, 8], mode="bilinear")
        left, right = paddle.split(paddle.concat([x, large], 1), 2, axis=1)
        x = paddle.maximum(F.gelu(left), paddle.clip(right, -0.5, 3.0))
        tokens = paddle.transpose(paddle.flatten(x[:, :, 0:4, 1:5], 2), [0, 2, 1])
        tokens = paddle.reshape(tokens, [paddle.shape(tokens)[0], 8, 16])
        tokens = self.tokens(tokens)
        mixed = F.softmax(paddle.matmul(tokens, tokens, transpose_y=True)) @ tokens
        x = F.max_pool2d(x, 3, 2, 1).flatten(1)
        x = paddle.concat([x, paddle.mean(mixed, axis=2), mixed.flatten(1)[:, 3:67]], 1)
        x = self.last(self.fc(self.drop(x)))
        return x / paddle.norm(x, axis=1, keepdim=True)


def main() -> None:
    net = Tiny()
    net.eval()
    for name, value in net.state_dict().items():
        fresh = w(*value.shape)
        value.set_value(0.5 + fresh**2 if name.endswith("_variance") else fresh)
    folder = HERE / "paddle"
    folder.mkdir(exist_ok=True)
    path = folder / ("tiny" if OLD else "tiny3")
    entry = paddle.static.InputSpec([None, 3, 16, 16], "float32", "image")
    paddle.jit.save(net, str(path), input_spec=[entry])
    path.with_suffix(".pdiparams.info").unlink(missing_ok=True)
    graph = path.with_suffix(".pdmodel" if OLD else ".json")
    settings = inference.Config(str(graph), str(path.with_suffix(".pdiparams")))
    settings.switch_ir_optim(False)
    settings.disable_mkldnn()
    runtime = inference.create_predictor(settings)
    runtime.get_input_handle(runtime.get_input_names()[0]).copy_from_cpu(picture())
    runtime.run()
    answer = runtime.get_output_handle(runtime.get_output_names()[0]).copy_to_cpu()
    assert np.abs(answer - net(paddle.to_tensor(picture())).numpy()).max() < 1e-5
    (HERE / f"answers_paddle_{sys.argv[1]}.json").write_text(
        json.dumps(answer.tolist(), indent=1) + "\n"
    )


if __name__ == "__main__":
    main()
