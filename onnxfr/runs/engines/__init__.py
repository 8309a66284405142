"""Engines: where cells run. The same cells give the same shards on each."""

from __future__ import annotations

from onnxfr.runs.engines.local import LocalEngine
from onnxfr.runs.spec import EngineSpec
from onnxfr.runs.work import Engine


def make_engine(spec: EngineSpec, cells: int) -> Engine:
    """Return the engine that a specification asks for, with no more workers than cells."""
    if spec.name == "ray":
        from onnxfr.runs.engines.ray import RayEngine

        return RayEngine(address=spec.address, gpus=spec.gpus, workers=spec.workers)
    return LocalEngine.sized(spec.workers, cells)
