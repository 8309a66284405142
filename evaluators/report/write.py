"""From a stored run to a folder with the page, the summary and the CSV files."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from onnxfr.evaluators.planning import answerable, make_evaluator
from onnxfr.evaluators.report.page import Content, page
from onnxfr.evaluators.report.section import Verdict, View
from onnxfr.evaluators.report.summary import records_csv, results_csv, summary_of, summary_text
from onnxfr.runs.files import write_atomically
from onnxfr.runs.records import why_unfinished
from onnxfr.runs.spec import EvaluatorSpec
from onnxfr.runs.store import RunStore


@dataclass(frozen=True)
class Written:
    """Where a report is and what it says first."""

    page: Path
    summary: Path
    tables: tuple[Path, ...]
    verdicts: tuple[Verdict, ...]
    gaps: tuple[Verdict, ...]
    """What the run lacks; empty for a complete one."""


def read_content(store: RunStore) -> Content:
    """Read a run and compute its results."""
    manifest = store.manifest()
    views: dict[str, View] = {}
    for entry in manifest["evaluators"]:
        records = store.records(entry["name"])
        if not records.num_rows:
            continue
        evaluator = make_evaluator(EvaluatorSpec(name=entry["name"], params=entry["params"]))
        with answerable(evaluator):
            results = tuple(evaluator.summarise(records))
        views[entry["name"]] = View(records, results, manifest)
    failed = store.failed()
    missing, unfinished = 0, {}
    for key in [cell["key"] for cell in manifest["cells"] if cell["key"] not in failed]:
        table = store.read(key)
        why = None if table is None else why_unfinished(table)
        missing += table is None
        if why is not None:
            unfinished[key] = why
    return Content(manifest, views, failed, missing, unfinished)


def write_report(store: RunStore, folder: Path) -> Written:
    """Write ``report.html``, ``summary.json`` and the CSV files of a run into ``folder``."""
    content = read_content(store)
    verdicts = tuple(content.verdicts())
    summary = summary_of(
        content.manifest,
        content.results(),
        verdicts,
        content.failed,
        missing=content.missing,
        unfinished=len(content.unfinished),
    )
    files = {
        "report.html": page(content).encode(),
        "summary.json": summary_text(summary).encode(),
        "results.csv": results_csv(content.results()).encode(),
        **{
            f"records-{name}.csv": records_csv(view.records) for name, view in content.views.items()
        },
    }
    for name, text in files.items():
        write_atomically(folder / name, text)
    tables = tuple(folder / name for name in files if name.endswith(".csv"))
    gaps = tuple(content.gaps())
    return Written(folder / "report.html", folder / "summary.json", tables, verdicts, gaps)
