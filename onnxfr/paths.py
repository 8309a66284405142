"""Where things are: paths as users write them, and what onnxfr can make or fetch again."""

from __future__ import annotations

import os
import sys
from pathlib import Path


def expanded(path: str | Path) -> Path:
    """Return a path with ``~`` written out; that of a user nobody knows stays, and is not found."""
    try:
        return Path(path).expanduser()
    except RuntimeError:
        return Path(path)


def cache_dir() -> Path:
    """Return the user's cache folder for onnxfr; it is not created here.

    ``ONNXFR_CACHE`` overrides the platform's convention.
    """
    named = os.environ.get("ONNXFR_CACHE")
    if named:
        return expanded(named).absolute()
    if sys.platform == "win32":
        local = os.environ.get("LOCALAPPDATA")
        return (Path(local) if local else Path.home() / "AppData" / "Local") / "onnxfr" / "Cache"
    if sys.platform == "darwin":
        return Path.home() / "Library" / "Caches" / "onnxfr"
    xdg = os.environ.get("XDG_CACHE_HOME", "")
    # The XDG specification tells programs to ignore relative values.
    return (Path(xdg) if Path(xdg).is_absolute() else Path.home() / ".cache") / "onnxfr"
