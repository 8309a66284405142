"""The architecture as a test: who may import whom, and which folders make up the package."""

from __future__ import annotations

import ast
import tomllib
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
BASE = {"types", "errors", "registry", "rng", "paths", "budgets"}
MAPPED = {"evaluators", "exporters", "model_zoo"}
ALLOWED = {
    **dict.fromkeys(BASE, BASE),
    "models": BASE,
    "doctor": BASE | {"models"},
    "threat": BASE | {"probe"},
    "probe": BASE,
    "ledger": BASE | {"threat"},
    "oracle": BASE | {"threat", "probe", "models", "ledger"},
    "checks": BASE | {"threat", "probe", "oracle", "attacks"},
    "metrics": {"errors", "types", "rng"},
    "data": BASE | {"models"},
    "alignment": BASE | {"models", "data"},
    "corruptions": BASE,
    "gallery": BASE | {"models"},
    "attacks": BASE | {"threat", "probe", "oracle", "gallery"},
    "defenses": BASE | {"models"},
    "service": BASE | {"models", "data", "alignment"},
    "runs": BASE | {"models", "data", "alignment", "evaluators"},
    "exporters": BASE | {"models"},
    "model_zoo": BASE | {"models", "exporters"},
    "evaluators": BASE
    | {"models", "data", "alignment", "metrics", "corruptions", "attacks", "oracle", "threat"}
    | {"probe", "runs", "defenses", "model_zoo", "checks", "service"},
}


def python_files() -> list[Path]:
    folders = [ROOT / "onnxfr", *(ROOT / name for name in sorted(MAPPED))]
    return sorted(path for folder in folders for path in folder.rglob("*.py"))


def layer_of(path: Path) -> str:
    parts = path.relative_to(ROOT).parts
    if parts[0] in MAPPED:
        return parts[0]
    return Path(parts[1]).stem


def imported_layers(path: Path) -> set[str]:
    found = set()
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        names: list[str] = []
        if isinstance(node, ast.Import):
            names = [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom) and node.module:
            assert node.level == 0, f"{path}: relative import"
            names = [node.module]
            if node.module == "onnxfr":
                names = [f"onnxfr.{alias.name}" for alias in node.names]
        found |= {name.split(".")[1] for name in names if name.startswith("onnxfr.")}
    return found


@pytest.mark.parametrize("path", python_files(), ids=lambda p: str(p.relative_to(ROOT)))
def test_imports_point_downwards(path: Path) -> None:
    layer = layer_of(path)
    if layer in ("cli", "__init__"):
        return
    forbidden = imported_layers(path) - ALLOWED[layer] - {layer}
    assert not forbidden, f"{layer} must not import {sorted(forbidden)}"


def test_nobody_imports_the_command_line() -> None:
    for path in python_files():
        if layer_of(path) not in ("cli", "__init__"):
            assert "cli" not in imported_layers(path), path


def test_package_list_equals_the_tree() -> None:
    listed = set(
        tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["setuptools"]["packages"]
    )
    found = set()
    for folder in ("onnxfr", *MAPPED):
        for init in (ROOT / folder).rglob("__init__.py"):
            dotted = ".".join(init.parent.relative_to(ROOT).parts)
            found.add(dotted if folder == "onnxfr" else f"onnxfr.{dotted}")
    assert listed == found


def test_top_level_is_as_documented() -> None:
    text = (ROOT / "docs" / "architecture.md").read_text(encoding="utf-8")
    for folder in ("onnxfr", *MAPPED, "tests", "benchmarks", "docs"):
        assert f"{folder}/" in text
