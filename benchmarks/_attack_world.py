"""Real pairs and a real model for the attack benchmarks."""

from __future__ import annotations

from pathlib import Path

import numpy as np

from onnxfr.evaluators.games import clean_threshold, load_games, rows_of
from onnxfr.models.wrapper import OnnxModel, load_model
from onnxfr.oracle import Oracle
from onnxfr.paths import cache_dir
from onnxfr.probe import Probe
from onnxfr.runs.context import Context
from onnxfr.threat import Threat
from onnxfr.types import Goal


class World:
    """Games of one goal that the verifier gets right, at the best-accuracy threshold."""

    def __init__(self, model: str, data: str, goal: Goal, pairs: int) -> None:
        context = Context(cache_dir() / "embeddings")
        ref, entry = context.identify(str(Path(model))), context.describe(data)
        self.goal, self.threshold = goal, clean_threshold(context, ref, entry, "oracle").value
        # Idle threads of onnxruntime spin, which would count as processor time.
        self.model: OnnxModel = load_model(model, threads=1)
        rows = rows_of(context.pairs(entry), goal, 2 * pairs)
        probe = load_games(context, ref, entry, rows).probe
        right = np.flatnonzero(self.oracle(probe, Threat()).verify(probe.images) <= 0)[:pairs]
        self.probe: Probe = probe.take(right)

    def oracle(self, probe: Probe, threat: Threat) -> Oracle:
        """Return a fresh window on the model."""
        return Oracle(self.model, probe, threat, goal=self.goal, threshold=self.threshold)
