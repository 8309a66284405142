"""Question modules: each turns models, methods and pairs into flat records."""

from __future__ import annotations

from onnxfr.evaluators.base import EVALUATORS, Evaluator, PlanContext, Records, Result

__all__ = ["EVALUATORS", "Evaluator", "PlanContext", "Records", "Result"]
