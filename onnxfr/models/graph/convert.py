"""From an ONNX model to a differentiable torch.fx module, node by node in file order."""

from __future__ import annotations

from collections import ChainMap, Counter
from collections.abc import Iterator, MutableMapping

import onnx
import torch
from onnx import AttributeProto
from torch import fx

from onnxfr.errors import OnnxfrError, UnreadableModel, UnsupportedModel, UnsupportedOperator
from onnxfr.models.functions import write_out_functions
from onnxfr.models.graph.builder import Builder
from onnxfr.models.graph.fusion import fuse
from onnxfr.models.graph.node import Node
from onnxfr.models.graph.rules import DEFAULT_DOMAIN, find_rule
from onnxfr.models.graph.tensors import to_tensor
from onnxfr.models.graph.values import Value

Scope = MutableMapping[str, Value]

DEEPEST_NESTING = 16


def to_torch(model: onnx.ModelProto) -> fx.GraphModule:
    """Return the network as a frozen torch module: images in, first output out.

    The module has no training mode and no trainable weight, takes any batch size the file allows,
    and becomes a float64 function by ``.double()``. External data must have been loaded.

    Raises:
        UnsupportedOperator: a node has no differentiable form.
        UnreadableModel: the graph contradicts itself.
        UnsupportedModel: the network does not take exactly one input, or cannot run on it.
    """
    return _Conversion(model).run()


class _Conversion:
    def __init__(self, model: onnx.ModelProto) -> None:
        model = write_out_functions(model)
        self._graph = model.graph
        self._versions = {_domain(entry.domain): entry.version for entry in model.opset_import}
        self._readers = Counter(_names_read(model.graph))

    def run(self) -> fx.GraphModule:
        graph = self._graph
        stored = {proto.name for proto in graph.initializer}
        inputs = [entry for entry in graph.input if entry.name not in stored]
        if len(inputs) != 1 or not graph.output:
            raise UnsupportedModel(
                f"expected a network with one input and an output, this one has {len(inputs)} "
                f"inputs and {len(graph.output)} outputs; bring it to normal form first"
            )
        self._builder = Builder(_image_shape(inputs[0]), _fixed_batch(inputs[0]))
        scope: Scope = {inputs[0].name: self._builder.image}
        self._convert(graph, scope, depth=0)
        module = self._builder.finish(_look_up(scope, graph.output[0].name))
        fuse(module)
        _rehearse(module, inputs[0])
        return module

    def _convert(self, graph: onnx.GraphProto, scope: Scope, depth: int) -> None:
        if graph.sparse_initializer:
            raise UnsupportedModel("sparse weights are not supported; store them densely")
        for proto in graph.initializer:
            scope[proto.name] = Value.constant_of(to_tensor(proto), proto.data_type)
        for node in graph.node:
            values = self._node(node, scope, depth)
            for name, value in zip(node.output, values, strict=False):
                if name:
                    scope[name] = value

    def _node(self, proto: onnx.NodeProto, scope: Scope, depth: int) -> list[Value]:
        domain = _domain(proto.domain)
        version = self._versions.get(domain, 1)
        inputs = [_look_up(scope, name) if name else None for name in proto.input]
        alone = [self._readers[name] == 1 for name in proto.input]
        node = Node(proto, version, inputs, self._builder, alone)
        if proto.op_type == "If" and domain == DEFAULT_DOMAIN:
            return self._branch(proto, node, scope, depth)
        rule = find_rule(domain, proto.op_type, version, node.name)
        try:
            result = rule(node)
        except OnnxfrError:
            raise
        except Exception as error:
            raise UnsupportedOperator(
                proto.op_type, version, node.name, f"{type(error).__name__}: {error}"
            ) from error
        results = [result] if isinstance(result, Value) else list(result)
        _hand_on_types(proto, version, inputs, results)
        return results

    def _branch(self, proto: onnx.NodeProto, node: Node, scope: Scope, depth: int) -> list[Value]:
        """Convert the branch of an If that is always taken."""
        condition = node[0].constant
        if condition is None:
            raise node.unsupported("which branch is taken depends on the image or the batch size")
        if depth >= DEEPEST_NESTING:
            raise node.unsupported(f"nested more than {DEEPEST_NESTING} deep")
        wanted = "then_branch" if bool(condition.reshape(-1)[0]) else "else_branch"
        for attribute in proto.attribute:
            if attribute.name == wanted and attribute.type == AttributeProto.GRAPH:
                inner: Scope = ChainMap({}, scope)
                self._convert(attribute.g, inner, depth + 1)
                return [_look_up(inner, output.name) for output in attribute.g.output]
        raise UnreadableModel(f"node {node.name!r} (If) has no {wanted}")


def _domain(name: str) -> str:
    return DEFAULT_DOMAIN if name == "ai.onnx" else name


def _image_shape(value: onnx.ValueInfoProto) -> tuple[int, ...] | None:
    """Return (C, H, W) if the file fixes them."""
    dims = value.type.tensor_type.shape.dim
    sizes = tuple(dim.dim_value for dim in dims[1:])
    return sizes if sizes and all(size > 0 for size in sizes) else None


def _fixed_batch(value: onnx.ValueInfoProto) -> int | None:
    """Return the batch size if the file fixes it."""
    dims = value.type.tensor_type.shape.dim
    return dims[0].dim_value if dims and dims[0].dim_value > 0 else None


def _rehearse(module: fx.GraphModule, value: onnx.ValueInfoProto) -> None:
    """Run once where the file fixes the size, so that what cannot run fails here and now."""
    shape = _image_shape(value)
    if shape is None:
        return
    batch = _fixed_batch(value) or 1
    try:
        with torch.no_grad():
            module(torch.zeros(batch, *shape))
    except (RuntimeError, IndexError, ValueError, TypeError) as error:
        raise UnsupportedModel(
            f"the converted network cannot run on {batch} x {list(shape)}: {error}"
        ) from error


def _hand_on_types(
    proto: onnx.NodeProto, version: int, inputs: list[Value | None], results: list[Value]
) -> None:
    """Note the integer type of results where the operator keeps the type of its inputs.

    Without it, integers carried in floats would be taken for reals behind the first Reshape.
    """
    if not any(value is not None and value.carried for value in inputs):
        return
    try:
        schema = onnx.defs.get_schema(proto.op_type, version, _domain(proto.domain))
    except onnx.defs.SchemaError:
        return
    types: dict[str, int] = {}
    for place, value in enumerate(inputs):
        formal = schema.inputs[min(place, len(schema.inputs) - 1)]
        if value is not None and value.carried:
            types.setdefault(formal.type_str, value.carried)
    for place, value in enumerate(results):
        formal = schema.outputs[min(place, len(schema.outputs) - 1)]
        value.elem_type = value.elem_type or types.get(formal.type_str, 0)


def _look_up(scope: Scope, name: str) -> Value:
    if name not in scope:
        raise UnreadableModel(f"value {name!r} is used before anything computes it")
    return scope[name]


def _names_read(graph: onnx.GraphProto) -> Iterator[str]:
    """Yield every use of a value, also inside branches."""
    for output in graph.output:
        yield output.name
    for node in graph.node:
        yield from node.input
        for attribute in node.attribute:
            if attribute.type == AttributeProto.GRAPH:
                yield from _names_read(attribute.g)
