"""When a service may be asked again: as it says, and known to all processes on one journal.

Workers of a run and later runs have clocks and limits of their own; the service has one. Whoever
holds the journal's lock reads the file beside it before the first question and leaves it anew after
the last one. It is no book: where it cannot be read or written, each process keeps its own pace.
"""

from __future__ import annotations

import json
import time
from contextlib import suppress
from dataclasses import dataclass
from datetime import UTC, datetime
from email.utils import parsedate_to_datetime
from pathlib import Path

from onnxfr.models.remote.adapter import Adapter

_LONGEST_AWAY = 3600.0
"""After so many seconds a service is asked again, whatever it once said: that costs one call."""


@dataclass(frozen=True)
class Moment:
    """Seconds until the next question may leave, and until the service wants to be asked at all."""

    turn: float = 0.0
    away: float = 0.0
    why: str = ""


class SharedPace:
    """The file ``JOURNAL.pace``; used under the journal's lock only."""

    def __init__(self, journal: Path, adapter: Adapter) -> None:
        self._path = journal.with_name(f"{journal.name}.pace")
        self._service, pace = adapter.digest(), adapter.pace
        self._longest = max(pace.patience, 1 / pace.per_second if pace.per_second else 0.0)

    def read(self) -> Moment:
        """Return what the last one to ask has left; nothing where that says nothing."""
        with suppress(OSError, ValueError, TypeError, KeyError):
            entry = json.loads(self._path.read_bytes())
            if entry["service"] != self._service:
                return Moment()
            # A clock that was set back must not lengthen what was said.
            passed = max(0.0, time.time() - float(entry["left"]))
            turn = min(float(entry["turn"]), self._longest) - passed
            # A service that names a moment for a time to wait would be away for ever.
            away = min(float(entry["away"]), _LONGEST_AWAY) - passed
            why = f"{entry['why']}, kept in {self._path.name}"
            return Moment(max(0.0, turn), max(0.0, away), why)
        return Moment()

    def write(self, moment: Moment) -> None:
        """Leave word for whoever asks next."""
        if moment.turn <= 0 and moment.away <= 0 and not self._path.exists():
            return
        content = {"service": self._service, "left": time.time(), "turn": moment.turn}
        content |= {"away": moment.away, "why": moment.why}
        with suppress(OSError):
            self._path.write_text(json.dumps(content), encoding="utf-8")


def retry_after(text: str | None, date: str | None = None) -> float | None:
    """Return the seconds a Retry-After header asks for, in either of its forms.

    A moment is counted from the service's own ``date``: this machine's clock may be another's.
    """
    if text is None:
        return None
    if text.strip().isdecimal():
        return float(text)
    moment = _moment(text)
    if moment is None:
        return None
    now = None if date is None else _moment(date)
    return max(0.0, (moment - (now or datetime.now(UTC))).total_seconds())


def _moment(text: str) -> datetime | None:
    try:
        moment = parsedate_to_datetime(text)
    except (ValueError, OverflowError):
        return None
    return moment.replace(tzinfo=UTC) if moment.tzinfo is None else moment
