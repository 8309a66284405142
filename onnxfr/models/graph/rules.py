"""The registry of operators: which function writes which ONNX operator, from which version on.

A new operator is one decorated function in any file of ``onnxfr.models.graph.ops``.
"""

from __future__ import annotations

import importlib
import pkgutil
from collections.abc import Callable, Sequence
from functools import cache

from onnxfr.errors import DuplicateName, UnsupportedOperator
from onnxfr.models.graph.node import Node
from onnxfr.models.graph.values import Value

Rule = Callable[[Node], Value | Sequence[Value]]

DEFAULT_DOMAIN = ""
MICROSOFT = "com.microsoft"
BLOCKED = "com.microsoft.nchwc"

OPERATORS: dict[tuple[str, str], dict[int, Rule]] = {}
"""(domain, operator) to the rules in force from each version on; :func:`discover` fills it."""


_RANDOM = "it is random: the same image would give another answer each time"
_LOOP = "loops cannot be laid out before the network runs"
_BLOCKS = (
    "onnxruntime saved it for one kind of processor: ask the vendor for the file before its layout "
    "was optimised"
)

REFUSED = {
    "Bernoulli": _RANDOM,
    "Loop": _LOOP,
    "Multinomial": _RANDOM,
    "RandomNormal": _RANDOM,
    "RandomNormalLike": _RANDOM,
    "RandomUniform": _RANDOM,
    "RandomUniformLike": _RANDOM,
    "Scan": _LOOP,
}
"""Operators left out on purpose, and why."""


def operator(*names: str, since: int = 1, domain: str = DEFAULT_DOMAIN) -> Callable[[Rule], Rule]:
    """File a rule under one or more operator names, in force from version ``since`` on."""

    def decorate(rule: Rule) -> Rule:
        for name in names:
            versions = OPERATORS.setdefault((domain, name), {})
            if since in versions:
                raise DuplicateName(f"two rules for operator {name} version {since}; remove one")
            versions[since] = rule
        return rule

    return decorate


@cache
def discover() -> None:
    """Import every file of rules once."""
    package = importlib.import_module("onnxfr.models.graph.ops")
    for module in pkgutil.iter_modules(package.__path__):
        importlib.import_module(f"{package.__name__}.{module.name}")


def find_rule(domain: str, name: str, version: int, node: str) -> Rule:
    """Return the rule in force.

    Raises:
        UnsupportedOperator: no rule, or none for so old a version.
    """
    discover()
    versions = OPERATORS.get((domain, name), {})
    since = max((candidate for candidate in versions if candidate <= version), default=None)
    if since is None:
        unknown = _BLOCKS if domain == BLOCKED else REFUSED.get(name, "not known to onnxfr")
        why = f"known from version {min(versions)} on" if versions else unknown
        raise UnsupportedOperator(f"{domain}::{name}" if domain else name, version, node, why)
    return versions[since]
