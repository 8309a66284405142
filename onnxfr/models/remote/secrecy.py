"""Keys stay out of journals, logs and messages, also where a service repeats them."""

from __future__ import annotations

import json
from collections.abc import Iterable
from urllib.parse import quote

_SHORTEST = 6
"""Letters of a key that is looked for: shorter ones stand in any text."""
_CUT = "..."


class Veil:
    """Puts ``***`` in the place of secrets, as they are or as JSON and addresses write them."""

    def __init__(self, secrets: Iterable[str]) -> None:
        forms = {
            form
            for secret in secrets
            if len(secret) >= _SHORTEST
            for text in (secret, json.dumps(secret)[1:-1], quote(secret, safe=""))
            for form in (text, text.replace("/", "\\/"))
        }
        # A key that begins with another one must not leave its rest behind.
        self._forms = sorted(forms, key=len, reverse=True)

    def __call__(self, text: str) -> str:
        """Return what a service said without the keys in it, nor the beginning of one cut off."""
        whole = text.removesuffix(_CUT)
        if whole != text:
            text = self._without_end(whole) + _CUT
        for form in self._forms:
            text = text.replace(form, "***")
        return text

    def _without_end(self, text: str) -> str:
        for form in self._forms:
            for size in range(len(form) - 1, _SHORTEST - 1, -1):
                if text.endswith(form[:size]):
                    return text[:-size] + "***"
        return text
