"""Makes the tiny TensorFlow, Keras and TFLite models here, with their own runtimes' answers.

Run in a throw-away environment with ``tensorflow-cpu`` and ``ai-edge-litert``:
``python make_tensorflow.py``. Weights come from a fixed generator, but the files' bytes change with
TensorFlow's version.
"""

from __future__ import annotations

import json
import os
import shutil
from collections.abc import Callable

os.environ["TF_CPP_MIN_LOG_LEVEL"] = "3"

import numpy as np
import tensorflow as tf
from make import HERE, picture

F = np.ndarray
PICTURES = picture().transpose(0, 2, 3, 1)


def weights() -> dict[str, F]:
    rng = np.random.Generator(np.random.Philox(key=5))

    def w(*shape: int, scale: float = 0.3) -> F:
        return (rng.standard_normal(shape) * scale).astype("<f4")

    return {
        "conv": w(3, 3, 3, 8),
        "gamma": 1 + w(8),
        "beta": w(8),
        "mean": w(8),
        "var": 0.5 + w(8) ** 2,
        "slope": w(8),
        "depth": w(3, 3, 8, 1),
        "depth_bias": w(8),
        "fc": w(128, 16),
        "fc_bias": w(16),
    }


def body(
    x: tf.Tensor, p: dict[str, tf.Tensor], norm: Callable[[tf.Tensor], tf.Tensor]
) -> tf.Tensor:
    """The network that the frozen graph and the SavedModel share."""
    x = (x - 127.5) / 128.0
    x = norm(tf.nn.conv2d(x, p["conv"], 2, "SAME"))
    x = tf.nn.relu(x) - p["slope"] * tf.nn.relu(-x)
    y = tf.nn.depthwise_conv2d(x, p["depth"], (1, 1, 1, 1), "SAME") + p["depth_bias"]
    first, second = tf.split(tf.nn.relu6(y) + x, 2, axis=3)
    x = tf.concat([second, first], 3)
    x = tf.nn.avg_pool2d(x, 3, 2, "SAME")
    x = tf.reshape(x, (tf.shape(x)[0], 128))
    return tf.matmul(x, p["fc"]) + p["fc_bias"]


def frozen(p: dict[str, F]) -> list[list[float]]:
    """A graph as TensorFlow 1 froze it: a placeholder decides between training and inference."""
    v1 = tf.compat.v1
    v1.disable_control_flow_v2()
    with tf.Graph().as_default() as graph:
        x = v1.placeholder(tf.float32, (None, 16, 16, 3), name="input")
        phase = v1.placeholder(tf.bool, (), name="phase_train")
        parts = [tf.constant(p[k], name=k) for k in ("gamma", "beta", "mean", "var")]

        def norm(x: tf.Tensor) -> tf.Tensor:
            def training() -> tf.Tensor:
                return v1.nn.fused_batch_norm(x, *parts[:2], is_training=True)[0]

            def inference() -> tf.Tensor:
                return v1.nn.fused_batch_norm(x, *parts, epsilon=1e-3, is_training=False)[0]

            return tf.cond(phase, training, inference)

        answer = body(x, {k: tf.constant(v, name=f"w/{k}") for k, v in p.items()}, norm)
        tf.nn.l2_normalize(answer, 1, 1e-10, name="embeddings")
        with v1.Session() as session:
            feed = {"input:0": PICTURES, "phase_train:0": False}
            found = session.run("embeddings:0", feed)
        content = graph.as_graph_def().SerializeToString(deterministic=True)
    v1.enable_control_flow_v2()
    folder = HERE / "tensorflow"
    folder.mkdir(exist_ok=True)
    (folder / "tiny.pb").write_bytes(content)
    return found.tolist()


class Tiny(tf.Module):
    """The same network as TensorFlow 2 saves it: variables, and functions that call functions."""

    def __init__(self, p: dict[str, F]) -> None:
        super().__init__()
        self.p = {k: tf.Variable(v, name=k) for k, v in p.items()}

    @tf.function
    def norm(self, x: tf.Tensor) -> tf.Tensor:
        p = self.p
        return tf.nn.batch_normalization(x, p["mean"], p["var"], p["beta"], p["gamma"], 1e-3)

    @tf.function(input_signature=[tf.TensorSpec((None, 16, 16, 3), tf.float32, name="faces")])
    def __call__(self, x: tf.Tensor) -> tf.Tensor:
        return body(x, self.p, self.norm)


def saved_model(p: dict[str, F]) -> list[list[float]]:
    folder = HERE / "saved_model"
    shutil.rmtree(folder, ignore_errors=True)
    module = Tiny(p)
    tf.saved_model.save(module, str(folder), signatures=module.__call__)
    (folder / "assets").rmdir()
    return module(PICTURES).numpy().tolist()


class Normalised(Tiny):
    """The network as phones get it: a fixed batch, and embeddings of length one."""

    @tf.function(input_signature=[tf.TensorSpec((1, 16, 16, 3), tf.float32, name="faces")])
    def __call__(self, x: tf.Tensor) -> tf.Tensor:
        return tf.nn.l2_normalize(body(x, self.p, self.norm), 1)


def tflite(p: dict[str, F]) -> dict[str, list[list[float]]]:
    from ai_edge_litert.interpreter import Interpreter

    folder = HERE / "tflite"
    folder.mkdir(exist_ok=True)
    rng = np.random.Generator(np.random.Philox(key=6))
    answers = {}
    for kind in ("fp32", "fp16", "hybrid", "int8"):
        module = Normalised(p)
        function = module.__call__.get_concrete_function()
        converter = tf.lite.TFLiteConverter.from_concrete_functions([function], module)
        if kind != "fp32":
            converter.optimizations = [tf.lite.Optimize.DEFAULT]
        if kind == "fp16":
            converter.target_spec.supported_types = [tf.float16]
        if kind == "int8":
            faces = rng.uniform(0, 255, (64, 1, 16, 16, 3)).astype("<f4")
            converter.representative_dataset = lambda faces=faces: ([face] for face in faces)
            converter.target_spec.supported_ops = [tf.lite.OpsSet.TFLITE_BUILTINS_INT8]
            converter.inference_input_type = converter.inference_output_type = tf.uint8
        path = folder / f"tiny_{kind}.tflite"
        path.write_bytes(converter.convert())
        run = Interpreter(str(path))
        run.allocate_tensors()
        entry, end = run.get_input_details()[0], run.get_output_details()[0]
        rows = []
        for image in PICTURES:
            scale, zero = entry["quantization"] if kind == "int8" else (1, 0)
            run.set_tensor(
                entry["index"], np.rint(image / scale + zero).astype(entry["dtype"])[None]
            )
            run.invoke()
            scale, zero = end["quantization"] if kind == "int8" else (1, 0)
            rows.append(((run.get_tensor(end["index"])[0] - float(zero)) * scale).tolist())
        answers[f"tflite_{kind}"] = rows
    return answers


def main() -> None:
    p = weights()
    path = HERE / "answers.json"
    answers = json.loads(path.read_text())
    answers["tensorflow"] = frozen(p)
    answers["saved_model"] = saved_model(p)
    answers |= tflite(p)
    path.write_text(json.dumps(answers, indent=1) + "\n")


if __name__ == "__main__":
    main()
