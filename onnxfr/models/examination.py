"""Finding out what a vendor's graph is: its size, its embedding, its batch, how to feed it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import onnx
from numpy.typing import NDArray
from onnx import helper

from onnxfr.errors import ModelError, SpecError, UnsupportedModel
from onnxfr.models.batch import BatchVerdict, free_batch
from onnxfr.models.card import Repair
from onnxfr.models.cleaning import clean, keep_needed, precision_of
from onnxfr.models.geometry import fit_array
from onnxfr.models.narrowing import narrowed, prove_narrow
from onnxfr.models.outputs import OutputChoice, choose_output
from onnxfr.models.preprocessing import Preprocessing
from onnxfr.models.quarantine import first_run
from onnxfr.models.rows import make_rows
from onnxfr.models.sessions import run_session, unit_rows
from onnxfr.models.structure import ImageInput, StaticHints, find_image_input, static_hints
from onnxfr.models.vendor import refuse_nan_weights
from onnxfr.types import Embeddings, Images

_USUAL_SIZES = ((112, 112), (160, 160), (224, 224), (128, 128), (112, 96), (150, 150), (96, 96))
_BATCH = 32
_OPEN_SIZE = (
    "the graph leaves the size of its pictures open; {}x{} was taken, the first usual one that "
    "runs: import it with --size if it was trained on another"
)


@dataclass(frozen=True)
class Core:
    """The vendor's graph after cleaning, with everything that was found out about it."""

    model: onnx.ModelProto
    image: ImageInput
    size: tuple[int, int]
    output: OutputChoice
    precision: str
    dynamic: bool
    repairs: tuple[Repair, ...]
    notes: tuple[str, ...]
    hints: StaticHints


def examine(
    vendor: onnx.ModelProto,
    output: str | None,
    closed_set: bool,
    size: tuple[int, int] | None = None,
) -> Core:
    """Clean the graph and learn all that can be learned without faces.

    Args:
        vendor: the graph as it came.
        output: name of the embedding tensor, if the user says it.
        closed_set: accept class scores as the answer.
        size: of the pictures, if the user says it; a graph that leaves it open gets a usual one.
    """
    model, repairs = clean(vendor)
    if output is not None:
        _expose(model, output)
    wanted = [output] if output else [value.name for value in model.graph.output]
    repairs = (*repairs, *keep_needed(model, wanted))
    image = find_image_input(model)
    hints = static_hints(model, image)
    notes = () if size or (image.height and image.width) else (_OPEN_SIZE,)
    came = model
    model, image, (size, shapes) = _in_a_type_that_runs(model, image, size)
    batch = image.batch or 1
    chosen = choose_output(model, shapes, batch, wanted=output, closed_set=closed_set)
    keep_needed(model, [chosen.name])
    refuse_nan_weights(model)
    if model is not came:
        keep_needed(came, [chosen.name])
        make_rows(came, chosen, batch)
    chosen, made = make_rows(model, chosen, batch)
    repairs = (*repairs, *made)
    if model is not came:
        repairs = (*repairs, prove_narrow(came, model, image, size, chosen.name))
    precision = precision_of(model)
    verdict: BatchVerdict = free_batch(model, image, size, chosen.name, precision)
    if not verdict.dynamic and batch > 1:
        raise UnsupportedModel(
            f"the graph only takes {batch} pictures at once and the batch could not be freed; "
            "export it with a batch of 1 or a dynamic batch"
        )
    return Core(
        model=verdict.model,
        image=image,
        size=size,
        output=chosen,
        precision=precision,
        dynamic=verdict.dynamic,
        repairs=(*repairs, *verdict.repairs),
        notes=(
            f"output {chosen.name}: {chosen.reason}",
            *(note.format(*size) for note in notes),
            *verdict.notes,
        ),
        hints=hints,
    )


def _expose(model: onnx.ModelProto, name: str) -> None:
    if any(value.name == name for value in model.graph.output):
        return
    if not any(name in node.output for node in model.graph.node):
        raise UnsupportedModel(f"--output {name!r}: the graph has no tensor of that name")
    model.graph.output.append(onnx.ValueInfoProto(name=name))


_Contact = tuple[tuple[int, int], dict[str, tuple[int, ...]]]
"""The size of picture that ran, and the shape of every output."""


def _in_a_type_that_runs(
    model: onnx.ModelProto, image: ImageInput, size: tuple[int, int] | None
) -> tuple[onnx.ModelProto, ImageInput, _Contact]:
    """Run the graph as it came, or in float32 where it is in another type and does not run."""
    try:
        return model, image, _first_contact(model, image, size)
    except ModelError:
        narrow = narrowed(model, image)
        if narrow is None:
            raise
    return *narrow, _first_contact(*narrow, size)


def _first_contact(
    model: onnx.ModelProto, image: ImageInput, wanted: tuple[int, int] | None
) -> _Contact:
    dtype = str(np.dtype(helper.tensor_dtype_to_np_dtype(image.elem_type)))
    sizes = [
        size
        for size in ([wanted] if wanted else _USUAL_SIZES)
        if image.height in (None, size[0]) and image.width in (None, size[1])
    ]
    if wanted and not sizes:
        raise SpecError(
            f"the graph takes pictures of {image.height}x{image.width}, not of "
            f"{wanted[0]}x{wanted[1]}; leave the size out"
        )
    if image.height and image.width:
        sizes = [(image.height, image.width)]
    refusal: ModelError | None = None
    for height, width in sizes:
        shape = [image.batch or 1, height, width, image.channels]
        if image.layout == "nchw":
            shape = [shape[0], image.channels, height, width]
        try:
            return (height, width), first_run(model, tuple(shape), dtype).outputs
        except ModelError as error:
            refusal = refusal or error
    raise refusal or UnsupportedModel(
        f"the image input leaves its size open ({image.height}x{image.width}) and none is usual"
    )


def embed_core(core: Core, images: Images, chosen: Preprocessing, session: Any) -> Embeddings:
    """Feed the vendor's own graph by hand and return unit rows."""
    dtype = helper.tensor_dtype_to_np_dtype(core.image.elem_type)
    step = _BATCH if core.dynamic else 1
    rows = []
    for k in range(0, len(images), step):
        prepared: NDArray[Any] = chosen.apply(fit_array(images[k : k + step], core.size))
        if np.issubdtype(dtype, np.integer):
            prepared = np.rint(prepared) - (128 if dtype == np.int8 else 0)
        rows.append(unit_rows(run_session(session, prepared.astype(dtype), core.output.name)))
    return np.concatenate(rows)
