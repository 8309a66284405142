"""Gets a package's archive through the registries' ordinary clients, pip and npm, by name.

Host names, mirrors, proxies and credentials are the clients' own configuration and none of ours.
Nothing that arrives is built, imported or run.
"""

from __future__ import annotations

import shutil
import subprocess
import sys
from pathlib import Path
from typing import Literal

from onnxfr.errors import DownloadError
from onnxfr.models import pip_archive

RegistryName = Literal["pypi", "npm"]

_UNREACHABLE = (
    "NewConnectionError",
    "NameResolutionError",
    "ECONNREFUSED",
    "ENOTFOUND",
    "ETIMEDOUT",
)
_TIMEOUT_SECONDS = 3600
_SAFE_PATH = "-P"  # neither the working folder nor the script's own is searched for modules
_PIP_OPTIONS = ("--disable-pip-version-check", "--no-input", "--quiet")


def download(
    registry: RegistryName, package: str, version: str, file: str | None, folder: Path
) -> Path:
    """Save the archive in ``folder`` (which must be empty) and return its path."""
    if registry == "npm":
        _run(_npm(package, version, folder), folder)
    elif file is None:
        _run(_pip(package, version, folder), folder)
    else:
        script = str(Path(pip_archive.__file__))
        _run([sys.executable, _SAFE_PATH, script, package, file, str(folder)], folder)
    found = [path for path in folder.iterdir() if path.is_file()]
    if len(found) != 1:
        raise DownloadError(f"expected one archive of {package} {version}, got {len(found)}")
    return found[0]


def by_hand(registry: RegistryName, package: str, version: str, file: str | None) -> str:
    """Return what a person does on a machine that has network access."""
    if registry == "npm":
        return f"npm pack {package}@{version}"
    if file is None:
        return f"pip download --no-deps --only-binary :all: {package}=={version}"
    return f"download {file} from the file list of {package} {version} on the registry's web page"


def _pip(package: str, version: str, folder: Path) -> list[str]:
    wanted = f"{package}=={version}"
    choose = ("--no-deps", "--only-binary", ":all:", "--dest", str(folder), wanted)
    return [sys.executable, _SAFE_PATH, "-m", "pip", "download", *_PIP_OPTIONS, *choose]


def _npm(package: str, version: str, folder: Path) -> list[str]:
    npm = shutil.which("npm")
    if npm is None:
        raise DownloadError(f"npm is needed to fetch {package} {version}, and is not installed")
    where = ("--ignore-scripts", "--pack-destination", str(folder))
    return [npm, "pack", f"{package}@{version}", *where]


def _run(command: list[str], folder: Path) -> None:
    try:
        done = subprocess.run(
            command,
            cwd=folder,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            errors="replace",
            timeout=_TIMEOUT_SECONDS,
            check=False,
        )
    except (OSError, subprocess.TimeoutExpired) as error:
        raise DownloadError(f"the download could not be run: {error}") from error
    if done.returncode:
        raise DownloadError(f"the download failed: {_reason(done.stderr)}")


def _reason(said: str) -> str:
    """Return the client's last error lines, led by what they leave unsaid when offline."""
    lines = [line.strip() for line in said.splitlines() if line.strip()]
    errors = [line for line in lines if "error" in line.lower()] or lines[-1:]
    unreachable = any(sign in said for sign in _UNREACHABLE)
    lead = "the registry cannot be reached; " if unreachable else ""
    return lead + (" ".join(errors[-2:])[:400] or "no reason given")
