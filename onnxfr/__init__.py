"""onnxfr: how robust is a face-recognition model?

The names users reach for first live here and load on first use, so that ``import onnxfr`` and
``onnxfr --help`` stay instant.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

__version__ = "0.1.0"
__all__ = ["FRModel", "__version__", "load_model"]

if TYPE_CHECKING:
    from onnxfr.models.wrapper import FRModel, load_model


def __getattr__(name: str) -> object:
    if name in ("FRModel", "load_model"):
        from onnxfr.models import wrapper

        return getattr(wrapper, name)
    raise AttributeError(f"module 'onnxfr' has no attribute {name!r}")
