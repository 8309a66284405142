"""JAX functions and Flax modules to ONNX, through the Python API: there is no file to recognise.

jax2onnx does the conversion. JAX is at hand while exporting, so the graph is held against JAX's own
answers there and then, and one that disagrees is refused.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
import onnx

from onnxfr.errors import MissingExtra, SpecError, UnsupportedModel
from onnxfr.exporters.base import Exported
from onnxfr.models.sessions import open_session, run_session, unit_rows

_TOLERANCE = 1e-4
"""Largest difference of unit embeddings."""
_PICTURES = 3


def export(
    function: Any,
    params: Any = None,
    input_shape: Sequence[int] = (112, 112, 3),
    *,
    settings: Mapping[str, Any] | None = None,
    arch: str | None = None,
) -> Exported:
    """Return the ONNX graph of a JAX function or Flax module; its batch is free.

    Args:
        function: a Flax Linen module, a Flax NNX module, or a plain function of pictures.
        params: a Linen module's variables (``{"params": ..., "batch_stats": ...}``), or the first
            argument of a plain function; None where the function needs none.
        input_shape: the pictures' shape without the batch; Flax has channels last.
        settings: fixed keywords of the call, such as ``{"train": False}``.
        arch: name of the architecture, for the card.
    """
    try:
        import jax
        import jax2onnx
    except ImportError as error:
        raise MissingExtra(error.name or "jax2onnx", "jax") from error
    if len(input_shape) != 3 or 3 not in (input_shape[0], input_shape[-1]):
        raise SpecError(f"expected pictures such as (112, 112, 3), got {tuple(input_shape)}")
    call = _callable(function, params, dict(settings or {}))
    try:
        model = jax2onnx.to_onnx(call, inputs=[("N", *input_shape)], input_names=["images"])
    except Exception as error:
        raise UnsupportedModel(
            f"jax2onnx cannot convert this function: {type(error).__name__}: {error}"
        ) from error
    # Shapes noted before jax2onnx reordered axes contradict the graph.
    del model.graph.value_info[:]
    worst = _difference(model, jax.jit(call), tuple(input_shape))
    if not worst <= _TOLERANCE:
        raise UnsupportedModel(
            f"the converted graph differs from JAX by {worst:.1e}; at most {_TOLERANCE:.0e} is "
            "accepted"
        )
    return Exported(model, "jax", arch, notes=(f"equals JAX's own answers within {worst:.1e}",))


def _callable(function: Any, params: Any, settings: dict[str, Any]) -> Callable[[Any], Any]:
    """Return a function of pictures only, whatever kind of network was given."""
    if callable(getattr(function, "apply", None)) and callable(getattr(function, "init", None)):
        if params is None:
            raise SpecError("a Flax Linen module needs its variables: export(module, variables)")
        return lambda images: function.apply(params, images, **settings)
    if not callable(function):
        raise SpecError(f"expected a function or a Flax module, got {type(function).__name__}")
    if params is None:
        return lambda images: function(images, **settings)
    return lambda images: function(params, images, **settings)


def _difference(
    model: onnx.ModelProto, call: Callable[[Any], Any], shape: tuple[int, ...]
) -> float:
    rng = np.random.Generator(np.random.Philox(key=7))
    pictures = rng.uniform(-1, 1, (_PICTURES, *shape)).astype(np.float32)
    theirs = np.asarray(call(pictures))
    if theirs.ndim != 2:
        raise UnsupportedModel(f"expected one row per picture, the function gives {theirs.shape}")
    ours = run_session(open_session(model), pictures)
    return float(np.abs(unit_rows(ours) - unit_rows(theirs)).max())
