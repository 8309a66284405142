"""Presets resolve honestly, compression equals Pillow's, a missing video encoder is explained."""

from __future__ import annotations

import io
import json
from importlib.util import module_from_spec, spec_from_file_location
from pathlib import Path
from types import ModuleType

import cv2
import numpy as np
import pytest
from PIL import Image

from onnxfr.corruptions import CORRUPTIONS, SEVERITIES, corrupt, video
from onnxfr.corruptions.weather import plasma
from onnxfr.errors import MissingCodec, SpecError, UnknownName
from onnxfr.rng import stream

ROOT = Path(__file__).parents[3]
GOLDEN = json.loads((ROOT / "tests" / "golden" / "corruption_statistics.json").read_text())


def load_benchmark(name: str) -> ModuleType:
    """Import a script of the benchmarks folder, which is no package."""
    spec = spec_from_file_location(name, ROOT / "benchmarks" / f"{name}.py")
    assert spec and spec.loader
    module = module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.fixture(scope="module")
def fidelity() -> ModuleType:
    """The benchmark that produced the golden statistics."""
    return load_benchmark("corruption_fidelity")


def test_the_docs_show_the_tables_of_the_code() -> None:
    page = (ROOT / "docs" / "corruptions.md").read_text()
    assert load_benchmark("corruption_grid").table() in page, (
        "run: python benchmarks/corruption_grid.py --docs"
    )


@pytest.mark.parametrize("name", sorted(GOLDEN["statistics"]))
def test_statistics_agree_with_the_reference_package(name: str, fidelity: ModuleType) -> None:
    images = fidelity.drawn_faces(GOLDEN["drawn_faces"])
    for severity, expected in zip(SEVERITIES, GOLDEN["statistics"][name], strict=True):
        measured, _ = fidelity.measure_ours(images, name, severity, [])
        for statistic, value in expected.items():
            # A histogram that hardly moves is not known to 2 % of so little.
            slack = 0.05 if statistic == "histogram" else 0
            assert measured[statistic] == pytest.approx(value, rel=0.02, abs=slack), statistic


def test_fog_grows_the_same_cloud_from_the_same_draws() -> None:
    golden = GOLDEN["cloud"]
    draws = np.random.RandomState(golden["seed"]).random_sample(golden["side"] ** 2 - 1)
    cloud = plasma(draws.astype(np.float32)[None], golden["side"], golden["decay"])[0]
    assert cloud == pytest.approx(np.array(golden["values"]), abs=1e-5)


def test_a_preset_without_own_table_names_the_one_it_uses() -> None:
    salt = CORRUPTIONS.get("salt_pepper")
    assert salt.definition("oodface-paper") == "oodface-paper"
    assert salt.definition("imagecorruptions") == "oodface-code"
    assert CORRUPTIONS.get("jpeg").definition("imagecorruptions") == "imagecorruptions"
    assert CORRUPTIONS.get("low_light").definition("oodface-code") == "onnxfr"


def test_unknown_names_and_presets_are_refused() -> None:
    images = np.zeros((1, 64, 64), dtype=np.uint8)
    with pytest.raises(UnknownName, match="fog"):
        corrupt(images, "fogg", 1, ids=["x"])
    with pytest.raises(SpecError, match="oodface-paper"):
        corrupt(images, "fog", 1, ids=["x"], preset="paper")


@pytest.mark.parametrize("severity", SEVERITIES)
def test_jpeg_equals_pillow(severity: int) -> None:
    coarse = stream(0, "codec").integers(0, 256, (14, 12, 3), dtype=np.uint8)
    picture = coarse.repeat(8, axis=0).repeat(8, axis=1)
    (quality,) = CORRUPTIONS.get("jpeg").parameters(severity)
    stored = io.BytesIO()
    Image.fromarray(picture).save(stored, "JPEG", quality=int(quality))
    out = corrupt(picture[None], "jpeg", severity, ids=["x"])[0]
    assert np.abs(out.astype(int) - np.asarray(Image.open(stored))).max() <= 1


@pytest.mark.parametrize(
    "size", [(112, 112), (160, 160), (112, 96), (250, 250), (101, 87), (65, 115)]
)
def test_pixelate_equals_pillow_even_where_windows_end_between_pixels(
    size: tuple[int, int],
) -> None:
    picture = stream(0, "noise picture").integers(0, 256, (*size, 3), dtype=np.uint8)
    for severity in SEVERITIES:
        (scale,) = CORRUPTIONS.get("pixelate").parameters(severity)
        small = (int(size[1] * float(scale)), int(size[0] * float(scale)))
        blocks = Image.fromarray(picture).resize(small, Image.Resampling.BOX)
        expected = np.asarray(blocks.resize(size[::-1], Image.Resampling.NEAREST))
        out = corrupt(picture[None], "pixelate", severity, ids=["x"])[0]
        assert np.abs(out.astype(int) - expected).max() <= 1


def test_no_video_encoder_is_one_clear_error(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(video, "_CODECS", (("none", "mp4"),))
    video.video_codec.cache_clear()
    try:
        with pytest.raises(MissingCodec, match="no video encoder"):
            corrupt(np.zeros((1, 64, 64), dtype=np.uint8), "video", 1, ids=["x"])
    finally:
        video.video_codec.cache_clear()


def test_a_clip_that_cannot_be_written_never_gives_the_face_before_it(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    try:
        video.video_codec()
    except MissingCodec as missing:
        pytest.skip(str(missing))
    writers = iter([video._writer])

    def once(*arguments: object) -> object:
        return next(writers, lambda *_: cv2.VideoWriter())(*arguments)  # type: ignore[arg-type]

    monkeypatch.setattr(video, "_writer", once)
    people = np.stack([np.full((64, 64), grey, dtype=np.uint8) for grey in (40, 200)])
    with pytest.raises(MissingCodec, match="cannot open a clip"):
        corrupt(people, "video", 1, ids=["a", "b"])
