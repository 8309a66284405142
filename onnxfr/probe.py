"""What the attacker holds: the pictures he may change, and what he knows beside them."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TypeVar

import cv2
import numpy as np
import torch
from numpy.typing import NDArray

from onnxfr.errors import DataError
from onnxfr.types import Embeddings, Images

Batch = TypeVar("Batch", NDArray[np.float32], torch.Tensor)


@dataclass(frozen=True)
class Probe:
    """One batch of games; row i means the same pair everywhere.

    Args:
        images: the pictures that may be changed.
        ids: one stable id per pair; it decides the pair's random draws.
        references: the pictures to escape from or to be taken for.
        reference_embeddings: stands in for ``references`` where only templates are stored.
        starts: points to begin from, for attacks that walk in from outside.
        landmarks: ``(N, K, 2)`` positions (x, y) in the pixels of ``images``.
        pool: faces of several people, shared by all rows.
        strangers: ``(N, K)``, which of the K faces of the pool show neither person of a row's pair
            and may be offered to it; None: all of them.
        basis: ``(K, 3, H, W)`` directions in which a surrogate is sensitive, shared by all rows.
    """

    images: Images
    ids: tuple[str, ...]
    references: Images | None = None
    reference_embeddings: Embeddings | None = None
    starts: Images | None = None
    landmarks: NDArray[np.float32] | None = None
    pool: Images | None = None
    strangers: NDArray[np.bool_] | None = None
    basis: NDArray[np.float32] | None = None

    def __post_init__(self) -> None:
        for name in ("images", "references", "starts", "pool"):
            value = getattr(self, name)
            if value is not None:
                _check_images(name, value)
        if len(self.ids) != len(self.images):
            raise DataError(f"expected {len(self.images)} pair ids, got {len(self.ids)}")
        for name in ("references", "reference_embeddings", "starts", "landmarks"):
            value = getattr(self, name)
            if value is not None and len(value) != len(self.images):
                raise DataError(f"expected {len(self.images)} {name}, got {len(value)}")
        if self.references is None and self.reference_embeddings is None:
            raise DataError("a probe needs references, as pictures or as embeddings")
        if self.starts is not None and self.starts.shape != self.images.shape:
            raise DataError(
                f"expected starts of shape {self.images.shape}, got {self.starts.shape}"
            )
        faces = 0 if self.pool is None else len(self.pool)
        if self.strangers is not None and self.strangers.shape != (len(self.images), faces):
            raise DataError(
                f"expected strangers ({len(self.images)}, {faces}), a row per pair and a column "
                f"per face of the pool, got {self.strangers.shape}"
            )
        if self.basis is not None and self.basis.shape[1:] != self.images.shape[1:]:
            raise DataError(
                f"expected a basis (K, *{self.images.shape[1:]}), got {self.basis.shape}"
            )
        if self.landmarks is not None and self.landmarks.shape[1:] != (
            self.landmarks.shape[1],
            2,
        ):
            raise DataError(f"expected landmarks (N, K, 2), got {self.landmarks.shape}")

    def __len__(self) -> int:
        return len(self.images)

    def take(self, rows: NDArray[np.intp]) -> Probe:
        """Return some of the games."""

        def some(value: NDArray[np.float32] | None) -> NDArray[np.float32] | None:
            return None if value is None else value[rows]

        return replace(
            self,
            images=self.images[rows],
            ids=tuple(self.ids[int(row)] for row in rows),
            references=some(self.references),
            reference_embeddings=some(self.reference_embeddings),
            starts=some(self.starts),
            landmarks=some(self.landmarks),
            strangers=None if self.strangers is None else self.strangers[rows],
        )


def _check_images(name: str, images: Images) -> None:
    if not isinstance(images, np.ndarray) or images.dtype != np.float32:
        kind = getattr(images, "dtype", type(images).__name__)
        raise DataError(f"{name} must be float32 arrays in [0, 1], got {kind}")
    if images.ndim != 4 or images.shape[1] != 3:
        raise DataError(f"{name} must be (N, 3, H, W), got shape {images.shape}")
    if images.size and not (images.min() >= 0 and images.max() <= 1):
        raise DataError(f"{name} must lie in [0, 1] without NaN; divide bytes by 255")


def framed(picture: Images, size: tuple[int, ...]) -> Images:
    """Return a picture ``(3, H, W)`` as large as it fits into another size, on black around it.

    The proportions of a face tell who it is: they are kept.
    """
    if picture.shape[1:] == size:
        return picture
    (height, width), (rows, columns) = picture.shape[1:], size
    scale = min(rows / height, columns / width)
    inner = max(1, round(scale * height)), max(1, round(scale * width))
    how = cv2.INTER_AREA if scale < 1 else cv2.INTER_LINEAR
    scaled = cv2.resize(picture.transpose(1, 2, 0), inner[::-1], interpolation=how)
    top, left = (rows - inner[0]) // 2, (columns - inner[1]) // 2
    whole = np.zeros((3, *size), dtype=np.float32)
    # Interpolation may leave [0, 1] by a rounding error.
    whole[:, top : top + inner[0], left : left + inner[1]] = scaled.transpose(2, 0, 1).clip(0, 1)
    return whole


def to_array(images: Images | torch.Tensor) -> Images:
    """Return pictures as the float32 arrays that onnxruntime takes."""
    if isinstance(images, torch.Tensor):
        images = images.detach().cpu().numpy()
    return np.asarray(images, dtype=np.float32)


def round8(images: Batch) -> Batch:
    """Return the pictures as an 8-bit file would hold them."""
    if isinstance(images, np.ndarray):
        return np.asarray(np.round(images * 255) / 255, dtype=np.float32)
    return (images * 255).round() / 255


def as_jpeg(images: Batch, quality: int) -> Batch:
    """Return the pictures after a round trip through a JPEG file of a quality of 1 to 100."""
    if not isinstance(images, np.ndarray):
        return torch.as_tensor(as_jpeg(to_array(images), quality)).to(images)
    pixels = np.round(images * 255).astype(np.uint8).transpose(0, 2, 3, 1)
    read = np.empty_like(pixels)
    for k, picture in enumerate(pixels):
        flags = [cv2.IMWRITE_JPEG_QUALITY, quality]
        file = cv2.imencode(".jpg", picture[..., ::-1], flags)[1]
        read[k] = np.asarray(cv2.imdecode(file, cv2.IMREAD_COLOR), dtype=np.uint8)
    return np.asarray(read[..., ::-1].transpose(0, 3, 1, 2) / np.float32(255), dtype=np.float32)
