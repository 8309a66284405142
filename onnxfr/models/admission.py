"""Admission: from a vendor's ONNX file to a model in normal form with a card.

The order matters: read without trust, clean, first contact in a child process, find the embedding,
free the batch, ask real faces for the preprocessing, wrap, prove the wrapped model equals the
vendor's, and only then write, all files at once.
"""

from __future__ import annotations

import hashlib
import re
import tempfile
import unicodedata
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import onnx

from onnxfr.errors import AmbiguousPreprocessing, SpecError, StoreError, UnsupportedModel
from onnxfr.models.card import (
    CARD_FILE,
    CERTIFICATE_FILE,
    MODEL_FILE,
    Card,
    Source,
    write_card,
)
from onnxfr.models.examination import Core, embed_core, examine
from onnxfr.models.hardware import instruction_set
from onnxfr.models.normal_form import to_normal_form
from onnxfr.models.outputs import OutputChoice
from onnxfr.models.preprocessing import Preprocessing, parse_preprocessing
from onnxfr.models.preprocessing_probe import LabelledPairs, ProbeResult, probe_preprocessing
from onnxfr.models.rewrites import rewritten
from onnxfr.models.sessions import open_session, run_session
from onnxfr.models.structure import ImageInput, StaticHints
from onnxfr.models.vendor import VendorFile, opset_of, read_vendor

_EQUAL = {"fp32": 1e-4, "fp16": 2e-2, "int8": 2e-2, "mixed": 2e-2}


@dataclass(frozen=True)
class Admission:
    """What was found and where it was written."""

    folder: Path
    card: Card
    probe: ProbeResult | None
    hints: StaticHints
    output: OutputChoice


def admit(
    path: Path,
    folder: Path,
    *,
    pairs: LabelledPairs | None = None,
    preprocess: str | None = None,
    output: str | None = None,
    closed_set: bool = False,
    name: str | None = None,
    size: tuple[int, int] | None = None,
    overwrite: bool = False,
    facts: dict[str, Any] | None = None,
) -> Admission:
    """Turn one vendor file into a folder with model, card and (later) certificate.

    Args:
        path: the vendor's file.
        folder: where to write; must not exist unless ``overwrite``.
        pairs: labelled real faces that decide the preprocessing.
        preprocess: overrides every hint and probe, for example ``rgb,pm1``.
        output: name of the embedding tensor, which may be inside the graph.
        closed_set: accept class scores as the model's answer.
        name: the model's name; the file's stem by default.
        size: height and width of the pictures, for a graph that leaves them open.
        overwrite: replace a model already there.
        facts: further card fields (licence, framework, thresholds, ...).
    """
    _check_place(folder, path, overwrite)
    if name is not None and safe_name(name) != name:
        raise SpecError(
            f"a model's name has letters, digits, dots, dashes and underscores only; got {name!r}"
        )
    vendor = read_vendor(path)
    core = examine(vendor.model, output, closed_set, size)
    chosen, probe = _choose_preprocessing(core, pairs, preprocess)
    normal = to_normal_form(
        core.model,
        core.image,
        chosen,
        size=core.size,
        output=core.output.name,
        output_shape=core.output.shape,
        dynamic=core.dynamic,
    )
    proof = _prove(core, chosen, normal)
    card = _card(vendor, core, chosen, normal, proof, name or safe_name(path.stem), facts or {})
    _write(folder, card, normal, overwrite)
    return Admission(folder, card, probe, core.hints, core.output)


def _check_place(folder: Path, vendor: Path, overwrite: bool) -> None:
    """Raise unless the folder is new, empty, or a model that may be replaced and nothing else."""
    if folder.exists() and not folder.is_dir():
        raise SpecError(f"{folder} is a file; expected a folder to create")
    held = {entry.name for entry in folder.iterdir()} if folder.exists() else set()
    if not held:
        return
    if not overwrite:
        raise SpecError(f"{folder} exists and is not empty; choose another or give --overwrite")
    others = sorted(held - {CARD_FILE, MODEL_FILE, CERTIFICATE_FILE})
    if vendor.resolve().parent == folder.resolve():
        others = [vendor.name, *others]
    if others:
        raise SpecError(
            f"{folder} holds {others[0]}, which would be lost; choose a folder of the model's own"
        )


def _choose_preprocessing(
    core: Core, pairs: LabelledPairs | None, preprocess: str | None
) -> tuple[Preprocessing, ProbeResult | None]:
    layout = core.image.layout
    if preprocess is not None:
        return _stated(preprocess, core.image), None
    if pairs is None:
        if core.hints.pixel_range and core.hints.color:
            return parse_preprocessing(
                f"{core.hints.color},{core.hints.pixel_range},{layout}"
            ), None
        told = "; ".join(core.hints.reasons) or "nothing about its preprocessing"
        raise AmbiguousPreprocessing(
            f"the file alone tells {told}, which is not conclusive; give labelled faces with "
            "--data (for example lfw:PATH) or state it with --preprocess "
            f"(for example {_example(core.image)})"
        )
    session = open_session(rewritten(core.model))
    probe = probe_preprocessing(
        pairs,
        lambda images, candidate: embed_core(core, images, candidate, session),
        core.image,
        core.hints,
    )
    if probe.winner is None:
        raise AmbiguousPreprocessing(
            "the preprocessing is ambiguous: "
            + "; ".join(probe.reasons)
            + "\n"
            + table_text(probe)
            + "\ngive more or better aligned colour faces with --data, or use --preprocess"
        )
    return probe.winner, probe


def _stated(text: str, image: ImageInput) -> Preprocessing:
    """Read what the user says of the preprocessing; refuse what the input cannot take at all."""
    stated = parse_preprocessing(text, image.layout)
    bytes_only = len(image.scalings) == 1
    for got, possible, takes in (
        (stated.color, image.colors, f"{image.channels} channel(s)"),
        (stated.layout, (image.layout,), f"{image.layout.upper()} pictures"),
        (stated.scaling, image.scalings if bytes_only else (stated.scaling,), "bytes"),
    ):
        if got not in possible:
            raise SpecError(
                f"the network's input takes {takes}: expected {' or '.join(possible)} in "
                f"--preprocess, got {got}; say for example {_example(image)}"
            )
    return stated


def _example(image: ImageInput) -> str:
    """Return a preprocessing that this input could take, in the words of ``--preprocess``."""
    scaling = "pm1" if "pm1" in image.scalings else image.scalings[0]
    return f"{image.colors[0]},{scaling}"


def table_text(probe: ProbeResult) -> str:
    """Return the probe's table as text, best candidate first."""
    lines = [f"{'preprocessing':44} {'d′':>6} {'AUC':>7} {'pairs':>6}  worse than the best with"]
    for row in probe.table:
        beaten = f"{row.beaten_with:.3f}" if row.beaten_with else "-"
        label = row.preprocessing.describe()
        lines.append(f"{label:44} {row.d_prime:6.3f} {row.auc:7.4f} {row.pairs:6d}  {beaten}")
    return "\n".join(lines)


def _prove(core: Core, chosen: Preprocessing, normal: onnx.ModelProto) -> float:
    """Compare the written model with the vendor's graph fed by hand."""
    rng = np.random.Generator(np.random.Philox(key=11))
    coarse = rng.random((4, 3, 8, 8), dtype=np.float32)
    images = np.repeat(np.repeat(coarse, core.size[0] // 8 + 1, 2), core.size[1] // 8 + 1, 3)
    images = np.ascontiguousarray(images[:, :, : core.size[0], : core.size[1]])
    expected = embed_core(core, images, chosen, open_session(core.model))
    session = open_session(normal)
    step = len(images) if core.dynamic else 1
    got = np.concatenate(
        [run_session(session, images[k : k + step]) for k in range(0, len(images), step)]
    )
    if not np.isfinite(expected).all():
        raise UnsupportedModel("the model answers NaN or infinity to ordinary pictures")
    worst = float(np.abs(got - expected).max())
    if got.shape != expected.shape or not worst <= _EQUAL[core.precision]:
        raise UnsupportedModel(
            f"the normal form differs from the vendor's graph by {worst:.2e} on unit embeddings; "
            "please report this model"
        )
    return worst


def _card(
    vendor: VendorFile,
    core: Core,
    chosen: Preprocessing,
    normal: onnx.ModelProto,
    proof: float,
    name: str,
    facts: dict[str, Any],
) -> Card:
    contents = normal.SerializeToString(deterministic=True)
    fields: dict[str, Any] = {
        "name": name,
        "sha256": hashlib.sha256(contents).hexdigest(),
        "framework": vendor.model.producer_name or "unknown",
        "input_height": core.size[0],
        "input_width": core.size[1],
        "embedding_dim": int(np.prod(core.output.shape[1:])),
        "opset": opset_of(normal),
        "precision": core.precision,
        "output": core.output.name,
        "head": core.output.head,
        "batch": "dynamic" if core.dynamic else "loop",
        "instruction_set": instruction_set(),
        "source": Source(file=vendor.file, sha256=vendor.sha256),
        "preprocessing": chosen,
        "repairs": core.repairs,
        "notes": (*core.notes, f"normal form equals the vendor's graph within {proof:.1e}"),
    }
    return Card.model_validate(fields | facts)


def safe_name(stem: str) -> str:
    """Return a file's stem as a model's name: ASCII letters, digits, dots, dashes, underscores.

    Accents are dropped. What ASCII cannot say leaves a mark of its own, lest two files whose names
    are Chinese become one model.
    """
    plain = unicodedata.normalize("NFKD", stem)
    letters = "".join(c for c in plain if not unicodedata.combining(c))
    kept = re.sub(r"[^A-Za-z0-9._-]+", "-", letters).strip(".-_")
    if any(c.isalnum() and not c.isascii() for c in letters):
        mark = hashlib.sha256(letters.encode("utf-8", "surrogatepass")).hexdigest()[:8]
        kept = f"{kept[:91] or 'model'}-{mark}"
    return kept[:100] or "model"


def _write(folder: Path, card: Card, normal: onnx.ModelProto, overwrite: bool) -> None:
    """Write everything into a temporary sibling and move it into place in one step.

    A model that somebody else has put there meanwhile is replaced only if that was asked for.
    """
    try:
        folder.parent.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(prefix=f".{folder.name}-", dir=folder.parent) as temporary:
            fresh, old = Path(temporary) / "fresh", Path(temporary) / "old"
            fresh.mkdir()
            (fresh / MODEL_FILE).write_bytes(normal.SerializeToString(deterministic=True))
            write_card(card, fresh / CARD_FILE)
            if folder.exists() and overwrite:
                folder.replace(old)
            elif folder.exists():
                folder.rmdir()
            try:
                fresh.replace(folder)
            except OSError:
                if old.exists():
                    old.replace(folder)
                raise
    except OSError as error:
        raise StoreError(
            f"cannot write the model to {folder} ({error.strerror or error}); choose another folder"
        ) from error
