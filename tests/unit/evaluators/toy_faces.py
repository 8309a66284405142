"""A network of one layer, people who are smooth colour patterns, and runs of the two."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import cv2
import numpy as np
import onnx
import pyarrow as pa
import torch
from onnx import TensorProto, helper, numpy_helper

from onnxfr.evaluators.planning import RunCell, manifest_of, plan_run, worker_context
from onnxfr.evaluators.report.page import Content
from onnxfr.evaluators.report.section import View
from onnxfr.evaluators.verification import Verification
from onnxfr.models.admission import admit
from onnxfr.models.wrapper import FRModel
from onnxfr.runs.spec import RunSpec, make_spec
from onnxfr.runs.store import RunStore
from onnxfr.types import Embeddings, Images, Pixels


def make_model(
    folder: Path,
    seed: int = 0,
    grey_levels: int | None = None,
    size: int = 112,
    *,
    whole_numbers: bool = False,
) -> Path:
    """Admit a network that averages 8 x 8 patches of a picture and projects them.

    ``grey_levels`` puts a layer in front that rounds the picture to so many: no gradient passes it.
    With ``whole_numbers`` in front the model has no differentiable form at all.
    """
    patch = [size // 8, size // 8]
    levels = np.array(255 / (grey_levels or 255), dtype=np.float32)
    shattering = [
        helper.make_node("Div", ["data", "levels"], ["divided"]),
        helper.make_node("Round", ["divided"], ["rounded"]),
        helper.make_node("Mul", ["rounded", "levels"], ["seen"]),
    ]
    counting = [
        helper.make_node("Cast", ["data"], ["counted"], to=TensorProto.INT32),
        helper.make_node("Cast", ["counted"], ["seen"], to=TensorProto.FLOAT),
    ]
    front = shattering if grey_levels else counting if whole_numbers else []
    rng = np.random.default_rng(seed)
    weight = rng.standard_normal((192, 32)).astype(np.float32)
    graph = helper.make_graph(
        [
            *front,
            helper.make_node("Sub", ["seen" if front else "data", "grey"], ["centred"]),
            helper.make_node(
                "AveragePool", ["centred"], ["pooled"], kernel_shape=patch, strides=patch
            ),
            helper.make_node("Flatten", ["pooled"], ["flat"]),
            helper.make_node("MatMul", ["flat", "weight"], ["embedding"]),
        ],
        folder.name,
        [helper.make_tensor_value_info("data", TensorProto.FLOAT, ["N", 3, size, size])],
        [helper.make_tensor_value_info("embedding", TensorProto.FLOAT, ["N", 32])],
        [
            numpy_helper.from_array(weight, "weight"),
            numpy_helper.from_array(np.array(127.5, dtype=np.float32), "grey"),
            *([numpy_helper.from_array(levels, "levels")] if grey_levels else ()),
        ],
    )
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 13)], ir_version=8)
    folder.parent.mkdir(parents=True, exist_ok=True)
    vendor = folder.with_suffix(".onnx")
    onnx.save(model, vendor)
    admit(vendor, folder, preprocess="rgb,0-255")
    return folder


def make_faces(folder: Path, people: int = 8, pictures: int = 4, seed: int = 0) -> Path:
    """Write a folder of identities; pictures of one person differ by strong noise."""
    rng = np.random.default_rng(seed)
    for person in range(people):
        base = rng.random((5, 5, 3))
        place = folder / f"p{person}"
        place.mkdir(parents=True)
        for number in range(pictures):
            write_picture(place / f"{number}.png", base + 0.55 * rng.standard_normal((5, 5, 3)))
    return folder


def write_picture(path: Path, coarse: Any, size: int = 112) -> Pixels:
    """Write a smooth picture and return its pixels."""
    smooth = cv2.resize(np.asarray(coarse, dtype=np.float64), (size, size))
    pixels: Pixels = np.clip(255 * smooth, 0, 255).astype(np.uint8)
    cv2.imwrite(str(path), pixels[:, :, ::-1])
    return pixels


class Dice(FRModel):
    """Adds fresh noise to the picture at every call."""

    def __init__(self, inner: FRModel) -> None:
        self.inner, self.card = inner, inner.card
        self._random = np.random.default_rng(0)

    @property
    def differentiable(self) -> bool:
        return True

    def embed(self, images: Images) -> Embeddings:
        noise = self._random.standard_normal(images.shape, dtype=np.float32)
        return self.inner.embed(np.asarray(images + 0.2 * noise, dtype=np.float32))

    def embed_grad(self, images: torch.Tensor) -> torch.Tensor:
        noise = torch.as_tensor(self._random.standard_normal(tuple(images.shape)))
        return self.inner.embed_grad(images + 0.2 * noise.to(images.dtype))


def with_columns(content: Content, **columns: Any) -> Content:
    """Return a run whose verification records have other values in some columns."""
    view = content.views["verification"]
    table = view.records
    for name, values in columns.items():
        place = table.schema.get_field_index(name)
        column = pa.array(values, table.schema.field(name).type)
        table = table.set_column(place, name, column)
    return with_records(content, table)


def with_records(content: Content, records: pa.Table) -> Content:
    """Return a run with other verification records and what follows from them."""
    results = tuple(Verification().summarise(records))
    return replace(content, views={"verification": View(records, results, content.manifest)})


def make_plan_spec(
    models: Sequence[Path], data: str, params: dict[str, Any] | None = None, **settings: Any
) -> RunSpec:
    content = {
        "models": [str(model) for model in models],
        "data": [data],
        "evaluators": [{"name": "verification", "params": params or {}}],
        **settings,
    }
    return make_spec(content, Path.cwd())


def make_run(
    folder: Path,
    model: Path | Sequence[Path],
    data: str,
    cache: Path,
    params: dict[str, Any] | None = None,
    **settings: Any,
) -> Path:
    """Run the verification evaluator (or others) and store what a run stores."""
    context = worker_context(cache)
    models = [model] if isinstance(model, Path) else model
    plan = plan_run(make_plan_spec(models, data, params, fmr=0.05, **settings), context)
    store = RunStore(folder)
    with store.working():
        store.write_manifest(manifest_of(plan, context), plan.cells)
        for cell in plan.cells:
            store.write(cell, RunCell(cache)(cell, lambda done, total: None))
    return folder
