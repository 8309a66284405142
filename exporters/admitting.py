"""From an exported graph to a model folder: normal form, and a card that names its origin."""

from __future__ import annotations

import hashlib
import tempfile
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Literal

import onnx

from onnxfr.errors import UnreadableModel
from onnxfr.exporters.base import EXPORTERS, Exported, Options, detect
from onnxfr.models.admission import Admission, admit, safe_name
from onnxfr.models.card import CARD_FILE, Source, write_card
from onnxfr.models.preprocessing import Preprocessing
from onnxfr.models.preprocessing_probe import LabelledPairs

Origin = Literal["stated", "measured", "source", "graph"]
"""Who decided the preprocessing: the user, the faces, the exporter's hint, or the graph itself."""


@dataclass(frozen=True)
class Export:
    """What was read, what was written, and who decided the preprocessing."""

    exported: Exported
    admission: Admission
    origin: Origin


def export_model(
    source: Path,
    folder: Path,
    *,
    framework: str | None = None,
    options: Options | None = None,
    preprocess: str | None = None,
    pairs: LabelledPairs | None = None,
    output: str | None = None,
    name: str | None = None,
    overwrite: bool = False,
) -> Export:
    """Turn a model of any known framework into a folder with normal form and card.

    Args:
        source: the model's file or folder; where it has two files, either one.
        folder: where to write; must not exist unless ``overwrite``.
        framework: name of an exporter; recognised from the content by default.
        options: architecture and picture size, where the source does not tell.
        preprocess: states the preprocessing, for example ``rgb,pm1``.
        pairs: labelled faces that decide the preprocessing, unless it is stated.
        output: name of the embedding among several answers.
        name: the model's name; the source's stem by default.
        overwrite: replace a model already there.
    """
    if not source.exists():
        raise UnreadableModel(f"{source}: expected a model file or folder, found none")
    chosen, place = (EXPORTERS.get(framework), source) if framework else detect(source)
    exported = chosen.export(place, options)
    told = (f"reader held against {chosen.checked}",) if chosen.checked else ()
    return write_model(
        replace(exported, notes=(*exported.notes, *told)),
        folder,
        source=_source_of(place),
        preprocess=preprocess,
        pairs=pairs,
        output=output,
        name=name or safe_name(place.stem),
        overwrite=overwrite,
    )


def write_model(
    exported: Exported,
    folder: Path,
    *,
    name: str,
    source: Source | None = None,
    preprocess: str | None = None,
    pairs: LabelledPairs | None = None,
    output: str | None = None,
    overwrite: bool = False,
) -> Export:
    """Turn an exported graph, also one that came from no file, into a model folder.

    Args:
        exported: what an exporter returned.
        folder: where to write; must not exist unless ``overwrite``.
        name: the model's name.
        source: the file the graph was read from.
        preprocess: states the preprocessing, for example ``rgb,pm1``.
        pairs: labelled faces that decide the preprocessing, unless it is stated.
        output: name of the embedding among several answers.
        overwrite: replace a model already there.
    """
    hint = exported.preprocessing
    origin: Origin = "source" if hint else "graph"
    if preprocess is not None:
        origin = "stated"
    elif pairs is not None:
        origin = "measured"
    elif hint is not None:
        preprocess = as_text(hint)
    with tempfile.TemporaryDirectory() as temporary:
        path = Path(temporary) / f"{safe_name(name)}.onnx"
        onnx.save_model(exported.model, path)
        admission = admit(
            path,
            folder,
            pairs=pairs,
            preprocess=preprocess,
            output=output,
            name=name,
            overwrite=overwrite,
            facts=_facts(exported, source),
        )
    card = admission.card.model_copy(update={"notes": (*exported.notes, *admission.card.notes)})
    write_card(card, folder / CARD_FILE)
    return Export(exported, _with_card(admission, card), origin)


def as_text(preprocessing: Preprocessing) -> str:
    """Return a preprocessing in the notation of ``--preprocess``."""
    if preprocessing.mean is None or preprocessing.std is None:
        return f"{preprocessing.color},{preprocessing.scaling}"
    mean, std = ("/".join(map(repr, part)) for part in (preprocessing.mean, preprocessing.std))
    return f"{preprocessing.color},mean={mean},std={std}"


def _with_card(admission: Admission, card: Any) -> Admission:
    return Admission(admission.folder, card, admission.probe, admission.hints, admission.output)


def _facts(exported: Exported, source: Source | None) -> dict[str, Any]:
    facts: dict[str, Any] = {"framework": exported.framework}
    if exported.architecture:
        facts["architecture"] = exported.architecture
    if exported.template:
        facts["template"] = exported.template
    if source is not None:
        facts["source"] = source
    return facts


def _source_of(place: Path) -> Source:
    if not place.is_file():
        return Source(file=place.name)
    with place.open("rb") as opened:
        return Source(file=place.name, sha256=hashlib.file_digest(opened, "sha256").hexdigest())
