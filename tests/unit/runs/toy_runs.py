"""A real evaluator that needs no model: hashes of row numbers, with delays, failures and deaths."""

from __future__ import annotations

import hashlib
import os
import signal
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
from PIL import Image

from onnxfr.data.images import image_sha, load_pixels, to_images
from onnxfr.data.pairs import ImageSource
from onnxfr.errors import DataError
from onnxfr.evaluators.base import EVALUATORS, Evaluator, PlanContext, Records, Result
from onnxfr.evaluators.planning import RunCell
from onnxfr.runs.cells import Cell, Cost, DataRef, ModelRef, chunks, take_rows
from onnxfr.runs.context import Context
from onnxfr.runs.records import unfinished
from onnxfr.runs.store import RunStore
from onnxfr.types import Images

MODEL = ModelRef("nowhere", "0" * 64, "toy")


@EVALUATORS.register("toy_hash")
@dataclass(frozen=True)
class ToyHash(Evaluator):
    name = "toy_hash"
    version = 1
    methods: tuple[str, ...] = ("plain",)
    delay: float = 0.0

    def plan(self, context: PlanContext) -> list[Cell]:
        return [
            context.cell(
                self,
                model,
                data,
                method=method,
                params={"delay": self.delay},
                rows=rows,
                priority=-index,
                cost=Cost(images=len(rows)),
            )
            for model in context.models
            for data in context.data
            for index, method in enumerate(self.methods)
            for rows in chunks(data.pairs, context.rows_per_cell)
        ]

    def run(self, cell: Cell, context: Context) -> Records:
        time.sleep(cell.params["delay"])
        _misbehave(cell.method, cell)
        assert isinstance(cell.rows, range)
        records = []
        for done, row in enumerate(cell.rows, 1):
            text = f"{cell.seed} {cell.method} {row}"
            digest = hashlib.sha256(text.encode()).hexdigest()
            records.append({"row": row, "digest": digest, "score": int(digest[:8], 16) / 2**32})
            context.report(done, len(cell.rows))
        kind, _, place = cell.method.partition(":")
        if kind == "short" and not Path(place).exists():
            return unfinished(records[:1], "no call was left")
        return records

    def summarise(self, records: pa.Table) -> list[Result]:
        scores = records["score"].to_pylist()
        return [
            Result(
                evaluator=self.name,
                model="toy",
                metric="mean_score",
                value=sum(scores) / len(scores),
                n=len(scores),
            )
        ]


@EVALUATORS.register("toy_score")
@dataclass(frozen=True)
class ToyScore(Evaluator):
    """Cosines of pairs: a real model, real pictures, the embedding cache."""

    name = "toy_score"
    version = 1

    def plan(self, context: PlanContext) -> list[Cell]:
        return [
            context.cell(self, model, data, rows=rows, cost=Cost(images=2 * len(rows)))
            for model in context.models
            for data in context.data
            for rows in chunks(data.pairs, context.rows_per_cell)
        ]

    def run(self, cell: Cell, context: Context) -> Records:
        pairs = context.pairs(cell.data)
        ids = pairs.pair_ids()
        chosen = take_rows(ids, cell.rows)
        sides = []
        for side in (pairs.left[chosen], pairs.right[chosen]):
            sources = [pairs.images[i] for i in side]

            def load(at: Sequence[int], sources: list[ImageSource] = sources) -> Images:
                return to_images([load_pixels(sources[i]) for i in at])

            sides.append(context.embed(cell.model, [image_sha(s) for s in sources], load))
        scores = (sides[0] * sides[1]).sum(axis=1)
        return [
            {"pair": ids[row], "same": bool(pairs.same[row]), "score": float(score)}
            for row, score in zip(chosen, scores, strict=True)
        ]

    def summarise(self, records: pa.Table) -> list[Result]:
        scores = records["score"].to_pylist()
        mean = sum(scores) / len(scores)
        return [Result(evaluator=self.name, model="toy", metric="mean", value=mean, n=len(scores))]


def write_model(folder: Path, seed: int = 0, name: str = "toy") -> Path:
    """Admit a small random network and return its folder."""
    # Imported here: every killed and restarted process would pay for it otherwise.
    import onnx
    from onnx import TensorProto, helper, numpy_helper

    from onnxfr.models.admission import admit

    random = np.random.default_rng(seed)
    weights = {
        "w": random.standard_normal((8, 3, 8, 8)).astype(np.float32) / 10,
        "d": random.standard_normal((8 * 14 * 14, 64)).astype(np.float32) / 10,
    }
    nodes = [
        helper.make_node("Conv", ["x", "w"], ["c"], strides=[8, 8]),
        helper.make_node("Relu", ["c"], ["r"]),
        helper.make_node("Flatten", ["r"], ["f"]),
        helper.make_node("MatMul", ["f", "d"], ["y"]),
    ]
    graph = helper.make_graph(
        nodes,
        "toy",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, ["n", 3, 112, 112])],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, ["n", 64])],
        [numpy_helper.from_array(value, key) for key, value in weights.items()],
    )
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)
    folder.mkdir(parents=True)
    onnx.save(model, folder / "vendor.onnx")
    admit(folder / "vendor.onnx", folder / name, preprocess="rgb,pm1", name=name)
    return folder / name


def write_faces(folder: Path, people: int = 6, each: int = 3) -> Path:
    """Write a folder of identities: noisy versions of one random picture per person."""
    random = np.random.default_rng(1)
    for person in range(people):
        place = folder / f"person{person}"
        place.mkdir(parents=True)
        face = random.integers(40, 215, (112, 112, 3))
        for number in range(each):
            noisy = face + random.integers(-30, 30, face.shape)
            Image.fromarray(noisy.astype(np.uint8)).save(place / f"{number}.png")
    return folder


def _misbehave(method: str, cell: Cell) -> None:
    kind, _, place = method.partition(":")
    if kind == "refuse":
        raise DataError("expected a picture, got a toy; give another")
    if kind == "crash":
        raise ZeroDivisionError("on purpose")
    if kind == "interrupt":
        raise KeyboardInterrupt
    if kind == "die" or (kind == "die_once" and not Path(place, cell.key).exists()):
        if kind == "die_once":
            Path(place, cell.key).touch()
        os.kill(os.getpid(), signal.SIGKILL)
    if kind == "last_words":
        try:
            Path(place, "begun").touch()
            time.sleep(60)
        except KeyboardInterrupt:
            Path(place, "said").touch()
            raise
    if kind == "pid":
        Path(place, str(os.getpid())).touch()


def toy_cells(
    rows: int = 20,
    size: int = 5,
    methods: Sequence[str] = ("plain",),
    delay: float = 0.0,
    seed: int = 0,
) -> list[Cell]:
    planning = PlanContext(
        models=(MODEL,),
        data=(DataRef("toy:", "f", rows, "toy"),),
        context=Context(Path("unused")),
        seed=seed,
        rows_per_cell=size,
        code="test",
    )
    return ToyHash(methods=tuple(methods), delay=delay).plan(planning)


def toy_work(cache: Path) -> RunCell:
    return RunCell(cache, (__name__,))


def records_of(store: RunStore) -> list[dict[str, Any]]:
    """Return all records of a run, in a fixed order."""
    rows: list[dict[str, Any]] = store.records().to_pylist()
    return sorted(rows, key=lambda record: (record["method"], record["row"]))


def alive(pid: int) -> bool:
    """Tell whether a process exists and is no zombie."""
    try:
        state = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
    except OSError:
        return False
    return state != "Z"
