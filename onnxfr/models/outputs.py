"""Which output of a graph is the embedding, and what to say when none is.

Embedding heads have a width that is a multiple of 32 and at most 4096 in every published model;
classifier heads have as many outputs as identities, a count no designer chose. The choice is always
explained, and ``--output`` (any tensor of the graph) or ``--closed-set`` overrides it.
"""

from __future__ import annotations

from dataclasses import dataclass

import onnx

from onnxfr.errors import UnsupportedModel

WIDEST, NARROWEST = 4096, 32
_CLASSIFIER_TAILS = {"Softmax", "LogSoftmax", "ArgMax", "TopK"}
_CLASSIFIER_WORDS = ("logit", "prob", "softmax", "class")
_EMBEDDING_WORDS = ("embed", "feature", "feat", "fc1", "descriptor")


@dataclass(frozen=True)
class OutputChoice:
    """The chosen tensor, its shape for one batch, and why it was chosen."""

    name: str
    shape: tuple[int, ...]
    head: str
    reason: str


def width(shape: tuple[int, ...], batch: int) -> int:
    """Return how many values one picture gets."""
    total = 1
    for size in shape:
        total *= size
    return total // max(batch, 1)


def choose_output(
    model: onnx.ModelProto,
    shapes: dict[str, tuple[int, ...]],
    batch: int,
    *,
    wanted: str | None,
    closed_set: bool,
) -> OutputChoice:
    """Pick the embedding among the outputs (``shapes`` are those of a real run)."""
    if wanted is not None:
        if wanted not in shapes:
            names = ", ".join(shapes)
            raise UnsupportedModel(
                f"--output {wanted!r} is no output of the graph; it has: {names}"
            )
        head = "logits" if closed_set else "embedding"
        return OutputChoice(wanted, shapes[wanted], head, "asked for with --output")
    tails = {name: node for node in model.graph.node for name in node.output}
    candidates = {
        name: shape for name, shape in shapes.items() if _vector_per_picture(shape, batch)
    }
    embeddings = [n for n, s in candidates.items() if not _why_not(n, s, batch, tails.get(n))]
    if embeddings:
        best = max(embeddings, key=lambda n: (_named_embedding(n), -list(shapes).index(n)))
        others = [n for n in shapes if n != best]
        reason = f"{width(shapes[best], batch)} values per picture"
        if others:
            reason += "; other outputs left aside: " + ", ".join(
                f"{n}{list(shapes[n])}" for n in others
            )
        return OutputChoice(best, shapes[best], "embedding", reason)
    if closed_set and candidates:
        name = max(candidates, key=lambda n: width(candidates[n], batch))
        return OutputChoice(name, candidates[name], "logits", "class scores, --closed-set")
    raise UnsupportedModel(_refusal(shapes, batch, tails))


def _vector_per_picture(shape: tuple[int, ...], batch: int) -> bool:
    """Whether a shape is one vector for each picture; that of a single one may lack the batch."""
    if batch > 1 and shape[:1] != (batch,):
        return False
    return sum(size > 1 for size in shape[batch > 1 :]) == 1


def _named_embedding(name: str) -> bool:
    return any(word in name.lower() for word in _EMBEDDING_WORDS)


def _why_not(name: str, shape: tuple[int, ...], batch: int, tail: onnx.NodeProto | None) -> str:
    values = width(shape, batch)
    if tail is not None and tail.op_type in _CLASSIFIER_TAILS:
        return f"it ends in {tail.op_type}: class probabilities"
    if any(word in name.lower() for word in _CLASSIFIER_WORDS):
        return "its name says class scores"
    if values > WIDEST:
        return f"{values} values are class scores, wider than any published embedding"
    if values < NARROWEST:
        return f"{values} values are too few for an embedding"
    if values % 32 and not _named_embedding(name):
        return f"{values} values look like a number of classes: embeddings are multiples of 32"
    return ""


def _refusal(
    shapes: dict[str, tuple[int, ...]], batch: int, tails: dict[str, onnx.NodeProto]
) -> str:
    lines = [
        f"{n}{list(s)}: {_why_not(n, s, batch, tails.get(n)) or 'not one vector per picture'}"
        for n, s in shapes.items()
    ]
    hint = _penultimate(shapes, tails)
    inside = f" (for example --output {hint!r}, the tensor before the last layer)" if hint else ""
    return (
        "expected an embedding output, found none: " + "; ".join(lines) + ". Name a tensor of the "
        f"graph with --output NAME{inside}, or take the class scores with --closed-set"
    )


def _penultimate(
    shapes: dict[str, tuple[int, ...]], tails: dict[str, onnx.NodeProto]
) -> str | None:
    """Walk back from the first output to the tensor that feeds its last matrix product."""
    name = next(iter(shapes), "")
    for _ in range(8):
        node = tails.get(name)
        if node is None or not node.input:
            return None
        if node.op_type in ("Gemm", "MatMul"):
            return str(node.input[0])
        name = node.input[0]
    return None
