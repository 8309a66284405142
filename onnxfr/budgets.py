"""Budgets as people write them, ``8/255``, and as the code counts them; free of heavy imports."""

from __future__ import annotations

from onnxfr.errors import SpecError


def read_eps(value: float | str) -> float:
    """Return a budget given as a number or as people write it: ``8/255``."""
    top, slash, bottom = str(value).partition("/")
    try:
        eps = float(top) / float(bottom) if slash else float(top)
    except (ValueError, ZeroDivisionError) as bad:
        raise SpecError(f"a budget is a number in [0, 1] such as 8/255; got {value!r}") from bad
    if not 0 <= eps <= 1:
        raise SpecError(f"a budget lies in [0, 1] (8/255 for 8 grey levels); got {value!r}")
    return eps


def write_eps(eps: float) -> str:
    """Return a budget as people write it: in grey levels, ``8/255``."""
    return f"{eps * 255:.4g}/255"
