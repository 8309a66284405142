"""Image corruptions: OODFace's twenty and more, one pixel function each with five severities."""

from onnxfr.corruptions.base import (
    CORRUPTIONS,
    PRESETS,
    SEVERITIES,
    Corruption,
    corrupt,
    corrupt_images,
    oodface_names,
)
from onnxfr.corruptions.chains import Chain, apply_chain, parse_chain

__all__ = [
    "CORRUPTIONS",
    "PRESETS",
    "SEVERITIES",
    "Chain",
    "Corruption",
    "apply_chain",
    "corrupt",
    "corrupt_images",
    "oodface_names",
    "parse_chain",
]
