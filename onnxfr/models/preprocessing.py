"""What a network wants done to an RGB picture in [0, 1] before it sees it.

The vocabulary of the admission probe and of the card. Every scaling is affine per channel except
``whiten`` (FaceNet's per-image standardisation); all become nodes of the normal form.
"""

from __future__ import annotations

from typing import Literal

import numpy as np
from numpy.typing import NDArray
from pydantic import BaseModel, ConfigDict, Field, model_validator

from onnxfr.errors import SpecError
from onnxfr.types import Images

Color = Literal["rgb", "bgr", "grey"]
Scaling = Literal["0-255", "0-1", "pm1", "pm1-128", "imagenet", "whiten", "custom"]
Layout = Literal["nchw", "nhwc"]

_IMAGENET = ((0.485, 0.456, 0.406), (0.229, 0.224, 0.225))
_AFFINE: dict[str, tuple[tuple[float, ...], tuple[float, ...]]] = {
    "0-255": ((0.0,) * 3, (1 / 255,) * 3),
    "0-1": ((0.0,) * 3, (1.0,) * 3),
    "pm1": ((0.5,) * 3, (0.5,) * 3),
    "pm1-128": ((0.5,) * 3, (128 / 255,) * 3),
    "imagenet": _IMAGENET,
}
GRID: tuple[Scaling, ...] = ("0-255", "0-1", "pm1", "pm1-128", "imagenet", "whiten")
"""The scalings the probe tries, in the order that settles exact ties."""

LUMA = (0.299, 0.587, 0.114)
"""ITU-R BT.601 weights, what Pillow and OpenCV use to make a grey picture."""

_PUBLIC_NAME = {"pm1-128": "pm1"}


class Preprocessing(BaseModel):
    """Colour order, scaling and memory layout; ``mean``/``std`` (RGB, [0, 1] units) for custom."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    color: Color = "rgb"
    scaling: Scaling = "0-1"
    layout: Layout = "nchw"
    mean: tuple[float, float, float] | None = None
    std: tuple[float, float, float] | None = Field(default=None)

    @model_validator(mode="after")
    def _custom_needs_numbers(self) -> Preprocessing:
        given = self.mean is not None and self.std is not None
        if (self.scaling == "custom") != given:
            raise ValueError("mean and std belong to scaling 'custom', and it needs both")
        if self.std is not None and min(self.std) <= 0:
            raise ValueError("std must be positive")
        return self

    @property
    def public_scaling(self) -> str:
        """The scaling's name in machine-readable output, where both ±1 divisors are one answer."""
        return _PUBLIC_NAME.get(self.scaling, self.scaling)

    def affine(self) -> tuple[NDArray[np.float32], NDArray[np.float32]] | None:
        """Return per-channel (mean, std) in RGB order and [0, 1] units, or None for whitening."""
        if self.scaling == "whiten":
            return None
        mean, std = (self.mean, self.std) if self.scaling == "custom" else _AFFINE[self.scaling]
        return np.asarray(mean, dtype=np.float32), np.asarray(std, dtype=np.float32)

    def apply(self, images: Images) -> NDArray[np.float32]:
        """Do in NumPy what the normal form's nodes do: the probe's fast path and a test oracle."""
        affine = self.affine()
        if affine is None:
            flat = images.reshape(len(images), -1) * np.float32(255)
            mean = flat.mean(axis=1)
            std = np.maximum(flat.std(axis=1), np.float32(1 / np.sqrt(max(flat.shape[1], 1))))
            out = (images * 255 - mean[:, None, None, None]) / std[:, None, None, None]
        else:
            mean_, std_ = affine
            out = (images - mean_[:, None, None]) / std_[:, None, None]
        if self.color == "bgr":
            out = out[:, ::-1]
        elif self.color == "grey":
            out = np.tensordot(out, np.asarray(LUMA, np.float32), axes=([1], [0]))[:, None]
        if self.layout == "nhwc":
            out = out.transpose(0, 2, 3, 1)
        return np.ascontiguousarray(out, dtype=np.float32)

    def describe(self) -> str:
        """Return a short human form such as ``RGB, (x-127.5)/127.5, NCHW``."""
        words = {
            "0-255": "x (0..255)",
            "0-1": "x/255",
            "pm1": "(x-127.5)/127.5",
            "pm1-128": "(x-127.5)/128",
            "imagenet": "ImageNet mean/std",
            "whiten": "per-image whitening",
            "custom": f"mean {self.mean} std {self.std}",
        }
        return f"{self.color.upper()}, {words[self.scaling]}, {self.layout.upper()}"


def parse_preprocessing(text: str, layout: Layout = "nchw") -> Preprocessing:
    """Read ``--preprocess``: ``rgb,pm1`` or ``bgr,mean=0.5/0.5/0.5,std=0.5/0.5/0.5``."""
    values: dict[str, object] = {"layout": layout}
    for word in (w.strip() for w in text.lower().split(",")):
        key, _, numbers = word.partition("=")
        if word in ("rgb", "bgr", "grey"):
            values["color"] = word
        elif word in ("nchw", "nhwc"):
            values["layout"] = word
        elif word in (*_AFFINE, "whiten"):
            values["scaling"] = word
        elif key in ("mean", "std") and numbers:
            values["scaling"] = "custom"
            values[key] = _three_numbers(key, numbers)
        else:
            raise SpecError(
                f"--preprocess does not know {word!r}; give a colour (rgb, bgr, grey), a scaling "
                f"({', '.join((*_AFFINE, 'whiten'))}, or mean=a/b/c,std=a/b/c in [0, 1] units) and "
                "optionally nchw or nhwc, separated by commas"
            )
    if "color" not in values or "scaling" not in values:
        raise SpecError("--preprocess needs a colour and a scaling, for example rgb,pm1")
    try:
        return Preprocessing.model_validate(values)
    except ValueError as error:
        raise SpecError(f"--preprocess {text!r}: {error}") from None


def _three_numbers(key: str, text: str) -> tuple[float, ...]:
    try:
        numbers = tuple(float(part) for part in text.split("/"))
    except ValueError:
        numbers = ()
    if len(numbers) != 3:
        raise SpecError(f"{key} needs three numbers separated by '/', got {text!r}")
    return numbers
