"""The command line: the top layer, which may import everything and which nobody imports."""

from __future__ import annotations

import os

_SPINS = 3000
"""Turns that a torch thread without work waits before it sleeps, libgomp's own are a hundred times
as many. On a machine with other work a sleeping thread lets the one it waits for run: gradients of
single pictures took seconds there instead of tens of milliseconds. Alone, batches lose 4 %."""
_OWN_CHOICE = ("GOMP_SPINCOUNT", "OMP_WAIT_POLICY")


def main() -> None:
    """Run the command line."""
    if not any(name in os.environ for name in _OWN_CHOICE):
        # Read once, when torch is imported; worker processes inherit it.
        os.environ["GOMP_SPINCOUNT"] = str(_SPINS)
    from onnxfr.cli.app import run

    run()
