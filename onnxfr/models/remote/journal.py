"""Every question and answer on disk, append-only, so that nothing is ever paid for twice.

One JSON object a line. ``ask`` is written and synced before a call leaves: a call that may have
been paid for is always counted, even if the process died before its answer. ``got`` is written when
the answer arrives and synced before anybody uses it; ``back`` returns a call that was certainly not
charged, and ``void`` takes back an answer that was none, though it was paid for. Processes may
share a journal: each reads what the others appended when it takes the lock. Nothing is asked unless
there is room on the disk for the answers; what finds none all the same is owed, and written before
anything else.
"""

from __future__ import annotations

import json
import logging
import os
import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict
from pathlib import Path
from typing import Any

from filelock import FileLock

from onnxfr.errors import RemoteError
from onnxfr.models.comparer import CallsSpent
from onnxfr.models.remote.reading import Kind, Verdict

log = logging.getLogger(__name__)

_FORMAT = 1
_ROOM = 1024
"""Bytes that must be free for a question's answer before it is asked; most take 150."""


class Journal:
    """The book of one adapter's calls; ``budget`` caps the calls of its whole life.

    ``former`` is another digest of the same adapter: a journal begun under it goes on.
    """

    def __init__(
        self, path: Path, *, adapter: str, digest: str, budget: int | None, former: str = ""
    ) -> None:
        self._adapter, self._digest = adapter, digest
        self._former, self._renewal = former, {"digest": digest}
        self._begun_as = digest
        self.budget = budget
        self.spent = 0
        self.answers: dict[str, Verdict] = {}
        self.repeats: dict[str, list[Verdict]] = {}
        self.version: str | None = None
        self.senseless: list[tuple[str, bool]] = []
        """The last answers in a row that made no sense: the question, and whether asked again."""
        self._offset = 0
        self._owed: list[dict[str, Any]] = []
        self._threads = threading.RLock()
        try:
            # Two names of one file would have two locks, and each a budget of its own.
            self.path = path.resolve()
            self.path.parent.mkdir(parents=True, exist_ok=True)
            self._file = os.open(self.path, os.O_RDWR | os.O_CREAT | os.O_APPEND, 0o600)
        except (OSError, RuntimeError) as bad:
            raise RemoteError(f"cannot open the journal {path}: {bad}") from None
        self._lock = FileLock(f"{self.path}.lock")
        self._header = {"journal": _FORMAT, "adapter": adapter, "digest": digest}
        try:
            with self.exclusive():
                if not self._offset:
                    self._write([self._header])
                    self.sync()
                elif self._begun_as != digest:
                    # The former digest changes with rules that this one is free of.
                    self._write([self._renewal])
                    self.sync()
        except BaseException:
            self.close()
            raise

    @contextmanager
    def exclusive(self) -> Iterator[None]:
        """Hold the journal alone, knowing everything written to it so far."""
        try:
            held = self._lock.acquire()
        except OSError as bad:
            raise RemoteError(f"cannot lock the journal {self.path}: {bad}") from None
        with held:
            self._catch_up()
            self._pay_debts()
            yield

    @property
    def left(self) -> float:
        """Calls that may still be made; none where a later budget is below what was spent."""
        return float("inf") if self.budget is None else max(0, self.budget - self.spent)

    def ask(self, keys: Sequence[str], calls: int) -> None:
        """Charge the calls of these questions, durably, before they are sent."""
        if not keys:
            return
        with self._threads:
            if len(keys) * calls > self.left:
                raise CallsSpent
            self._write([{"ask": key, "calls": calls} for key in keys], room=_ROOM * len(keys))
            self.spent += len(keys) * calls
        self.sync()

    def repeat(self, key: str) -> Verdict | None:
        """Return what the service said when it was asked again, in the journal's own version."""
        later = self.repeats.get(key, [])
        same = [verdict for verdict in later if verdict.version in (None, self.version)]
        return same[-1] if same else None

    def give_back(self, keys: Sequence[str], calls: int) -> None:
        """Uncharge calls of each question that the service certainly did not answer."""
        with self._threads:
            self.spent -= len(keys) * calls
            self._keep([{"back": key, "calls": calls} for key in keys])

    def record(self, key: str, verdict: Verdict, *, again: bool = False) -> None:
        """Write an answer down; ``sync`` makes it last."""
        plain = {name: value for name, value in asdict(verdict).items() if value not in (None, "")}
        with self._threads:
            self._note(key, verdict, again)
            self._keep([{"again" if again else "got": key, **plain}])

    def void_senseless(self) -> None:
        """Take back the last answers, which made no sense: the questions may be asked anew."""
        with self._threads:
            void = [each for each in self.senseless if self._void(*each)]
            self._keep([{"void": key, "again": again} for key, again in void])

    def sync(self) -> None:
        """Wait until what was written is on the disk."""
        self._pay_debts()
        try:
            os.fsync(self._file)
        except OSError as bad:
            raise RemoteError(f"cannot write to the journal {self.path}: {bad}") from None

    def close(self) -> None:
        """Release the file."""
        os.close(self._file)

    def _note(self, key: str, verdict: Verdict, again: bool) -> None:
        if again:
            self.repeats.setdefault(key, []).append(verdict)
        else:
            self.answers.setdefault(key, verdict)
        if self.version is None:
            self.version = verdict.version
        if verdict.kind is Kind.INVALID:
            self.senseless.append((key, again))
        else:
            self.senseless = []

    def _void(self, key: str, again: bool) -> bool:
        said = self.repeats.get(key) if again else [self.answers.get(key)]
        if not said or said[-1] is None or said[-1].kind is not Kind.INVALID:
            return False
        if again:
            said.pop()
        else:
            del self.answers[key]
        return True

    def _keep(self, lines: Sequence[dict[str, Any]]) -> None:
        """Write down what has happened; where that fails, owe it."""
        self._owed.extend(lines)
        self._pay_debts()

    def _pay_debts(self) -> None:
        """Write what an earlier failure has left; nothing may be asked or used before."""
        with self._threads:
            if not self._owed:
                return
            try:
                self._write(self._owed)
            except RemoteError as bad:
                raise RemoteError(
                    f"{bad} {len(self._owed)} lines about answers that came, or calls that were "
                    "not made, are in memory only: they are written before the next question, and "
                    "lost (to be paid for again) if the process ends first"
                ) from None
            self._owed = []

    def _write(self, lines: Sequence[dict[str, Any]], room: int = 0) -> None:
        text = b"".join(_line(line) for line in lines)
        self._append(text, room)
        self._offset += len(text)

    def _append(self, text: bytes, room: int = 0) -> None:
        try:
            # One call per group: O_APPEND keeps groups of different threads apart.
            written = os.write(self._file, text + b" " * room)
        except OSError as bad:
            raise RemoteError(f"cannot write to the journal {self.path}: {bad}.") from None
        kept = len(text) if written == len(text) + room else 0
        if kept != written:
            # The next line, of another thread, would be glued to half of this one.
            os.ftruncate(self._file, os.fstat(self._file).st_size - written + kept)
        if not kept:
            raise RemoteError(f"the journal {self.path} cannot grow: is the disk full?")

    def _catch_up(self) -> None:
        """Read what was appended since; end or cut off a last line that a crash has torn."""
        size = os.fstat(self._file).st_size
        if size == self._offset:
            return
        content = self._read(self._offset, size)
        whole = content.rfind(b"\n") + 1
        # Where only the end of the line is missing, what it says was paid for.
        unended = self._offset + whole > 0 and _is_entry(content[whole:])
        lines = (content if unended else content[:whole]).splitlines()
        if self._offset == 0:
            renewed = _line(self._renewal).strip() in lines
            self._check_header(content.partition(b"\n")[0], torn=not lines, renewed=renewed)
        for number, line in enumerate(lines, 1):
            if (self._offset == 0 and number == 1) or not line.strip():
                continue
            try:
                self._replay(json.loads(line))
            except (ValueError, KeyError, TypeError, AttributeError):
                number += self._read(0, self._offset).count(b"\n")
                raise RemoteError(
                    f"{self.path}: line {number} is no journal entry; the file was changed by "
                    "something else, or a power cut has spoilt it. Delete that line to go on with "
                    "the others (calls that it charged are then forgotten), or move the file away "
                    "to start anew (and pay anew)"
                ) from None
        if unended:
            self._append(b"\n")
            whole = len(content) + 1
        elif whole < len(content):
            log.warning("%s ended in half a line, as a crash leaves one; cut it off", self.path)
            os.ftruncate(self._file, self._offset + whole)
        self._offset += whole

    def _read(self, start: int, end: int) -> bytes:
        parts = []
        # The system may give less than was asked for, and never gives more than 2 GB at once.
        while start < end and (part := os.pread(self._file, end - start, start)):
            parts.append(part)
            start += len(part)
        return b"".join(parts)

    def _replay(self, entry: dict[str, Any]) -> None:
        if "ask" in entry:
            self.spent += entry["calls"]
        elif "back" in entry:
            self.spent -= entry["calls"]
        elif "void" in entry:
            self._void(entry["void"], entry["again"])
            self.senseless = []
        elif "digest" not in entry:
            again = "again" in entry
            key = entry.pop("again" if again else "got")
            self._note(key, Verdict(**{**entry, "kind": Kind(entry["kind"])}), again)

    def _check_header(self, line: bytes, *, torn: bool, renewed: bool) -> None:
        """Raise unless the file is this adapter's journal: no other file is ever written to."""
        if torn and _line(self._header).startswith(line):
            return
        try:
            entry = json.loads(line)
            known, owner = entry["journal"] == _FORMAT, entry["adapter"]
            self._begun_as = self._digest if renewed else entry["digest"]
            ours = known and self._begun_as in (self._digest, self._former) and not torn
        except (ValueError, KeyError, TypeError):
            raise RemoteError(
                f"{self.path} is no journal: line 1 is not how one begins. It was left as it is; "
                "name another file"
            ) from None
        if not ours:
            raise RemoteError(
                f"{self.path} belongs to adapter {owner!r} as it was when the journal "
                f"was begun, not to {self._adapter!r} as it is now: something else than rules "
                "(rejected, retry, failed), pace and price has changed. Undo that to go on with "
                "it, or choose another journal (and pay anew)"
            )


def _is_entry(line: bytes) -> bool:
    """Tell whether a line is whole: half an object never ends in its last brace."""
    try:
        return isinstance(json.loads(line), dict)
    except ValueError:
        return False


def _line(entry: dict[str, Any]) -> bytes:
    return (json.dumps(entry, allow_nan=False) + "\n").encode()
