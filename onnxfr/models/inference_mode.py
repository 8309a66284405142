"""Files that were saved while training: putting them into the mode in which faces are compared.

Exporters save what they are given, and ``model.eval()`` is easily forgotten. Such a file answers at
random (Dropout) or by who else is in the batch (BatchNormalization), and its running statistics
go unused. What the vendor meant is known, so it is repaired, and the card says so.
"""

from __future__ import annotations

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper

from onnxfr.models.card import Repair
from onnxfr.models.structure import constants_of, shape_of

_SWITCH_WORDS = ("train", "phase", "learning", "dropout")


def leave_training(graph: onnx.GraphProto) -> tuple[Repair, ...]:
    """Fix every switch between training and inference to inference, in place."""
    repairs = [*_bake_placeholders(graph)]
    constants = constants_of(graph)
    dropouts = [node for node in graph.node if _drops(node, constants)]
    for node in dropouts:
        del node.input[2:]
    norms = [node for node in graph.node if _counts_the_batch(node)]
    for node in norms:
        _use_running_statistics(node, graph)
    for name, nodes in (("Dropout", dropouts), ("BatchNormalization", norms)):
        if nodes:
            detail = f"{len(nodes)} {name} saved in training mode now work as in use; "
            detail += "as it came, the file does not answer the same twice or for each alone"
            repairs.append(Repair(name="training-mode", detail=detail))
    return tuple(repairs)


def _bake_placeholders(graph: onnx.GraphProto) -> list[Repair]:
    """Fix training-phase placeholders of TensorFlow graphs to inference."""
    repairs = []
    for value in list(graph.input):
        kind = value.type.tensor_type.elem_type
        scalar = all(size in (None, 1) for size in shape_of(value)) and len(shape_of(value)) < 2
        named = any(word in value.name.lower() for word in _SWITCH_WORDS)
        if kind == TensorProto.BOOL and scalar and (named or len(graph.input) == 2):
            fixed = np.asarray(False)
        elif kind == TensorProto.FLOAT and scalar and "keep" in value.name.lower():
            fixed = np.asarray(1, np.float32)
        else:
            continue
        graph.initializer.append(numpy_helper.from_array(fixed, value.name))
        graph.input.remove(value)
        detail = f"placeholder {value.name} fixed to its inference value, {fixed}"
        repairs.append(Repair(name="placeholder", detail=detail))
    return repairs


def _drops(node: onnx.NodeProto, constants: dict[str, TensorProto]) -> bool:
    """Whether a Dropout is told by its third input (since opset 12) to drop."""
    if node.op_type != "Dropout" or node.domain or len(node.input) < 3 or not node.input[2]:
        return False
    switch = constants.get(node.input[2])
    return switch is None or bool(numpy_helper.to_array(switch).any())


def _counts_the_batch(node: onnx.NodeProto) -> bool:
    """Whether a normalisation takes its statistics from the batch: told so, or with results."""
    if node.op_type != "BatchNormalization" or node.domain:
        return False
    told = any(a.name == "training_mode" and a.i for a in node.attribute)
    return told or any(node.output[1:])


def _use_running_statistics(node: onnx.NodeProto, graph: onnx.GraphProto) -> None:
    """Switch to the stored statistics, which whoever reads the updated ones gets unchanged."""
    for k in reversed(range(len(node.attribute))):
        if node.attribute[k].name == "training_mode":
            del node.attribute[k]
    results = dict(zip(node.output[1:], (*node.input[3:5], *node.input[3:5]), strict=False))
    del node.output[1:]
    read = {name for each in graph.node for name in each.input}
    for name, stored in results.items():
        if name in read:
            graph.node.insert(0, helper.make_node("Identity", [stored], [name]))
    for value in [value for value in graph.output if value.name in results]:
        graph.output.remove(value)
