"""The book of calls: torn lines, other adapters, several processes, budgets."""

from __future__ import annotations

from pathlib import Path

import pytest

from onnxfr.errors import RemoteError
from onnxfr.models.comparer import CallsSpent
from onnxfr.models.remote.journal import Journal
from onnxfr.models.remote.reading import Kind, Verdict

YES = Verdict(Kind.JUDGED, True, 91.5, 60.0, "v1")
NO_FACE = Verdict(Kind.REJECTED, detail="no_face")


def journal(path: Path, budget: int | None = 10, digest: str = "d") -> Journal:
    return Journal(path, adapter="a", digest=digest, budget=budget)


def test_what_was_written_is_read_back(tmp_path: Path) -> None:
    book = journal(tmp_path / "j")
    book.ask(["q1", "q2", "q3"], 2)
    book.record("q1", YES)
    book.record("q2", NO_FACE)
    book.record("q1", NO_FACE, again=True)
    book.give_back("q3", 2)
    book.close()
    again = journal(tmp_path / "j")
    assert again.answers == {"q1": YES, "q2": NO_FACE}
    assert again.repeats == {"q1": [NO_FACE]}
    assert again.spent == 4 and again.left == 6 and again.version == "v1"


@pytest.mark.parametrize("cut", range(1, 40, 3))
def test_a_torn_last_line_is_dropped_and_writing_goes_on(tmp_path: Path, cut: int) -> None:
    path = tmp_path / "j"
    book = journal(path)
    book.ask(["q1"], 1)
    book.record("q1", YES)
    whole = path.read_bytes()
    book.close()
    path.write_bytes(whole[:-cut])
    again = journal(path)
    assert again.spent == 1 and again.answers == {}
    again.record("q1", YES)
    again.close()
    assert path.read_bytes() == whole


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


def test_a_damaged_journal_is_refused_rather_than_paid_for_again(tmp_path: Path) -> None:
    path = tmp_path / "j"
    book = journal(path)
    book.ask(["q1"], 1)
    book.close()
    lines = path.read_text().splitlines()
    path.write_text("\n".join([lines[0], "garbage", lines[1]]) + "\n")
    with pytest.raises(RemoteError, match="line 2"):
        journal(path)
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
