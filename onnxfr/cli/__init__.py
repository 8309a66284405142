"""The command line: the top layer, which may import everything and which nobody imports."""

from __future__ import annotations


def main() -> None:
    """Run the command line."""
    from onnxfr.cli.app import run

    run()
