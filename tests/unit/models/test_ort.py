"""The onnxruntime engine: any batch, many callers, clear errors, right int8 answers."""

from __future__ import annotations

import warnings
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np
import onnx
import onnxruntime
import pytest
from onnx import TensorProto, helper, numpy_helper

from onnxfr.errors import DataError, EngineError, OnnxfrWarning, SpecError, UnreadableModel
from onnxfr.models.hardware import instruction_set, int8_products_saturate
from onnxfr.models.int8 import is_quantised, may_saturate
from onnxfr.models.ort import OrtEngine
from onnxfr.models.ort_session import CPU, ask, signature_of

SIDE = 12
WIDTH = 8


@pytest.fixture(autouse=True)
def own_cache(tmp_path, monkeypatch):
    monkeypatch.setenv("ONNXFR_CACHE", str(tmp_path / "cache"))
    monkeypatch.delenv("ONNXFR_THREADS", raising=False)


def small_net(*, batch="N", output=(None, WIDTH), extra_nodes=(), outputs=("embedding",)):
    rng = np.random.default_rng(0)
    weights = {
        "w": rng.normal(size=(16, 3, 3, 3)),
        "s": rng.uniform(0, 1, (16, 1, 1)),
        "f": rng.normal(size=(16, WIDTH)),
    }
    nodes = [
        helper.make_node("Conv", ["image", "w"], ["c"]),
        helper.make_node("PRelu", ["c", "s"], ["p"]),
        helper.make_node("GlobalAveragePool", ["p"], ["g"]),
        helper.make_node("Flatten", ["g"], ["flat"]),
        helper.make_node("MatMul", ["flat", "f"], ["raw"]),
        *extra_nodes,
    ]
    if not extra_nodes:
        nodes.append(helper.make_node("Identity", ["raw"], ["embedding"]))
    graph = helper.make_graph(
        nodes,
        "small",
        [helper.make_tensor_value_info("image", TensorProto.FLOAT, [batch, 3, SIDE, SIDE])],
        [helper.make_tensor_value_info(name, TensorProto.FLOAT, list(output)) for name in outputs],
        [numpy_helper.from_array(v.astype(np.float32), k) for k, v in weights.items()],
    )
    opset = [helper.make_opsetid("", 13)]
    return helper.make_model(graph, opset_imports=opset, ir_version=8).SerializeToString()


def pictures(count, seed=1):
    return np.random.default_rng(seed).random((count, 3, SIDE, SIDE), dtype=np.float32)


def bare(model, images):
    session = onnxruntime.InferenceSession(model, providers=[CPU])
    return session.run(None, {"image": images})[0]


@pytest.mark.parametrize("count", [1, 2, 3, 7, 64, 150])
@pytest.mark.parametrize("threads", [1, 2, 4])
def test_answers_equal_a_bare_session_for_any_batch(count, threads):
    model = small_net()
    images = pictures(count)
    engine = OrtEngine(model, threads=threads)
    assert engine.setting.threads * engine.setting.lanes <= threads
    answers = engine.run(images)
    assert answers.dtype == np.float32
    np.testing.assert_allclose(answers, bare(model, images), rtol=1e-5, atol=1e-5)
    np.testing.assert_array_equal(answers, engine.run(images))


def test_no_images_give_no_embeddings():
    assert OrtEngine(small_net()).run(pictures(0)).shape == (0, WIDTH)


def test_a_path_serves_like_its_contents(tmp_path: Path):
    path = tmp_path / "model.onnx"
    path.write_bytes(small_net())
    images = pictures(3)
    np.testing.assert_array_equal(OrtEngine(path).run(images), OrtEngine(small_net()).run(images))


def test_non_contiguous_and_read_only_images_work():
    images = pictures(6)
    flipped = images[:, :, :, ::-1]
    flipped.flags.writeable = False
    engine = OrtEngine(small_net())
    np.testing.assert_allclose(
        engine.run(flipped), engine.run(np.ascontiguousarray(flipped)), atol=0
    )


@pytest.mark.parametrize("size", [1, 3])
def test_a_fixed_batch_is_found_and_fed(size):
    flat = helper.make_node("Reshape", ["raw", "shape"], ["embedding"])
    shape = numpy_helper.from_array(np.array([size, WIDTH], np.int64))
    constant = helper.make_node("Constant", [], ["shape"], value=shape)
    declared = small_net(batch=size, extra_nodes=(constant, flat))
    images = pictures(7)
    expected = bare(small_net(), images)
    engine = OrtEngine(declared)
    assert engine.fixed_batch == size
    np.testing.assert_allclose(engine.run(images), expected, rtol=1e-5, atol=1e-5)
    assert engine.run(images[:0]).shape == (0, WIDTH)

    undeclared = small_net(extra_nodes=(constant, flat))
    told = OrtEngine(undeclared, fixed_batch=size)
    np.testing.assert_allclose(told.run(images), expected, rtol=1e-5, atol=1e-5)


def test_many_threads_may_ask_at_once():
    engine = OrtEngine(small_net(), threads=2)
    batches = [pictures(1 + seed % 9, seed) for seed in range(40)]
    with ThreadPoolExecutor(8) as pool:
        together = list(pool.map(engine.run, batches))
    for batch, answers in zip(batches, together, strict=True):
        np.testing.assert_allclose(answers, bare(small_net(), batch), rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize(
    ("images", "says"),
    [
        (pictures(2).astype(np.float64), "float32.*float64"),
        ((pictures(2) * 255).astype(np.uint8), "float32.*uint8"),
        ([[1.0]], "float32.*list"),
        (pictures(2)[0], r"\(N, 3, 12, 12\).*\(3, 12, 12\)"),
        (pictures(2)[:, :, :-1], r"\(N, 3, 12, 12\).*\(2, 3, 11, 12\)"),
        (pictures(2).transpose(0, 2, 3, 1), r"\(2, 12, 12, 3\)"),
    ],
)
def test_wrong_images_say_what_was_expected_and_what_came(images, says):
    with pytest.raises(DataError, match=says):
        OrtEngine(small_net()).run(images)


def test_non_finite_answers_name_their_rows():
    engine = OrtEngine(small_net(extra_nodes=(helper.make_node("Log", ["raw"], ["embedding"]),)))
    images = pictures(3)
    bad = ~np.isfinite(engine.run(images, allow_nonfinite=True)).all(axis=1)
    assert bad.any()
    with pytest.raises(EngineError, match=rf"{bad.sum()} of 3 rows \({np.flatnonzero(bad)[0]}"):
        engine.run(images)


def test_a_failing_batch_is_one_typed_error():
    bad = (helper.make_node("MatMul", ["raw", "raw"], ["embedding"]),)
    with pytest.raises(EngineError, match="onnxruntime failed on a batch"):
        OrtEngine(small_net(extra_nodes=bad)).run(pictures(3))


def test_batch_baked_into_the_graph_tells_the_remedy():
    shape = numpy_helper.from_array(np.array([1, -1], np.int64))
    nodes = (
        helper.make_node("Constant", [], ["shape"], value=shape),
        helper.make_node("Reshape", ["raw", "shape"], ["embedding"]),
    )
    engine = OrtEngine(small_net(extra_nodes=nodes))
    with pytest.raises(EngineError, match="fixed_batch=1"):
        engine.run(pictures(16))


def test_models_that_are_none():
    with pytest.raises(UnreadableModel, match="expected an ONNX model"):
        OrtEngine(b"\x00\x01 not a model")
    with pytest.raises(UnreadableModel, match=r"gone\.onnx"):
        OrtEngine(Path("gone.onnx"))
    two = (
        helper.make_node("Identity", ["raw"], ["a"]),
        helper.make_node("Identity", ["raw"], ["b"]),
    )
    with pytest.raises(EngineError, match="one output"):
        OrtEngine(small_net(extra_nodes=two, outputs=("a", "b")))


def test_the_output_called_embedding_wins_among_several():
    two = (
        helper.make_node("Neg", ["raw"], ["a"]),
        helper.make_node("Identity", ["raw"], ["embedding"]),
    )
    model = small_net(extra_nodes=two, outputs=("a", "embedding"))
    expected = bare(small_net(), pictures(2))
    np.testing.assert_allclose(OrtEngine(model).run(pictures(2)), expected, rtol=1e-5, atol=1e-5)


def test_threads_must_make_sense(monkeypatch):
    with pytest.raises(SpecError, match="at least 1, came 0"):
        OrtEngine(small_net(), threads=0)
    monkeypatch.setenv("ONNXFR_THREADS", "many")
    with pytest.raises(SpecError, match=r"ONNXFR_THREADS.*'many'"):
        OrtEngine(small_net())


@pytest.mark.skipif(
    "CUDAExecutionProvider" in onnxruntime.get_available_providers(), reason="CUDA may work here"
)
def test_cuda_that_is_not_there_is_an_error_when_demanded():
    with pytest.raises(EngineError, match="asked for CUDA"):
        OrtEngine(small_net(), device="cuda")
    assert OrtEngine(small_net(), device="auto").device == "cpu"


def test_bound_memory_answers_like_plain_calls():
    session = onnxruntime.InferenceSession(small_net(), providers=[CPU])
    images = pictures(5)
    bound = ask(session, signature_of(session), images, bind="cpu")
    np.testing.assert_array_equal(bound, bare(small_net(), images))


def test_a_second_engine_reads_the_cached_setting(tmp_path: Path):
    first = OrtEngine(small_net(), threads=2)
    chosen = first.setting
    (stored,) = (tmp_path / "cache" / "ort").glob("*.json")
    before = stored.stat().st_mtime_ns
    assert OrtEngine(small_net(), threads=2).setting == chosen
    assert stored.stat().st_mtime_ns == before
    stored.write_text('{"setting": {"threads": -1')
    repaired = OrtEngine(small_net(), threads=2)
    np.testing.assert_allclose(
        repaired.run(pictures(3)), bare(small_net(), pictures(3)), rtol=1e-5, atol=1e-5
    )
    assert '"key"' in stored.read_text()


def test_an_unwritable_cache_does_not_stop_the_work(tmp_path: Path, monkeypatch):
    blocked = tmp_path / "file"
    blocked.write_text("in the way")
    monkeypatch.setenv("ONNXFR_CACHE", str(blocked / "cache"))
    assert OrtEngine(small_net()).run(pictures(2)).shape == (2, WIDTH)


def quantised_net(weight):
    """QDQ convolution whose byte sums exceed 16 bits when weights are large."""
    scalars = {"xs": 1 / 255, "ws": 1 / 127, "ys": 0.25}
    weights = [numpy_helper.from_array(np.float32(v), k) for k, v in scalars.items()]
    zero = {"xz": np.uint8(0), "wz": np.int8(0), "yz": np.uint8(0)}
    weights += [numpy_helper.from_array(np.asarray(v), k) for k, v in zero.items()]
    weights.append(numpy_helper.from_array(weight, "w"))
    graph = helper.make_graph(
        [
            helper.make_node("QuantizeLinear", ["image", "xs", "xz"], ["xq"]),
            helper.make_node("DequantizeLinear", ["xq", "xs", "xz"], ["x"]),
            helper.make_node("DequantizeLinear", ["w", "ws", "wz"], ["wd"]),
            helper.make_node("Conv", ["x", "wd"], ["c"], strides=[3, 3]),
            helper.make_node("QuantizeLinear", ["c", "ys", "yz"], ["cq"]),
            helper.make_node("DequantizeLinear", ["cq", "ys", "yz"], ["y"]),
            helper.make_node("GlobalAveragePool", ["y"], ["g"]),
            helper.make_node("Flatten", ["g"], ["embedding"]),
        ],
        "int8",
        [helper.make_tensor_value_info("image", TensorProto.FLOAT, ["N", 3, SIDE, SIDE])],
        [helper.make_tensor_value_info("embedding", TensorProto.FLOAT, ["N", len(weight)])],
        weights,
    )
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 13)], ir_version=8)


@pytest.mark.parametrize(("largest", "risky"), [(127, True), (64, False)])
def test_int8_answers_are_right_on_every_processor(largest, risky):
    weight = np.random.default_rng(0).integers(largest - 20, largest, (16, 3, 3, 3), np.int8, True)
    model = quantised_net(weight)
    assert is_quantised(model)
    assert may_saturate(model) is risky
    images = 1 - pictures(4) / 8
    exact = np.einsum(
        "nchiwj,ocij->nohw",
        np.rint(images * 255).reshape(4, 3, 4, 3, 4, 3),
        weight.astype(np.float64),
    ) / (255 * 127)
    exact = (np.clip(np.rint(exact / 0.25), 0, 255) * 0.25).mean(axis=(2, 3))
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        engine = OrtEngine(model.SerializeToString())
    told = [str(w.message) for w in caught if issubclass(w.category, OnnxfrWarning)]
    assert tuple(told) == engine.warnings
    assert bool(told) == (risky and int8_products_saturate())
    assert engine.quantised
    assert engine.instruction_set == instruction_set()
    # One step of the output quantiser, averaged over 16 places, for ties that round the other way.
    np.testing.assert_allclose(engine.run(images), exact, atol=0.05)


def test_float_models_are_not_called_quantised():
    assert not is_quantised(onnx.load_model_from_string(small_net()))
