"""Small text files of protocols: read once, bounded, lines numbered for messages."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from onnxfr.errors import DataError

MAX_BYTES = 256 * 2**20


@dataclass(frozen=True)
class Line:
    """One line that is not empty, and where it stands."""

    number: int
    text: str

    @property
    def fields(self) -> tuple[str, ...]:
        """Fields between tabs where there are any (names may hold blanks), else between blanks."""
        if "\t" in self.text:
            return tuple(field.strip() for field in self.text.split("\t") if field.strip())
        return tuple(self.text.split())

    def __str__(self) -> str:
        return f"line {self.number} ({self.text[:80]!r})"


def read_text(path: Path) -> str:
    """Return a text file's content; UTF-8, with or without a byte-order mark."""
    try:
        if path.stat().st_size > MAX_BYTES:
            raise DataError(f"{path}: more than {MAX_BYTES} bytes; that is no protocol file")
        return path.read_text(encoding="utf-8-sig")
    except OSError as error:
        raise DataError(f"{path}: cannot be read ({error.strerror or error})") from error
    except UnicodeDecodeError as error:
        raise DataError(f"{path}: expected UTF-8 text, got other bytes ({error.reason})") from error


def read_lines(path: Path) -> list[Line]:
    """Return the lines that hold something; a file without any is an error."""
    lines = [
        Line(number, text.strip())
        for number, text in enumerate(read_text(path).splitlines(), start=1)
        if text.strip()
    ]
    if not lines:
        raise DataError(f"{path}: expected a list, the file is empty")
    return lines
