"""The service's log: one JSON object a line, no picture and no key in it."""

from __future__ import annotations

import json
import logging
from datetime import UTC, datetime

LOG = logging.getLogger("onnxfr.service")


class JsonLines(logging.Formatter):
    """Writes the fields of ``record.fields`` beside time, level and event."""

    def format(self, record: logging.LogRecord) -> str:
        """Return one line."""
        line = {
            "time": datetime.fromtimestamp(record.created, UTC).isoformat(timespec="milliseconds"),
            "level": record.levelname.lower(),
            "event": record.getMessage(),
            **getattr(record, "fields", {}),
        }
        if record.exc_info:
            line["trace"] = self.formatException(record.exc_info)
        return json.dumps(line, ensure_ascii=True, default=str)


def note(level: int, event: str, **fields: object) -> None:
    """Write one event with its fields."""
    LOG.log(level, event, extra={"fields": fields})


def log_to_stderr() -> None:
    """Send every event of the process to stderr as JSON lines, those of other libraries too."""
    handler = logging.StreamHandler()
    handler.setFormatter(JsonLines())
    logging.captureWarnings(True)
    logging.getLogger().handlers = [handler]
    for name in (LOG.name, "uvicorn", "uvicorn.error"):
        log = logging.getLogger(name)
        log.handlers, log.propagate = [], True
        log.setLevel(logging.INFO)
