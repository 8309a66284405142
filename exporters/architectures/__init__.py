"""Networks of the papers, written from the papers, so that a checkpoint needs no foreign code.

One file per family. ``ARCHITECTURES`` names them all; every entry carries what a converter must
know: input size, embedding size, the key names public checkpoints use, and the size a paper prints.
"""

from onnxfr.exporters.architectures.base import (
    ARCHITECTURES,
    Architecture,
    KeyMap,
    Reported,
    count_parameters,
)

__all__ = [
    "ARCHITECTURES",
    "Architecture",
    "KeyMap",
    "Reported",
    "count_parameters",
]
