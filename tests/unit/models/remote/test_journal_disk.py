"""The book of calls on a disk that is full or fails, and under a lock that cannot be made."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from books import NO_FACE, YES, journal

from onnxfr.errors import RemoteError


def test_half_a_line_on_a_full_disk_spoils_no_other(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    book, write = journal(tmp_path / "j"), os.write
    book.ask(["q1", "q2"], 1)
    with monkeypatch.context() as full:
        full.setattr(os, "write", lambda file, text: write(file, text[:20]))
        with pytest.raises(RemoteError, match="is the disk full"):
            book.record("q1", YES)
        with pytest.raises(RemoteError, match="is the disk full"):
            book.ask(["q3"], 1)
    assert book.spent == 2
    # Another thread's answer, after somebody has made room.
    book.record("q2", NO_FACE)
    book.close()
    again = journal(tmp_path / "j")
    assert again.answers == {"q1": YES, "q2": NO_FACE} and again.spent == 2


def test_what_could_not_be_written_is_owed_until_there_is_room(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    book = journal(tmp_path / "j")
    book.ask(["q1", "q2"], 1)
    book.sync()
    with monkeypatch.context() as full:
        full.setattr(os, "write", lambda file, text: 0)
        with pytest.raises(RemoteError, match="1 lines about answers"):
            book.record("q1", YES)
        with pytest.raises(RemoteError, match="2 lines about answers"):
            book.give_back(["q2"], 1)
        with pytest.raises(RemoteError, match="in memory only"):
            book.sync()
        with pytest.raises(RemoteError, match="in memory only"), book.exclusive():
            pytest.fail("nobody may ask or use what is not on the disk")
    with book.exclusive():
        pass
    again = journal(tmp_path / "j")
    assert again.answers == book.answers == {"q1": YES} and again.spent == book.spent == 1


def test_nothing_is_asked_without_room_for_the_answer(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    book, write = journal(tmp_path / "j"), os.write
    before = (tmp_path / "j").read_bytes()
    with monkeypatch.context() as nearly_full:
        # There is room for the charge, and for no more.
        nearly_full.setattr(os, "write", lambda file, text: write(file, text[:100]))
        with pytest.raises(RemoteError, match="is the disk full"):
            book.ask(["q1"], 1)
    assert (tmp_path / "j").read_bytes() == before and book.spent == 0
    book.ask(["q1"], 1)
    assert (tmp_path / "j").read_bytes() == before + b'{"ask": "q1", "calls": 1}\n'


def test_a_disk_that_fails_is_told_as_such(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    book = journal(tmp_path / "j")

    def broken(file: int) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "fsync", broken)
    with pytest.raises(RemoteError, match="No space left"):
        book.ask(["q1"], 1)


def test_a_lock_that_cannot_be_made_is_told_as_such(tmp_path: Path) -> None:
    (tmp_path / "j.lock").mkdir()
    with pytest.raises(RemoteError, match="cannot lock the journal"):
        journal(tmp_path / "j")
