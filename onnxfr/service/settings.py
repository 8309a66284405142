"""How a service meets its clients."""

from __future__ import annotations

from dataclasses import dataclass, field

from onnxfr.errors import SpecError
from onnxfr.service.keys import KeyEntry, Limits
from onnxfr.service.query_watch import WatchSettings

_SHARES = 4


@dataclass(frozen=True)
class ServiceSettings:
    """How the service meets its clients.

    Args:
        keys: clients by name; None lets everybody in as one anonymous client.
        limits: rate and quota of clients whose entry says nothing.
        max_bytes: the largest request body.
        body_seconds: the longest a body may take to arrive: a place is held for it meanwhile.
        max_batch: most pictures in one call of the model.
        max_waiting: most requests held at a time; with ``max_bytes`` it bounds what bodies take.
            Whole pictures are in memory while a reader cuts them, one for each core at a time.
        watch: how attacks by many similar questions are noticed; None does not look.
    """

    keys: dict[str, KeyEntry] | None = None
    limits: Limits = field(default_factory=Limits)
    max_bytes: int = 8_000_000
    body_seconds: float = 30.0
    max_batch: int = 64
    max_waiting: int = 256
    watch: WatchSettings | None = None

    def __post_init__(self) -> None:
        if not self.body_seconds > 0:
            raise SpecError(
                f"body_seconds is a time above 0; got {self.body_seconds}; 30 suits most clients"
            )

    @property
    def max_per_client(self) -> int:
        """Most requests of one client held at a time, so that one alone cannot shut others out."""
        alone = self.keys is None or len(self.keys) < 2
        return self.max_waiting if alone else max(1, self.max_waiting // _SHARES)
