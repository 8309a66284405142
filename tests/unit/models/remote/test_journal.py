"""The book of calls: torn lines, other adapters, several processes, budgets."""

from __future__ import annotations

import os
import threading
import time
from contextlib import suppress
from dataclasses import replace
from pathlib import Path

import pytest
from books import NO_FACE, YES, journal

from onnxfr.errors import RemoteError
from onnxfr.models.comparer import CallsSpent
from onnxfr.models.remote.journal import Journal


def begun(path: Path) -> bytes:
    """Return a journal of one question that was answered."""
    book = journal(path)
    book.ask(["q1"], 1)
    book.record("q1", YES)
    book.close()
    return path.read_bytes()


def test_what_was_written_is_read_back(tmp_path: Path) -> None:
    book = journal(tmp_path / "j")
    book.ask(["q1", "q2", "q3"], 2)
    book.record("q1", YES)
    book.record("q2", NO_FACE)
    book.record("q1", NO_FACE, again=True)
    book.give_back(["q3"], 2)
    book.close()
    again = journal(tmp_path / "j")
    assert again.answers == {"q1": YES, "q2": NO_FACE}
    assert again.repeats == {"q1": [NO_FACE]}
    assert again.spent == 4 and again.left == 6 and again.version == "v1"


@pytest.mark.parametrize("cut", range(2, 40, 3))
def test_a_torn_last_line_is_dropped_and_writing_goes_on(
    tmp_path: Path, cut: int, caplog: pytest.LogCaptureFixture
) -> None:
    path = tmp_path / "j"
    book = journal(path)
    book.ask(["q1"], 1)
    book.record("q1", YES)
    whole = path.read_bytes()
    book.close()
    path.write_bytes(whole[:-cut])
    again = journal(path)
    assert again.spent == 1 and again.answers == {} and "half a line" in caplog.text
    again.record("q1", YES)
    again.close()
    assert path.read_bytes() == whole


def test_a_last_line_that_lacks_its_end_only_is_kept(tmp_path: Path) -> None:
    path = tmp_path / "j"
    whole = begun(path)
    path.write_bytes(whole[:-1])
    again = journal(path)
    assert again.spent == 1 and again.answers == {"q1": YES} and path.read_bytes() == whole
    with path.open("ab") as other:
        other.write(whole.splitlines()[1])
    with again.exclusive():
        assert again.spent == 2
    again.record("q2", NO_FACE)
    again.close()
    assert set(journal(path).answers) == {"q1", "q2"}


def test_blank_lines_and_those_of_another_system_are_no_damage(tmp_path: Path) -> None:
    path = tmp_path / "j"
    lines = begun(path).splitlines()
    path.write_bytes(b"\r\n".join([lines[0], b"", lines[1], b"  ", lines[2], b"", b""]))
    again = journal(path)
    assert again.spent == 1 and again.answers == {"q1": YES}


def test_two_names_of_one_journal_have_one_lock(tmp_path: Path) -> None:
    (tmp_path / "there").mkdir()
    (tmp_path / "here").symlink_to("there")
    (tmp_path / "other").symlink_to("there/j")
    books = [journal(tmp_path / name, budget=3) for name in ("there/j", "here/j", "other")]
    assert len({book.path for book in books}) == 1
    assert [path.name for path in tmp_path.rglob("*.lock")] == ["j.lock"]
    waited: list[bool] = []

    def ask_two(book: Journal) -> None:
        with book.exclusive():
            waited.append(True)
            with suppress(CallsSpent):
                book.ask(["q1", "q2"], 1)

    with books[0].exclusive():
        threads = [threading.Thread(target=ask_two, args=[book]) for book in books[1:]]
        for thread in threads:
            thread.start()
        time.sleep(0.2)
        assert not waited, "the lock is the file's, whatever it is called"
    for thread in threads:
        thread.join()
    assert journal(tmp_path / "other", budget=3).spent == 2


def test_calls_are_charged_before_and_never_above_the_budget(tmp_path: Path) -> None:
    book = journal(tmp_path / "j", budget=3)
    book.ask(["q1", "q2"], 1)
    with pytest.raises(CallsSpent):
        book.ask(["q3", "q4"], 1)
    assert book.spent == 2
    # The process died before any answer: both calls may have been paid for.
    book.close()
    assert journal(tmp_path / "j", budget=3).left == 1


def test_a_journal_of_another_adapter_is_refused(tmp_path: Path) -> None:
    journal(tmp_path / "j").close()
    with pytest.raises(RemoteError, match="another journal"):
        journal(tmp_path / "j", digest="other")


def test_a_journal_of_the_same_adapter_by_its_former_digest_goes_on(tmp_path: Path) -> None:
    path = tmp_path / "j"
    book = journal(path, digest="former")
    book.ask(["q1"], 1)
    book.record("q1", YES)
    book.close()
    later = Journal(path, adapter="a", digest="d", former="former", budget=10)
    assert later.answers == {"q1": YES}
    later.close()
    # The rules have changed, and the former digest with them.
    for _ in range(2):
        mended = Journal(path, adapter="a", digest="d", former="another", budget=10)
        assert mended.answers == {"q1": YES} and mended.spent == 1
        mended.close()
    assert path.read_text().count('{"digest": "d"}') == 1
    with pytest.raises(RemoteError, match="another journal"):
        journal(path, digest="e")


def test_a_damaged_journal_is_refused_rather_than_paid_for_again(tmp_path: Path) -> None:
    path = tmp_path / "j"
    book = journal(path)
    book.ask(["q1"], 1)
    book.close()
    lines = path.read_text().splitlines()
    path.write_text("\n".join([lines[0], "garbage", lines[1]]) + "\n")
    with pytest.raises(RemoteError, match="line 2"):
        journal(path)
    path.write_text("\n".join(lines) + "\n")
    late = journal(path)
    with path.open("a") as other:
        other.write("garbage\n")
    with pytest.raises(RemoteError, match="line 3"), late.exclusive():
        pytest.fail("what was read is no entry")
    path.write_text("not a journal\n")
    with pytest.raises(RemoteError, match="line 1"):
        journal(path)


def test_two_processes_may_share_a_journal(tmp_path: Path) -> None:
    one, other = journal(tmp_path / "j"), journal(tmp_path / "j")
    with one.exclusive():
        one.ask(["q1"], 1)
        one.record("q1", YES)
    with other.exclusive():
        assert other.answers == {"q1": YES} and other.spent == 1
        other.ask(["q2"], 1)
        other.record("q2", NO_FACE)
    with one.exclusive():
        assert set(one.answers) == {"q1", "q2"} and one.spent == 2


@pytest.mark.parametrize(
    "content",
    [
        b'{"precious": "one line, no end of line"}',
        b'{\n "a": 1,\n "b": 2\n}',
        b"[1, 2]\n[3",
        b'{"a": 1}\n{"b": 2}',
        b"\n\nnotes",
        b'{"journal": 1, "adapter": "other", "digest": "e"}\n{"ask": "q',
        b'{"journal": 1, "adapter": "other", "digest": "e"}',
    ],
    ids=[
        "one line",
        "several lines",
        "a list",
        "unended",
        "text",
        "another adapter's",
        "its torn header",
    ],
)
def test_a_file_that_is_no_journal_of_ours_is_left_as_it_is(tmp_path: Path, content: bytes) -> None:
    path = tmp_path / "notes.json"
    path.write_bytes(content)
    with pytest.raises(RemoteError, match=r"no journal|another journal"):
        journal(path)
    assert path.read_bytes() == content


@pytest.mark.parametrize("kept", [1, 20, -1])
def test_a_header_torn_by_a_crash_is_written_again(tmp_path: Path, kept: int) -> None:
    path = tmp_path / "j"
    journal(path).close()
    whole = path.read_bytes()
    path.write_bytes(whole[:kept])
    journal(path).close()
    assert path.read_bytes() == whole


def test_a_line_that_is_no_entry_is_named(tmp_path: Path) -> None:
    path = tmp_path / "j"
    journal(path).close()
    for line in ('"text"', "5", '{"got": "q"}', '{"ask": "q", "calls": "many"}'):
        path.write_text(path.read_text().splitlines()[0] + f"\n{line}\n")
        with pytest.raises(RemoteError, match="line 2"):
            journal(path)


def test_a_journal_is_read_whole_however_little_comes_at_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    book = journal(tmp_path / "j")
    book.ask(["q1", "q2"], 1)
    book.record("q1", YES)
    book.close()
    size, pread = (tmp_path / "j").stat().st_size, os.pread
    monkeypatch.setattr(os, "pread", lambda file, count, at: pread(file, min(count, 7), at))
    again = journal(tmp_path / "j")
    assert again.spent == 2 and again.answers == {"q1": YES}
    assert (tmp_path / "j").stat().st_size == size


def test_a_lower_budget_leaves_nothing_rather_than_less(tmp_path: Path) -> None:
    book = journal(tmp_path / "j", budget=5)
    book.ask(["q1", "q2", "q3"], 1)
    book.close()
    assert journal(tmp_path / "j", budget=1).left == 0


def test_a_repeat_counts_in_the_journals_own_version_only(tmp_path: Path) -> None:
    book = journal(tmp_path / "j")
    book.record("q1", YES)
    assert book.repeat("q1") is None
    book.record("q1", replace(YES, version="v2"), again=True)
    assert book.repeat("q1") is None
    book.record("q1", NO_FACE, again=True)
    assert book.repeat("q1") == NO_FACE
