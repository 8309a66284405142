"""Every operator of the differentiable engine gives onnxruntime's answer and a true gradient.

A case is an expression over the image, written in a file of tests/unit/models/graph/cases; it is
run in every version of the operator set in which one of its operators changed, up to the newest
that onnxruntime accepts.
"""

from __future__ import annotations

import runpy
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import onnxruntime
import pytest
import torch
from numpy.typing import NDArray
from onnx import TensorProto, helper, numpy_helper
from onnx.reference import ReferenceEvaluator

from onnxfr.models.graph import to_torch
from onnxfr.models.graph.rules import OPERATORS, discover

CASES = Path(__file__).parents[1] / "unit" / "models" / "graph" / "cases"
OLDEST = 7
DOMAINS = {"ms": "com.microsoft", "": ""}


def newest_opset() -> int:
    """Ask onnxruntime how new an operator set it takes."""
    for version in range(onnx.defs.onnx_opset_version(), OLDEST, -1):
        value = helper.make_tensor_value_info("x", TensorProto.FLOAT, [1])
        graph = helper.make_graph([helper.make_node("Relu", ["x"], ["y"])], "g", [value], [])
        graph.output.append(helper.make_tensor_value_info("y", TensorProto.FLOAT, [1]))
        opsets = [helper.make_opsetid("", version)]
        model = helper.make_model(graph, opset_imports=opsets, ir_version=10)
        try:
            onnxruntime.InferenceSession(model.SerializeToString())
        except Exception:
            continue
        return version
    raise AssertionError("onnxruntime takes no model at all")


NEWEST = newest_opset()


@cache
def changed_versions() -> dict[str, set[int]]:
    """The versions in which each standard operator changed."""
    versions: dict[str, set[int]] = {}
    for schema in onnx.defs.get_all_schemas_with_history():
        if schema.domain == "":
            versions.setdefault(schema.name, set()).add(schema.since_version)
    return versions


@dataclass(frozen=True)
class Expr:
    """One operator applied to the image, arrays, other expressions, or nothing (None)."""

    name: str
    args: tuple[Any, ...] = ()
    attributes: dict[str, Any] = field(default_factory=dict)
    domain: str = ""
    outputs: int = 1
    pick: int = 0

    def operators(self) -> set[tuple[str, str]]:
        inner = [arg.operators() for arg in self.args if isinstance(arg, Expr)]
        mine = {(self.domain, self.name)} if self.name != "image" else set()
        return mine.union(*inner)


IMAGE = Expr("image")


@dataclass(frozen=True)
class Case:
    expr: Expr
    since: int
    until: int
    shape: tuple[int, ...]
    low: float
    high: float
    atol: float
    rtol: float
    grad: bool
    through: bool
    label: str

    def opsets(self) -> list[int]:
        """The versions in which an operator of the case changed, and the newest."""
        changes = {self.until, max(self.since, OLDEST)}
        for domain, name in self.expr.operators():
            changes |= changed_versions().get(name, set()) if not domain else set()
        return sorted(v for v in changes if max(self.since, OLDEST) <= v <= self.until)


def op(
    name: str,
    *args: Any,
    domain: str = "",
    outputs: int = 1,
    pick: int = 0,
    **attributes: Any,
) -> Expr:
    return Expr(name, args, attributes, DOMAINS[domain], outputs, pick)


def collect() -> list[Case]:
    found: list[Case] = []

    def case(
        expr: Expr,
        *,
        since: int = OLDEST,
        until: int = NEWEST,
        shape: tuple[int, ...] = (3, 5, 6),
        low: float = -2.0,
        high: float = 2.0,
        atol: float = 2e-6,
        rtol: float = 1e-5,
        grad: bool = True,
        through: bool = False,
        label: str = "",
    ) -> None:
        found.append(Case(expr, since, until, shape, low, high, atol, rtol, grad, through, label))

    for path in sorted(CASES.glob("*.py")):
        runpy.run_path(str(path))["cases"](case, op, IMAGE)
    return found


ALL = collect()
RUNS = [
    pytest.param(case, opset, id=f"{case.expr.name}{case.label and '-' + case.label}-{i}-v{opset}")
    for i, case in enumerate(ALL)
    for opset in case.opsets()
]


def build(case: Case, opset: int) -> onnx.ModelProto:
    nodes: list[onnx.NodeProto] = []
    stored: list[onnx.TensorProto] = []

    def visit(part: Any) -> str:
        if part is None:
            return ""
        if isinstance(part, onnx.TensorProto):
            tensor = onnx.TensorProto()
            tensor.CopyFrom(part)
            tensor.name = f"stored{len(stored)}"
            stored.append(tensor)
            return tensor.name
        if not isinstance(part, Expr):
            stored.append(numpy_helper.from_array(np.asarray(part), f"stored{len(stored)}"))
            return stored[-1].name
        if part.name == "image":
            return "image"
        inputs = [visit(arg) for arg in part.args]
        names = [f"value{len(nodes)}_{i}" for i in range(part.outputs)]
        node = helper.make_node(part.name, inputs, names, domain=part.domain, **part.attributes)
        nodes.append(node)
        return names[part.pick]

    result = visit(case.expr)
    graph = helper.make_graph(
        nodes,
        "case",
        [helper.make_tensor_value_info("image", TensorProto.FLOAT, ["N", *case.shape])],
        [helper.make_empty_tensor_value_info(result)],
        stored,
    )
    opsets = [helper.make_opsetid("", opset), helper.make_opsetid("com.microsoft", 1)]
    return helper.make_model(graph, opset_imports=opsets, ir_version=10)


Answer = Callable[[NDArray[np.float32]], NDArray[Any]]


def oracle(model: onnx.ModelProto) -> Answer:
    """Onnxruntime, or the specification where onnxruntime has no kernel for an operator."""
    options = onnxruntime.SessionOptions()
    options.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_DISABLE_ALL
    options.log_severity_level = 4
    options.intra_op_num_threads = 1
    runner: Any
    try:
        runner = onnxruntime.InferenceSession(
            model.SerializeToString(), options, providers=["CPUExecutionProvider"]
        )
    except Exception as error:
        if "NOT_IMPLEMENTED" not in str(error):
            raise
        runner = ReferenceEvaluator(model)
    return lambda image: np.asarray(runner.run(None, {"image": image})[0])


def images(case: Case, batch: int) -> NDArray[np.float32]:
    rng = np.random.default_rng(batch)
    return rng.uniform(case.low, case.high, (batch, *case.shape)).astype(np.float32)


@pytest.mark.parametrize(("case", "opset"), RUNS)
def test_agrees_with_onnxruntime(case: Case, opset: int) -> None:
    model = build(case, opset)
    module, answer = to_torch(model), oracle(model)
    for batch in (2, 1):
        image = images(case, batch)
        want = answer(image)
        got = module(torch.from_numpy(image)).numpy()
        assert got.shape == want.shape
        np.testing.assert_allclose(
            got.astype(np.float64), want.astype(np.float64), rtol=case.rtol, atol=case.atol
        )


@pytest.mark.parametrize(
    "case", [pytest.param(c, id=f"{c.expr.name}-{i}") for i, c in enumerate(ALL)]
)
def test_gradient(case: Case) -> None:
    """True against finite differences in float64; straight through where rounding is meant to."""
    module = to_torch(build(case, case.opsets()[-1])).double()
    image = torch.from_numpy(images(case, 1)).double().requires_grad_()
    result = module(image)
    if case.through:
        (slope,) = torch.autograd.grad(result.sum(), image)
        assert slope.isfinite().all()
        assert slope.abs().max() > 0
    elif case.grad:
        assert result.dtype == torch.float64
        assert torch.autograd.gradcheck(module, image, eps=1e-6, atol=1e-5, fast_mode=True)
    else:
        assert not result.requires_grad or not torch.autograd.grad(result.sum(), image)[0].any()


def test_every_operator_has_a_case() -> None:
    discover()
    tried = set[tuple[str, str]]().union(*(case.expr.operators() for case in ALL))
    assert sorted(set(OPERATORS) - tried) == []


def test_every_rule_is_in_force_in_some_case() -> None:
    """A rule for old versions that no case reaches would never be tested."""
    discover()
    reached = set[tuple[str, str, int]]()
    for case in ALL:
        for opset in case.opsets():
            for domain, name in case.expr.operators():
                version = opset if not domain else 1
                since = [v for v in OPERATORS.get((domain, name), {}) if v <= version]
                reached.add((domain, name, max(since, default=0)))
    rules = {(*key, since) for key, versions in OPERATORS.items() for since in versions}
    assert sorted(rules - reached) == []


def test_every_operator_is_in_the_document() -> None:
    discover()
    text = (Path(__file__).parents[2] / "docs" / "operators.md").read_text()
    rows = {f"| {name} | {domain or 'ai.onnx'} |" for domain, name in OPERATORS}
    assert sorted(row for row in rows if row not in text) == []
