"""Whose code failed: files that anybody may add, attacks, evaluators, modules of a registry."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from onnxfr.errors import CodeError, DataError, naming
from onnxfr.registry import Registry

OWN = """
import json

def ask(text):
    return json.loads(text)
"""


def test_an_error_is_told_with_the_line_that_called_for_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.syspath_prepend(tmp_path)
    (tmp_path / "own_code.py").write_text(OWN)
    import own_code  # type: ignore[import-not-found]

    with pytest.raises(CodeError) as told, naming("attack mine", "own_code"):
        own_code.ask("[")
    assert str(told.value).startswith("unexpected JSONDecodeError: Expecting value")
    assert str(told.value).endswith(f", in attack mine ({tmp_path / 'own_code.py'}, line 5)")
    assert told.value.__cause__ is not None
    with pytest.raises(DataError, match="as it is"), naming("attack mine", "own_code"):
        raise DataError("as it is")


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("def run(:", "unexpected SyntaxError: .*line 1.*, in the module own_things.broken"),
        ("import nothing_like_it", r"unexpected ModuleNotFoundError: .*broken\.py, line 1\)"),
    ],
)
def test_a_file_that_cannot_be_imported_is_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, text: str, message: str
) -> None:
    monkeypatch.syspath_prepend(tmp_path)
    (tmp_path / "own_things").mkdir()
    (tmp_path / "own_things" / "__init__.py").write_text("")
    (tmp_path / "own_things" / "broken.py").write_text(text)
    monkeypatch.delitem(sys.modules, "own_things", raising=False)
    with pytest.raises(CodeError, match=message):
        Registry("thing", "own_things").names()
