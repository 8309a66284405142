"""Makes the tiny TensorFlow, Keras and TFLite models here, with their own runtimes' answers.

Run in a throw-away environment with ``tensorflow-cpu``, ``tf_keras`` and ``ai-edge-litert``:
``python make_tensorflow.py``. Weights come from a fixed generator, but the files' bytes change with
TensorFlow's version.
"""

from __future__ import annotations

import gzip
import json
import os
import shutil
import tempfile
import zipfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

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


def keras_model(keras: Any) -> Any:
    """Every kind of layer that face networks use, a model inside a model, and a shared layer."""
    k = keras.layers
    entry = keras.Input((16, 16, 3), name="faces")
    x = k.Rescaling(1 / 128, offset=-1)(entry)
    x = k.ZeroPadding2D(((0, 1), (1, 0)))(x)
    x = k.Conv2D(8, 3, strides=2, use_bias=False, name="conv")(x)
    x = k.BatchNormalization(scale=False)(x)
    x = k.PReLU(shared_axes=[1, 2])(x)
    inner = keras.Sequential(
        [
            keras.Input((8, 8, 8)),
            k.DepthwiseConv2D(3, padding="same"),
            k.BatchNormalization(),
            k.ReLU(6.0),
            k.Conv2D(8, 1, groups=2, activation="swish"),
        ],
        name="inner",
    )
    scaled = k.Lambda(lambda x, scale: x * scale, (8, 8, 8), arguments={"scale": 0.5})(inner(x))
    x = k.Activation("relu")(k.Add()([x, scaled]))
    gate = k.Reshape((1, 1, 8))(k.GlobalAveragePooling2D()(x))
    gate = k.Conv2D(8, 1, activation="sigmoid")(gate)
    x = k.Multiply()([x, gate])
    shared = k.SeparableConv2D(4, 3, padding="same", activation="tanh", name="shared")
    x = k.Concatenate()([shared(x), shared(k.LeakyReLU()(x))])
    x = k.AveragePooling2D(3, 2, padding="same")(k.MaxPooling2D(2, 1)(x))
    x = k.Dropout(0.4)(k.Flatten()(k.Permute((2, 1, 3))(x)))
    x = k.Dense(16, name="embedding")(x)
    model = keras.Model(entry, k.UnitNormalization()(k.BatchNormalization()(x)))
    rng = np.random.Generator(np.random.Philox(key=7))
    for weight in model.weights:
        values = rng.standard_normal(weight.shape) * 0.4
        weight.assign(np.abs(values) + 0.2 if "variance" in weight.name else values)
    return model


def keras_files() -> dict[str, list[list[float]]]:
    import keras
    import tf_keras

    folder = HERE / "keras"
    folder.mkdir(exist_ok=True)
    new, old = keras_model(keras), keras_model(tf_keras)
    with tempfile.TemporaryDirectory() as temporary:
        place = Path(temporary)
        new.save(place / "tiny.keras")
        small = zipfile.ZipFile(folder / "tiny.keras", "w", zipfile.ZIP_DEFLATED)
        with zipfile.ZipFile(place / "tiny.keras") as whole, small:
            for name in whole.namelist():
                small.writestr(name, whole.read(name))
        for name, model in (("tiny_keras3.h5", new), ("tiny_keras2.h5", old)):
            model.save(place / name)
            packed = gzip.compress((place / name).read_bytes(), mtime=0)
            (folder / f"{name}.gz").write_bytes(packed)
    return {"keras2": old.predict(PICTURES).tolist(), "keras3": new.predict(PICTURES).tolist()}


def hostile_hdf5() -> None:
    """Files whose weights lie elsewhere, or in a form that is not read."""
    import h5py

    layers = [
        {"class_name": "InputLayer", "config": {"name": "in", "batch_shape": [None, 16, 16, 3]}},
        {"class_name": "Flatten", "config": {"name": "flat"}},
        {"class_name": "Dense", "config": {"name": "dense", "use_bias": False}},
    ]
    config = json.dumps({"class_name": "Sequential", "config": {"layers": layers}})
    for kind in ("external_link", "soft_link", "outside_storage", "chunked"):
        with tempfile.TemporaryDirectory() as temporary:
            path = Path(temporary) / "model.h5"
            with h5py.File(path, "w") as file:
                file.attrs["model_config"] = config
                dense = file.create_group("model_weights/dense")
                dense.attrs["weight_names"] = [b"kernel:0"]
                if kind == "external_link":
                    dense["kernel:0"] = h5py.ExternalLink("/etc/hostname", "/kernel")
                elif kind == "soft_link":
                    dense["kernel:0"] = h5py.SoftLink("/elsewhere")
                elif kind == "outside_storage":
                    outside = [("/etc/hostname", 0, 768 * 16 * 4)]
                    dense.create_dataset("kernel:0", (768, 16), "<f4", external=outside)
                else:
                    dense.create_dataset("kernel:0", (768, 16), "<f4", compression="gzip")
            packed = gzip.compress(path.read_bytes(), mtime=0)
            (HERE / "keras" / f"{kind}.h5.gz").write_bytes(packed)


def main() -> None:
    p = weights()
    path = HERE / "answers.json"
    answers = json.loads(path.read_text())
    answers["tensorflow"] = frozen(p)
    answers["saved_model"] = saved_model(p)
    answers |= tflite(p) | keras_files()
    hostile_hdf5()
    path.write_text(json.dumps(answers, indent=1) + "\n")


if __name__ == "__main__":
    main()
