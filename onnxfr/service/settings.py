"""How a service meets its clients."""

from __future__ import annotations

from dataclasses import dataclass, field

from onnxfr.service.keys import KeyEntry, Limits
from onnxfr.service.query_watch import WatchSettings


@dataclass(frozen=True)
class ServiceSettings:
    """How the service meets its clients.

    Args:
        keys: clients by name; None lets everybody in as one anonymous client.
        limits: rate and quota of clients whose entry says nothing.
        max_bytes: the largest request body.
        max_batch: most pictures in one call of the model.
        max_waiting: most requests held at a time; with ``max_bytes`` it bounds the memory.
        watch: how attacks by many similar questions are noticed; None does not look.
    """

    keys: dict[str, KeyEntry] | None = None
    limits: Limits = field(default_factory=Limits)
    max_bytes: int = 8_000_000
    max_batch: int = 64
    max_waiting: int = 256
    watch: WatchSettings | None = None
