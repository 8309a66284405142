"""A file's own functions, written out where they are called.

Whatever looks at a graph (batch repair, hints, quantisation, the differentiable engine) sees its
nodes only. onnx's inliner forgets the default values of a function's attributes, which onnxruntime
does not, so that each call is completed first.
"""

from __future__ import annotations

import onnx
import onnx.inliner

from onnxfr.errors import UnreadableModel, UnsafeFile
from onnxfr.models.vendor import MAX_BYTES, all_graphs, inner_graphs

DEEPEST_CALL = 64
MOST_NODES = 200_000

Function = tuple[str, str, str]


def write_out_functions(model: onnx.ModelProto) -> onnx.ModelProto:
    """Return a model without calls of its own functions; the model itself if it has none.

    Raises:
        UnreadableModel: a call does not fit its function.
        UnsafeFile: the functions call themselves, or a few bytes of them unfold into gigabytes.
    """
    if not model.functions:
        return model
    functions = {(f.domain, f.name, f.overload): f for f in model.functions}
    _refuse_giant(model, functions)
    complete = onnx.ModelProto()
    complete.CopyFrom(model)
    for graph in all_graphs(complete):
        for node in graph.node:
            function = functions.get(_called(node))
            if function is not None:
                given = {attribute.name for attribute in node.attribute}
                defaults = function.attribute_proto
                node.attribute.extend(value for value in defaults if value.name not in given)
    try:
        return onnx.inliner.inline_local_functions(complete)
    except Exception as error:  # a call that does not fit its function; the class is not public
        reason = " ".join(str(error).split())[:200]
        raise UnreadableModel(
            f"the functions of the file cannot be written out: {reason}"
        ) from None


def _called(node: onnx.NodeProto) -> Function:
    return node.domain, node.op_type, node.overload


def _refuse_giant(model: onnx.ModelProto, functions: dict[Function, onnx.FunctionProto]) -> None:
    known: dict[Function, tuple[int, int]] = {}

    def size(outer: onnx.GraphProto | onnx.FunctionProto, depth: int) -> tuple[int, int]:
        if depth > DEEPEST_CALL:
            raise UnsafeFile(
                f"the functions of the file call one another more than {DEEPEST_CALL} deep, or "
                "themselves; no face-recognition network needs that"
            )
        nodes, contents = 0, outer.ByteSize()
        for graph in (outer, *inner_graphs(outer)):
            for node in graph.node:
                key = _called(node)
                if key in functions and key not in known:
                    known[key] = size(functions[key], depth + 1)
                more = known.get(key, (1, 0))
                nodes, contents = nodes + more[0], contents + more[1]
        return nodes, contents

    nodes, contents = size(model.graph, 0)
    if nodes > MOST_NODES or contents > MAX_BYTES:
        raise UnsafeFile(
            f"the functions of the file unfold into {nodes} nodes and {contents >> 20} MiB, "
            f"expected at most {MOST_NODES} and {MAX_BYTES >> 20}"
        )
