"""Forward and backward to the input: our graph against the original module and onnx2torch.

Run: python benchmarks/torch_engine.py [--threads 1] [--batch 8] [--rounds 7] [NAME or FOLDER ...]

A name is an architecture with random weights; a folder is an admitted model, which has no original
module. Every contender is frozen and in evaluation mode; they take turns, the first place rotating,
and a ratio is the median over the rounds of theirs to ours: above 1, ours is faster. On one thread
the clock is processor time, which other work on the machine hardly changes.
"""

from __future__ import annotations

import argparse
import json
import statistics
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

import torch

from onnxfr.exporters.architectures import ARCHITECTURES
from onnxfr.exporters.pytorch import export_pytorch
from onnxfr.models.admission import admit
from onnxfr.models.second_opinion import second_opinion
from onnxfr.models.wrapper import OnnxModel, load_model

NAMES = (
    "iresnet18",
    "iresnet50",
    "ir_se_50",
    "mobilefacenet_foamliu",
    "mobilefacenet_112x96",
    "mobilenet_v2",
    "shufflenet_v2",
    "inception_resnet_v1",
    "vit_s",
    "edgeface_xxs",
)


Forward = Callable[[torch.Tensor], torch.Tensor]


def seconds(forward: Forward, images: torch.Tensor) -> float:
    clock = time.process_time if torch.get_num_threads() == 1 else time.perf_counter
    variable = images.clone(memory_format=torch.preserve_format).requires_grad_(True)
    begin = clock()
    torch.autograd.grad(forward(variable)[:, 0].sum(), variable)
    return clock() - begin


def measure(name: str, batch: int, rounds: int) -> dict[str, float | str | None]:
    if Path(name).is_dir():
        ours = load_model(name)
        return race(Path(name).name, ours, None, batch, rounds)
    architecture = ARCHITECTURES.get(name)
    torch.manual_seed(0)
    module = architecture.build().eval().requires_grad_(False)

    def original(x: torch.Tensor) -> torch.Tensor:
        answer = module(x)
        return torch.nn.functional.normalize(answer[0] if isinstance(answer, tuple) else answer)

    with tempfile.TemporaryDirectory() as folder:
        exported = export_pytorch(module, arch=name)
        path = Path(folder) / "net.onnx"
        path.write_bytes(exported.model.SerializeToString())
        admit(path, Path(folder) / "model", preprocess="rgb,0-1")
        return race(name, load_model(Path(folder) / "model"), original, batch, rounds)


def race(
    name: str, ours: OnnxModel, original: Forward | None, batch: int, rounds: int
) -> dict[str, float | str | None]:
    images = torch.rand(batch, 3, *ours.card.input_size)
    ours.embed_grad(images)
    opinion = second_opinion(ours.graph())
    contenders: dict[str, Forward] = {"ours": ours.embed_grad}
    if original is not None:
        contenders["original"] = original
    if opinion.module is not None:
        contenders["onnx2torch"] = opinion.module
    spent: dict[str, list[float]] = {key: [] for key in contenders}
    for turn in range(rounds + 1):
        order = list(contenders)
        for key in order[turn % len(order) :] + order[: turn % len(order)]:
            taken = seconds(contenders[key], images)
            if turn:
                spent[key].append(taken)
    ratio = {
        key: statistics.median(b / a for a, b in zip(spent["ours"], times, strict=True))
        for key, times in spent.items()
    }
    return {
        "model": name,
        "ms_per_image": 1000 * statistics.median(spent["ours"]) / batch,
        "vs_original": ratio.get("original"),
        "vs_onnx2torch": ratio.get("onnx2torch"),
        "why_not": opinion.why,
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--batch", type=int, default=8)
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument("--json", type=Path)
    parser.add_argument("names", nargs="*", default=NAMES)
    options = parser.parse_args()
    torch.set_num_threads(options.threads)
    rows = []
    print("| model | ms/image | vs original module | vs onnx2torch |\n|---|---|---|---|")
    for name in options.names:
        row = measure(name, options.batch, options.rounds)
        rows.append(row)
        against = [
            f"{row[key]:.2f} ×" if row[key] else without
            for key, without in (("vs_original", "–"), ("vs_onnx2torch", row["why_not"]))
        ]
        print(f"| {row['model']} | {row['ms_per_image']:.1f} | {' | '.join(against)} |", flush=True)
    if options.json:
        options.json.write_text(json.dumps(rows, indent=2))


if __name__ == "__main__":
    main()
