"""What every registered corruption promises."""

from __future__ import annotations

import hashlib
import os
import random
import subprocess
import sys
import tempfile
from concurrent.futures import ThreadPoolExecutor

import cv2
import numpy as np
import pytest
from numpy.typing import NDArray

from onnxfr.corruptions import CORRUPTIONS, PRESETS, SEVERITIES, corrupt, oodface_names
from onnxfr.corruptions.video import video_codec
from onnxfr.errors import MissingCodec, OnnxfrError, SpecError
from onnxfr.rng import stream

NAMES = CORRUPTIONS.names()
CELLS = [(name, severity) for name in NAMES for severity in SEVERITIES]
SIZES = [(112, 112), (160, 160), (112, 96), (250, 250), (64, 64), (101, 67), (64, 300)]
FIXED = {
    *("brightness", "contrast", "defocus_blur", "gamma", "jpeg", "messenger", "pixelate"),
    *("resolution", "saturate", "sunglasses", "zoom_blur"),
}
"""Corruptions that draw nothing: every id and seed gives the same pixels."""
HAS_OWN_PAPER_TABLE = [n for n, entry in CORRUPTIONS.items() if "oodface-paper" in entry.presets]


@pytest.fixture(autouse=True)
def skip_video_without_encoder(request: pytest.FixtureRequest) -> None:
    """An OpenCV without any video encoder is no failure of ours."""
    callspec = getattr(request.node, "callspec", None)
    if callspec and callspec.params.get("name") == "video":
        try:
            video_codec()
        except MissingCodec as missing:
            pytest.skip(str(missing))


def pictures(count: int, height: int = 112, width: int = 112) -> NDArray[np.uint8]:
    """Colourful soft pictures with edges, none of them clipped."""
    rng = stream(0, "contract pictures", height, width)
    out = np.empty((count, height, width, 3), dtype=np.uint8)
    for i in range(count):
        coarse = rng.integers(20, 230, (6, 6, 3), dtype=np.uint8)
        soft = np.ascontiguousarray(cv2.resize(coarse, (width, height)))
        at = (width // 2, height // 2)
        cv2.ellipse(soft, at, (width // 3, height // 3), 0, 0, 360, (200, 150, 120), -1)
        for x in (width // 3, width * 2 // 3):
            cv2.circle(soft, (x, height * 2 // 5), width // 16, (40, 30, 60), -1)
        out[i] = soft
    return out


def ids_of(count: int) -> list[str]:
    return [f"person/{i}" for i in range(count)]


@pytest.mark.parametrize(("name", "severity"), CELLS)
def test_returns_new_uint8_of_the_same_shape_and_repeats(name: str, severity: int) -> None:
    images = pictures(2)
    before = images.copy()
    out = corrupt(images, name, severity, ids=ids_of(2))
    assert out.dtype == np.uint8 and out.shape == images.shape
    assert not np.shares_memory(out, images)
    assert (images == before).all()
    assert (out != images).any()
    assert (corrupt(images, name, severity, ids=ids_of(2)) == out).all()


@pytest.mark.parametrize("size", SIZES, ids=str)
@pytest.mark.parametrize("name", NAMES)
def test_works_on_every_size_in_colour_and_grey(name: str, size: tuple[int, int]) -> None:
    images = pictures(1, *size)
    for batch in (images, np.ascontiguousarray(images[..., 1])):
        for severity in (1, 5):
            out = corrupt(batch, name, severity, ids=["x"])
            assert out.shape == batch.shape and out.dtype == np.uint8


@pytest.mark.parametrize("name", NAMES)
def test_works_on_large_pictures(name: str) -> None:
    images = pictures(1, 1024, 1024)
    out = corrupt(images, name, 5, ids=["x"])
    assert out.shape == images.shape and out.dtype == np.uint8
    assert (out != images).any()
    grey = np.ascontiguousarray(images[..., 1])
    assert corrupt(grey, name, 5, ids=["x"]).shape == grey.shape


@pytest.mark.parametrize("name", NAMES)
def test_neither_batch_nor_order_changes_a_pixel(name: str) -> None:
    images, ids = pictures(9), ids_of(9)
    together = corrupt(images, name, 4, ids=ids)
    order = [7, 0, 8, 3]
    picked = corrupt(images[order], name, 4, ids=[ids[i] for i in order])
    assert (picked == together[order]).all()
    alone = corrupt(images[5:6], name, 4, ids=ids[5:6])
    assert (alone[0] == together[5]).all()


@pytest.mark.parametrize("name", NAMES)
def test_id_and_seed_decide_the_draws(name: str) -> None:
    images = np.repeat(pictures(1), 8, axis=0)
    ids = ids_of(8)
    first = corrupt(images, name, 3, ids=ids)
    others = corrupt(images, name, 3, ids=ids, seed=1)
    if name in FIXED:
        assert (first == first[:1]).all() and (others == first).all()
    else:
        assert len({picture.tobytes() for picture in first}) > 1
        assert (first != others).any()


@pytest.mark.parametrize("name", NAMES)
def test_threads_change_no_pixel(name: str) -> None:
    images, ids = pictures(6), ids_of(6)
    alone = corrupt(images, name, 2, ids=ids)
    with ThreadPoolExecutor(3) as pool:
        rows = [slice(k, k + 1) for k in range(6)]
        parts = pool.map(lambda row: corrupt(images[row], name, 2, ids=ids[row]), rows)
        assert (np.concatenate(list(parts)) == alone).all()


def test_another_process_makes_the_same_pixels() -> None:
    """Workers are processes of their own; text hashes differently in each."""
    names = [name for name in NAMES if name != "video"]
    script = (
        "import sys, hashlib, numpy as np; from onnxfr.corruptions import corrupt\n"
        "images = np.load(sys.argv[1])\n"
        "for name in sys.argv[2:]:\n"
        "    out = corrupt(images, name, 4, ids=['person/0', 'person/1'])\n"
        "    print(hashlib.sha256(out.tobytes()).hexdigest())\n"
    )
    with tempfile.TemporaryDirectory() as folder:
        np.save(f"{folder}/images.npy", pictures(2))
        told = subprocess.run(
            [sys.executable, "-c", script, f"{folder}/images.npy", *names],
            env={**os.environ, "PYTHONHASHSEED": "7"},
            capture_output=True,
            text=True,
            check=True,
        ).stdout.split()
    here = [corrupt(pictures(2), name, 4, ids=ids_of(2)) for name in names]
    assert told == [hashlib.sha256(out.tobytes()).hexdigest() for out in here]


@pytest.mark.parametrize("name", NAMES)
def test_leaves_global_generators_alone(name: str) -> None:
    legacy, plain = str(np.random.get_state(legacy=False)), random.getstate()  # noqa: NPY002
    corrupt(pictures(1), name, 3, ids=["x"])
    assert random.getstate() == plain
    assert str(np.random.get_state(legacy=False)) == legacy  # noqa: NPY002


@pytest.mark.parametrize("severity", [0, 6, -1, True, 2.5, "3", None])
@pytest.mark.parametrize("name", NAMES)
def test_other_severities_are_refused(name: str, severity: object) -> None:
    with pytest.raises(SpecError, match="1, 2, 3, 4, 5"):
        corrupt(pictures(1), name, severity, ids=["x"])  # type: ignore[arg-type]


@pytest.mark.parametrize("name", NAMES)
def test_an_empty_batch_stays_empty(name: str) -> None:
    assert corrupt(pictures(0), name, 2, ids=[]).shape == (0, 112, 112, 3)
    assert corrupt(pictures(0)[..., 0], name, 2, ids=[]).shape == (0, 112, 112)


@pytest.mark.parametrize("preset", PRESETS)
@pytest.mark.parametrize("name", NAMES)
def test_distortion_grows_with_severity(name: str, preset: str) -> None:
    if preset != PRESETS[0] and name not in HAS_OWN_PAPER_TABLE:
        assert CORRUPTIONS.get(name).parameters(1, preset) == CORRUPTIONS.get(name).parameters(1)
        return
    images, ids = pictures(24), ids_of(24)
    distances = [
        np.sqrt(
            np.mean((corrupt(images, name, s, ids=ids, preset=preset) - images.astype(float)) ** 2)
        )
        for s in SEVERITIES
    ]
    assert distances[4] > distances[0]
    if CORRUPTIONS.get(name).monotone:
        assert (np.diff(distances) > 0).all(), distances


@pytest.mark.parametrize("name", NAMES)
def test_every_entry_says_what_it_is(name: str) -> None:
    entry = CORRUPTIONS.get(name)
    assert entry.name == name and name.isidentifier() and name == name.lower()
    assert entry.paper and entry.category
    assert entry.function.__doc__ and entry.function.__name__ == name
    for rows in entry.presets.values():
        assert len(rows) == 5 and len(set(rows)) == 5


def test_the_twenty_of_oodface_are_there_in_their_categories() -> None:
    categories: dict[str, set[str]] = {}
    for name in oodface_names():
        categories.setdefault(CORRUPTIONS.get(name).category, set()).add(name)
    assert categories == {
        "lighting_weather": {"brightness", "contrast", "saturate", "fog", "snow"},
        "sensor": {"defocus_blur", "color_shift", "pixelate"},
        "movement": {"motion_blur", "zoom_blur", "facial_distortion"},
        "data_processing": {
            *("gaussian_noise", "impulse_noise", "shot_noise", "speckle_noise"),
            *("salt_pepper", "jpeg"),
        },
        "occlusion": {"random_occlusion", "frost", "spatter"},
    }


@pytest.mark.parametrize(
    "images",
    [
        np.zeros((1, 112, 112, 3), dtype=np.float32),
        np.zeros((112, 112, 3), dtype=np.uint8),
        np.zeros((1, 112, 112, 4), dtype=np.uint8),
        np.zeros((1, 40, 112, 3), dtype=np.uint8),
        np.zeros((2, 112, 112, 3), dtype=np.uint8),
        [[1, 2], [3, 4]],
    ],
    ids=["float", "no batch axis", "four channels", "too small", "too few ids", "a list"],
)
def test_wrong_images_give_one_typed_error(images: NDArray[np.uint8]) -> None:
    with pytest.raises(OnnxfrError):
        corrupt(images, "contrast", 1, ids=["x"])
