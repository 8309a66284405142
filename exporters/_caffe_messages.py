"""Caffe's two notations, protobuf and prototxt, as one plain tree of named lists.

Only the fields that a network needs for inference are known; the others are skipped, unread.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any

import numpy as np

from onnxfr.errors import UnreadableModel, UnsafeFile
from onnxfr.exporters._wire import fields, numbers, signed, single

Tree = dict[str, list[Any]]
"""Field names to their values in order; a nested message is a ``Tree``, a blob's data an array."""

MAX_DEPTH = 16
_MOST_TOKENS = 2_000_000

_PAIRS = {"pad": 3, "kernel_size": 4, "stride": 6}
SCHEMA: dict[str, dict[int, tuple[str, str]]] = {
    "net": {
        1: ("name", "text"),
        2: ("layers", "v1layer"),
        3: ("input", "text"),
        4: ("input_dim", "int"),
        8: ("input_shape", "shape"),
        100: ("layer", "layer"),
    },
    "shape": {1: ("dim", "int")},
    "blob": {
        1: ("num", "int"),
        2: ("channels", "int"),
        3: ("height", "int"),
        4: ("width", "int"),
        5: ("data", "floats"),
        7: ("shape", "shape"),
        8: ("double_data", "doubles"),
    },
    "rule": {1: ("phase", "int")},
    "layer": {
        1: ("name", "text"),
        2: ("type", "text"),
        3: ("bottom", "text"),
        4: ("top", "text"),
        7: ("blobs", "blob"),
        8: ("include", "rule"),
        9: ("exclude", "rule"),
        100: ("transform_param", "transform"),
        104: ("concat_param", "concat"),
        106: ("convolution_param", "convolution"),
        110: ("eltwise_param", "eltwise"),
        117: ("inner_product_param", "inner_product"),
        118: ("lrn_param", "lrn"),
        121: ("pooling_param", "pooling"),
        122: ("power_param", "power"),
        123: ("relu_param", "relu"),
        125: ("softmax_param", "softmax"),
        131: ("prelu_param", "prelu"),
        133: ("reshape_param", "reshape"),
        135: ("flatten_param", "flatten"),
        139: ("batch_norm_param", "batch_norm"),
        140: ("elu_param", "elu"),
        142: ("scale_param", "scale"),
        143: ("input_param", "input"),
    },
    "v1layer": {
        2: ("bottom", "text"),
        3: ("top", "text"),
        4: ("name", "text"),
        5: ("type", "int"),
        6: ("blobs", "blob"),
        9: ("concat_param", "concat"),
        10: ("convolution_param", "convolution"),
        17: ("inner_product_param", "inner_product"),
        18: ("lrn_param", "lrn"),
        19: ("pooling_param", "pooling"),
        21: ("power_param", "power"),
        24: ("eltwise_param", "eltwise"),
        30: ("relu_param", "relu"),
        32: ("include", "rule"),
        33: ("exclude", "rule"),
        36: ("transform_param", "transform"),
        39: ("softmax_param", "softmax"),
    },
    "transform": {
        1: ("scale", "float"),
        3: ("crop_size", "int"),
        5: ("mean_value", "float"),
    },
    "concat": {1: ("concat_dim", "int"), 2: ("axis", "int")},
    "convolution": {
        1: ("num_output", "int"),
        2: ("bias_term", "int"),
        **{number: (name, "int") for name, number in _PAIRS.items()},
        5: ("group", "int"),
        9: ("pad_h", "int"),
        10: ("pad_w", "int"),
        11: ("kernel_h", "int"),
        12: ("kernel_w", "int"),
        13: ("stride_h", "int"),
        14: ("stride_w", "int"),
        18: ("dilation", "int"),
    },
    "eltwise": {1: ("operation", "int"), 2: ("coeff", "float")},
    "inner_product": {
        1: ("num_output", "int"),
        2: ("bias_term", "int"),
        5: ("axis", "int"),
        6: ("transpose", "int"),
    },
    "lrn": {
        1: ("local_size", "int"),
        2: ("alpha", "float"),
        3: ("beta", "float"),
        4: ("norm_region", "int"),
        5: ("k", "float"),
    },
    "pooling": {
        1: ("pool", "int"),
        2: ("kernel_size", "int"),
        3: ("stride", "int"),
        4: ("pad", "int"),
        5: ("kernel_h", "int"),
        6: ("kernel_w", "int"),
        7: ("stride_h", "int"),
        8: ("stride_w", "int"),
        9: ("pad_h", "int"),
        10: ("pad_w", "int"),
        12: ("global_pooling", "int"),
        13: ("round_mode", "int"),
    },
    "power": {1: ("power", "float"), 2: ("scale", "float"), 3: ("shift", "float")},
    "relu": {1: ("negative_slope", "float")},
    "softmax": {2: ("axis", "int")},
    "prelu": {2: ("channel_shared", "int")},
    "reshape": {1: ("shape", "shape"), 2: ("axis", "int"), 3: ("num_axes", "int")},
    "flatten": {1: ("axis", "int"), 2: ("end_axis", "int")},
    "batch_norm": {1: ("use_global_stats", "int"), 3: ("eps", "float")},
    "elu": {1: ("alpha", "float")},
    "scale": {1: ("axis", "int"), 2: ("num_axes", "int"), 4: ("bias_term", "int")},
    "input": {1: ("shape", "shape")},
}


def read_binary(message: bytes, kind: str = "net", depth: int = 0) -> Tree:
    """Parse one message of ``kind``."""
    if depth > MAX_DEPTH:
        raise UnsafeFile(f"the caffemodel nests messages deeper than {MAX_DEPTH}")
    tree: Tree = {}
    known = SCHEMA[kind]
    for number, value in fields(message):
        if number in known:
            name, what = known[number]
            tree.setdefault(name, []).extend(_values(value, what, depth))
    return tree


def _values(value: int | bytes, what: str, depth: int) -> list[Any]:
    if what == "int":
        return [signed(number) for number in numbers(value)]
    if not isinstance(value, bytes):
        raise UnreadableModel(f"the caffemodel has a number where {what} is expected")
    if what == "text":
        return [value.decode("utf-8", errors="replace")]
    if what == "float":
        starts = range(0, max(len(value), 1), 4)
        return [single(value[k : k + 4]) for k in starts]
    if what in ("floats", "doubles"):
        kind = np.dtype("<f4" if what == "floats" else "<f8")
        if len(value) % kind.itemsize:
            raise UnreadableModel(f"a blob of {len(value)} bytes is no list of {what}")
        return [np.frombuffer(value, kind)]
    return [read_binary(value, what, depth + 1)]


_TOKEN = re.compile(
    r"""\#[^\n]*|[{}:;,\[\]<>]|"(?:[^"\\\n]|\\.)*"|'(?:[^'\\\n]|\\.)*'|[^\s{}:;,\[\]<>"'#]+"""
)


def read_text(text: str) -> Tree:
    """Parse prototxt."""
    tokens = [t.group() for t in _TOKEN.finditer(text) if not t.group().startswith("#")]
    if len(tokens) > _MOST_TOKENS:
        raise UnsafeFile(f"the prototxt has {len(tokens)} words, more than a network needs")
    stream = iter(tokens)
    tree = _text_message(stream, 0)
    if next(stream, None) is not None:
        raise UnreadableModel("the prototxt has a closing brace too many")
    return tree


def _text_message(tokens: Iterator[str], depth: int) -> Tree:
    if depth > MAX_DEPTH:
        raise UnsafeFile(f"the prototxt nests messages deeper than {MAX_DEPTH}")
    tree: Tree = {}
    for token in tokens:
        if token in (";", ","):
            continue
        if token == "}":
            if depth == 0:
                raise UnreadableModel("the prototxt has a closing brace too many")
            return tree
        following = next(tokens, "")
        if following == ":":
            following = next(tokens, "")
        if following == "{":
            tree.setdefault(token, []).append(_text_message(tokens, depth + 1))
        elif following == "[":
            tree.setdefault(token, []).extend(_text_list(tokens))
        elif following in ("", "}", "]", ":"):
            raise UnreadableModel(f"the prototxt gives no value for {token!r}")
        else:
            tree.setdefault(token, []).append(_text_value(following))
    if depth:
        raise UnreadableModel("the prototxt ends inside a message")
    return tree


def _text_list(tokens: Iterator[str]) -> list[Any]:
    found: list[Any] = []
    for token in tokens:
        if token == "]":
            return found
        if token != ",":
            found.append(_text_value(token))
    raise UnreadableModel("the prototxt ends inside a list")


def _text_value(token: str) -> str | int | float:
    if token[0] in "\"'":
        return token[1:-1]
    if token in ("true", "false"):
        return int(token == "true")
    try:
        return int(token)
    except ValueError:
        pass
    try:
        return float(token)
    except ValueError:
        return token
