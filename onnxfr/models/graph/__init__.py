"""The differentiable engine's converter: ONNX in, a frozen torch.fx module out.

Written for exact onnxruntime semantics with no hidden state, because white-box results are only
worth something if the graph that gives the gradient is the very function that gives the score.
"""

from onnxfr.models.graph.convert import to_torch

__all__ = ["to_torch"]
