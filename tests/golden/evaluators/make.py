"""Writes the golden table of an evaluator: stored records, and the results they must give.

    python tests/golden/evaluators/make.py [--kept] NAME...

Run it when an evaluator is new, or when its summary changes on purpose; look at the difference.
With --kept the records stay what they are, and only what is read from them is written anew.
"""

from __future__ import annotations

import json
import sys
import tempfile
from collections.abc import Iterable
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parents[2] / "contract"))

import pyarrow as pa
from test_evaluators import SMALL, TYPES, plan, run_plan
from toy_runs import write_faces, write_model

from onnxfr.evaluators.planning import make_evaluator
from onnxfr.runs.context import Context
from onnxfr.runs.spec import EvaluatorSpec


def make(name: str, kept: bool) -> None:
    """Write an evaluator's table."""
    place = Path(__file__).with_name(f"{name}.json")
    if kept:
        golden = json.loads(place.read_text(encoding="utf-8"))
        params, schema, columns = (golden[key] for key in ("params", "schema", "columns"))
    else:
        params, schema, columns = SMALL.get(name, {}), *run(name)
    table = pa.table({key: pa.array(columns[key], TYPES[kind]) for key, kind in schema.items()})
    results = make_evaluator(EvaluatorSpec(name=name, params=params)).summarise(table)
    lines = [
        f'"params": {json.dumps(params)}',
        f'"schema": {json.dumps(schema)}',
        '"columns": {\n'
        + _joined(f"{json.dumps(k)}: {_text(v)}" for k, v in columns.items())
        + "}",
        '"results": [\n' + _joined(_text(result.to_dict()) for result in results) + "]",
    ]
    place.write_text("{\n" + ",\n".join(lines) + "\n}\n", encoding="utf-8")


def run(name: str) -> tuple[dict[str, str], dict[str, Any]]:
    """Run an evaluator on the contract tests' model and faces; return its records' columns."""
    with tempfile.TemporaryDirectory() as folder:
        made = Path(folder)
        write_model(made / "model")
        write_faces(made / "faces", people=8, each=4)
        context = Context(made / "cache")
        records = run_plan(plan(name, made, context), context)
    kept = [field for field in records.schema if field.name != "cell"]
    columns = {
        field.name: [None] * records.num_rows
        if field.type == pa.binary()
        else records[field.name].to_pylist()
        for field in kept
    }
    return {field.name: str(field.type) for field in kept}, columns


def _joined(parts: Iterable[str]) -> str:
    return ",\n".join(parts)


def _text(value: object) -> str:
    return json.dumps(value, allow_nan=False)


if __name__ == "__main__":
    words = [word for word in sys.argv[1:] if word != "--kept"]
    for word in words:
        make(word, kept="--kept" in sys.argv)
