"""``onnxfr align``: tree, manifest, resuming, damage, settings."""

from __future__ import annotations

import csv
import json
import shutil
from pathlib import Path

import numpy as np
import pytest
import typer
from typer.testing import CliRunner

from onnxfr.alignment.aligner import Aligner
from onnxfr.alignment.detector import Detector, Face
from onnxfr.alignment.folder import align_folder, find_pictures, name_crops
from onnxfr.alignment.geometry import similarity_transform
from onnxfr.alignment.manifest import JOURNAL, MANIFEST, read_entries
from onnxfr.cli.align import align, parse_size
from onnxfr.data.images import decode
from onnxfr.errors import AlignmentError, DataError, SpecError, StoreError
from onnxfr.types import Pixels


@pytest.fixture
def album(tmp_path: Path, photographs: list[Path]) -> Path:
    """Four people, one of them in a folder of her own, a damaged file and a blank one."""
    source = tmp_path / "album"
    (source / "deep" / "er").mkdir(parents=True)
    for path in photographs[:3]:
        shutil.copy(path, source)
    shutil.copy(photographs[3], source / "deep" / "er" / "Zoë.JPG")
    (source / "broken.jpg").write_bytes(photographs[0].read_bytes()[:300])
    (source / "blank.pgm").write_bytes(b"P5 64 64 255\n" + bytes(64 * 64))
    (source / "notes.txt").write_text("no picture")
    return source


def rows(target: Path) -> dict[str, dict[str, str]]:
    with (target / MANIFEST).open(encoding="utf-8", newline="") as file:
        return {row["file"]: row for row in csv.DictReader(file)}


def test_the_tree_is_mirrored_and_every_picture_accounted_for(
    album: Path, tmp_path: Path, detector: Detector
) -> None:
    target, calls = tmp_path / "crops", []
    aligner = Aligner(detector=detector)
    result = align_folder(
        album, target, aligner, workers=2, progress=lambda *call: calls.append(call)
    )
    assert result.counts == {"aligned": 4, "no_face": 1, "tiny_face": 0, "unreadable": 1}
    assert calls == [(i, 6) for i in range(1, 7)]
    table = rows(target)
    assert table["deep/er/Zoë.JPG"]["crop"] == "deep/er/Zoë.png"
    assert len(table["deep/er/Zoë.JPG"]["landmarks"].split()) == 10
    assert table["broken.jpg"]["outcome"] == "unreadable"
    assert "broken.jpg" in table["broken.jpg"]["reason"]
    made = sorted(p.relative_to(target).as_posix() for p in target.rglob("*.png"))
    assert made == sorted(row["crop"] for row in table.values() if row["crop"])
    source = decode((album / "deep/er/Zoë.JPG").read_bytes(), "Zoë")
    crop = decode((target / "deep/er/Zoë.png").read_bytes(), "crop")
    alone = aligner.align(source)
    assert not alone.rejected
    assert np.array_equal(crop, alone.pixels)


def test_a_second_run_makes_only_what_is_missing(
    album: Path, tmp_path: Path, detector: Detector
) -> None:
    target, aligner = tmp_path / "crops", Aligner(detector=detector)
    whole = align_folder(album, target, aligner)
    assert align_folder(album, target, aligner).fresh == 0
    (target / "deep" / "er" / "Zoë.png").unlink()
    again = align_folder(album, target, aligner)
    assert again.fresh == 1
    assert again.entries == whole.entries
    assert align_folder(album, target, aligner, overwrite=True).fresh == 6


def test_a_killed_run_goes_on_from_its_journal(
    album: Path, tmp_path: Path, detector: Detector
) -> None:
    target, aligner = tmp_path / "crops", Aligner(detector=detector)

    def stop(done: int, total: int) -> None:
        if done == 3:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        align_folder(album, target, aligner, workers=1, progress=stop)
    assert not (target / MANIFEST).exists()
    with (target / JOURNAL).open("a", encoding="utf-8") as journal:
        journal.write("torn/line.jpg,aligned,torn")
    assert len(read_entries(target)) == 3
    resumed = align_folder(album, target, aligner)
    assert resumed.fresh == 3
    assert not (target / JOURNAL).exists()
    clean = align_folder(album, tmp_path / "clean", aligner)
    assert resumed.entries == clean.entries
    assert not list(target.rglob("*.tmp"))


def test_crops_of_other_settings_are_not_mixed_in(
    album: Path, tmp_path: Path, detector: Detector
) -> None:
    target = tmp_path / "crops"
    align_folder(album, target, Aligner("whole", (32, 32)))
    with pytest.raises(AlignmentError, match="other settings"):
        align_folder(album, target, Aligner("whole", (48, 48)))
    align_folder(album, target, Aligner("whole", (48, 48)), overwrite=True)
    sizes = {decode(p.read_bytes(), p.name).shape for p in target.rglob("*.png")}
    assert sizes == {(48, 48, 3)}


def test_names_never_collide_and_the_target_may_lie_inside(tmp_path: Path) -> None:
    for name in ("a.jpg", "a.png", "b.jpg", "out/c.png"):
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).touch()
    files = find_pictures(tmp_path, tmp_path / "out")
    assert files == ["a.jpg", "a.png", "b.jpg"]
    assert list(name_crops(files, ".png").values()) == ["a.jpg.png", "a.png.png", "b.png"]
    odd = ("x.jpg", "x.png", "x.jpg.png", "x.jpg.png.png")
    assert len(set(name_crops(odd, ".png").values())) == len(odd)
    with pytest.raises(DataError, match="same one"):
        find_pictures(tmp_path, tmp_path)
    empty = tmp_path / "empty"
    empty.mkdir()
    with pytest.raises(DataError, match="no pictures"):
        find_pictures(empty, tmp_path / "out")


def test_a_target_that_cannot_be_written_is_one_error(album: Path, tmp_path: Path) -> None:
    (tmp_path / "file").write_text("in the way")
    with pytest.raises(StoreError, match="cannot write"):
        align_folder(album, tmp_path / "file" / "crops", Aligner("whole"))


def test_the_command_prints_a_summary(album: Path, tmp_path: Path, detector: Detector) -> None:
    app = typer.Typer()
    app.command()(align)
    command = [str(album), str(tmp_path / "crops"), "--detector", str(detector.path)]
    done = CliRunner().invoke(app, [*command, "--size", "112x96", "--json", "--format", "jpeg"])
    assert done.exit_code == 0, done.output
    summary = json.loads(done.stdout)
    assert summary["outcomes"]["aligned"] == 4
    assert summary["pictures"] == summary["fresh"] == 6
    crop = next((tmp_path / "crops").rglob("*.jpg"))
    assert decode(crop.read_bytes(), "crop").shape == (112, 96, 3)
    again = CliRunner().invoke(app, [*command, "--size", "112x96", "--format", "jpeg"])
    assert "4 of 6 pictures aligned (0 looked at now)" in again.stdout


def test_sizes_are_parsed_or_refused() -> None:
    assert parse_size("160") == (160, 160)
    assert parse_size("112X96") == (112, 96)
    for text in ("", "axb", "1x2x3", "-5"):
        with pytest.raises(SpecError, match="112x96"):
            parse_size(text)


class Confused(Detector):
    """Finds a face in every picture, all of whose landmarks coincide in some."""

    def __init__(self) -> None:
        self.sha256 = "confused"

    def detect(self, pixels: Pixels) -> list[Face]:
        points = np.array([[30, 30], [50, 30], [40, 40], [32, 50], [48, 50]], np.float64)
        spread = 1.0 if pixels.max() > 0 else 0.0
        return [Face((20.0, 20.0, 40.0, 40.0), 0.9, points * spread)]

    def refine(self, pixels: Pixels, face: Face) -> Face:
        similarity_transform(face.landmarks, face.landmarks)
        return face


def test_a_face_without_extent_rejects_its_picture_and_not_the_folder(tmp_path: Path) -> None:
    source = tmp_path / "source"
    source.mkdir()
    for name, level in (("a.pgm", 9), ("b.pgm", 0), ("c.pgm", 9)):
        (source / name).write_bytes(b"P5 64 64 255\n" + bytes([level]) * 64 * 64)
    result = align_folder(source, tmp_path / "out", Aligner(detector=Confused()))
    assert [entry.outcome for entry in result.entries] == ["aligned", "no_face", "aligned"]
    assert "coincide" in result.entries[1].reason
