"""``onnxfr report``: a run as one page for people and a few files for programs."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Annotated

import typer


def report(
    run: Annotated[
        Path, typer.Argument(help="Run directory of 'onnxfr run' or 'onnxfr verify -o'.")
    ],
    output: Annotated[
        Path | None, typer.Option("--output", "-o", help="Folder to write to; default RUN/report.")
    ] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print one JSON object.")] = False,
) -> None:
    """Write the report of a run: report.html, summary.json and CSV files.

    Example: onnxfr report runs/quick-1a2b3c4d
    """
    from onnxfr.evaluators.report.write import write_report
    from onnxfr.runs.store import RunStore

    written = write_report(RunStore.open(run), output or run / "report")
    if as_json:
        answer = {
            "report": str(written.page),
            "summary": str(written.summary),
            "tables": [str(table) for table in written.tables],
            "verdicts": [
                {"level": each.level, "model": each.model, "sentence": each.sentence}
                for each in (*written.gaps, *written.verdicts)
            ],
        }
        typer.echo(json.dumps(answer, indent=1))
        return
    for verdict in (*written.gaps, *written.verdicts):
        typer.echo(f"{verdict.level:8} {verdict.sentence}")
    typer.echo(f"report: {written.page}")
