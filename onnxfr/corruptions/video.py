"""Beyond the papers: a frame out of a compressed video call.

The picture is shrunk, encoded as a short clip of a slightly shaking camera, decoded and enlarged.
H.264 is used where OpenCV was built with an encoder for it; its usual wheels have none, there VP8
or MPEG-4 steps in (``video_codec`` tells which). Pixels repeat on one build, not across codecs.
"""

from __future__ import annotations

import tempfile
from functools import lru_cache
from pathlib import Path

import cv2
import numpy as np
from numpy.typing import NDArray

from onnxfr.corruptions._pixels import each, luma
from onnxfr.corruptions.base import Frames, Scene, corruption, own
from onnxfr.errors import MissingCodec

_CODECS = (("avc1", "mp4"), ("VP80", "avi"), ("mp4v", "avi"))
_FRAMES = 6
_RATE = 25.0


@corruption(
    "video",
    category="data_processing",
    paper="onnxfr",
    presets=own((0.9, 0.6, 0.45, 0.33, 0.25)),
    extended=True,
)
def video(frames: Frames, scene: Scene, scale: float) -> Frames:
    """Take the last frame of a short clip recorded at ``scale`` of the size."""
    codec, suffix = video_codec()
    with tempfile.TemporaryDirectory(prefix="onnxfr-video-") as folder:
        path = Path(folder) / f"clip.{suffix}"

        def film(i: int, frame: NDArray[np.uint8]) -> NDArray[np.uint8]:
            shake = scene.rng.streams[i].uniform(-0.5, 0.5, (_FRAMES, 2))
            # The clip ends where it should be, so that the result stays registered.
            shake[-1] = 0
            return _through_clip(frame, scale, shake, path, codec)

        return each(frames, film)


@lru_cache(maxsize=1)
def video_codec() -> tuple[str, str]:
    """Return the four-letter code and the file suffix of the first encoder this build offers."""
    level = cv2.utils.logging.getLogLevel()
    cv2.utils.logging.setLogLevel(cv2.utils.logging.LOG_LEVEL_SILENT)
    try:
        with tempfile.TemporaryDirectory(prefix="onnxfr-video-") as folder:
            for codec, suffix in _CODECS:
                writer = _writer(Path(folder) / f"probe.{suffix}", codec, (64, 64))
                usable = writer.isOpened()
                writer.release()
                if usable:
                    return codec, suffix
    finally:
        cv2.utils.logging.setLogLevel(level)
    raise MissingCodec(
        "OpenCV offers no video encoder here (tried H.264, VP8, MPEG-4); "
        "install an opencv build with FFmpeg or leave the video corruption out"
    )


def _writer(path: Path, codec: str, size: tuple[int, int]) -> cv2.VideoWriter:
    fourcc = cv2.VideoWriter.fourcc(*codec)
    return cv2.VideoWriter(str(path), cv2.CAP_FFMPEG, fourcc, _RATE, size)


def _through_clip(
    frame: NDArray[np.uint8],
    scale: float,
    shake: NDArray[np.float64],
    path: Path,
    codec: str,
) -> NDArray[np.uint8]:
    height, width = frame.shape[:2]
    # Chroma is stored at half the size: encoders want even sides.
    small = (max(16, round(width * scale / 2) * 2), max(16, round(height * scale / 2) * 2))
    colour = cv2.cvtColor(frame, cv2.COLOR_GRAY2BGR if frame.ndim == 2 else cv2.COLOR_RGB2BGR)
    still = cv2.resize(colour, small, interpolation=cv2.INTER_AREA)
    # OpenCV writes to a clip that is not open without a word: another person's would stay behind.
    path.unlink(missing_ok=True)
    writer = _writer(path, codec, small)
    if not writer.isOpened():
        raise MissingCodec(
            f"OpenCV offers {codec} but cannot open a clip of {small[0]}x{small[1]} pixels in "
            f"{path.parent}; free space there, use another build or leave the video corruption out"
        )
    for dx, dy in shake:
        shift = np.array([[1, 0, dx], [0, 1, dy]])
        writer.write(cv2.warpAffine(still, shift, small, borderMode=cv2.BORDER_REPLICATE))
    writer.release()
    decoded = _last_frame(path)
    enlarged = cv2.resize(decoded, (width, height), interpolation=cv2.INTER_CUBIC)
    rgb = np.asarray(cv2.cvtColor(enlarged, cv2.COLOR_BGR2RGB), dtype=np.uint8)
    return luma(rgb) if frame.ndim == 2 else rgb


def _last_frame(path: Path) -> NDArray[np.uint8]:
    reader = cv2.VideoCapture(str(path), cv2.CAP_FFMPEG)
    last: NDArray[np.uint8] | None = None
    while True:
        read, picture = reader.read()
        if not read:
            break
        last = np.asarray(picture, dtype=np.uint8)
    reader.release()
    if last is None:
        raise MissingCodec("OpenCV wrote a clip that it cannot read back; use another build")
    return last
