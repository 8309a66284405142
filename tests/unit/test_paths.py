"""The cache folder follows the variable first and the platform otherwise."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from onnxfr.data.pairs import open_pairs
from onnxfr.errors import DataError, ModelError
from onnxfr.models.wrapper import load_model
from onnxfr.paths import cache_dir, expanded
from onnxfr.runs.spec import make_spec


def test_the_variable_wins(monkeypatch, tmp_path):
    monkeypatch.setenv("ONNXFR_CACHE", str(tmp_path / "here"))
    assert cache_dir() == tmp_path / "here"
    assert not cache_dir().exists()


@pytest.mark.skipif(sys.platform in ("win32", "darwin"), reason="XDG is a Linux convention")
@pytest.mark.parametrize(("xdg", "used"), [("/var/x", True), ("relative", False), ("", False)])
def test_xdg_is_followed_when_absolute(monkeypatch, xdg, used):
    monkeypatch.delenv("ONNXFR_CACHE", raising=False)
    monkeypatch.setenv("XDG_CACHE_HOME", xdg)
    parent = Path(xdg) if used else Path.home() / ".cache"
    assert cache_dir() == parent / "onnxfr"


@pytest.mark.parametrize("platform", ["win32", "darwin", "linux"])
def test_every_platform_has_a_place(monkeypatch, platform):
    monkeypatch.delenv("ONNXFR_CACHE", raising=False)
    monkeypatch.setattr(sys, "platform", platform)
    assert "onnxfr" in cache_dir().parts


def test_the_home_of_nobody_is_a_place_where_nothing_is() -> None:
    assert expanded("~/faces") == Path.home() / "faces"
    assert expanded("~nobody-we-know/faces") == Path("~nobody-we-know/faces")
    with pytest.raises(ModelError, match="no model at ~nobody-we-know/m"):
        load_model("~nobody-we-know/m")
    with pytest.raises(DataError, match="expected a folder"):
        open_pairs("folder:~nobody-we-know/faces")
    content = {"models": ["~nobody-we-know/m"], "data": ["folder:~nobody-we-know/f"]}
    spec = make_spec({**content, "suite": "quick"}, Path("/x"))
    assert spec.models == ("~nobody-we-know/m",)
