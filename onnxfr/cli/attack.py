"""``onnxfr attack``: one pair of pictures, one attack, and the picture that fools the model."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

import typer

from onnxfr.cli.verify import Align
from onnxfr.errors import DataError, SpecError
from onnxfr.types import Goal

if TYPE_CHECKING:
    from onnxfr.evaluators.attacked import Fought
    from onnxfr.models.wrapper import OnnxModel
    from onnxfr.probe import Probe
    from onnxfr.types import Images, Pixels


def attack(
    changed: Annotated[Path, typer.Argument(metavar="A", help="The picture that may be changed.")],
    reference: Annotated[Path, typer.Argument(metavar="B", help="The picture compared with.")],
    model: Annotated[str, typer.Option(help="Folder of an admitted model, or a zoo name.")],
    method: Annotated[
        str, typer.Option("--attack", help="As 'onnxfr ls attacks' names them: bim, fmn, ...")
    ] = "bim",
    eps: Annotated[
        str | None, typer.Option(help="Budget such as 4/255; default 8/255, or the smallest.")
    ] = None,
    norm: Annotated[str, typer.Option(help="linf or l2 (root mean square).")] = "linf",
    max_queries: Annotated[
        int | None, typer.Option(min=1, help="Most questions, and most gradients; default: no cap.")
    ] = None,
    goal: Annotated[
        Goal | None, typer.Option(help="Default: whatever the model does not say now.")
    ] = None,
    threshold: Annotated[
        float | None, typer.Option(help="Accept above this cosine; default: the card's first.")
    ] = None,
    align: Annotated[
        Align, typer.Option(help="Find and align faces; auto: unless A and B have the input size.")
    ] = Align.AUTO,
    landmarks: Annotated[
        str, typer.Option(help="For lgc: a 2d106det ONNX file, or accept-licence.")
    ] = "",
    seed: Annotated[int, typer.Option(help="Seed of every draw.")] = 0,
    output: Annotated[Path, typer.Option("--output", "-o", help="Folder for the pictures.")] = Path(
        "attack"
    ),
    as_json: Annotated[bool, typer.Option("--json", help="Print one JSON object.")] = False,
) -> None:
    """Change picture A so that the model decides otherwise about A and B, and write it.

    Example: onnxfr attack a.jpg b.jpg --model sface --attack bim --eps 4/255 -o out
    """
    from onnxfr.attacks import make_attack
    from onnxfr.budgets import read_eps
    from onnxfr.evaluators.attacked import Rules, fight
    from onnxfr.metrics.thresholds import Threshold, checked_cosine
    from onnxfr.models.wrapper import load_model
    from onnxfr.threat import Threat

    how, loaded = make_attack(method), load_model(model)
    budget = read_eps(eps) if eps is not None else None if how.seeks == "smallest" else 8 / 255
    probe, cut = _probe(loaded, changed, reference, align)
    cosine = float(loaded.similarity(probe.images, _references(probe))[0])
    limit = _card_threshold(loaded) if threshold is None else Threshold(checked_cosine(threshold))
    if goal is None:
        goal = Goal.DODGE if cosine > limit.value else Goal.IMPERSONATE
    probe = _with_needs(probe, how, landmarks, cut)
    rules = Rules(
        goal=goal,
        threat=Threat(norm=_norm(norm), eps=budget, max_queries=max_queries),
        threshold=limit,
        seed=seed,
    )
    _make_folder(output)
    fought = fight(loaded, probe, how, rules)
    judged = rules.threat.as_file(probe.images, fought.result.images)
    files = _write(output, probe, judged)
    answer = _answer(fought, loaded.card.name, how.label, cosine) | {"files": files}
    typer.echo(json.dumps(answer, indent=1) if as_json else _tell(answer))


def _norm(text: str) -> Literal["linf", "l2"]:
    if text == "linf":
        return "linf"
    if text == "l2":
        return "l2"
    raise SpecError(f"a norm is linf or l2; got {text!r}")


def _card_threshold(model: OnnxModel) -> Any:
    from onnxfr.metrics.thresholds import Threshold

    if not model.card.thresholds:
        raise SpecError(f"the card of {model.card.name} has no threshold; give --threshold")
    entry = model.card.threshold()
    return Threshold(entry.value, entry.origin)


def _probe(
    model: OnnxModel, changed: Path, reference: Path, align: Align
) -> tuple[Probe, str | None]:
    """Return the game and the template its crops were cut to here, if they were."""
    from onnxfr.data.images import decode
    from onnxfr.probe import Probe

    pixels = []
    for path in (changed, reference):
        if not path.is_file():
            raise DataError(f"no picture at {path}")
        pixels.append(decode(path.read_bytes(), path.name))
    fits = all(picture.shape[:2] == model.card.input_size for picture in pixels)
    cut = align is Align.YES or (align is Align.AUTO and not fits)
    if cut:
        pixels = [
            _aligned(model, path, each)
            for path, each in zip((changed, reference), pixels, strict=True)
        ]
    images = [_fitted(picture, model.card.input_size) for picture in pixels]
    probe = Probe(images[0], (f"{changed.name} {reference.name}",), references=images[1])
    return probe, model.card.template if cut else None


def _aligned(model: OnnxModel, path: Path, pixels: Pixels) -> Pixels:
    from onnxfr.alignment.aligner import Aligner, Rejection

    found = Aligner(model.card.template, model.card.input_size).align(pixels)
    if isinstance(found, Rejection):
        raise DataError(f"{path.name}: {found.reason}; give an aligned crop and --align no")
    return found.pixels


def _fitted(pixels: Pixels, size: tuple[int, int]) -> Images:
    import numpy as np

    from onnxfr.data.images import to_images
    from onnxfr.models.geometry import fit_array

    # Interpolation may leave [0, 1] by a rounding error, which a probe would refuse.
    return np.clip(fit_array(to_images([pixels]), size), 0.0, 1.0)


def _references(probe: Probe) -> Images:
    assert probe.references is not None, "made with its reference"
    return probe.references


def _with_needs(probe: Probe, how: Any, landmarks: str, template: str | None) -> Probe:
    from dataclasses import replace

    from onnxfr.evaluators.attacked import check_needs, needs_of
    from onnxfr.evaluators.landmarks import find_landmarks
    from onnxfr.paths import cache_dir
    from onnxfr.runs.context import Context

    check_needs((how,), landmarks)
    needs = needs_of(how)
    if "pool" in needs:
        raise SpecError(f"{how.label} needs other people's faces; run it on a data set instead")
    if "landmarks" not in needs:
        return probe
    context = Context(cache_dir() / "embeddings")
    found = find_landmarks(context, probe.images, landmarks, template)
    return replace(probe, landmarks=found)


def _make_folder(folder: Path) -> None:
    """Make the folder before the attack begins; a picture's name is taken for a slip."""
    from onnxfr.data.images import SUFFIXES
    from onnxfr.runs.files import explained

    if folder.suffix.lower() in SUFFIXES and not folder.is_dir():
        raise SpecError(
            f"--output names the folder of the pictures made; {folder.name} would be one picture: "
            f"give {folder.with_suffix('')}"
        )
    with explained(folder, kept=""):
        folder.mkdir(parents=True, exist_ok=True)


def _write(folder: Path, probe: Probe, images: Images) -> dict[str, str]:
    """Write the pictures the judge has seen, rounded as he had them; no file is left half."""
    import numpy as np

    from onnxfr.evaluators.pictures import png, to_pixels
    from onnxfr.runs.files import write_atomically

    change = images[0] - probe.images[0]
    gain = 0.5 / max(float(np.abs(change).max()), 1e-6)
    pictures = {
        "clean": probe.images[0],
        "adversarial": images[0],
        "difference": 0.5 + gain * change,
        "reference": _references(probe)[0],
    }
    files = {}
    for name, picture in pictures.items():
        place = folder / f"{name}.png"
        write_atomically(place, png(to_pixels(picture)), kept="")
        files[name] = str(place)
    return files


def _answer(fought: Fought, model: str, label: str, cosine: float) -> dict[str, Any]:
    result, rules = fought.result, fought.rules
    sign = -1.0 if rules.goal is Goal.DODGE else 1.0
    limit = rules.threshold

    def similarity(margin: float) -> float:
        return limit.value + sign * margin

    return {
        "model": model,
        "attack": label,
        "goal": str(rules.goal),
        "norm": rules.threat.norm,
        "eps": rules.threat.eps,
        "threshold": limit.value,
        "threshold_origin": limit.origin,
        "similarity_before": cosine,
        "similarity_after": similarity(float(result.margin[0])),
        "similarity_8bit": similarity(float(result.margin_8bit[0])),
        "won": bool(result.won[0]),
        "won_8bit": bool(result.won_8bit[0]),
        "won_clean": bool(result.won_clean[0]),
        "distance": float(result.distance[0]),
        "grey_levels": 255 * float(result.distance[0]),
        "queries": int(result.queries[0]),
        "gradients": int(result.gradients[0]),
    }


def _tell(answer: dict[str, Any]) -> str:
    if answer["won_clean"]:
        outcome = "nothing to do: the model decides so without an attack"
    elif answer["won"]:
        kept = "also" if answer["won_8bit"] else "no longer"
        outcome = f"won; {kept} as an 8-bit file (similarity {answer['similarity_8bit']:.4f})"
    else:
        outcome = "not won"
    return "\n".join(
        [
            f"{answer['attack']} on {answer['model']}, {answer['goal']}: {outcome}",
            f"similarity  {answer['similarity_before']:.4f} -> {answer['similarity_after']:.4f}, "
            f"threshold {answer['threshold']:.4f} ({answer['threshold_origin']})",
            f"change      {answer['grey_levels']:.2f} grey levels ({answer['norm']}), "
            f"{answer['gradients']} gradients, {answer['queries']} queries",
            f"pictures    {Path(answer['files']['adversarial']).parent}",
        ]
    )
