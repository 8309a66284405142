"""Who may ask and how often: API keys, a rate per second and a quota per day for each."""

from __future__ import annotations

import hashlib
import math
import time
import tomllib
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

from pydantic import BaseModel, ConfigDict, Field, TypeAdapter, ValidationError, model_validator

from onnxfr.errors import SpecError

_DAY = 86_400
MIN_KEY = 16

ANONYMOUS = "anonymous"
"""Who asks when no keys are set up."""


class KeyEntry(BaseModel):
    """One client of a keys file; limits left out are the service's defaults."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    key: Annotated[str, Field(min_length=MIN_KEY)] | None = None
    sha256: Annotated[str, Field(pattern=r"^[0-9a-f]{64}$")] | None = None
    per_second: Annotated[float, Field(gt=0)] | None = None
    per_day: Annotated[int, Field(ge=1)] | None = None

    @property
    def digest(self) -> str:
        """What the key is known by."""
        return self.sha256 or digest_of((self.key or "").encode())

    @model_validator(mode="after")
    def _one_of_both(self) -> KeyEntry:
        if (self.key is None) == (self.sha256 is None):
            raise ValueError("give either key or sha256 (of the key)")
        if self.key is not None and (not self.key.isprintable() or self.key != self.key.strip()):
            raise ValueError(
                "a key must fit a header: no control characters, no blanks at its ends"
            )
        return self


@dataclass(frozen=True)
class Limits:
    """The most a client may ask; None means no limit."""

    per_second: float | None = None
    per_day: int | None = None


class TooMany(Exception):
    """A limit is reached; ``retry_after`` says in how many seconds to try again."""

    def __init__(self, message: str, retry_after: float) -> None:
        super().__init__(message)
        self.retry_after = max(1, math.ceil(retry_after))


class Client:
    """The counters of one key: a token bucket of one second's worth, and the day's count.

    Counters live in memory: restarting the service forgets them.
    """

    def __init__(self, name: str, limits: Limits, clock: Callable[[], float] = time.time) -> None:
        self.name, self.limits, self._clock = name, limits, clock
        self._burst = max(1.0, limits.per_second or 1.0)
        self._tokens, self._refilled = self._burst, clock()
        self._day, self._today = int(clock() // _DAY), 0
        self.under_way = 0

    def charge(self) -> None:
        """Count one request, or raise ``TooMany`` without counting it."""
        now = self._clock()
        if now // _DAY != self._day:
            self._day, self._today = int(now // _DAY), 0
        if self.limits.per_day is not None and self._today >= self.limits.per_day:
            raise TooMany(
                f"the quota of {self.limits.per_day} requests per day is used up",
                (self._day + 1) * _DAY - now,
            )
        rate = self.limits.per_second
        if rate is not None:
            passed = max(0.0, now - self._refilled)
            self._tokens, self._refilled = min(self._burst, self._tokens + passed * rate), now
            if self._tokens < 1:
                raise TooMany(f"more than {rate:g} requests per second", (1 - self._tokens) / rate)
            self._tokens -= 1
        self._today += 1


class Clients:
    """Finds the client of a key; without keys everybody is one anonymous client."""

    def __init__(
        self,
        entries: Mapping[str, KeyEntry] | None,
        defaults: Limits,
        clock: Callable[[], float] = time.time,
    ) -> None:
        self.required = bool(entries)
        self._anonymous = Client(ANONYMOUS, defaults, clock)
        # Looked up by digest: the time a lookup takes says nothing about the key.
        self._by_digest = {
            entry.digest: Client(
                name,
                Limits(
                    entry.per_second or defaults.per_second,
                    entry.per_day or defaults.per_day,
                ),
                clock,
            )
            for name, entry in (entries or {}).items()
        }

    def find(self, key: bytes | None) -> Client | None:
        """Return who presents this key, as it came in the header, or None for a stranger."""
        if not self.required:
            return self._anonymous
        return None if key is None else self._by_digest.get(digest_of(key))


def digest_of(key: bytes) -> str:
    """Return what a keys file may store instead of the key; text counts as UTF-8."""
    return hashlib.sha256(key).hexdigest()


def read_keys(path: Path) -> dict[str, KeyEntry]:
    """Read a keys file: one TOML table per client."""
    try:
        raw = tomllib.loads(path.read_text(encoding="utf-8-sig"))
        entries = TypeAdapter(dict[str, KeyEntry]).validate_python(raw)
    except (OSError, UnicodeDecodeError, tomllib.TOMLDecodeError) as bad:
        raise SpecError(f"cannot read the keys file {path}: {bad}") from None
    except ValidationError as bad:
        # Never the values: a message must not show a key.
        places = "; ".join(
            f"{'.'.join(str(part) for part in e['loc'])}: {e['msg']}" for e in bad.errors()
        )
        raise SpecError(f"{path} is no keys file: {places}") from None
    if not entries:
        raise SpecError(f'{path} names no client; add one: [alice] key = "..."')
    owners: dict[str, str] = {}
    for name, entry in entries.items():
        if (other := owners.setdefault(entry.digest, name)) != name:
            # The limits and the log would be one client's, whichever is asked for.
            raise SpecError(
                f"{path}: {other} and {name} have the same key; give each client a key of its own"
            )
    return entries
