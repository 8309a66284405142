"""Suites and TALFW: what is read, and what a hostile manifest cannot do."""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from onnxfr.data.images import load_pixels
from onnxfr.data.pairs import open_pairs
from onnxfr.data.suite import MANIFEST, open_suite
from onnxfr.errors import DataError, OnnxfrError, UnsafeFile

Draw = Callable[[str], Path]


@pytest.fixture
def suite(tmp_path: Path, draw: Draw) -> Path:
    """A suite of one dodging and one impersonation pair."""
    pairs = []
    for goal in ("dodge", "impersonate"):
        files = {}
        for kind in ("clean", "adversarial", "reference"):
            path = draw(f"suite/{goal}/00000-{kind}.png")
            digest = hashlib.sha256(path.read_bytes()).hexdigest()
            files[kind] = {"file": f"{goal}/00000-{kind}.png", "sha256": digest}
        pairs.append({"id": f"{goal}|x", "goal": goal, "won_surrogates": 1, **files})
    manifest = {
        "name": "small",
        "made_with": "onnxfr",
        "attack": "mim",
        "parameters": {"steps": 3},
        "norm": "linf",
        "eps": 8 / 255,
        "seed": 0,
        "mode": "margin",
        "height": 12,
        "width": 10,
        "template": "arcface",
        "data": "lfw",
        "data_fingerprint": "f" * 64,
        "surrogates": [
            {
                "name": "a",
                "sha256": "0" * 64,
                "licence": "MIT",
                "threshold": 0.3,
                "threshold_origin": "lfw@fmr=1e-3",
            }
        ],
        "licence": "as the data",
        "pairs": pairs,
    }
    (tmp_path / "suite" / MANIFEST).write_text(json.dumps(manifest))
    return tmp_path / "suite"


def edit(suite: Path, change: Callable[[dict[str, Any]], Any]) -> None:
    manifest = json.loads((suite / MANIFEST).read_text())
    change(manifest)
    (suite / MANIFEST).write_text(json.dumps(manifest))


def test_a_suite_opens_as_pairs_of_its_two_parts(suite: Path) -> None:
    attacked, clean = open_pairs(f"suite:{suite}"), open_pairs(f"suite:{suite},part=clean")
    assert attacked.same.tolist() == clean.same.tolist() == [True, False]
    assert attacked.aligned is True and (attacked.name, clean.name) == ("small", "small-clean")
    assert [attacked.images[i].id for i in attacked.left] == [
        "dodge/00000-adversarial.png",
        "impersonate/00000-adversarial.png",
    ]
    assert [attacked.images[i].id for i in attacked.right] == [
        clean.images[i].id for i in clean.right
    ]
    assert load_pixels(attacked.images[0]).shape == (12, 10, 3)


@pytest.mark.parametrize(
    "name", ["../secret.png", "/etc/passwd", "a/../../secret.png", "C:\\x.png", "./x.png", "a\0b"]
)
def test_names_that_leave_the_folder_are_refused(suite: Path, name: str) -> None:
    (suite.parent / "secret.png").write_bytes(b"secret")
    edit(suite, lambda manifest: manifest["pairs"][0]["clean"].update(file=name))
    with pytest.raises(UnsafeFile, match="leaves the suite's folder"):
        open_suite(suite)


def test_links_out_of_the_folder_are_refused(suite: Path, draw: Draw) -> None:
    secret, inner = draw("secret.png"), suite / "dodge" / "00000-clean.png"
    inner.unlink()
    inner.symlink_to(secret)
    with pytest.raises(UnsafeFile, match="link"):
        open_suite(suite)


def test_changed_and_missing_pictures_are_errors(suite: Path) -> None:
    picture = suite / "dodge" / "00000-adversarial.png"
    picture.write_bytes(picture.read_bytes() + b"x")
    with pytest.raises(DataError, match="not the picture the suite was made with"):
        open_pairs(f"suite:{suite}")
    picture.unlink()
    with pytest.raises(DataError, match="cannot be read"):
        open_pairs(f"suite:{suite}")


def test_a_picture_named_twice_must_have_both_digests(suite: Path) -> None:
    edit(suite, lambda m: m["pairs"][1]["clean"].update(file=m["pairs"][0]["clean"]["file"]))
    edit(suite, lambda m: m["pairs"][1]["clean"].update(sha256="0" * 64))
    with pytest.raises(DataError, match="not the picture the suite was made with"):
        open_suite(suite)


@pytest.mark.skipif(not hasattr(os, "mkfifo"), reason="needs pipes with names")
def test_what_is_no_regular_file_is_not_read(suite: Path) -> None:
    picture = suite / "dodge" / "00000-clean.png"
    picture.unlink()
    os.mkfifo(picture)
    with pytest.raises(UnsafeFile, match="no regular file"):
        open_suite(suite)


@pytest.mark.parametrize(
    "change",
    [
        lambda m: m.update(version=2),
        lambda m: m.update(pairs=[]),
        lambda m: m.update(code="import os"),
        lambda m: m.update(eps=float("nan")),
        lambda m: m["pairs"][0].update(goal="steal"),
        lambda m: m["pairs"][0]["clean"].update(sha256="no digest"),
        lambda m: m.update(name="../x"),
        lambda m: m["pairs"].append(m["pairs"][0]),
        lambda m: m["pairs"].append({**m["pairs"][0], "id": "another name"}),
    ],
)
def test_malformed_manifests_are_errors(
    suite: Path, change: Callable[[dict[str, Any]], Any]
) -> None:
    edit(suite, change)
    with pytest.raises(DataError, match="manifest"):
        open_suite(suite)


@pytest.mark.parametrize("text", ["", "[1, 2]", "{", "[" * 100_000, "\ud800"])
def test_files_that_are_no_manifest_are_errors(suite: Path, text: str) -> None:
    (suite / MANIFEST).write_bytes(text.encode("utf-8", "surrogatepass"))
    with pytest.raises(OnnxfrError):
        open_suite(suite)
    (suite / MANIFEST).unlink()
    with pytest.raises(DataError, match="suite make"):
        open_suite(suite)


def test_talfw_of_crops_beside_whole_heads_is_not_taken_for_aligned(
    tmp_path: Path, draw: Draw
) -> None:
    people = [f"P{k}" for k in range(16)]
    for name in people:
        draw(f"talfw/{name}_0001.png", (112, 112))
        for number in (1, 2):
            draw(f"lfw/{name}/{name}_{number:04d}.jpg", (250, 250))
    lines = "".join(f"{name}\t1\t2\n" for name in people)
    (tmp_path / "lfw" / "pairs.txt").write_text(lines)
    where = f"talfw:{tmp_path / 'talfw'},lfw={tmp_path / 'lfw'}"
    assert open_pairs(where).aligned is None
    (tmp_path / "lfw" / "P3" / "P3_0002.jpg").unlink()
    lost = open_pairs(where)
    assert len(lost) == 15 and "P3_0002.jpg is not in the image folder" in str(lost.problems[0])
    with pytest.raises(DataError, match=r"P3_0002\.jpg"):
        open_pairs(where, strict=True)
    with pytest.raises(DataError, match="TALFW and the clean LFW at once"):
        open_pairs(f"talfw:{tmp_path / 'lfw'},lfw={tmp_path / 'lfw'}")


@pytest.mark.parametrize("flat", [False, True])
def test_talfw_replaces_one_picture_of_each_pair(tmp_path: Path, draw: Draw, flat: bool) -> None:
    for name in ("Ann", "Bob"):
        for number in (1, 2):
            draw(f"lfw/{name}/{name}_{number:04d}.jpg")
    (tmp_path / "lfw" / "pairs.txt").write_text(
        "1\t2\nAnn\t1\t2\nBob\t1\t2\nAnn\t2\tBob\t2\nAnn\t2\tBob\t1\n"
    )
    for name in ("Ann_0001", "Bob_0002"):
        draw(f"talfw/{name}.png" if flat else f"talfw/{name[:3]}/{name}.png")
    pairs = open_pairs(f"talfw:{tmp_path / 'talfw'},lfw={tmp_path / 'lfw'}")
    assert pairs.pair_ids() == [
        "talfw/Ann/Ann_0001.jpg|Ann/Ann_0002.jpg",
        "talfw/Bob/Bob_0002.jpg|Bob/Bob_0001.jpg",
        "talfw/Bob/Bob_0002.jpg|Ann/Ann_0002.jpg",
    ]
    assert pairs.same.tolist() == [True, True, False]
    assert "1 pairs of LFW have no adversarial picture" in str(pairs.problems[-1])
    with pytest.raises(DataError, match="lfw=PATH"):
        open_pairs(f"talfw:{tmp_path / 'talfw'}")
