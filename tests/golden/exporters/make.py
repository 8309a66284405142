"""Makes the tiny models in this folder and the answers of their frameworks' own runtimes.

Run in a throw-away environment with numpy, ncnn and OpenCV 4, and with TensorFlow.js installed for
Node in the folder given: ``python make.py NODE_FOLDER``. MXNet does not install any more and dlib
cannot be given a network from Python; their tests compute the answers themselves.

It is one file on purpose: four of the five formats hold the same weights, and it is carried alone
into that environment.
"""

from __future__ import annotations

import base64
import json
import struct
import subprocess
import sys
from pathlib import Path

import numpy as np

HERE = Path(__file__).parent
RNG = np.random.Generator(np.random.Philox(key=4))
F = np.ndarray


def picture() -> F:
    """Two pictures of 16x16, NCHW, whole numbers from 0 to 255."""
    count = np.arange(2 * 3 * 16 * 16)
    return ((count * count * 7 + count * 37) % 251).astype("<f4").reshape(2, 3, 16, 16)


def w(*shape: int, scale: float = 0.3) -> F:
    return (RNG.standard_normal(shape) * scale).astype("<f4")


def weights() -> dict[str, F]:
    return {
        "conv": w(8, 3, 3, 3),
        "gamma": 1 + w(8),
        "beta": w(8),
        "mean": w(8),
        "var": 0.5 + w(8) ** 2,
        "slope": w(8),
        "depth": w(8, 1, 3, 3),
        "depth_bias": w(8),
        "fc": w(16, 200),
        "fc_bias": w(16),
    }


def mxnet(p: dict[str, F]) -> None:
    nodes: list[dict[str, object]] = []

    def null(name: str) -> int:
        nodes.append({"op": "null", "name": name, "inputs": []})
        return len(nodes) - 1

    def op(kind: str, name: str, inputs: list[int], **attrs: str) -> int:
        used = [[k, 0, 0] for k in inputs]
        nodes.append({"op": kind, "name": name, "attrs": attrs, "inputs": used})
        return len(nodes) - 1

    x = op("_mul_scalar", "s1", [op("_minus_scalar", "s0", [null("data")], scalar="127.5")],
           scalar="0.0078125")  # fmt: skip
    x = op("Convolution", "conv", [x, null("conv_w")], kernel="(3, 3)", stride="(2, 2)",
           pad="(1, 1)", num_filter="8", no_bias="True")  # fmt: skip
    norm = [null(k) for k in ("gamma", "beta", "mean", "var")]
    x = op("BatchNorm", "bn", [x, *norm], fix_gamma="False", eps="0.001")
    x = op("LeakyReLU", "act", [x, null("slope")], act_type="prelu")
    y = op("Convolution", "dw", [x, null("depth"), null("depth_bias")], kernel="(3, 3)",
           pad="(1, 1)", num_filter="8", num_group="8")  # fmt: skip
    x = op("elemwise_add", "sum", [op("Activation", "relu", [y], act_type="relu"), x])
    x = op("Pooling", "pool", [x], kernel="(3, 3)", stride="(2, 2)", pad="(1, 1)",
           pool_type="avg", pooling_convention="full")  # fmt: skip
    x = op("FullyConnected", "fc1", [x, null("fc"), null("fc_bias")], num_hidden="16")
    symbol = {"nodes": nodes, "arg_nodes": [], "heads": [[x, 0, 0]], "attrs": {}}
    folder = HERE / "mxnet"
    folder.mkdir(exist_ok=True)
    (folder / "tiny-symbol.json").write_text(json.dumps(symbol, indent=1) + "\n")
    arrays = {"conv_w": p["conv"], **{k: v for k, v in p.items() if k != "conv"}}
    out = struct.pack("<QQQ", 0x112, 0, len(arrays))
    for value in arrays.values():
        out += struct.pack("<Iii", 0xF993FAC9, 0, value.ndim)
        out += struct.pack(f"<{value.ndim}q", *value.shape) + struct.pack("<iii", 1, 0, 0)
        out += value.tobytes()
    out += struct.pack("<Q", len(arrays))
    for key in arrays:
        name = ("aux:" if key in ("mean", "var") else "arg:") + key
        out += struct.pack("<Q", len(name)) + name.encode()
    (folder / "tiny-0000.params").write_bytes(out)


def ncnn(p: dict[str, F]) -> list[list[float]]:
    import ncnn as runtime

    lines = [
        "Input data 0 1 data 0=16 1=16 2=3",
        "BinaryOp sub 1 1 data sub 0=1 1=1 2=127.5",
        "BinaryOp mul 1 1 sub mul 0=2 1=1 2=0.0078125",
        "Convolution conv 1 1 mul conv 0=8 1=3 3=2 4=1 5=0 6=216",
        "BatchNorm bn 1 1 conv bn 0=8 1=0.001",
        "PReLU act 1 1 bn act 0=8",
        "Split split 1 2 act act_a act_b",
        "ConvolutionDepthWise dw 1 1 act_a dw 0=8 1=3 3=1 4=1 5=1 6=72 7=8 9=1",
        "BinaryOp sum 2 1 dw act_b sum 0=0",
        "Pooling pool 1 1 sum pool 0=1 1=3 2=2 3=1 5=0 6=0",
        "InnerProduct fc1 1 1 pool fc1 0=16 1=1 2=3200",
    ]
    folder = HERE / "ncnn"
    folder.mkdir(exist_ok=True)
    (folder / "tiny.param").write_text("\n".join(["7767517", f"{len(lines)} 12", *lines]) + "\n")
    out = struct.pack("<I", 0) + p["conv"].tobytes()
    out += b"".join(p[k].tobytes() for k in ("gamma", "mean", "var", "beta", "slope"))
    out += struct.pack("<I", 0x01306B47) + p["depth"].astype("<f2").tobytes()
    out += p["depth_bias"].tobytes()
    out += struct.pack("<I", 0) + p["fc"].tobytes() + p["fc_bias"].tobytes()
    (folder / "tiny.bin").write_bytes(out)
    net = runtime.Net()
    for option in ("fp16_arithmetic", "fp16_storage", "fp16_packed"):
        setattr(net.opt, f"use_{option}", False)
    net.load_param(str(folder / "tiny.param"))
    net.load_model(str(folder / "tiny.bin"))
    answers = []
    for image in picture():
        run = net.create_extractor()
        held = image.copy()  # the runtime's matrix only points to it
        run.input("data", runtime.Mat(held).clone())
        answers.append(np.array(run.extract("fc1")[1]).ravel().tolist())
    return answers


def caffe(p: dict[str, F]) -> list[list[float]]:
    import cv2

    def field(number: int, payload: bytes | int) -> bytes:
        def varint(value: int) -> bytes:
            out = b""
            while value > 127:
                out += bytes([value & 127 | 128])
                value >>= 7
            return out + bytes([value])

        if isinstance(payload, int):
            return varint(number << 3) + varint(payload)
        return varint(number << 3 | 2) + varint(len(payload)) + payload

    def blob(value: F) -> bytes:
        sides = b"".join(field(1, side) for side in value.shape)
        return field(7, field(5, value.tobytes()) + field(7, sides))

    def layer(kind: str, name: str, bottom: list[str], top: list[str], rest: bytes = b"") -> bytes:
        message = field(1, name.encode()) + field(2, kind.encode())
        message += b"".join(field(3, b.encode()) for b in bottom)
        message += b"".join(field(4, t.encode()) for t in top)
        return field(100, message + rest)

    sides = b"".join(field(1, side) for side in (1, 3, 16, 16))
    conv = field(1, 8) + field(2, 0) + field(3, 1) + field(4, 3) + field(6, 2)
    depth = field(1, 8) + field(3, 1) + field(4, 3) + field(5, 8)
    pool = field(1, 1) + field(2, 3) + field(3, 2) + field(4, 1)
    stats = b"".join(map(blob, (p["mean"] * 2, p["var"] * 2, np.array([2], "<f4"))))
    net = field(1, b"tiny")
    net += layer("Input", "input", [], ["data"], field(143, field(1, sides)))
    net += layer("Convolution", "conv", ["data"], ["c"], blob(p["conv"]) + field(106, conv))
    net += layer("BatchNorm", "bn", ["c"], ["c"], stats)
    scale = blob(p["gamma"]) + blob(p["beta"]) + field(142, field(4, 1))
    net += layer("Scale", "scale", ["c"], ["c"], scale)
    net += layer("PReLU", "act", ["c"], ["c"], blob(p["slope"]))
    net += layer("Split", "split", ["c"], ["c0", "c1"])
    arrays = blob(p["depth"]) + blob(p["depth_bias"])
    net += layer("Convolution", "dw", ["c0"], ["d"], arrays + field(106, depth))
    net += layer("ReLU", "relu", ["d"], ["d"])
    net += layer("Eltwise", "sum", ["d", "c1"], ["s"])
    net += layer("Pooling", "pool", ["s"], ["p"], field(121, pool))
    dense = blob(p["fc"]) + blob(p["fc_bias"]) + field(117, field(1, 16))
    net += layer("InnerProduct", "fc1", ["p"], ["fc1"], dense)
    folder = HERE / "caffe"
    folder.mkdir(exist_ok=True)
    (folder / "tiny.caffemodel").write_bytes(net)
    text = """name: "tiny"
    input: "data" input_shape { dim: [1, 3, 16, 16] }
    layer { name: "conv" type: "Convolution" bottom: "data" top: "c"
      convolution_param { num_output: 8 bias_term: false pad: 1 kernel_size: 3 stride: 2 } }
    layer { name: "bn" type: "BatchNorm" bottom: "c" top: "c" }  # in place
    layer { name: "scale" type: "Scale" bottom: "c" top: "c" scale_param { bias_term: true } }
    layer { name: "act" type: "PReLU" bottom: "c" top: "c" }
    layer { name: "dw" type: "Convolution" bottom: "c" top: "d"
      convolution_param { num_output: 8 pad: 1 kernel_size: 3 group: 8 } }
    layer { name: "relu" type: "ReLU" bottom: "d" top: "d" }
    layer { name: "sum" type: "Eltwise" bottom: "d" bottom: "c" top: "s" }
    layer { name: "pool" type: "Pooling" bottom: "s" top: "p"
      pooling_param { pool: AVE kernel_size: 3 stride: 2 pad: 1 } }
    layer { name: "fc1" type: "InnerProduct" bottom: "p" top: "fc1"
      inner_product_param { num_output: 16 } }
    """
    (folder / "tiny.prototxt").write_text("\n".join(t.strip() for t in text.splitlines()))
    loaded = cv2.dnn.readNetFromCaffe(
        str(folder / "tiny.prototxt"), str(folder / "tiny.caffemodel")
    )
    answers = []
    for image in (picture() - 127.5) / 128:
        loaded.setInput(image[None])
        answers.append(loaded.forward().ravel().tolist())
    return answers


def tfjs(p: dict[str, F], node_folder: Path) -> list[list[float]]:
    def text(value: str) -> dict[str, str]:
        return {"s": base64.b64encode(value.encode()).decode()}

    def window(stride: int, padding: str = "SAME") -> dict[str, object]:
        sides = {"list": {"i": ["1", str(stride), str(stride), "1"]}}
        ones = {"list": {"i": ["1", "1", "1", "1"]}}
        return {"strides": sides, "padding": text(padding), "dilations": ones,
                "data_format": text("NHWC"), "T": {"type": "DT_FLOAT"}}  # fmt: skip

    stored: dict[str, tuple[F, dict[str, object] | None]] = {
        "mean": (np.float32(127.5).reshape(()), None),
        "factor": (np.float32(1 / 128).reshape(()), None),
        "conv/k": (p["conv"].transpose(2, 3, 1, 0), None),
        "conv/b": (p["beta"], None),
        "dw/k": (p["depth"].transpose(2, 3, 0, 1), {"dtype": "float16"}),
        "zero": (np.float32(0).reshape(()), None),
        "slope": (p["slope"], None),
        "shape": (np.array([-1, 128], "<i4"), None),
        "pads": (np.array([[0, 0], [1, 0], [0, 1], [0, 0]], "<i4"), None),
        "fc/k": (p["fc"][:, :128].T, {"dtype": "uint8", "scale": 0.01, "min": -1.2}),
        "fc/b": (p["fc_bias"], None),
    }
    dim = [{"size": str(s)} for s in (-1, 16, 16, 3)]
    fused = {"list": {"s": [text("BiasAdd")["s"], text("Relu6")["s"]]}}
    nodes: list[dict[str, object]] = [
        {"name": "data", "op": "Placeholder", "attr": {"shape": {"shape": {"dim": dim}},
                                                       "dtype": {"type": "DT_FLOAT"}}},
        *({"name": k, "op": "Const", "attr": {}} for k in stored),
        {"name": "sub", "op": "Sub", "input": ["data", "mean"]},
        {"name": "mul", "op": "Mul", "input": ["sub", "factor"]},
        {"name": "pad", "op": "Pad", "input": ["mul", "pads"]},
        {"name": "conv", "op": "_FusedConv2D", "input": ["pad", "conv/k", "conv/b"],
         "attr": {**window(2), "fused_ops": fused, "num_args": {"i": "1"}}},
        {"name": "dw", "op": "DepthwiseConv2dNative", "input": ["conv", "dw/k"],
         "attr": window(1)},
        {"name": "max", "op": "Maximum", "input": ["dw", "zero"]},
        {"name": "min", "op": "Minimum", "input": ["zero", "dw"]},
        {"name": "neg", "op": "Mul", "input": ["min", "slope"]},
        {"name": "act", "op": "AddV2", "input": ["max", "neg"]},
        {"name": "sum", "op": "AddV2", "input": ["act", "conv"]},
        {"name": "pool", "op": "AvgPool", "input": ["sum"], "attr": {
            **window(2), "ksize": {"list": {"i": ["1", "3", "3", "1"]}}}},
        {"name": "cut", "op": "MaxPool", "input": ["pool"], "attr": {
            **window(1, "VALID"), "ksize": {"list": {"i": ["1", "2", "2", "1"]}}}},
        {"name": "flat", "op": "Reshape", "input": ["cut", "shape"]},
        {"name": "fc", "op": "_FusedMatMul", "input": ["flat", "fc/k", "fc/b"], "attr": {
            "fused_ops": {"list": {"s": [text("BiasAdd")["s"]]}}, "num_args": {"i": "1"}}},
    ]  # fmt: skip
    specs, blob = [], b""
    for name, (value, packed) in stored.items():
        kind = "int32" if value.dtype.kind == "i" else "float32"
        spec: dict[str, object] = {"name": name, "shape": list(value.shape), "dtype": kind}
        if packed:
            spec["quantization"] = packed
            if packed["dtype"] == "float16":
                value = value.astype("<f2")
            else:
                steps = (value - packed["min"]) / packed["scale"]
                value = np.clip(np.rint(steps), 0, 255).astype("u1")
        specs.append(spec)
        blob += np.ascontiguousarray(value).tobytes()
    folder = HERE / "tfjs"
    folder.mkdir(exist_ok=True)
    half = len(blob) // 2 + 1
    paths = ["group1-shard1of2.bin", "group1-shard2of2.bin"]
    (folder / paths[0]).write_bytes(blob[:half])
    (folder / paths[1]).write_bytes(blob[half:])
    for node in nodes:
        node.setdefault("attr", {"T": {"type": "DT_FLOAT"}})
    model = {
        "format": "graph-model",
        "modelTopology": {"node": nodes, "versions": {}},
        "weightsManifest": [{"paths": paths, "weights": specs}],
    }
    (folder / "model.json").write_text(json.dumps(model, indent=1) + "\n")
    script = """
    const tf = require('@tensorflow/tfjs'), fs = require('fs');
    const [model, input, folder] = process.argv.slice(1).map((p, k) => p);
    const j = JSON.parse(fs.readFileSync(model)), g = j.weightsManifest[0];
    const b = Buffer.concat(g.paths.map(p => fs.readFileSync(folder + '/' + p)));
    const x = fs.readFileSync(input);
    (async () => {
      const m = await tf.loadGraphModel({load: async () => ({modelTopology: j.modelTopology,
        weightSpecs: g.weights, weightData: new Uint8Array(b).buffer})});
      const f = new Float32Array(new Uint8Array(x).buffer);
      const y = m.execute({data: tf.tensor4d(f, [2, 16, 16, 3])}, 'fc');
      console.log('ANSWER' + JSON.stringify(Array.from(await y.data())));
    })();
    """
    raw = node_folder / "input.bin"
    raw.write_bytes(np.ascontiguousarray(picture().transpose(0, 2, 3, 1)).tobytes())
    command = ["node", "-e", script, str(folder / "model.json"), str(raw), str(folder)]
    done = subprocess.run(command, cwd=node_folder, capture_output=True, text=True, check=True)
    answer = next(line for line in done.stdout.splitlines() if line.startswith("ANSWER"))
    return np.array(json.loads(answer[6:])).reshape(2, -1).tolist()


def dlib() -> None:
    def integer(value: int) -> bytes:
        size = max(1, (abs(value).bit_length() + 7) // 8)
        return bytes([size | (0x80 if value < 0 else 0)]) + abs(value).to_bytes(size, "little")

    def integers(*values: int) -> bytes:
        return b"".join(map(integer, values))

    def real(value: float) -> bytes:
        mantissa, exponent = np.frexp(value)
        return integers(int(mantissa * 2**24), int(exponent) - 24)

    def text(value: str) -> bytes:
        return integer(len(value)) + value.encode()

    def tensor(value: F) -> bytes:
        return integers(2, value.size, 1, 1, 1) + value.tobytes()

    def view(*shape: int) -> bytes:
        return integers(1, *shape)

    empty = integers(2, 0, 0, 0, 0)
    state, rates = b"110" + empty * 3, real(1.0) * 3 + integers(0, 11)

    def con(channels: int, filters: int, stride: int, pad: int) -> bytes:
        params = np.concatenate([w(filters * channels * 9, scale=0.2), w(filters)])
        window = integers(filters, 3, 3, stride, stride, pad, pad)
        views = view(filters, channels, 3, 3) + view(1, filters, 1, 1)
        return text("con_4") + tensor(params) + window + views + rates + state

    def affine(channels: int) -> bytes:
        params = np.concatenate([1 + w(channels), w(channels)])
        one = view(1, channels, 1, 1)
        return text("affine_") + tensor(params) + one + one + integer(0) + state

    def pool(kind: str, *numbers: int) -> bytes:
        return text(f"{kind}_pool_2") + integers(*numbers) + state

    relu, add = text("relu_") + state, text("add_prev_") + state
    dense = text("fc_2") + integers(16, 12) + tensor(w(12 * 16)) + view(12, 16, 1, 1)
    dense += view(0, 0, 0, 0) + integer(1) + rates + state
    steps: list[bytes | None] = [
        con(3, 8, 2, 1) + integer(1), affine(8), relu, pool("max", 3, 3, 1, 1, 1, 1), None,
        con(8, 8, 1, 1), affine(8), relu, con(8, 8, 1, 1), affine(8), add, relu, None,
        con(8, 12, 2, 0), affine(12), relu, con(12, 12, 1, 1), affine(12), None, None,
        pool("avg", 2, 2, 2, 2, 0, 0), add, relu, pool("avg", 0, 0, 1, 1, 0, 0), dense,
    ]  # fmt: skip
    kinds = [1 if step is None else 2 for step in steps]
    kinds[0] = 3
    out = integer(1) + text("loss_metric_2") + real(0.04) + real(0.6) + integers(*kinds[::-1])
    out += text("input_rgb_image_sized") + real(122.5) + real(117.25) + real(104.0)
    out += integers(16, 16) + b"".join(step or b"" for step in steps)
    folder = HERE / "dlib"
    folder.mkdir(exist_ok=True)
    (folder / "tiny.dat").write_bytes(out)


def main() -> None:
    p = weights()
    mxnet(p)
    dlib()
    answers = {"ncnn": ncnn(p), "caffe": caffe(p), "tfjs": tfjs(p, Path(sys.argv[1]))}
    (HERE / "answers.json").write_text(json.dumps(answers, indent=1) + "\n")


if __name__ == "__main__":
    main()
