"""``onnxfr serve``: a model as the verification service a vendor would sell."""

from __future__ import annotations

from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from onnxfr.errors import SpecError

if TYPE_CHECKING:
    from onnxfr.service.query_watch import WatchSettings
    from onnxfr.service.verifier import ScoreScale, Verifier


class Mode(StrEnum):
    """What the service tells."""

    DECISION = "decision"
    SCORE = "score"


class Watch(StrEnum):
    """What happens to clients whose questions look like an attack."""

    OFF = "off"
    FLAG = "flag"
    BLOCK = "block"


class Feature(StrEnum):
    """What the watch takes distances between."""

    PIXELS = "pixels"
    EMBEDDING = "embedding"


def serve(
    model: Annotated[str, typer.Argument(help="Folder of an admitted model, or a zoo name.")],
    threshold: Annotated[
        float | None, typer.Option(help="Cosine above which faces match; default the card's first.")
    ] = None,
    mode: Annotated[Mode, typer.Option(help="Tell decisions only, or scores too.")] = Mode.DECISION,
    score_range: Annotated[
        str, typer.Option(help="Range onto which cosines -1..1 are told, LOW:HIGH.")
    ] = "0:100",
    decimals: Annotated[int, typer.Option(help="Decimals of a score.")] = 2,
    align: Annotated[
        bool, typer.Option(help="Detect and align faces; without, pictures are aligned crops.")
    ] = True,
    host: Annotated[str, typer.Option(help="Address to listen on.")] = "127.0.0.1",
    port: Annotated[
        int, typer.Option(min=0, max=65535, help="Port to listen on; 0 takes a free one.")
    ] = 8600,
    keys: Annotated[
        Path | None, typer.Option(help="TOML file of API keys; required unless loopback.")
    ] = None,
    per_second: Annotated[
        float | None, typer.Option(min=1e-3, help="Requests per second and client.")
    ] = None,
    per_day: Annotated[int | None, typer.Option(min=1, help="Requests per day and client.")] = None,
    max_bytes: Annotated[int, typer.Option(min=1000, help="Largest request body.")] = 8_000_000,
    body_seconds: Annotated[
        float, typer.Option(min=0.1, help="Seconds in which a body must arrive.")
    ] = 30.0,
    max_pixels: Annotated[int, typer.Option(min=1024, help="Largest picture.")] = 16_000_000,
    max_batch: Annotated[int, typer.Option(min=2, help="Pictures per call of the model.")] = 64,
    watch: Annotated[
        Watch, typer.Option(help="Look for attacks by many similar questions.")
    ] = Watch.OFF,
    watch_feature: Annotated[
        Feature, typer.Option(help="What similarity of questions means.")
    ] = Feature.PIXELS,
    watch_distance: Annotated[
        float | None, typer.Option(help="Mean distance that counts as similar.")
    ] = None,
) -> None:
    """Answer over HTTP whether two pictures show the same person; see docs/service.md.

    Example: onnxfr serve sface --mode score --port 8600
    """
    from onnxfr.service.keys import Limits, read_keys
    from onnxfr.service.running import serve as run_service
    from onnxfr.service.settings import ServiceSettings

    scale = None if mode is Mode.DECISION else _scale(score_range, decimals)
    settings = ServiceSettings(
        keys=None if keys is None else read_keys(keys),
        limits=Limits(per_second, per_day),
        max_bytes=max_bytes,
        body_seconds=body_seconds,
        max_batch=max_batch,
        watch=_watch(watch, watch_feature, watch_distance),
    )
    verifier = _verifier(model, threshold, align, scale, max_pixels)

    def tell(address: str) -> None:
        typer.echo(
            f"{verifier.model.name} answers {mode.value}s at {address}/v1/verify "
            f"(threshold {verifier.threshold:g}; description {address}/openapi.json)"
        )

    run_service(verifier, settings, host=host, port=port, ready=tell)


def _verifier(
    model: str, threshold: float | None, align: bool, scale: ScoreScale | None, max_pixels: int
) -> Verifier:
    from onnxfr.alignment.aligner import Aligner
    from onnxfr.models.wrapper import load_model
    from onnxfr.service.verifier import Verifier

    loaded = load_model(model)
    card = loaded.card
    return Verifier(
        loaded,
        card.threshold().value if threshold is None else threshold,
        aligner=Aligner(card.template, card.input_size) if align else None,
        scale=scale,
        max_pixels=max_pixels,
    )


def _scale(text: str, decimals: int) -> ScoreScale:
    from onnxfr.service.verifier import ScoreScale

    low, _, high = text.partition(":")
    try:
        return ScoreScale(float(low), float(high), decimals)
    except ValueError:
        raise SpecError(f"a score range is LOW:HIGH, such as 0:100; got {text!r}") from None


def _watch(watch: Watch, feature: Feature, distance: float | None) -> WatchSettings | None:
    from onnxfr.service.query_watch import WatchSettings

    if watch is Watch.OFF:
        return None
    return WatchSettings(
        action="block" if watch is Watch.BLOCK else "flag",
        feature="embedding" if feature is Feature.EMBEDDING else "pixels",
        distance=distance,
    )
