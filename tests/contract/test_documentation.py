"""What the documentation promises exists: links, commands with their options, Python, TOML."""

from __future__ import annotations

import ast
import importlib
import re
import shlex
import sys
import tomllib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
import typer

sys.path.insert(0, str(Path(__file__).parents[1] / "unit" / "evaluators"))

from toy_faces import make_model

from onnxfr.cli.app import _register, app
from onnxfr.cli.listing import KINDS

ROOT = Path(__file__).parents[2]
PAGES = sorted(
    path.relative_to(ROOT).as_posix()
    for path in (*ROOT.glob("*.md"), *(ROOT / "docs").rglob("*.md"))
)
LINK = re.compile(r"\[[^\]]*\]\(([^)\s]+)\)")
FENCE = re.compile(r"^```(\w*)\n(.*?)^```", re.MULTILINE | re.DOTALL)
INLINE = re.compile(r"`(onnxfr [^`]+)`")
SHELL = ("", "sh", "bash", "shell", "console")
END_OF_COMMAND = ("#", "|", ";", "&&", ">", "2>", "<", "...", "…")


def text_of(page: str) -> str:
    return (ROOT / page).read_text(encoding="utf-8")


def blocks(page: str, *languages: str) -> list[str]:
    return [body for language, body in FENCE.findall(text_of(page)) if language in languages]


def anchors(text: str) -> set[str]:
    """Return the anchors that a forge gives to the headings of a page."""
    headings = re.findall(r"^#+ +(.+?) *$", FENCE.sub("", text), re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-") for heading in headings}


@pytest.mark.parametrize("page", PAGES)
def test_links_lead_somewhere(page: str) -> None:
    for link in LINK.findall(FENCE.sub("", text_of(page))):
        if re.match(r"[a-z]+:", link):
            continue
        name, _, anchor = link.partition("#")
        target = (ROOT / page).parent / name if name else ROOT / page
        assert target.exists(), f"{page} links to {link}"
        assert not anchor or anchor in anchors(target.read_text(encoding="utf-8")), link


def commands(page: str) -> Iterator[str]:
    text = text_of(page)
    for body in blocks(page, *SHELL):
        for line in body.replace("\\\n", " ").splitlines():
            if (line := line.strip().removeprefix("$ ")).startswith("onnxfr "):
                yield line
    yield from (" ".join(found.split()) for found in INLINE.findall(FENCE.sub("", text)))


def words_of(command: str) -> list[str]:
    """Return the words of a command up to whatever is no longer part of it."""
    try:
        words = shlex.split(command, comments=True)[1:]
    except ValueError:
        words = command.split()[1:]
    ends = (k for k, word in enumerate(words) if word.startswith(END_OF_COMMAND))
    return words[: next(ends, len(words))]


def unknown_words(words: list[str], command: Any) -> list[str]:
    """Return the subcommands and options that a command of the command line does not have."""
    here, wrong = command, []
    while words and hasattr(here, "commands") and re.fullmatch(r"[a-z|]+", words[0]):
        named, *words = words
        wrong += [name for name in named.split("|") if name not in here.commands]
        if "|" in named or wrong:
            return wrong
        here = here.commands[named]
    known = {"--help", *(option for each in here.params for option in each.opts)}
    known.update(option for each in here.params for option in each.secondary_opts)
    options = (word.strip("[](),.").partition("=")[0] for word in words)
    return [word for word in options if re.match(r"--?[a-z]", word) and word not in known]


@pytest.mark.parametrize("page", PAGES)
def test_commands_and_options_exist(page: str) -> None:
    _register()
    root = typer.main.get_command(app)
    wrong = {line: unknown_words(words_of(line), root) for line in commands(page)}
    assert not {line: words for line, words in wrong.items() if words}


def test_a_wrong_command_or_option_would_be_noticed() -> None:
    _register()
    root = typer.main.get_command(app)
    assert unknown_words(words_of("onnxfr zoo fetch sface"), root) == ["fetch"]
    assert unknown_words(words_of("onnxfr run SPEC.toml --resume # again"), root) == ["--resume"]
    assert unknown_words(words_of("onnxfr zoo list|fetch"), root) == ["fetch"]


@pytest.mark.parametrize("page", PAGES)
def test_python_blocks_parse_and_import_what_exists(page: str) -> None:
    for body in blocks(page, "python"):
        for node in ast.walk(ast.parse(body)):
            if isinstance(node, ast.ImportFrom) and (node.module or "").startswith("onnxfr"):
                module = importlib.import_module(node.module or "")
                for alias in node.names:
                    assert hasattr(module, alias.name), f"{page}: {node.module}.{alias.name}"


def test_the_snippets_of_readme_and_attacks_run(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    make_model(tmp_path / "model")
    faces = np.random.default_rng(0).random((4, 3, 112, 112), dtype=np.float32)
    left, right = faces[:2], faces[2:]
    names = {"images": left, "references": right, "left": left, "right": right, "ids": ("a", "b")}
    for page in ("README.md", "docs/attacks.md"):
        scope: dict[str, Any] = names | {"tensor": torch.from_numpy(left)}
        code = blocks(page, "python")[0].replace("path/to/model", "model")
        exec(compile(code, page, "exec"), scope)
    assert scope["result"].images.shape == left.shape


@pytest.mark.parametrize("page", PAGES)
def test_toml_blocks_parse(page: str) -> None:
    for body in blocks(page, "toml"):
        tomllib.loads(body)


def test_whatever_can_be_named_is_documented() -> None:
    text = "\n".join(text_of(page) for page in PAGES if page != "CHANGELOG.md")
    spoken = set(re.findall(r"[A-Za-z0-9_\-]+", text))
    for kind, rows in KINDS.items():
        # Other tests of this process register toys.
        names = [row["name"] for row in rows() if not row["name"].startswith("toy_")]
        missing = [name for name in names if name not in spoken]
        assert not missing, f"{kind} without a word in the documentation: {missing}"
