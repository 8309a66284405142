"""Aligned crops kept on disk by content, so that no picture is searched for a face twice.

A rejection is kept like a crop: finding no face costs as much as finding one. Files appear under
their name only when whole; a damaged one counts as unknown.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import logging
import secrets
from pathlib import Path

import cv2
import numpy as np

from onnxfr.alignment.aligner import AlignedFace, Aligner, Outcome, Rejection
from onnxfr.alignment.geometry import similarity_transform, warp
from onnxfr.data.images import decode, image_sha, load_pixels
from onnxfr.data.pairs import ImageSource
from onnxfr.errors import DataError
from onnxfr.runs.provenance import code_version
from onnxfr.types import Pixels

log = logging.getLogger(__name__)

Crop = Pixels | Rejection


class CropStore:
    """Crops of one aligner below ``root``; usable from many threads and processes at once."""

    def __init__(self, root: Path, aligner: Aligner) -> None:
        self.aligner = aligner
        self.view = _view(aligner)
        self._folder = root / hashlib.sha256(self.view.encode()).hexdigest()[:24]

    def key(self, source: ImageSource, digest: str) -> str:
        """Return the content key of one picture, given landmarks included."""
        if source.landmarks is None:
            return digest
        points = np.ascontiguousarray(source.landmarks, dtype="<f4").tobytes()
        return hashlib.sha256(digest.encode() + points).hexdigest()

    def crop(self, source: ImageSource, key: str) -> Crop:
        """Return the crop of one picture or why there is none; aligned at most once."""
        known = self._read(key)
        if known is None:
            known = align_source(self.aligner, source, load_pixels(source))
            self._write(key, known)
        return known

    def show(self, source: ImageSource) -> Pixels | None:
        """Return the crop of one picture for people to look at, or None."""
        crop = self.crop(source, self.key(source, image_sha(source)))
        return None if isinstance(crop, Rejection) else crop

    def _path(self, key: str, suffix: str) -> Path:
        return self._folder / key[:2] / f"{key}{suffix}"

    def _read(self, key: str) -> Crop | None:
        with contextlib.suppress(OSError, DataError):
            return decode(self._path(key, ".png").read_bytes(), key)
        with contextlib.suppress(OSError, ValueError, KeyError, TypeError):
            note = json.loads(self._path(key, ".json").read_text(encoding="utf-8"))
            outcome = Outcome(note["outcome"])
            if outcome is not Outcome.ALIGNED:
                return Rejection(outcome, str(note["reason"]), faces=int(note["faces"]))
        return None

    def _write(self, key: str, crop: Crop) -> None:
        if isinstance(crop, Rejection):
            note = {"outcome": crop.outcome, "reason": crop.reason, "faces": crop.faces}
            path, data = self._path(key, ".json"), json.dumps(note).encode()
        else:
            encoded = cv2.imencode(".png", crop[:, :, ::-1], [cv2.IMWRITE_PNG_COMPRESSION, 1])[1]
            path, data = self._path(key, ".png"), encoded.tobytes()
        temporary = path.with_name(f".tmp-{path.name}-{secrets.token_hex(6)}")
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
            temporary.write_bytes(data)
            temporary.replace(path)
        except OSError as error:
            log.warning("aligned crops are not cached in %s: %s", self._folder, error)


def align_source(aligner: Aligner, source: ImageSource, pixels: Pixels) -> Crop:
    """Return the crop of a picture's face; landmarks of the data set spare the search."""
    if source.landmarks is not None and aligner.target is not None:
        points = source.landmarks.astype(np.float64)
        return warp(pixels, similarity_transform(points, aligner.target), aligner.size)
    result = aligner.align(pixels)
    return result.pixels if isinstance(result, AlignedFace) else result


def _view(aligner: Aligner) -> str:
    height, width = aligner.size
    code = code_version(("onnxfr.alignment",))
    return f"{aligner.template.name} {height}x{width} face>={aligner.min_face:g} {code}"
